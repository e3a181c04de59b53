package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// open returns a device on the interpreter.
func open(t testing.TB, seed uint64) *Device {
	t.Helper()
	d, err := Open(driver.NewInterpreter(seed), Options{WorkspaceBytes: 8 << 20, StepBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// include is a line that takes in another file of this folder.
var include = regexp.MustCompile(`(?m)^#include "(.*)"`)

func TestPTXIsOfItsSource(t *testing.T) {
	sources, err := filepath.Glob("*.cu")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	texts, _ := filepath.Glob("*.ptx")
	if len(texts) != len(sources) {
		t.Errorf("%d .cu and %d .ptx", len(sources), len(texts))
	}
	for _, cu := range sources {
		src, err := os.ReadFile(cu)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		sum.Write(src)
		for _, m := range include.FindAllSubmatch(src, -1) {
			more, err := os.ReadFile(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			sum.Write(more)
		}
		text, err := os.ReadFile(strings.TrimSuffix(cu, ".cu") + ".ptx")
		if err != nil {
			t.Fatal(err)
		}
		head := strings.SplitN(string(text), "\n", 3)
		if want := "// source sha256 " + hex.EncodeToString(sum.Sum(nil)); head[0] != want {
			t.Errorf("%s: compiled from another source: run `make cuda`", cu)
		}
		if strings.Contains(head[2], ", function_name ") {
			t.Errorf("%s: names of inlined functions lie in debug sections that are cut off, and the assembler misses them: run `make cuda`", cu)
		}
		if !strings.HasPrefix(head[1], "// nvcc release 11.8") {
			t.Errorf("%s: compiled with %q", cu, head[1])
		}
	}
}

func TestGatherRows(t *testing.T) {
	d := open(t, 1)
	defer d.Close()
	v, err := d.LoadVector([]float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		t.Fatal(err)
	}
	x := kernels.Tensor{Buf: v.Buf, Rows: 3, Cols: 2, Stride: 2}
	b, _ := d.Alloc(16)
	dst := kernels.Tensor{Buf: b, Rows: 2, Cols: 2, Stride: 2}
	d.Begin()
	d.GatherRows(dst, x, d.Upload(kernels.Ints{Host: []int32{2, 0}}))
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 16)
	if err := d.CopyOut(got, b); err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\xa0\x40\x00\x00\xc0\x40\x00\x00\x80\x3f\x00\x00\x00\x40"; string(got) != want {
		t.Errorf("got % x, want % x", got, want)
	}
}
