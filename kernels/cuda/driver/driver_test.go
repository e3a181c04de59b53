package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

// testPTX has three entries: scale multiplies n floats by a factor, through dynamic shared memory; past writes behind what it
// is given; and counter adds to a variable of the module.
const testPTX = `.version 7.8
.target sm_80
.address_size 64
.extern .shared .align 4 .b8 room[];
.global .align 4 .u32 calls;
.visible .entry scale(.param .u64 x, .param .f32 by, .param .u32 n) {
	.reg .pred %p<2>; .reg .f32 %f<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
	ld.param.u64 %rd1, [x];
	ld.param.f32 %f1, [by];
	ld.param.u32 %r1, [n];
	cvta.to.global.u64 %rd2, %rd1;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra $done;
	mul.wide.u32 %rd3, %r5, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.f32 %f2, [%rd4];
	shl.b32 %r6, %r4, 2;
	mov.u32 %r7, room;
	add.s32 %r6, %r6, %r7;
	st.shared.f32 [%r6], %f2;
	ld.shared.f32 %f2, [%r6];
	mul.rn.f32 %f3, %f2, %f1;
	st.global.f32 [%rd4], %f3;
$done:
	ret;
}
.visible .entry past(.param .u64 x, .param .u64 bytes) {
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [x];
	ld.param.u64 %rd2, [bytes];
	add.s64 %rd3, %rd1, %rd2;
	st.global.u64 [%rd3], %rd2;
	ret;
}
.visible .entry counter(.param .u64 out) {
	.reg .b32 %r<4>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out];
	ld.global.u32 %r1, [calls];
	add.s32 %r2, %r1, 1;
	st.global.u32 [calls], %r2;
	st.global.u32 [%rd1], %r2;
	ret;
}
`

func floats(v ...float32) []byte {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func read32(b []byte) (v []float32) {
	for ; len(b) >= 4; b = b[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return v
}

// must fails the test on an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// on returns a helper that fails the test when a call with a result has an error.
func on[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// suite runs over every driver that computes.
func suite(t *testing.T, drv Driver) {
	ctx := on[Context](t)(drv.OpenContext(0))
	defer func() { must(t, drv.CloseContext(ctx)) }()
	must(t, drv.SetContext(ctx))
	s := on[Stream](t)(drv.NewStream())
	m := on[Module](t)(drv.LoadModule([]byte(testPTX)))
	scale := on[Function](t)(drv.Function(m, "scale"))
	x := on[uint64](t)(drv.Alloc(16))
	twice := []uint64{x, uint64(math.Float32bits(2)), 4}
	get := func(from uint64) []float32 {
		t.Helper()
		b := make([]byte, 16)
		must(t, drv.CopyToHost(b, from, s))
		return read32(b)
	}
	same := func(got []float32, want ...float32) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	launch := func(args []uint64) error {
		return drv.Launch(scale, [3]int{2, 1, 1}, [3]int{2, 1, 1}, 8, s, args)
	}

	t.Run("launch", func(t *testing.T) {
		must(t, drv.CopyToDevice(x, floats(1, 2, 3, 4), s), launch(twice))
		same(get(x), 2, 4, 6, 8)
	})

	t.Run("copies and fills are ordered on the stream", func(t *testing.T) {
		y := on[uint64](t)(drv.Alloc(16))
		src := floats(1, 1, 1, 1)
		must(t, drv.CopyToDevice(x, src, s))
		clear(src) // it was read
		must(t, drv.CopyOnDevice(y, x, 16, s), launch(twice), drv.Fill(x+4, 0, 8, s))
		same(get(y), 1, 1, 1, 1)
		same(get(x), 2, 0, 0, 2)
		must(t, drv.SyncStream(s), drv.Free(y))
	})

	t.Run("kernels reach pinned memory", func(t *testing.T) {
		host, addr, err := drv.AllocHost(16)
		must(t, err)
		copy(host, floats(5, 6, 7, 8))
		must(t, launch([]uint64{addr, twice[1], 4}), drv.SyncStream(s))
		same(read32(host), 10, 12, 14, 16)
		must(t, drv.FreeHost(host))
	})

	t.Run("a graph reads pinned memory when it runs", func(t *testing.T) {
		host, _, err := drv.AllocHost(16)
		must(t, err)
		must(t, drv.Fill(x, 0, 16, s), drv.SyncStream(s))
		must(t, drv.BeginCapture(s), drv.CopyToDevice(x, host, s), launch(twice), launch(twice))
		g := on[Graph](t)(drv.EndCapture(s))
		same(get(x), 0, 0, 0, 0)
		e := on[GraphExec](t)(drv.Instantiate(g))
		must(t, drv.CloseGraph(g))
		for _, first := range []float32{1, 10} {
			copy(host, floats(first, 2, 3, 4))
			must(t, drv.LaunchGraph(e, s), drv.SyncStream(s))
			same(get(x), 4*first, 8, 12, 16)
		}
		must(t, drv.CloseGraphExec(e), drv.FreeHost(host))
	})

	t.Run("events order streams", func(t *testing.T) {
		other := on[Stream](t)(drv.NewStream())
		from, to := on[Event](t)(drv.NewEvent()), on[Event](t)(drv.NewEvent())
		must(t, drv.RecordEvent(from, s), drv.CopyToDevice(x, floats(1, 2, 3, 4), s), launch(twice), drv.RecordEvent(to, s))
		must(t, drv.WaitEvent(other, to))
		must(t, drv.Launch(scale, [3]int{1, 1, 1}, [3]int{4, 1, 1}, 16, other, twice), drv.SyncStream(other))
		same(get(x), 4, 8, 12, 16)
		must(t, drv.SyncEvent(to))
		if ms, err := drv.ElapsedMS(from, to); err != nil || ms < 0 {
			t.Errorf("%v ms, %v", ms, err)
		}
		must(t, drv.CloseEvent(from), drv.CloseEvent(to), drv.CloseStream(other))
	})

	t.Run("shared memory above 48 KiB is asked for", func(t *testing.T) {
		big := func() error { return drv.Launch(scale, [3]int{1, 1, 1}, [3]int{4, 1, 1}, 64<<10, s, twice) }
		wantCode(t, big(), 1)
		must(t, drv.SetFunctionAttribute(scale, MaxDynamicSharedBytes, 64<<10), big(), drv.SyncStream(s))
		wantCode(t, drv.SetFunctionAttribute(scale, MaxDynamicSharedBytes, 1<<20), 1)
		if n, err := drv.FunctionAttribute(scale, MaxThreadsPerBlock); err != nil || n != 1024 {
			t.Errorf("%d threads, %v", n, err)
		}
	})

	t.Run("a module has its variables, and they go with it", func(t *testing.T) {
		count := on[Function](t)(drv.Function(m, "counter"))
		for range 2 {
			must(t, drv.Launch(count, [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, s, []uint64{x}))
		}
		b := make([]byte, 4)
		must(t, drv.CopyToHost(b, x, s))
		if b[0] != 2 {
			t.Errorf("counted %d", b[0])
		}
		again := on[Module](t)(drv.LoadModule([]byte(testPTX)))
		count = on[Function](t)(drv.Function(again, "counter"))
		must(t, drv.Launch(count, [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, s, []uint64{x}), drv.CopyToHost(b, x, s))
		if b[0] != 1 {
			t.Errorf("counted %d in a new module", b[0])
		}
		must(t, drv.UnloadModule(again))
	})

	t.Run("refusals", func(t *testing.T) {
		_, err := drv.Alloc(1 << 50)
		wantCode(t, err, CodeOutOfMemory)
		_, err = drv.LoadModule([]byte(".version 7.8\n.target sm_80\n.address_size 64\nnonsense\n"))
		wantCode(t, err, 218)
		_, err = drv.Function(m, "nobody")
		wantCode(t, err, 500)
		_, err = drv.DeviceName(99)
		wantCode(t, err, 101)
		wantCode(t, drv.Launch(scale, [3]int{1, 1, 1}, [3]int{2048, 1, 1}, 0, s, twice), 1)
	})

	t.Run("a captured stream cannot be waited for", func(t *testing.T) {
		must(t, drv.BeginCapture(s))
		wantCode(t, drv.SyncStream(s), CodeCaptureUnsupported)
		_, err := drv.EndCapture(s)
		wantCode(t, err, 901)
		must(t, drv.SyncStream(s))
	})

	t.Run("free memory", func(t *testing.T) {
		before, total, err := drv.MemInfo()
		must(t, err)
		b := on[uint64](t)(drv.Alloc(64 << 20))
		after, _, err := drv.MemInfo()
		must(t, err, drv.Free(b))
		if before-after != 64<<20 || before > total {
			t.Errorf("%d free of %d, and %d with 64 MiB taken", before, total, after)
		}
	})

	// Last: it may end the context.
	t.Run("an illegal access is an error", func(t *testing.T) {
		past := on[Function](t)(drv.Function(m, "past"))
		err := drv.Launch(past, [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, s, []uint64{x, 1 << 40})
		if err == nil {
			err = drv.SyncStream(s)
		}
		wantCode(t, err, 700)
	})
}

func wantCode(t *testing.T, err error, code int) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code || !strings.HasPrefix(e.Call, "cu") || e.Text == "" {
		t.Errorf("got %v, want code %d", err, code)
	}
}

func TestInterpreter(t *testing.T) {
	suite(t, NewInterpreter(1))
	t.Run("late", func(t *testing.T) {
		d := NewInterpreter(2)
		d.Late = true
		suite(t, d)
	})
}

func TestInterpreterCountsAndNamesFaults(t *testing.T) {
	d := NewInterpreter(1)
	var lanes uint64
	d.Launched = func(kernel string, grid, block [3]int, r *ptx.Result) {
		if kernel != "past" || grid != [3]int{1, 1, 1} {
			t.Errorf("launched %s over %v", kernel, grid)
		}
		lanes += r.Counters.LaneInstructions
	}
	on[Context](t)(d.OpenContext(0))
	m := on[Module](t)(d.LoadModule([]byte(testPTX)))
	f := on[Function](t)(d.Function(m, "past"))
	x := on[uint64](t)(d.Alloc(8))
	err := d.Launch(f, [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, 0, []uint64{x, 8})
	if err == nil || !strings.Contains(err.Error(), "bounds") || !strings.Contains(err.Error(), "past") {
		t.Errorf("%v", err)
	}
	if lanes == 0 {
		t.Error("nothing was counted")
	}
}

func TestInterpreterLateRunsWhenWaitedFor(t *testing.T) {
	d := NewInterpreter(1)
	d.Late = true
	on[Context](t)(d.OpenContext(0))
	s := on[Stream](t)(d.NewStream())
	host, _, err := d.AllocHost(16)
	must(t, err)
	x := on[uint64](t)(d.Alloc(16))
	copy(host, "before")
	must(t, d.CopyToDevice(x, host, s))
	copy(host, "after ") // too early: the copy is yet to come
	b := make([]byte, 6)
	must(t, d.CopyToHost(b, x, s))
	if string(b) != "after " {
		t.Errorf("the copy ran early: %q", b)
	}
}

func TestInterpreterNeedsAContext(t *testing.T) {
	d := NewInterpreter(1)
	_, err := d.Alloc(16)
	wantCode(t, err, 201)
	_, err = d.OpenContext(1)
	wantCode(t, err, 101)
	ctx := on[Context](t)(d.OpenContext(0))
	d.Bytes = 1 << 20
	_, err = d.Alloc(1<<20 + 1)
	wantCode(t, err, CodeOutOfMemory)
	x := on[uint64](t)(d.Alloc(1 << 20))
	wantCode(t, d.Free(x+256), 1)
	must(t, d.CloseContext(ctx))
	wantCode(t, d.SetContext(ctx), 201)
}
