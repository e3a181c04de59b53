package driver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

// What runs on the interpreter's streams. A node is one launch, copy or fill; it runs at once, or with Late when its
// stream is waited for, or goes into the graph that the stream captures.

type node func() error

type interpretedStream struct {
	queue     []node
	err       error // of a node that ran while another call was made
	capturing bool
	failed    error // of the capture
	graph     []node
}

type interpretedEvent struct {
	on      Stream
	queued  bool // and not reached
	reached time.Time
}

// stream finds s; it is called with mu held.
func (d *Interpreter) stream(call string, s Stream) (*interpretedStream, error) {
	if st := d.streams[s]; st != nil {
		return st, nil
	}
	return nil, refuse(call, codeInvalidHandle, "stream %d", s)
}

// put takes a node to its stream. It is called with mu held.
func (d *Interpreter) put(call string, s Stream, n node) error {
	st, err := d.stream(call, s)
	switch {
	case err != nil:
		return err
	case st.failed != nil:
		return refuse(call, codeCaptureInvalidated, "%v", st.failed)
	case st.capturing:
		st.graph = append(st.graph, n)
		return nil
	case d.Late:
		st.queue = append(st.queue, n)
		return nil
	}
	return n()
}

// uncaptured says that a call cannot be made on a stream that captures, and ends the capture.
func (st *interpretedStream) uncaptured(call string) error {
	if !st.capturing {
		return nil
	}
	err := refuse(call, CodeCaptureUnsupported, "the capture is invalid from here on")
	if st.failed == nil {
		st.failed = err
	}
	return err
}

// finish runs what is queued on a stream and returns its first error.
func (d *Interpreter) finish(st *interpretedStream) error {
	for len(st.queue) > 0 {
		n := st.queue[0]
		st.queue = st.queue[1:]
		if err := n(); err != nil && st.err == nil {
			st.err = err
		}
	}
	err := st.err
	st.err = nil
	return err
}

// finishAll runs everything; who waits for a stream gets its error.
func (d *Interpreter) finishAll() {
	for _, st := range d.streams {
		st.err = d.finish(st)
	}
}

// CopyToDevice implements Driver.
func (d *Interpreter) CopyToDevice(dst uint64, src []byte, s Stream) error {
	const call = "cuMemcpyHtoDAsync"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	if !d.pinned(src) {
		if st := d.streams[s]; st != nil && st.capturing {
			return st.uncaptured(call + " of memory that is not pinned")
		}
		if d.Late {
			src = bytes.Clone(src)
		}
	}
	return d.put(call, s, func() error { return refused(call, codeInvalidValue, d.mem.Write(dst, src)) })
}

// CopyToHost implements Driver.
func (d *Interpreter) CopyToHost(dst []byte, src uint64, s Stream) error {
	const call = "cuMemcpyDtoHAsync"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	pinned := d.pinned(dst)
	st, err := d.stream(call, s)
	if err != nil {
		return err
	}
	if st.capturing && !pinned {
		return st.uncaptured(call + " to memory that is not pinned")
	}
	if err := d.put(call, s, func() error { return refused(call, codeInvalidValue, d.mem.Read(src, dst)) }); err != nil || pinned {
		return err
	}
	return d.finish(st)
}

// CopyOnDevice implements Driver.
func (d *Interpreter) CopyOnDevice(dst, src uint64, bytes int64, s Stream) error {
	const call = "cuMemcpyDtoDAsync"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	return d.put(call, s, func() error { return refused(call, codeInvalidValue, d.mem.Copy(dst, src, int(bytes))) })
}

// Fill implements Driver.
func (d *Interpreter) Fill(dst uint64, value byte, bytes int64, s Stream) error {
	const call = "cuMemsetD8Async"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	return d.put(call, s, func() error { return refused(call, codeInvalidValue, d.mem.Fill(dst, value, int(bytes))) })
}

// Launch implements Driver.
func (d *Interpreter) Launch(f Function, grid, block [3]int, sharedBytes int, s Stream, args []uint64) error {
	const call = "cuLaunchKernel"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	k, err := d.function(call, f)
	if err != nil {
		return err
	}
	params := k.kernel.Params()
	if len(args) != len(params) {
		return refuse(call, codeInvalidValue, "%s: %d arguments for %d parameters", k.name, len(args), len(params))
	}
	if sharedBytes > k.shared {
		return refuse(call, codeInvalidValue, "%s: %d bytes of dynamic shared memory, and it is allowed %d", k.name, sharedBytes, k.shared)
	}
	words := make([][]byte, len(args))
	for i, p := range params {
		if p.Size > 8 {
			return refuse(call, codeInvalidValue, "%s: parameter %d has %d bytes", k.name, i, p.Size)
		}
		words[i] = binary.LittleEndian.AppendUint64(nil, args[i])[:p.Size]
	}
	l := ptx.Launch{Grid: grid, Block: block, SharedBytes: sharedBytes, Args: words}
	if err := k.kernel.Check(l); err != nil {
		return refused(call, codeInvalidValue, err)
	}
	return d.put(call, s, func() error { return d.run(k, l) })
}

// run executes a launch.
func (d *Interpreter) run(k *interpreted, l ptx.Launch) error {
	const call = "cuLaunchKernel"
	d.launches++
	l.Seed = d.Seed + d.launches
	if d.Sample != nil {
		l.Sample = d.Sample(l.Grid)
	}
	r, err := k.kernel.Launch(l)
	if err != nil {
		return refused(call, codeInvalidValue, err)
	}
	if d.Launched != nil {
		d.Launched(k.name, l.Grid, l.Block, r)
	}
	if len(r.Faults) == 0 {
		return nil
	}
	code := codeLaunchFailed
	switch r.Faults[0].Kind {
	case "bounds":
		code = codeIllegalAddress
	case "misaligned":
		code = codeMisaligned
	}
	lines := make([]string, len(r.Faults))
	for i, f := range r.Faults {
		lines[i] = f.String()
	}
	return refuse(call, code, "%s", strings.Join(lines, "\n"))
}

// NewStream implements Driver.
func (d *Interpreter) NewStream() (Stream, error) {
	unlock, err := d.lock("cuStreamCreate")
	if err != nil {
		return 0, err
	}
	defer unlock()
	s := Stream(d.handle())
	d.streams[s] = &interpretedStream{}
	return s, nil
}

// CloseStream implements Driver.
func (d *Interpreter) CloseStream(s Stream) error {
	unlock, err := d.lock("cuStreamDestroy")
	if err != nil {
		return err
	}
	defer unlock()
	st, err := d.stream("cuStreamDestroy", s)
	if err != nil {
		return err
	}
	if s == 0 {
		return refuse("cuStreamDestroy", codeInvalidHandle, "the default stream")
	}
	err = d.finish(st)
	delete(d.streams, s)
	return err
}

// SyncStream implements Driver.
func (d *Interpreter) SyncStream(s Stream) error {
	unlock, err := d.lock("cuStreamSynchronize")
	if err != nil {
		return err
	}
	defer unlock()
	st, err := d.stream("cuStreamSynchronize", s)
	if err != nil {
		return err
	}
	if err := st.uncaptured("cuStreamSynchronize"); err != nil {
		return err
	}
	return d.finish(st)
}

// NewEvent implements Driver.
func (d *Interpreter) NewEvent() (Event, error) {
	unlock, err := d.lock("cuEventCreate")
	if err != nil {
		return 0, err
	}
	defer unlock()
	e := Event(d.handle())
	d.events[e] = &interpretedEvent{}
	return e, nil
}

// event finds e; it is called with mu held.
func (d *Interpreter) event(call string, e Event) (*interpretedEvent, error) {
	if ev := d.events[e]; ev != nil {
		return ev, nil
	}
	return nil, refuse(call, codeInvalidHandle, "event %d", e)
}

// CloseEvent implements Driver.
func (d *Interpreter) CloseEvent(e Event) error {
	unlock, err := d.lock("cuEventDestroy")
	if err != nil {
		return err
	}
	defer unlock()
	_, err = d.event("cuEventDestroy", e)
	delete(d.events, e)
	return err
}

// eventOn finds an event for a stream that is not being captured: events are not.
func (d *Interpreter) eventOn(call string, e Event, s Stream) (*interpretedEvent, error) {
	ev, err := d.event(call, e)
	if err != nil {
		return nil, err
	}
	st, err := d.stream(call, s)
	if err != nil {
		return nil, err
	}
	return ev, st.uncaptured(call)
}

// RecordEvent implements Driver.
func (d *Interpreter) RecordEvent(e Event, s Stream) error {
	const call = "cuEventRecord"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	ev, err := d.eventOn(call, e, s)
	if err != nil {
		return err
	}
	*ev = interpretedEvent{on: s, queued: true}
	return d.put(call, s, func() error {
		ev.queued, ev.reached = false, time.Now()
		return nil
	})
}

// reach runs what is before an event. It is called with mu held.
func (d *Interpreter) reach(ev *interpretedEvent) error {
	if !ev.queued {
		return nil
	}
	st := d.streams[ev.on]
	var first error
	for ev.queued && len(st.queue) > 0 {
		n := st.queue[0]
		st.queue = st.queue[1:]
		if err := n(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// SyncEvent implements Driver.
func (d *Interpreter) SyncEvent(e Event) error {
	unlock, err := d.lock("cuEventSynchronize")
	if err != nil {
		return err
	}
	defer unlock()
	ev, err := d.event("cuEventSynchronize", e)
	if err != nil {
		return err
	}
	return d.reach(ev)
}

// WaitEvent implements Driver.
func (d *Interpreter) WaitEvent(s Stream, e Event) error {
	const call = "cuStreamWaitEvent"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	ev, err := d.eventOn(call, e, s)
	if err != nil {
		return err
	}
	if !ev.queued {
		return nil
	}
	return d.put(call, s, func() error { return d.reach(ev) })
}

// ElapsedMS implements Driver.
func (d *Interpreter) ElapsedMS(from, to Event) (float64, error) {
	const call = "cuEventElapsedTime"
	unlock, err := d.lock(call)
	if err != nil {
		return 0, err
	}
	defer unlock()
	var at [2]time.Time
	for i, e := range []Event{from, to} {
		ev, err := d.event(call, e)
		switch {
		case err != nil:
			return 0, err
		case ev.queued:
			return 0, refuse(call, codeNotReady, "event %d", e)
		case ev.reached.IsZero():
			return 0, refuse(call, codeInvalidHandle, "event %d was not recorded", e)
		}
		at[i] = ev.reached
	}
	return float64(at[1].Sub(at[0])) / 1e6, nil
}

// BeginCapture implements Driver.
func (d *Interpreter) BeginCapture(s Stream) error {
	const call = "cuStreamBeginCapture"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	st, err := d.stream(call, s)
	switch {
	case err != nil:
		return err
	case s == 0:
		return refuse(call, CodeCaptureUnsupported, "the default stream cannot be captured")
	case st.capturing:
		return refuse(call, codeInvalidValue, "stream %d is captured already", s)
	}
	st.capturing, st.failed, st.graph = true, nil, nil
	return nil
}

// EndCapture implements Driver.
func (d *Interpreter) EndCapture(s Stream) (Graph, error) {
	const call = "cuStreamEndCapture"
	unlock, err := d.lock(call)
	if err != nil {
		return 0, err
	}
	defer unlock()
	st, err := d.stream(call, s)
	switch {
	case err != nil:
		return 0, err
	case !st.capturing:
		return 0, refuse(call, codeInvalidValue, "stream %d is not captured", s)
	}
	nodes, failed := st.graph, st.failed
	st.capturing, st.failed, st.graph = false, nil, nil
	if failed != nil {
		return 0, refuse(call, codeCaptureInvalidated, "%v", failed)
	}
	g := Graph(d.handle())
	d.graphs[g] = nodes
	return g, nil
}

// CloseGraph implements Driver.
func (d *Interpreter) CloseGraph(g Graph) error {
	unlock, err := d.lock("cuGraphDestroy")
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := d.graphs[g]; !ok {
		return refuse("cuGraphDestroy", codeInvalidHandle, "graph %d", g)
	}
	delete(d.graphs, g)
	return nil
}

// Instantiate implements Driver.
func (d *Interpreter) Instantiate(g Graph) (GraphExec, error) {
	unlock, err := d.lock("cuGraphInstantiate")
	if err != nil {
		return 0, err
	}
	defer unlock()
	nodes, ok := d.graphs[g]
	if !ok {
		return 0, refuse("cuGraphInstantiate", codeInvalidHandle, "graph %d", g)
	}
	e := GraphExec(d.handle())
	d.execs[e] = slices.Clone(nodes)
	return e, nil
}

// LaunchGraph implements Driver.
func (d *Interpreter) LaunchGraph(e GraphExec, s Stream) error {
	const call = "cuGraphLaunch"
	unlock, err := d.lock(call)
	if err != nil {
		return err
	}
	defer unlock()
	nodes, ok := d.execs[e]
	if !ok {
		return refuse(call, codeInvalidHandle, "graph %d", e)
	}
	st, err := d.stream(call, s)
	if err != nil {
		return err
	}
	if err := st.uncaptured(call); err != nil {
		return err
	}
	return d.put(call, s, func() error {
		for i, n := range nodes {
			if err := n(); err != nil {
				return fmt.Errorf("node %d of %d of a graph: %w", i, len(nodes), err)
			}
		}
		return nil
	})
}

// CloseGraphExec implements Driver.
func (d *Interpreter) CloseGraphExec(e GraphExec) error {
	unlock, err := d.lock("cuGraphExecDestroy")
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := d.execs[e]; !ok {
		return refuse("cuGraphExecDestroy", codeInvalidHandle, "graph %d", e)
	}
	d.finishAll()
	delete(d.execs, e)
	return nil
}
