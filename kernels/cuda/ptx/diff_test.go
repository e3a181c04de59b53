package ptx

import (
	"encoding/binary"
	"os"
	"regexp"
	"testing"
)

// TestArithmeticEqualsTheHostCompilers runs diff.h's operations as compiled by nvcc and compares
// every bit with what g++ made of the same operations.
func TestArithmeticEqualsTheHostCompilers(t *testing.T) {
	head, err := os.ReadFile("testdata/diff.h")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^    OP\((\w+),`).FindAllSubmatch(head, -1) {
		names = append(names, string(m[1]))
	}
	want, err := os.ReadFile("testdata/diff.expected")
	if err != nil {
		t.Fatal(err)
	}
	const n = 256
	row := 8 * (5 + len(names))
	if len(want) != n*row || len(names) < 100 {
		t.Fatalf("diff.expected has %d bytes for %d operations", len(want), len(names))
	}
	var in []byte
	for i := range n {
		in = append(in, want[i*row:i*row+40]...)
	}
	r := load(t, "diff.ptx")
	out := r.alloc(8 * n * len(names))
	r.clean(r.run("results", x(4), x(64), 0, 0, out, r.alloc(in), int32(n), int32(len(names))))
	got := read[uint64](r, out, n*len(names))
	bad := map[string]int{}
	for i := range n {
		for j, name := range names {
			w := binary.LittleEndian.Uint64(want[i*row+40+8*j:])
			if g := got[i*len(names)+j]; g != w {
				if bad[name]++; bad[name] <= 3 {
					b := in[40*i:]
					t.Errorf("%s(%#x, %#x, %#x, %#x, %#x) = %#x, want %#x", name, binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]),
						binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:]), binary.LittleEndian.Uint64(b[32:]), g, w)
				}
			}
		}
	}
	for name, k := range bad {
		t.Errorf("%s: %d of %d differ", name, k, n)
	}
}
