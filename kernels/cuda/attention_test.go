package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

// stretch is a sequence's share of a step: n tokens, the last at position context-1.
type stretch struct{ n, context int }

// attentionCase is a layer's attention over a filled cache.
type attentionCase struct {
	heads, kvHeads, kDim, vDim int
	typ                        kernels.DType
	blockTokens                int
	params                     kernels.AttentionParams
	spans                      []stretch
}

func (c attentionCase) String() string {
	return fmt.Sprintf("%d on %d heads %dx%d %v blocks of %d window %d cap %v", c.heads, c.kvHeads, c.kDim, c.vDim, c.typ, c.blockTokens, c.params.Window, c.params.SoftCap)
}

// attentionWorld is such a cache on the host, in the layout of kernels/ref, which is also a card's. What no token sees is 0xff.
type attentionWorld struct {
	attentionCase
	layout  kernels.CacheLayout
	pages   []byte
	tables  []int32
	stride  int
	q       []float32
	qStride int
	largest float64 // magnitude of a value
}

func (c attentionCase) world(seed uint64) *attentionWorld {
	rnd := rand.New(rand.NewPCG(seed, 7))
	w := &attentionWorld{attentionCase: c}
	w.layout = kernels.CacheLayout{DType: c.typ, Layers: 2, Heads: c.kvHeads, KDim: c.kDim, VDim: c.vDim, BlockTokens: c.blockTokens, BlocksPerPage: 3}
	w.layout.BlockBytes = (int64(c.blockTokens)*w.layout.TokenBytes()+63)&^63 + 64
	w.layout.PageBytes = 3*w.layout.BlockBytes + 192
	w.stride = 1
	blocks := 3
	for _, s := range c.spans {
		n := (s.context + c.blockTokens - 1) / c.blockTokens
		w.stride = max(w.stride, n+1)
		blocks += n
	}
	w.pages = make([]byte, int64((blocks+2)/3)*w.layout.PageBytes)
	for i := range w.pages {
		w.pages[i] = 0xff
	}
	free := rnd.Perm(blocks)
	w.tables = make([]int32, len(c.spans)*w.stride)
	for i := range w.tables {
		w.tables[i] = -1 << 30
	}
	tokens := 0
	for s, one := range c.spans {
		tokens += one.n
		low := 0
		if c.params.Window > 0 {
			low = max(0, one.context-one.n+1-c.params.Window)
		}
		for p := low; p < one.context; p++ {
			entry := &w.tables[s*w.stride+p/c.blockTokens]
			if *entry < 0 {
				*entry, free = int32(free[0]), free[1:]
			}
			w.fill(rnd, *entry, p%c.blockTokens)
		}
	}
	w.qStride = c.heads*c.kDim + 3
	w.q = make([]float32, tokens*w.qStride)
	for t := range tokens {
		size := math.Ldexp(1, rnd.IntN(12)-6)
		for i := range c.heads * c.kDim {
			w.q[t*w.qStride+i] = float32(rnd.NormFloat64() * size)
		}
	}
	return w
}

// fill gives a token of a block keys and values.
func (w *attentionWorld) fill(rnd *rand.Rand, block int32, token int) {
	l := w.layout
	size := l.DType.Bytes()
	b := w.pages[l.BlockOffset(block)+int64(l.BlockTokens)*l.LayerBytes():] // layer 1
	values := b[l.Heads*l.BlockTokens*l.KDim*size:]
	scales := b[l.Heads*l.BlockTokens*(l.KDim+l.VDim)*size:]
	for head := range l.Heads {
		at := head*l.BlockTokens + token
		scale := rnd.Float64() + 0.1
		for i := range l.KDim {
			w.put(b[(at*l.KDim+i)*size:], rnd.NormFloat64()*scale)
		}
		for i := range l.VDim {
			w.largest = max(w.largest, w.put(values[(at*l.VDim+i)*size:], rnd.NormFloat64()*scale)*scale)
		}
		if l.ScaleBytes() > 0 {
			n := l.Heads * l.BlockTokens
			for i, f := range []float64{0.01 * scale, scale} {
				s := scales[(i*n+at)*2:]
				bits := math.Float32bits(float32(f)) >> 16
				s[0], s[1] = byte(bits), byte(bits>>8)
			}
		}
	}
}

// put writes v as a value or a code and returns its magnitude.
func (w *attentionWorld) put(b []byte, v float64) float64 {
	switch w.typ {
	case kernels.I8:
		c := max(-127, min(127, math.RoundToEven(v*60)))
		b[0] = byte(int8(c))
		return math.Abs(c)
	case kernels.F8E4M3:
		code := byte(max(0, min(0x7e, int(math.Abs(v)*50)))) // all codes, large and subnormal
		b[0] = code
		if v < 0 {
			b[0] |= 0x80
		}
		e, m := int(code>>3), float64(code&7)
		if e == 0 {
			return math.Ldexp(m, -9)
		}
		return math.Ldexp(8+m, e-10)
	case kernels.BF16:
		bits := math.Float32bits(float32(v)) >> 16
		b[0], b[1] = byte(bits), byte(bits>>8)
		return math.Abs(v)
	}
	// Normal fp16 of 10 bits.
	bits := math.Float32bits(float32(v))
	h := uint16(bits>>16&0x8000) | uint16(max(0, int(bits>>23&0xff)-112)<<10) | uint16(bits>>13&0x3ff)
	b[0], b[1] = byte(h), byte(h>>8)
	return math.Abs(v)
}

// kv is the cache's description, with arrays for device d.
func (w *attentionWorld) kv(d kernels.Device, pages kernels.Buffer) kernels.KV {
	return kernels.KV{Pages: pages, Layout: &w.layout, Layer: 1, Tables: d.Upload(kernels.Ints{Host: w.tables}), Stride: w.stride}
}

func (w *attentionWorld) ragged(d kernels.Device) kernels.Ragged {
	starts, contexts := []int32{0}, []int32{}
	for _, s := range w.spans {
		starts, contexts = append(starts, starts[len(starts)-1]+int32(s.n)), append(contexts, int32(s.context))
	}
	return kernels.Ragged{Starts: d.Upload(kernels.Ints{Host: starts}), Contexts: d.Upload(kernels.Ints{Host: contexts})}
}

func (w *attentionWorld) rows() int { return len(w.q) / w.qStride }

func (w *attentionWorld) tensors(q, dst kernels.Buffer) (kernels.Tensor, kernels.Tensor) {
	cols := w.heads * w.vDim
	return kernels.Tensor{Buf: q, Rows: w.rows(), Cols: w.heads * w.kDim, Stride: w.qStride}, kernels.Tensor{Buf: dst, Rows: w.rows(), Cols: cols, Stride: cols}
}

func floatBytes(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*4)
}

// reference is what kernels/ref answers.
func (w *attentionWorld) reference(t testing.TB) []float32 {
	t.Helper()
	d := ref.Open()
	out := make([]float32, w.rows()*w.heads*w.vDim)
	host := func(b []byte) kernels.Buffer { return kernels.Buffer{Host: b, Len: int64(len(b))} }
	q, dst := w.tensors(host(floatBytes(w.q)), host(floatBytes(out)))
	d.Begin()
	d.Attention(dst, q, w.kv(d, host(w.pages)), w.ragged(d), w.params)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	return out
}

// run is what d answers.
func (w *attentionWorld) run(t testing.TB, d *Device) []float32 {
	t.Helper()
	in := func(b []byte) kernels.Buffer {
		buf, err := d.Alloc(int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.CopyIn(buf, b); err != nil {
			t.Fatal(err)
		}
		return buf
	}
	out := make([]float32, w.rows()*w.heads*w.vDim)
	pages, qb, dstb := in(w.pages), in(floatBytes(w.q)), in(floatBytes(out))
	defer func() { d.Free(pages); d.Free(qb); d.Free(dstb) }()
	q, dst := w.tensors(qb, dstb)
	d.Begin()
	d.Attention(dst, q, w.kv(d, pages), w.ragged(d), w.params)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	if err := d.CopyOut(floatBytes(out), dstb); err != nil {
		t.Fatal(err)
	}
	return out
}

// attentionTolerance is relative to the largest value: weights are of 8 bits beside values of bf16, else of 11.
func attentionTolerance(t kernels.DType) float64 {
	if t == kernels.BF16 {
		return 2e-3
	}
	return 3e-4
}

func TestAttention(t *testing.T) {
	full := kernels.AttentionParams{Scale: 0.1}
	for _, c := range []attentionCase{
		{6, 2, 64, 64, kernels.F16, 16, full, []stretch{{1, 300}, {0, 5}, {20, 270}, {1, 1}}},
		{4, 2, 128, 128, kernels.BF16, 32, kernels.AttentionParams{Scale: 0.1, SoftCap: 3}, []stretch{{3, 40}, {17, 17}}},
		{6, 1, 256, 256, kernels.F8E4M3, 16, kernels.AttentionParams{Scale: 0.05, Window: 100}, []stretch{{1, 600}, {18, 300}}},
		{3, 1, 256, 256, kernels.I8, 16, full, []stretch{{1, 70}, {18, 50}}},
		{2, 1, 512, 512, kernels.F16, 48, full, []stretch{{1, 70}, {18, 50}}},
		{2, 1, 512, 512, kernels.F8E4M3, 48, full, []stretch{{1, 70}, {18, 50}}},
		{4, 1, 72, 44, kernels.I8, 16, full, []stretch{{1, 70}, {18, 50}}},
		{4, 1, 24, 40, kernels.F16, 16, full, []stretch{{1, 70}, {18, 50}}},
		// Two stages of a partition, and more than that on their way.
		{4, 2, 64, 32, kernels.F16, 256, kernels.AttentionParams{Scale: 0.1, Window: 257}, []stretch{{60, 560}, {1, 513}}},
		{4, 1, 192, 128, kernels.BF16, 16, full, []stretch{{1, 70}, {18, 50}}},
		{4, 1, 80, 96, kernels.F8E4M3, 16, kernels.AttentionParams{Scale: 0.1, Window: 1}, []stretch{{1, 70}, {18, 50}}},
	} {
		t.Run(c.String(), func(t *testing.T) {
			d := open(t, 1)
			defer d.Close()
			w := c.world(3)
			got, want := w.run(t, d), w.reference(t)
			tol, worst := attentionTolerance(c.typ)*w.largest, 0.0
			for i := range want {
				diff := math.Abs(float64(got[i]) - float64(want[i]))
				worst = max(worst, diff)
				if !(diff <= tol) {
					t.Fatalf("row %d, column %d: got %v, want %v: differ by %.3g, allowed %.3g", i/(c.heads*c.vDim), i%(c.heads*c.vDim), got[i], want[i], diff, tol)
				}
			}
			t.Logf("worst error %.2g of the largest value", worst/w.largest)
		})
	}
}

// steps returns w with other spans of its one sequence as sequences of a step: rows as w has them.
func (w *attentionWorld) steps(spans ...stretch) *attentionWorld {
	o, whole := *w, w.spans[0]
	o.spans, o.tables, o.q = spans, nil, nil
	for _, s := range spans {
		o.tables = append(o.tables, w.tables[:w.stride]...)
		if s.n == 0 {
			continue
		}
		from := s.context - s.n - (whole.context - whole.n)
		o.q = append(o.q, w.q[from*w.qStride:(from+s.n)*w.qStride]...)
	}
	return &o
}

// sameRows wants what got has of the spans in what all has of the whole sequence, in every bit.
func (w *attentionWorld) sameRows(t *testing.T, all, got []float32, spans ...stretch) {
	t.Helper()
	cols, first, row := w.heads*w.vDim, w.spans[0].context-w.spans[0].n, 0
	for _, s := range spans {
		for p := s.context - s.n; p < s.context; p++ {
			for i := range cols {
				a, b := all[(p-first)*cols+i], got[row*cols+i]
				if math.Float32bits(a) != math.Float32bits(b) {
					t.Fatalf("position %d, column %d: %v (%08x) in %v, %v (%08x) in %v", p, i, a, math.Float32bits(a), w.spans, b, math.Float32bits(b), spans)
				}
			}
			row++
		}
	}
}

// TestAttentionRowAlone wants a token's bits not to depend on what is computed beside it, and how.
func TestAttentionRowAlone(t *testing.T) {
	for _, c := range []attentionCase{
		{6, 1, 64, 64, kernels.F16, 16, kernels.AttentionParams{Scale: 0.1}, []stretch{{60, 300}}},
		{2, 1, 96, 128, kernels.BF16, 16, kernels.AttentionParams{Scale: 0.1, Window: 70}, []stretch{{60, 290}}},
		{3, 1, 256, 256, kernels.F8E4M3, 32, kernels.AttentionParams{Scale: 0.02, SoftCap: 5}, []stretch{{40, 280}}},
		{1, 1, 64, 512, kernels.I8, 16, kernels.AttentionParams{Scale: 0.02}, []stretch{{40, 280}}},
	} {
		t.Run(c.String(), func(t *testing.T) {
			d := open(t, 1)
			defer d.Close()
			w := c.world(5)
			all := w.run(t, d)
			end := c.spans[0].context
			for _, spans := range [][]stretch{
				{{1, end - 3}, {1, end}, {1, end - 29}},
				{{17, end - 5}, {1, end - 30}, {5, end}},
				{{3, end - 20}, {0, 7}, {33, end - 1}},
			} {
				w.sameRows(t, all, w.steps(spans...).run(t, d), spans...)
			}
		})
	}
}

// TestAttentionNotFinite: a value that overflowed shows in the tokens that see it, and in no other of their tile.
func TestAttentionNotFinite(t *testing.T) {
	for _, typ := range []kernels.DType{kernels.F16, kernels.BF16} {
		c := attentionCase{2, 1, 32, 80, typ, 16, kernels.AttentionParams{Scale: 0.1, Window: 50}, []stretch{{40, 70}}}
		w := c.world(9)
		d := open(t, 1)
		defer d.Close()
		clean := w.run(t, d)
		const position, dim = 45, 77
		l := w.layout
		at := l.BlockOffset(w.tables[position/16]) + int64(16*l.LayerBytes()) + int64(16*l.KDim*2) + int64((position%16*l.VDim+dim)*2)
		copy(w.pages[at:], map[kernels.DType]string{kernels.F16: "\x00\x7c", kernels.BF16: "\x80\x7f"}[typ])
		got := w.run(t, d)
		for i := range got {
			column, p := i%(c.heads*c.vDim), 30+i/(c.heads*c.vDim)
			sees := column%c.vDim == dim && p >= position
			if finite := got[i]-got[i] == 0; sees == finite {
				t.Fatalf("%v: position %d, column %d: %v", typ, p, column, got[i])
			}
			if !sees && math.Float32bits(got[i]) != math.Float32bits(clean[i]) {
				t.Fatalf("%v: position %d, column %d: %v beside an infinity, %v without", typ, p, column, got[i], clean[i])
			}
		}
	}
}

// TestAttentionWorkspace: rows that do not fit the workspace are taken in turn, and one row that does not is refused.
func TestAttentionWorkspace(t *testing.T) {
	c := attentionCase{2, 1, 32, 32, kernels.F16, 16, kernels.AttentionParams{Scale: 0.1}, []stretch{{1, 300}, {4, 290}, {1, 7}}}
	w := c.world(11)
	run := func(bytes int64) ([]float32, int) {
		d, err := Open(driver.NewInterpreter(1), Options{WorkspaceBytes: bytes, StepBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		launches := 0
		d.drv.(*driver.Interpreter).Launched = func(string, [3]int, [3]int, *ptx.Result) { launches++ }
		return w.run(t, d), launches
	}
	const row = 2 * 2 * (32*4 + 8) // heads, partitions
	all, one := run(1 << 20)
	tiled, many := run(2*row + 8)
	if one != 1 || many != 3 {
		t.Errorf("%d launches with room, %d with room for two rows of six", one, many)
	}
	for i := range all {
		if math.Float32bits(all[i]) != math.Float32bits(tiled[i]) {
			t.Fatalf("value %d: %v, and %v in tiles", i, all[i], tiled[i])
		}
	}
}

// TestAttentionRefuses: what no kernel takes is refused with its numbers before anything runs.
func TestAttentionRefuses(t *testing.T) {
	for _, c := range []struct {
		attentionCase
		workspace int64
		want      string
	}{
		{attentionCase{1, 1, 516, 64, kernels.F16, 16, kernels.AttentionParams{Scale: 1}, []stretch{{1, 3}}}, 1 << 20, "attention: heads of 516 and 64 values"},
		{attentionCase{1, 1, 64, 66, kernels.I8, 16, kernels.AttentionParams{Scale: 1}, []stretch{{1, 3}}}, 1 << 20, "attention: heads of 64 and 66 values of int8"},
		{attentionCase{4, 1, 64, 64, kernels.F16, 16, kernels.AttentionParams{Scale: 1}, []stretch{{1, 300}}}, 1 << 10, "attention: 2 units of 4 heads of 64 values need 2112 bytes, the workspace has 1024"},
	} {
		d, err := Open(driver.NewInterpreter(1), Options{WorkspaceBytes: c.workspace, StepBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		w := c.world(1)
		pages, err := d.Alloc(int64(len(w.pages)))
		if err != nil {
			t.Fatal(err)
		}
		x, err := d.Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		q, dst := w.tensors(x.Slice(0, 1<<19), x.Slice(1<<19, 1<<19))
		d.Begin()
		d.Attention(dst, q, w.kv(d, pages), w.ragged(d), w.params)
		if err := d.End(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %s...", err, c.want)
		}
		d.Close()
	}
}

// attentionCounts runs w and returns grids and counters of its launches, by kernel.
func attentionCounts(t testing.TB, w *attentionWorld) (map[string][3]int, map[string]ptx.Counters) {
	t.Helper()
	d := open(t, 1)
	defer d.Close()
	grids, counts := map[string][3]int{}, map[string]ptx.Counters{}
	d.drv.(*driver.Interpreter).Launched = func(kernel string, grid, _ [3]int, r *ptx.Result) {
		grids[kernel], counts[kernel] = grid, r.Counters
	}
	w.run(t, d)
	return grids, counts
}

// TestAttentionTraffic: decode reads keys and values once for all query heads of theirs, in whole sectors; shared memory has
// no bank conflicts where tiles move.
func TestAttentionTraffic(t *testing.T) {
	for _, c := range []attentionCase{
		{6, 1, 256, 256, kernels.F16, 16, kernels.AttentionParams{Scale: 0.06}, []stretch{{1, 512}}},
		{6, 1, 256, 256, kernels.F8E4M3, 16, kernels.AttentionParams{Scale: 0.06}, []stretch{{1, 512}}},
		{4, 1, 128, 128, kernels.BF16, 16, kernels.AttentionParams{Scale: 0.06}, []stretch{{1, 512}}},
		{4, 1, 128, 128, kernels.I8, 16, kernels.AttentionParams{Scale: 0.06}, []stretch{{1, 512}}},
	} {
		t.Run(c.String(), func(t *testing.T) {
			w := c.world(3)
			_, counts := attentionCounts(t, w)
			entry := newEntry(t, w)
			n := counts[entry]
			// Sums of two partitions and a result; the block that is last reads the sums again.
			sums := int64(c.heads * (c.vDim*4 + 8) * (c.spans[0].context / kernels.AttentionPartition))
			need := float64(int64(c.spans[0].context)*w.layout.LayerBytes() + int64(c.heads*c.kDim*4) + sums)
			if got := float64(n.DRAMReadBytes); got > 1.01*need {
				t.Errorf("%.0f bytes read, %.0f are there", got, need)
			}
			if n.GlobalLoads.Efficiency < 0.99 {
				t.Errorf("%.2f %% of loaded sectors wanted", 100*n.GlobalLoads.Efficiency)
			}
			if got, most := float64(n.DRAMWriteBytes), float64(sums+int64(c.heads*c.vDim*4)); got > 1.05*most {
				t.Errorf("%.0f bytes written, sums and results have %.0f", got, most)
			}
			if n.BankConflicts*200 > n.SharedWavefronts {
				t.Errorf("%d bank conflicts in %d", n.BankConflicts, n.SharedWavefronts)
			}
			for _, l := range n.Lines {
				if l.BankConflicts > 0 && (l.File == "attention_mma.cuh" || l.Executed > 100) {
					t.Errorf("%s:%d: %d bank conflicts in %d", l.File, l.SourceLine, l.BankConflicts, l.Executed)
				}
			}
		})
	}
}

// newEntry is the name of the kernel for w's cache.
func newEntry(t testing.TB, w *attentionWorld) string {
	s, err := newAttentionShape(kernels.KV{Layout: &w.layout})
	if err != nil {
		t.Fatal(err)
	}
	return s.entry
}

// TestAttentionLaunches: steps of the same tokens and sequences launch few grids as contexts grow, and the same whatever their
// order.
func TestAttentionLaunches(t *testing.T) {
	grids := func(spans ...stretch) string {
		c := attentionCase{2, 1, 16, 16, kernels.F16, 16, kernels.AttentionParams{Scale: 1}, spans}
		g, _ := attentionCounts(t, c.world(1))
		return fmt.Sprint(g)
	}
	if a, b := grids(stretch{1, 513}, stretch{1, 2}, stretch{1, 30}), grids(stretch{1, 256}, stretch{1, 768}, stretch{1, 1}); a != b {
		t.Errorf("%s for contexts of 513, 2 and 30, %s for 256, 768 and 1", a, b)
	}
	if a, b := grids(stretch{3, 60}, stretch{19, 19}), grids(stretch{18, 260}, stretch{4, 50}); a != b {
		t.Errorf("%s and %s for a chunk and a short one", a, b)
	}
	// Eight sequences that grow from 8K to 16K, not in step.
	seen := map[int]bool{}
	for n := range 8192 {
		var a attentionRows
		work := 0
		for i := range 8 {
			a.stretches = append(a.stretches, [3]int{1, 0, 8192 + 100*i + n})
			work += units(a.stretches[i], attentionSpan)
		}
		items := a.items(0, 8, 6, 16, attentionSpan)
		if items < work || items > work*9/8 {
			t.Fatalf("%d pieces of work for %d", items, work)
		}
		seen[items] = true
	}
	if len(seen) > 10 {
		t.Errorf("%d different grids", len(seen))
	}
}

// unfenced is a card on which attention's blocks do not wait for what they wrote to be there before they take a ticket.
type unfenced struct{ *driver.Interpreter }

func (u unfenced) LoadModule(text []byte) (driver.Module, error) {
	without := bytes.ReplaceAll(text, []byte("membar.gl;"), nil)
	if len(without) == len(text) {
		return 0, errors.New("there is no fence to take away")
	}
	return u.Interpreter.LoadModule(without)
}

// TestAttentionNeedsItsFence: the interpreter sees that sums of other blocks are not there without one.
func TestAttentionNeedsItsFence(t *testing.T) {
	d, err := Open(unfenced{driver.NewInterpreter(1)}, Options{WorkspaceBytes: 1 << 20, StepBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w := attentionCase{2, 1, 32, 32, kernels.F16, 16, kernels.AttentionParams{Scale: 0.1}, []stretch{{1, 300}}}.world(11)
	x, err := d.Alloc(int64(len(w.pages)) + 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	pages := x.Slice(1<<16, int64(len(w.pages)))
	if err := d.CopyIn(pages, w.pages); err != nil {
		t.Fatal(err)
	}
	q, dst := w.tensors(x.Slice(0, 1<<15), x.Slice(1<<15, 1<<15))
	d.Begin()
	d.Attention(dst, q, w.kv(d, pages), w.ragged(d), w.params)
	if err := d.End(); err == nil || !strings.Contains(err.Error(), "race: kernel attention_f16_64") {
		t.Errorf("without a fence: %v", err)
	}
}
