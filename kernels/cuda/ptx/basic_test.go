package ptx

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rig is a loaded testdata file with a memory.
type rig struct {
	t   testing.TB
	mem *Memory
	in  *Instance
}

func load(t testing.TB, name string) *rig {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return loadText(t, text)
}

func loadText(t testing.TB, text []byte) *rig {
	t.Helper()
	src, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	mem := NewMemory()
	in, err := Load(mem, src)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, mem, in}
}

// alloc gives memory that holds v, or for an int that many bytes nobody wrote.
func (r *rig) alloc(v any) uint64 {
	r.t.Helper()
	if n, ok := v.(int); ok {
		addr, err := r.mem.Alloc(n)
		if err != nil {
			r.t.Fatal(err)
		}
		return addr
	}
	b := raw(v)
	addr, err := r.mem.Alloc(len(b))
	if err == nil {
		err = r.mem.Write(addr, b)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return addr
}

func raw(v any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

func read[T any](r *rig, addr uint64, n int) []T {
	r.t.Helper()
	out := make([]T, n)
	b := make([]byte, binary.Size(out))
	if err := r.mem.Read(addr, b); err != nil {
		r.t.Fatal(err)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, out); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) run(kernel string, grid, block [3]int, shared int, seed uint64, args ...any) *Result {
	r.t.Helper()
	k, err := r.in.Kernel(kernel)
	if err != nil {
		r.t.Fatal(err)
	}
	l := Launch{Grid: grid, Block: block, SharedBytes: shared, Seed: seed}
	for _, a := range args {
		l.Args = append(l.Args, raw(a))
	}
	res, err := k.Launch(l)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *rig) clean(res *Result) *Result {
	r.t.Helper()
	for _, f := range res.Faults {
		r.t.Errorf("fault: %v", f)
	}
	return res
}

func x(n int) [3]int { return [3]int{n, 1, 1} }

func TestPTXIsMadeFromItsSource(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.cu")
	if len(files) == 0 {
		t.Fatal("no sources")
	}
	for _, cu := range files {
		src, err := os.ReadFile(cu)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^#include "(.*)"`).FindAllSubmatch(src, -1) {
			h, err := os.ReadFile(filepath.Join("testdata", string(m[1])))
			if err != nil {
				t.Fatal(err)
			}
			src = append(src, h...)
		}
		text, err := os.ReadFile(strings.TrimSuffix(cu, ".cu") + ".ptx")
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("// source sha256 %x\n// nvcc release ", sha256.Sum256(src))
		if !strings.HasPrefix(string(text), want) {
			t.Errorf("%s changed since its PTX was made: run testdata/build.sh", cu)
		}
	}
}

func TestSaxpyTouchesEveryByteOnce(t *testing.T) {
	for seed := range uint64(3) {
		r := load(t, "basic.ptx")
		n := 1000
		xs, ys := make([]float32, n), make([]float32, n)
		for i := range xs {
			xs[i], ys[i] = float32(i)*0.5, float32(i%7)
		}
		px, py := r.alloc(xs), r.alloc(ys)
		c := r.clean(r.run("saxpy", x(8), x(128), 0, seed, py, px, float32(3), int32(n))).Counters
		for i, got := range read[float32](r, py, n) {
			if want := 3*xs[i] + ys[i]; got != want {
				t.Fatalf("y[%d] = %v, want %v", i, got, want)
			}
		}
		if c.UniqueReadBytes != 8000 || c.UniqueWriteBytes != 4000 || c.DRAMReadBytes != 8000 || c.GlobalLoads.Sectors != 250 || c.GlobalLoads.Efficiency != 1 {
			t.Errorf("counters: %+v", c)
		}
	}
}

func pathsReference(v int32) float32 {
	poly := func(x float32, n int32) float32 {
		s := float32(0)
		for i := range n {
			s = float32(math.FMA(float64(s), float64(x), float64(i)))
		}
		return s
	}
	orig := v
	r := float32(0)
	for ; v > 0; v >>= 1 {
		if v&1 != 0 {
			r += poly(r, v&3)
		} else if v&2 != 0 {
			r--
		}
	}
	table := []float32{1, 2.5, -3, 4}
	switch orig {
	case 0:
		r++
	case 1:
		r *= 2
	case 2:
		r -= table[1]
	case 3:
		r += table[2]
	case 4:
		r = 7
	case 5:
		r = -r
	case 6:
		r += 9
	case 7:
		r *= r
	case 8:
		r += 0.5
	case 9:
		r = table[orig&3]
	}
	return r + float32((orig&7)*orig)
}

func TestDivergentPathsMeetAgain(t *testing.T) {
	r := load(t, "basic.ptx")
	n := 117
	xs := make([]int32, n)
	for i := range xs {
		xs[i] = int32(i * 7 % 23)
	}
	py := r.alloc(4 * n)
	r.clean(r.run("paths", x(2), x(64), 0, 5, py, r.alloc(xs), int32(n)))
	for i, got := range read[float32](r, py, n) {
		if want := pathsReference(xs[i]); got != want {
			t.Errorf("x = %d: %v, want %v", xs[i], got, want)
		}
	}
}

func TestLastBlockSeesWhatOthersFenced(t *testing.T) {
	for seed := range uint64(4) {
		r := load(t, "basic.ptx")
		n := 5000
		xs := make([]float32, n)
		want := float32(0)
		for i := range xs {
			xs[i] = float32(i % 13)
			want += xs[i]
		}
		out := r.alloc(4)
		r.clean(r.run("sum", x(9), x(96), 0, seed, r.alloc(xs), r.alloc(4*9), out, int32(n)))
		if got := read[float32](r, out, 1)[0]; got != want {
			t.Errorf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

func TestLanesThatWaitForEachOtherGetOn(t *testing.T) {
	r := load(t, "basic.ptx")
	lock, value := r.alloc([]int32{0}), r.alloc([]int32{0})
	r.clean(r.run("locked", x(3), x(64), 0, 1, lock, value))
	if got := read[int32](r, value, 1)[0]; got != 192 {
		t.Errorf("%d increments, want 192", got)
	}
}

func TestBankConflictsAreCounted(t *testing.T) {
	for _, c := range []struct {
		kernel    string
		conflicts uint64
	}{{"transpose_padded", 0}, {"transpose_plain", 32 * 31}} {
		r := load(t, "basic.ptx")
		xs := make([]float32, 1024)
		for i := range xs {
			xs[i] = float32(i)
		}
		py := r.alloc(4096)
		res := r.clean(r.run(c.kernel, x(1), [3]int{32, 8, 1}, 0, 3, py, r.alloc(xs)))
		for i, got := range read[float32](r, py, 1024) {
			if want := float32(i%32*32 + i/32); got != want {
				t.Fatalf("y[%d] = %v, want %v", i, got, want)
			}
		}
		if res.Counters.BankConflicts != c.conflicts {
			t.Errorf("%s: %d conflicts, want %d", c.kernel, res.Counters.BankConflicts, c.conflicts)
		}
	}
}

func TestTensorProductThroughAsyncCopies(t *testing.T) {
	r := load(t, "basic.ptx")
	a, b := make([]uint16, 256), make([]uint16, 128)
	va := func(i int) float64 { return float64(i%11) - 5 }
	vb := func(i int) float64 { return float64(i%7) * 0.25 }
	for i := range a {
		a[i] = uint16(fp16.narrow(va(i), rn))
	}
	for i := range b {
		b[i] = uint16(fp16.narrow(vb(i), rn))
	}
	y := r.alloc(4 * 128)
	res := r.clean(r.run("product", x(1), x(32), 0, 0, y, r.alloc(a), r.alloc(b)))
	for i, got := range read[float32](r, y, 128) {
		want := 0.0
		for k := range 16 {
			want += va(i/8*16+k) * vb(k*8+i%8)
		}
		if float64(got) != want {
			t.Errorf("y[%d,%d] = %v, want %v", i/8, i%8, got, want)
		}
	}
	if res.Counters.MMA != 1 {
		t.Errorf("%d mma, want 1", res.Counters.MMA)
	}
}

func TestWarpWideInstructions(t *testing.T) {
	r := load(t, "basic.ptx")
	xs := make([]uint32, 32)
	var ballot, sum, most, xor, odd uint32
	for i := range xs {
		xs[i] = uint32(i*i) % 9
		ballot |= xs[i] & 1 << i
		sum += xs[i]
		most = max(most, xs[i])
		xor ^= xs[i]
		odd |= xs[i] >> 1 & 1 << i
	}
	y := r.alloc(4 * 16 * 32)
	r.clean(r.run("warp_ops", x(1), x(32), 0, 0, y, r.alloc(xs)))
	got := read[uint32](r, y, 512)
	for l := range 32 {
		same := uint32(0)
		for k := range xs {
			if xs[k] == xs[l] {
				same |= 1 << k
			}
		}
		up, down := l-3, l+2
		if up < 0 {
			up = l
		}
		if down > l|15 {
			down = l
		}
		last := uint32(0x1fff)
		if l >= 13 {
			last = odd & 0xffffe000
		}
		want := []uint32{ballot, 0, 1, same, 0, 0, sum, most, xs[l^5], xs[up], xs[l&^7|(l+7)&7], xs[down], uint32(bits.OnesCount32(ballot)), 0, xor, last}
		for j, w := range want {
			if j == 13 || j == 1 { // whether some lane holds 3
				w = 0
				for _, v := range xs {
					if v == 3 {
						w = 1
					}
				}
			}
			if g := got[l*16+j]; g != w {
				t.Errorf("lane %d result %d: %#x, want %#x", l, j, g, w)
			}
		}
	}
}

func TestBlocksThatWaitForAllOthersGetOn(t *testing.T) {
	const n = 60
	r := load(t, "basic.ptx")
	out := r.alloc(4 * (n + 64*n))
	res := r.clean(r.run("grid_barrier", x(n), x(64), 0, 2, r.alloc([]int32{0}), out, int32(n)))
	for i, got := range read[int32](r, out, n+64*n)[n:] {
		if want := int32((i/64+1)%n*3 + i%64); got != want {
			t.Fatalf("out[%d] = %d, want %d", i, got, want)
		}
	}
	if res.Counters.MaxLiveBlocks != n {
		t.Errorf("%d blocks were live at once, want %d", res.Counters.MaxLiveBlocks, n)
	}
}
