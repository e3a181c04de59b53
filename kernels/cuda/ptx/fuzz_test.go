package ptx

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// FuzzCompile: whatever the text, the answer is kernels or an *Error, never a panic.
func FuzzCompile(f *testing.F) {
	text, err := os.ReadFile("testdata/basic.ptx")
	if err != nil {
		f.Fatal(err)
	}
	// One seed a kernel: small inputs mutate better.
	head, rest, _ := strings.Cut(string(text), ".address_size 64")
	for _, part := range strings.Split(rest, "// .globl") {
		f.Add(head + ".address_size 64\n//" + part)
	}
	f.Add(".version 7.8\n.target sm_80\n.address_size 64\n.entry k() { .reg .b32 %r<3>; ts: .branchtargets a, b; brx.idx %r1, ts; a: { .reg .b32 t; mov.b32 t, 1; } b: ret; }")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		var bad *Error
		src, err := Parse([]byte(text))
		if err != nil {
			if !errors.As(err, &bad) {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		size := 0
		for _, v := range src.vars {
			size += v.size
		}
		if size > 1<<20 {
			return
		}
		in, err := Load(NewMemory(), src)
		if err != nil {
			if !errors.As(err, &bad) {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		for _, name := range src.Entries() {
			if _, err := in.Kernel(name); err != nil && !errors.As(err, &bad) {
				t.Fatalf("error of type %T: %v", err, err)
			}
		}
	})
}
