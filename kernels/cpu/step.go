//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
)

// step is a list of recorded commands and the memory their arguments lie in.
//
// An operator checks its shapes, writes its arguments into the step and appends a command; run
// executes the list. A row operator whose rows the next Linear multiplies also leaves them as
// int8 or float32 blocks: the Linear, when recorded, asks it to (device.prepare), so no pass over
// the rows is made for that.
type step struct {
	c       *C.oi_step
	chunks  [][]byte // of arguments; the last is being filled
	used    int
	full    int // chunks before the last that are filled
	list    []byte
	cmds    []C.oi_cmd // in list
	uploads []upload
	last    rows // what the last command wrote, when it can prepare it
	ready   rows // what is prepared now
	tables  checkedTables
	items   []itemList
	runs    []chainList
}

// upload is an array of the step that the device has. What the caller knows as its address is made
// up: none is ever used again, and those of its entries follow it, as kernels.Ints.Range has it.
type upload struct {
	addr uint64
	host []int32
}

// rows names the rows that a command wrote, and where it can be told to prepare them.
type rows struct {
	addr       *byte
	rows, cols int
	stride     int
	prep       []*C.oi_prep
	q, f       bool
}

func (r rows) is(t kernels.Tensor) bool {
	return r.addr != nil && r.addr == unsafe.SliceData(t.Buf.Host) && r.rows == t.Rows && r.cols == t.Cols && r.stride == t.Stride
}

const (
	argBytes = 256 << 10
	maxCmds  = 1 << 14

	// patience is how long a thread waits for a chunk of another before it computes it again: chunks
	// take 1 to 10 us. A thread that lost its core comes back after some 3,000.
	patience = 40_000
)

func newStep() (*step, error) {
	b, err := mapBytes(argBytes)
	if err != nil {
		return nil, err
	}
	list, err := mapBytes(maxCmds * int64(unsafe.Sizeof(C.oi_cmd{})))
	if err != nil {
		return nil, err
	}
	s := &step{chunks: [][]byte{b}, list: list}
	s.cmds = unsafe.Slice((*C.oi_cmd)(unsafe.Pointer(&list[0])), maxCmds)[:0]
	s.c = (*C.oi_step)(s.alloc(int64(unsafe.Sizeof(C.oi_step{}))))
	return s, nil
}

func (s *step) close() {
	if s == nil {
		return
	}
	unmap(append(s.chunks, s.list)...)
}

// reset forgets the commands. The caller has made sure that no thread is inside.
func (s *step) reset() {
	s.used, s.full = int(unsafe.Sizeof(C.oi_step{})+63)&^63, 0
	s.cmds = s.cmds[:0]
	s.uploads = s.uploads[:0]
	s.items = s.items[:0]
	s.runs = s.runs[:0]
	s.last, s.ready, s.tables = rows{}, rows{}, checkedTables{}
}

// alloc returns n zeroed bytes that live as long as the step, at a multiple of 64.
func (s *step) alloc(n int64) unsafe.Pointer {
	n = (n + 63) &^ 63
	for s.full < len(s.chunks) && int64(s.used)+n > int64(len(s.chunks[s.full])) {
		s.full, s.used = s.full+1, 0
	}
	if s.full == len(s.chunks) {
		b, err := mapBytes(max(n, 2*int64(len(s.chunks[s.full-1]))))
		if err != nil {
			panic(fmt.Sprintf("cpu: %d bytes for a step's arguments: %v", n, err))
		}
		s.chunks = append(s.chunks, b)
	}
	b := s.chunks[s.full][s.used : s.used+int(n)]
	clear(b)
	s.used += int(n)
	return unsafe.Pointer(unsafe.SliceData(b))
}

// args allocates the arguments of one operator.
func args[T any](s *step) *T {
	var t T
	return (*T)(s.alloc(int64(unsafe.Sizeof(t))))
}

// ints returns the address of an array of the step, copying it in if it was not uploaded in it.
func (s *step) ints(a kernels.Ints) *C.int32_t {
	if a.Addr != 0 {
		for _, u := range s.uploads {
			if from := (a.Addr - u.addr) / 4; a.Addr >= u.addr && from <= uint64(len(u.host)) {
				return (*C.int32_t)(unsafe.SliceData(u.host[from:]))
			}
		}
	}
	return (*C.int32_t)(unsafe.SliceData(s.copyInts(a.Host)))
}

func (s *step) copyInts(v []int32) []int32 {
	b := unsafe.Slice((*int32)(s.alloc(int64(len(v))*4+4)), len(v))
	copy(b, v)
	return b
}

// push appends a command of n chunks. redo says that its chunks may be computed twice: they write
// no more than OI_OUT_BYTES and OI_OUT_SPANS.
func (d *device) push(fn C.oi_fn, arg unsafe.Pointer, n int, redo bool) *C.oi_cmd {
	s := d.step
	if len(s.cmds) == maxCmds {
		d.run()
		s = d.step
	}
	s.cmds = append(s.cmds, C.oi_cmd{fn: fn, arg: arg, chunks: C.int32_t(n), patience_ns: patience})
	c := &s.cmds[len(s.cmds)-1]
	c._range = (*C.oi_range)(s.alloc(int64(d.threads) * int64(unsafe.Sizeof(C.oi_range{}))))
	ranges := unsafe.Slice(c._range, d.threads)
	for i := range ranges {
		// Thread 0 gets the larger share: it is the one that is surely awake.
		from, to := (n*i+d.threads-1)/d.threads, (n*(i+1)+d.threads-1)/d.threads
		ranges[i].from, ranges[i].n = C.int32_t(from), C.int32_t(to-from)
	}
	if redo && d.threads > 1 {
		c.owner = (*C.uint32_t)(s.alloc(int64(n) * 4))
	}
	s.last, s.ready = rows{}, rows{}
	return c
}

// Begin implements kernels.Device.
func (d *device) Begin() {
	d.err = nil
	d.idle = append(d.idle, d.used...)
	d.used = d.used[:0]
	if d.step != nil {
		d.idle = append(d.idle, d.step)
	}
	d.step = nil
	d.takeStep()
}

// takeStep finds a step that no late thread reads. With as many steps as threads and one more there
// is always one.
func (d *device) takeStep() {
	for i, s := range d.idle {
		if C.oi_step_busy(d.pool, s.c) == 0 {
			d.idle = slices.Delete(d.idle, i, i+1)
			d.step = s
			s.reset()
			return
		}
	}
	s, err := newStep()
	if err != nil {
		panic(fmt.Sprintf("cpu: memory for a step: %v", err))
	}
	s.reset()
	d.step = s
}

// run executes what is recorded.
func (d *device) run() {
	s := d.step
	if len(s.cmds) == 0 {
		return
	}
	s.c.cmd, s.c.cmds, s.c.threads = unsafe.SliceData(s.cmds), C.int32_t(len(s.cmds)), C.int32_t(d.threads)
	C.oi_run(d.pool, s.c)
	uploads := s.uploads
	d.used = append(d.used, s)
	d.takeStep()
	d.step.uploads = append(d.step.uploads, uploads...)
}

// End implements kernels.Device.
func (d *device) End() error {
	if d.err == nil {
		d.run()
	}
	return d.err
}

// Upload implements kernels.Device.
func (d *device) Upload(a kernels.Ints) kernels.Ints {
	host := d.step.copyInts(a.Host)
	u := upload{d.lastAddr + 4, host}
	d.lastAddr = u.addr + uint64(len(host))*4
	d.step.uploads = append(d.step.uploads, u)
	return kernels.Ints{Host: a.Host, Addr: u.addr}
}

// fail keeps the first error of the step. What follows it is not recorded.
func (d *device) fail(op, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(op+": "+format, args...)
	}
}

// ok keeps the first error of the step and says whether what is called may be recorded.
func (d *device) ok(err error) bool {
	if d.err == nil {
		d.err = err
	}
	return d.err == nil
}

// dense reports whether t is a float32 matrix of its shape that its buffer holds; else it fails the step.
func (d *device) dense(op, name string, t kernels.Tensor, rows, cols int) bool {
	switch {
	case d.err != nil:
		return false
	case t.DType != kernels.F32:
		d.fail(op, "%s %v: want float32", name, t)
	case t.Rows != rows || t.Cols != cols:
		d.fail(op, "%s %v: want [%d,%d]", name, t, rows, cols)
	case t.Rows > 0 && (t.Stride < t.Cols || int64((t.Rows-1)*t.Stride+t.Cols)*4 > int64(len(t.Buf.Host))):
		d.fail(op, "%s %v of stride %d in a buffer of %d bytes", name, t, t.Stride, len(t.Buf.Host))
	default:
		return true
	}
	return false
}

// vector is dense for a vector.
func (d *device) vector(op, name string, t kernels.Tensor, cols int) bool {
	return d.dense(op, name, t, 1, cols)
}

// inRange reports whether all values of a are in [low, high); else it fails the step.
func (d *device) inRange(op, name string, a []int32, n, low, high int) bool {
	if d.err != nil {
		return false
	}
	if len(a) != n {
		d.fail(op, "%d %s for %d rows", len(a), name, n)
		return false
	}
	for i, v := range a {
		if int(v) < low || int(v) >= high {
			d.fail(op, "%s[%d] is %d: want %d to %d", name, i, v, low, high-1)
			return false
		}
	}
	return true
}
