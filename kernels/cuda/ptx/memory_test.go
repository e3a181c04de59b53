package ptx

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// resident is this process's memory in bytes.
func resident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc here")
	}
	n, err := strconv.Atoi(regexp.MustCompile(`VmRSS:\s+(\d+)`).FindStringSubmatch(string(status))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

const touchPTX = `.version 7.8
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 at) {
	.reg .b32 %r<4>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [at];
	ld.global.u32 %r1, [%rd1];
	add.s32 %r1, %r1, 1;
	st.global.u32 [%rd1], %r1;
	ret;
}
`

func touchAt(t *testing.T, r *rig, at uint64) *Result {
	t.Helper()
	k, err := r.in.Kernel("touch")
	if err != nil {
		t.Fatal(err)
	}
	res, err := k.Launch(Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: [][]byte{raw([]uint64{at})}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestMemoryNeverTouchedCostsNothing(t *testing.T) {
	r := loadText(t, []byte(touchPTX))
	before := resident(t)
	const size = 2 << 30
	arena := r.alloc(size)
	if err := r.mem.Fill(arena, 0, size-3); err != nil { // not all: what was written is still followed
		t.Fatal(err)
	}
	for i := range 4 {
		at := arena + uint64(i)*(size/4) + 4096
		for want := range 2 {
			if res := touchAt(t, r, at); len(res.Faults) > 0 || res.Counters.DRAMReadBytes != 32 || res.Counters.UniqueWriteBytes != 4 {
				t.Fatalf("%v, %+v", res.Faults, res.Counters)
			}
			b := make([]byte, 4)
			if err := r.mem.Read(at, b); err != nil || int(b[0]) != want+1 {
				t.Fatalf("read % x, %v", b, err)
			}
		}
	}
	if took := resident(t) - before; took > 128<<20 {
		t.Errorf("2 GiB of which little was touched take %d MiB", took>>20)
	}
	// Of the last three bytes nobody wrote one.
	if res := touchAt(t, r, arena+size-4); len(res.Faults) != 1 || res.Faults[0].Kind != "uninitialized" {
		t.Errorf("%v", res.Faults)
	}
	if err := r.mem.Free(arena); err != nil {
		t.Fatal(err)
	}
}

func TestFillOfWrittenMemoryGivesZeros(t *testing.T) {
	m := NewMemory()
	for _, size := range []int{5000, 3 << 20} {
		x, err := m.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		b := []byte(strings.Repeat("x", size))
		if err := m.Write(x, b); err != nil {
			t.Fatal(err)
		}
		if err := m.Fill(x+7, 0, size-20); err != nil {
			t.Fatal(err)
		}
		if err := m.Read(x, b); err != nil {
			t.Fatal(err)
		}
		if want := strings.Repeat("x", 7) + strings.Repeat("\x00", size-20) + strings.Repeat("x", 13); string(b) != want {
			t.Errorf("%d bytes: not as filled", size)
		}
	}
}

func TestWhatTheHostWroteIsFollowedByTheByte(t *testing.T) {
	m := NewMemory()
	for _, size := range []int{20000, 2 << 20} {
		x, err := m.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []struct{ off, n, sum int }{{100, 1, 1}, {4095, 2, 3}, {5000, 9000, 9003}, {4096, 4096, 9003 + 5000 - 4097}} {
			if err := m.Fill(x+uint64(w.off), 1, w.n); err != nil {
				t.Fatal(err)
			}
			if got, err := m.Written(x, size); err != nil || got != w.sum {
				t.Errorf("after %d bytes at %d: %d written, want %d (%v)", w.n, w.off, got, w.sum, err)
			}
		}
	}
}

func TestHostMemoryIsReachedByKernels(t *testing.T) {
	r := loadText(t, []byte(touchPTX))
	host, addr, err := r.mem.AllocHost(4096)
	if err != nil {
		t.Fatal(err)
	}
	host[40] = 6
	if res := touchAt(t, r, addr+40); len(res.Faults) > 0 {
		t.Fatal(res.Faults)
	}
	if host[40] != 7 {
		t.Errorf("host sees %d", host[40])
	}
}
