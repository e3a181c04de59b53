package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

// span is a sequence's share of a step: n tokens, the last at position context-1.
type span struct{ n, context int }

// attentionCase is a layer's attention over a filled cache.
type attentionCase struct {
	heads, kvHeads, kDim, vDim int
	typ                        kernels.DType
	blockTokens                int
	params                     kernels.AttentionParams
	spans                      []span
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
	for s, span := range c.spans {
		tokens += span.n
		low := 0
		if c.params.Window > 0 {
			low = max(0, span.context-span.n+1-c.params.Window)
		}
		for p := low; p < span.context; p++ {
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

// attentionTolerance is relative to the largest value: weights have 8 bits beside values of bf16, fp8 and int8, else 11.
func attentionTolerance(t kernels.DType) float64 {
	if t == kernels.F16 {
		return 3e-4
	}
	return 2e-3
}

func TestAttention(t *testing.T) {
	full := kernels.AttentionParams{Scale: 0.1}
	for _, c := range []attentionCase{
		{6, 2, 64, 64, kernels.F16, 16, full, []span{{1, 300}, {0, 5}, {20, 270}, {1, 1}}},
		{4, 2, 128, 128, kernels.BF16, 32, kernels.AttentionParams{Scale: 0.1, SoftCap: 3}, []span{{3, 40}, {17, 17}}},
		{6, 1, 256, 256, kernels.F8E4M3, 16, kernels.AttentionParams{Scale: 0.05, Window: 100}, []span{{1, 600}, {18, 300}}},
		{3, 1, 256, 256, kernels.I8, 16, full, []span{{1, 70}, {18, 50}}},
		{2, 1, 512, 512, kernels.F16, 48, full, []span{{1, 70}, {18, 50}}},
		{2, 1, 512, 512, kernels.F8E4M3, 48, full, []span{{1, 70}, {18, 50}}},
		{4, 1, 72, 44, kernels.I8, 16, full, []span{{1, 70}, {18, 50}}},
		{4, 1, 24, 40, kernels.F16, 16, full, []span{{1, 70}, {18, 50}}},
		{4, 1, 192, 128, kernels.BF16, 16, full, []span{{1, 70}, {18, 50}}},
		{4, 1, 80, 96, kernels.F8E4M3, 16, kernels.AttentionParams{Scale: 0.1, Window: 1}, []span{{1, 70}, {18, 50}}},
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
