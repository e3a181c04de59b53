package ptx

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// An Instance is a module loaded into a memory: its variables have addresses.
type Instance struct {
	src       *Source
	mem       *Memory
	vars      map[string]placed
	constants *region
	mu        sync.Mutex
	kernels   map[string]*Kernel
}

type placed struct {
	space space
	addr  uint64
	size  int
}

const constBytes = 64 << 10

// Load places the variables of src in mem.
func Load(mem *Memory, src *Source) (*Instance, error) {
	in := &Instance{src: src, mem: mem, vars: map[string]placed{}, kernels: map[string]*Kernel{}}
	in.constants = &region{name: "const"}
	var bank []byte
	for _, v := range src.vars {
		switch {
		case v.space == "shared":
		case v.extern:
			return nil, errorf(v.line, "variable %s is defined elsewhere", v.name)
		case v.space == "const":
			at := (len(bank) + v.align - 1) &^ (v.align - 1)
			if at+v.size > constBytes {
				return nil, errorf(v.line, "constants take more than %d bytes", constBytes)
			}
			bank = append(bank, make([]byte, at+v.size-len(bank))...)
			in.vars[v.name] = placed{spConst, uint64(at), v.size}
		default:
			addr, err := mem.Alloc(v.size)
			if err != nil {
				return nil, errorf(v.line, "%s: %v", v.name, err)
			}
			in.vars[v.name] = placed{spGlobal, addr, v.size}
		}
	}
	for _, v := range src.vars {
		if v.space == "shared" {
			continue
		}
		// What has no initial value starts as zeros.
		b := make([]byte, v.size)
		copy(b, v.init)
		for _, r := range v.relocs {
			to, ok := in.vars[r.sym]
			if !ok {
				return nil, errorf(r.line, "%s: the address of %q is not supported", v.name, r.sym)
			}
			addr := to.addr
			if r.generic {
				addr += windows[to.space]
			}
			binary.LittleEndian.PutUint64(b[r.at:], addr+uint64(r.off))
		}
		at := in.vars[v.name]
		if at.space == spConst {
			copy(bank[at.addr:], b)
		} else if err := mem.Write(at.addr, b); err != nil {
			return nil, err
		}
	}
	in.constants.data = bank
	return in, nil
}

// Unload returns the memory of the module's variables. Its kernels must not be launched any more.
func (in *Instance) Unload() error {
	for name, p := range in.vars {
		if p.space != spGlobal {
			continue
		}
		if err := in.mem.Free(p.addr); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Variable gives address and size of a module variable in global memory.
func (in *Instance) Variable(name string) (addr uint64, size int, ok bool) {
	p, ok := in.vars[name]
	return p.addr, p.size, ok && p.space == spGlobal
}

// A Kernel is a compiled entry.
type Kernel struct {
	in   *Instance
	prog *program
}

// Kernel compiles an entry, once. An error is an *Error with the line.
func (in *Instance) Kernel(name string) (*Kernel, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if k := in.kernels[name]; k != nil {
		return k, nil
	}
	fn := in.src.funcs[name]
	if fn == nil || !fn.entry || fn.body == nil {
		return nil, errorf(0, "no entry %q; there are: %s", name, strings.Join(in.src.entries, ", "))
	}
	prog, err := compile(in, fn)
	if err != nil {
		return nil, err
	}
	k := &Kernel{in, prog}
	in.kernels[name] = k
	return k, nil
}

// A Param is one parameter of a kernel.
type Param struct {
	Type   string // element type, "u64", "b8", ...
	Offset int
	Size   int
}

// Params lists the kernel's parameters.
func (k *Kernel) Params() []Param {
	var out []Param
	for i, v := range k.prog.params {
		out = append(out, Param{v.typ, k.prog.paramOffset[i], v.size})
	}
	return out
}

// StaticShared is the shared memory the kernel declares itself, in bytes.
func (k *Kernel) StaticShared() int { return k.prog.sharedBytes }

// LocalBytes is the local memory of a thread.
func (k *Kernel) LocalBytes() int { return k.prog.frameBytes }

// MaxThreads is how many threads a block of the kernel may have.
func (k *Kernel) MaxThreads() int {
	n := maxThreads
	if k.prog.maxntid > 0 {
		n = min(n, k.prog.maxntid)
	}
	if r := k.prog.reqntid; r[0] > 0 {
		n = min(n, r[0]*r[1]*r[2])
	}
	return n
}

// A Launch says how to run a kernel.
type Launch struct {
	Grid, Block [3]int
	SharedBytes int      // dynamic
	Args        [][]byte // one a parameter, of its size
	Seed        uint64   // of the order of blocks, warps and divergent lanes
	Workers     int      // blocks in parallel; 0: one a processor

	// Sample, where not zero, is how many of the grid's coordinates of each dimension run, spread evenly: their product
	// is at most 64. Blocks must not wait for one another then, and what others write is not there.
	Sample    [3]int
	MaxFaults int // different faults kept; 0: 100
}

// A Fault is something a kernel must not do. The same fault at the same place is kept once.
type Fault struct {
	Kind          string // race, bounds, misaligned, uninitialized, barrier-divergence, deadlock, trap
	Kernel        string
	Line          int    // in the PTX
	File          string // source, when the PTX has line information
	SourceLine    int
	Block, Thread [3]int
	Msg           string
	Count         int // how often

	// The other access of a race; 0 for the other kinds.
	OtherLine, OtherSourceLine int
}

func (f Fault) String() string {
	src := ""
	if f.File != "" {
		src = fmt.Sprintf(" (%s:%d)", f.File, f.SourceLine)
	}
	return fmt.Sprintf("%s: kernel %s line %d%s block (%d,%d,%d) thread (%d,%d,%d): %s (%d times)", f.Kind, f.Kernel, f.Line, src,
		f.Block[0], f.Block[1], f.Block[2], f.Thread[0], f.Thread[1], f.Thread[2], f.Msg, f.Count)
}

// A Result is what a launch did.
type Result struct {
	Faults   []Fault
	Counters Counters
}

type launch struct {
	cfg         Launch
	kernel      *Kernel
	prog        *program
	mem         *Memory
	constants   *region
	params      region
	sharedBytes int

	order  []int
	sample []int // the blocks of a sample in order; nil: all run
	next   atomic.Int64
	stop   atomic.Bool
	idle   atomic.Int64 // instructions since anything changed
	epoch  atomic.Int64 // grows when anything changes
	liveN  atomic.Int64
	peak   atomic.Int64

	liveLimit int            // blocks a worker runs by turns
	idleAt    []atomic.Int64 // per worker: the epoch in which all its blocks circle

	syncMu sync.Mutex
	sync   map[uint64]map[uint32]uint32

	faultMu sync.Mutex
	faults  map[faultKey]*Fault
	keys    []faultKey
}

type faultKey struct {
	kind      string
	pc, other int32 // other: of a race, the end at the later position; -1
}

type worker struct {
	counts  []opCount
	free    []*warp // of the last block, to use again
	live    []*block
	mma     uint64
	flight  uint64  // the sum of the warps' most bytes of cp.async on their way
	shared  *region // of the last block
	copies  []*asyncCopy
	scratch mmaScratch
	clock   uint64
}

const (
	maxThreads  = 1024
	blockSlice  = 1 << 16   // instructions between two looks at whether anything changes
	blockTurn   = 1 << 23   // instructions before another block gets its turn
	idleLimit   = 20 << 20  // instructions in which nothing changes: nobody waits for anything that comes
	liveBytes   = 2 << 30   // registers and memory of the blocks that run at once
	sharedLimit = 163 << 10 // the most sm_80 gives a block
)

// Check says what is wrong with a launch before it runs.
func (k *Kernel) Check(cfg Launch) error {
	p := k.prog
	total := 1
	for i, n := range cfg.Grid {
		if n < 1 || i == 0 && n > 1<<31-1 || i > 0 && n > 65535 || total > (1<<31-1)/n {
			return fmt.Errorf("ptx: %s: grid %v", p.name, cfg.Grid)
		}
		total *= n
	}
	threads := 1
	for i, n := range cfg.Block {
		if n < 1 || n > 1024 || i == 2 && n > 64 {
			return fmt.Errorf("ptx: %s: block %v", p.name, cfg.Block)
		}
		threads *= n
	}
	if threads > maxThreads || p.maxntid > 0 && threads > p.maxntid || p.reqntid[0] > 0 && p.reqntid != cfg.Block {
		return fmt.Errorf("ptx: %s: block %v has %d threads, the kernel's limits are %d and %v", p.name, cfg.Block, threads, p.maxntid, p.reqntid)
	}
	if cfg.SharedBytes < 0 || p.sharedBytes+cfg.SharedBytes > sharedLimit {
		return fmt.Errorf("ptx: %s: %d bytes of shared memory, of which %d dynamic, exceed %d", p.name, p.sharedBytes+cfg.SharedBytes, cfg.SharedBytes, sharedLimit)
	}
	if n := cfg.Sample; n != [3]int{} {
		for i := range n {
			if n[i] < 1 || n[i] > cfg.Grid[i] || n[0]*n[1]*n[2] > 64 {
				return fmt.Errorf("ptx: %s: sample %v of grid %v", p.name, n, cfg.Grid)
			}
		}
	}
	if len(cfg.Args) != len(p.params) {
		return fmt.Errorf("ptx: %s: %d arguments for %d parameters", p.name, len(cfg.Args), len(p.params))
	}
	for i, a := range cfg.Args {
		if len(a) != p.params[i].size {
			return fmt.Errorf("ptx: %s: argument %d has %d bytes, the parameter %d", p.name, i, len(a), p.params[i].size)
		}
	}
	return nil
}

// Launch runs a grid and waits for it. An error is a launch that cannot be; what the kernel does
// wrong is in Result.Faults.
func (k *Kernel) Launch(cfg Launch) (*Result, error) {
	if err := k.Check(cfg); err != nil {
		return nil, err
	}
	p := k.prog
	l := &launch{cfg: cfg, kernel: k, prog: p, mem: k.in.mem, constants: k.in.constants, sync: map[uint64]map[uint32]uint32{}, faults: map[faultKey]*Fault{}}
	threads := cfg.Block[0] * cfg.Block[1] * cfg.Block[2]
	l.sharedBytes = p.sharedBytes + cfg.SharedBytes
	l.params = region{name: "param", data: newBytes(p.paramBytes)}
	for i, a := range cfg.Args {
		copy(l.params.data[p.paramOffset[i]:], a)
	}
	warps := (threads + 31) / 32
	l.liveLimit = max(16, min(1<<12, liveBytes/(warps*(p.nVecs*256+64*p.frameBytes+4096)+3*l.sharedBytes)))
	l.mem.begin()
	if cfg.MaxFaults == 0 {
		l.cfg.MaxFaults = 100
	}
	workers := cfg.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	l.order = cfg.blocks()
	if cfg.Sample != [3]int{} {
		l.sample = slices.Clone(l.order)
	}
	workers = min(workers, len(l.order))
	r := rng(cfg.Seed)
	r.shuffle(l.order)
	ws := make([]*worker, workers)
	l.idleAt = make([]atomic.Int64, workers)
	var wg sync.WaitGroup
	for i := range ws {
		ws[i] = &worker{counts: make([]opCount, len(p.ops))}
		wg.Go(func() { l.work(i, ws[i]) })
	}
	wg.Wait()
	return &Result{Faults: l.report(), Counters: l.count(ws)}, nil
}

// blocks lists those that run.
func (cfg *Launch) blocks() (order []int) {
	n := cfg.Sample
	if n == [3]int{} {
		n = cfg.Grid
	}
	for z := range n[2] {
		for y := range n[1] {
			for x := range n[0] {
				order = append(order, (spread(z, n[2], cfg.Grid[2])*cfg.Grid[1]+spread(y, n[1], cfg.Grid[1]))*cfg.Grid[0]+spread(x, n[0], cfg.Grid[0]))
			}
		}
	}
	return order
}

// spread is the i-th of n coordinates below total: the first, the last and what lies evenly between.
func spread(i, n, total int) int {
	if n == 1 {
		return total / 2
	}
	return i * (total - 1) / (n - 1)
}

// work runs blocks until none is left. A block in which nothing changes makes room for others,
// for it may wait for one of them; so does one that runs very long.
func (l *launch) work(id int, wk *worker) {
	defer l.idleAt[id].Store(ended)
	for !l.stop.Load() {
		var b *block
		if len(wk.live) < l.liveLimit {
			if i := l.next.Add(1) - 1; i < int64(len(l.order)) {
				b = l.newBlock(wk, l.order[i])
				n := l.liveN.Add(1)
				for p := l.peak.Load(); n > p && !l.peak.CompareAndSwap(p, n); p = l.peak.Load() {
				}
				l.change()
			}
		}
		if b == nil {
			if len(wk.live) == 0 {
				return
			}
			b, wk.live = wk.live[0], wk.live[1:]
		}
		done := false
		for total := 0; !done && total < blockTurn; {
			epoch := l.epoch.Load()
			b.changed = false
			if b.pastEpoch != epoch {
				b.pastEpoch = epoch
				for _, w := range b.warps {
					w.forget()
				}
			}
			var used int
			done, used = b.run(blockSlice)
			total += used
			if b.changed {
				l.change()
				continue
			}
			if !done && (l.idle.Add(int64(used)) > idleLimit*max(1, l.liveN.Load()) || l.hopeless(id, wk, b, epoch)) {
				b.waits("for long nothing has changed that this thread could be waiting for")
				l.stop.Store(true)
			}
			break
		}
		if done {
			l.liveN.Add(-1)
			wk.free, wk.shared = b.warps, &b.shared
			continue
		}
		wk.live = append(wk.live, b)
	}
}

const ended = 1<<63 - 1

// change notes that memory, or who is running, is not what it was.
func (l *launch) change() {
	l.epoch.Add(1)
	l.idle.Store(0)
}

// hopeless reports whether every running block is known to go round in circles since nothing
// changes any more. epoch is that of the slice b has just done without a change.
func (l *launch) hopeless(id int, wk *worker, b *block, epoch int64) bool {
	if !b.circling() {
		return false
	}
	b.circledAt = epoch
	if l.next.Load() < int64(len(l.order)) && len(wk.live) < l.liveLimit {
		return false
	}
	for _, other := range wk.live {
		if other.circledAt != epoch {
			return false
		}
	}
	l.idleAt[id].Store(epoch)
	for i := range l.idleAt {
		if at := l.idleAt[i].Load(); at != epoch && at != ended {
			return false
		}
	}
	return l.epoch.Load() == epoch
}

func (w *warp) fault(kind string, pc int32, lane int, format string, args ...any) {
	w.keep(faultKey{kind, pc, -1}, pc, lane, nil, format, args...)
}

func (w *warp) keep(key faultKey, pc int32, lane int, other *op, format string, args ...any) {
	b := w.block
	l := b.launch
	l.faultMu.Lock()
	defer l.faultMu.Unlock()
	if f := l.faults[key]; f != nil {
		f.Count++
		return
	}
	if len(l.keys) >= l.cfg.MaxFaults {
		return
	}
	o := &l.prog.ops[pc]
	f := &Fault{Kind: key.kind, Kernel: l.prog.name, Line: int(o.line), Block: b.at, Thread: b.threadAt(w.id<<5 | lane&31), Msg: fmt.Sprintf(format, args...), Count: 1}
	f.File, f.SourceLine = l.source(pc)
	if other != nil {
		f.OtherLine, f.OtherSourceLine = int(other.line), int(other.srcLine)
	}
	l.faults[key] = f
	l.keys = append(l.keys, key)
}

func (b *block) threadAt(t int) [3]int {
	bd := b.launch.cfg.Block
	return [3]int{t % bd[0], t / bd[0] % bd[1], t / bd[0] / bd[1]}
}

func (l *launch) source(pc int32) (string, int) {
	o := &l.prog.ops[pc]
	if o.file == 0 {
		return "", 0
	}
	return l.kernel.in.src.files[int(o.file)], int(o.srcLine)
}

func (w *warp) raceFault(pc int32, lane int, verb string, r *region, off uint64, hit conflict) {
	b := w.block
	l := b.launch
	what := "read"
	if hit.write {
		what = "write"
	}
	if hit.rec&recAsync != 0 {
		what = "cp.async in flight"
	}
	o := &l.prog.ops[hit.pc]
	at := fmt.Sprintf("line %d", o.line)
	if file, n := l.source(hit.pc); file != "" {
		at += fmt.Sprintf(" (%s:%d)", file, n)
	}
	who := b.threadAt(hit.thread)
	where := ""
	if hit.rec.tag() != b.tag {
		where = fmt.Sprintf(" of block number %d", hit.rec.tag()-1)
	}
	w.keep(faultKey{"race", min(pc, hit.pc), max(pc, hit.pc)}, pc, lane, o, "%s of %s memory at byte %d, not ordered with the %s at %s by thread (%d,%d,%d)%s",
		verb, r.name, off, what, at, who[0], who[1], who[2], where)
}

func (l *launch) report() []Fault {
	// A read that races with the write it should have waited for is one fault, not two.
	races := map[int32]bool{}
	for _, k := range l.keys {
		if k.kind == "race" {
			races[k.pc], races[k.other] = true, true
		}
	}
	var out []Fault
	for _, k := range l.keys {
		if k.kind == "uninitialized" && (races[k.pc] || l.sample != nil) {
			continue
		}
		out = append(out, *l.faults[k])
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Line < out[j].Line })
	return out
}
