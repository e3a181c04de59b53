package kerneltest

import (
	"fmt"
	"math"

	"github.com/openinfer-go/openinfer/kernels"
)

// geometry is a model's attention, and the cache it uses.
type geometry struct {
	heads, kvHeads, kDim, vDim int
	typ                        kernels.DType
	blockTokens                int
	params                     kernels.AttentionParams
	rotary                     int // values turned; 0: all angles are zero
	norms                      bool
	valueOptions
}

// valueOptions are what only some models do to values, and the pairs of theirs that rotate by no angle.
type valueOptions struct {
	vNorm, keysAsValues bool
	still               int
}

func (g geometry) String() string {
	s := fmt.Sprintf("%d heads %d kv %dx%d %v blocks of %d window %d cap %v rotary %d norms %v",
		g.heads, g.kvHeads, g.kDim, g.vDim, g.typ, g.blockTokens, g.params.Window, g.params.SoftCap, g.rotary, g.norms)
	if g.valueOptions != (valueOptions{}) {
		s += fmt.Sprintf(" values %+v", g.valueOptions)
	}
	return s
}

const (
	cacheLayers = 3
	cacheLayer  = 1 // the one that is used: the others must stay as they are
)

// sequence has the qkv rows of all its positions, of which done are in the cache.
type sequence struct {
	qkv    [][]float32
	blocks []int32
	done   int
}

// world is an arena of pages and the device's side of one layer.
type world struct {
	*harness
	geometry
	layout       kernels.CacheLayout
	pages        kernels.Buffer
	free         []int32 // block ids in random order
	qNorm, kNorm matrix
	rotaryOf     kernels.Rotary
}

const normEps = 1e-6

// world has blocks for some tokens, and some more.
func (h *harness) world(g geometry, tokens int) *world {
	h.Helper()
	blocks := tokens/g.blockTokens + 9
	w := &world{harness: h, geometry: g}
	w.layout = kernels.CacheLayout{
		DType: g.typ, Layers: cacheLayers, Heads: g.kvHeads, KDim: g.kDim, VDim: g.vDim, BlockTokens: g.blockTokens, BlocksPerPage: 3,
	}
	w.layout.BlockBytes = (int64(g.blockTokens)*w.layout.TokenBytes()+63)&^63 + 64
	w.layout.PageBytes = 3*w.layout.BlockBytes + 192
	w.pages = h.alloc(int64((blocks+2)/3) * w.layout.PageBytes)
	for i := range w.pages.Host {
		w.pages.Host[i] = 0xff // a NaN in every type
	}
	for _, b := range h.rnd.Perm(blocks) {
		w.free = append(w.free, int32(b))
	}
	if g.norms {
		w.qNorm, w.kNorm = h.input(h.rows(1, g.kDim)), h.input(h.rows(1, g.kDim))
	}
	if dim := g.rotary; dim > 0 {
		w.rotaryOf = kernels.Rotary{InvFreq: make([]float32, dim/2), Scale: 1}
		for i := range w.rotaryOf.InvFreq {
			w.rotaryOf.InvFreq[i] = float32(math.Pow(1000, -2*float64(i)/float64(dim)))
		}
		clear(w.rotaryOf.InvFreq[dim/2-g.still:])
	} else {
		w.rotaryOf = kernels.Rotary{InvFreq: make([]float32, g.kDim/2), Scale: 1}
	}
	return w
}

func (w *world) sequence(length int) *sequence {
	width := w.heads*w.kDim + w.kvHeads*w.kDim
	if !w.keysAsValues {
		width += w.kvHeads * w.vDim
	}
	return &sequence{qkv: w.rows(length, width)}
}

// rotaryParams are what RotaryStore does here.
func (w *world) rotaryParams(angles kernels.Tensor) kernels.RotaryParams {
	return kernels.RotaryParams{QNorm: w.qNorm.Tensor, KNorm: w.kNorm.Tensor, VNorm: w.vNorm, KeysAsValues: w.keysAsValues, Eps: normEps, CosSin: angles}
}

// value is the value of head g that a row of qkv has, before it is rounded to the cache's type.
func (w *world) value(row []float32, g int) []float64 {
	at := w.heads*w.kDim + g*w.vDim
	if !w.keysAsValues {
		at += w.kvHeads * w.kDim
	}
	ones := make([]float32, w.vDim)
	for i := range ones {
		ones[i] = 1
	}
	if w.vNorm {
		return normed(row[at:at+w.vDim], ones, normEps)
	}
	v := make([]float64, w.vDim)
	for i := range v {
		v[i] = float64(row[at+i])
	}
	return v
}

// grow gives s blocks for n tokens.
func (w *world) grow(s *sequence, n int) {
	for len(s.blocks)*w.blockTokens < n {
		s.blocks = append(s.blocks, w.free[0])
		w.free = w.free[1:]
	}
}

type row struct {
	*sequence
	n     int
	store bool
}

// run advances each sequence by n tokens in one step and returns each one's attention output.
func (w *world) run(rows ...row) [][][]float32 {
	w.Helper()
	return w.advance(true, rows)
}

// fill stores the next n tokens of s; nobody asks for their attention.
func (w *world) fill(s *sequence, n int) {
	w.Helper()
	w.advance(false, []row{{s, n, true}})
}

func (w *world) advance(attend bool, rows []row) [][][]float32 {
	w.Helper()
	var qkv [][]float32
	var slots, positions []int32
	starts, contexts, stride := []int32{0}, []int32{}, 1
	for _, r := range rows {
		w.grow(r.sequence, r.done+r.n)
		stride = max(stride, len(r.blocks)+1)
		for p := r.done; p < r.done+r.n; p++ {
			qkv = append(qkv, r.qkv[p])
			positions = append(positions, int32(p))
			slot := int32(-1)
			if r.store {
				slot = r.blocks[p/w.blockTokens]*int32(w.blockTokens) + int32(p%w.blockTokens)
			}
			slots = append(slots, slot)
		}
		r.done += r.n
		starts, contexts = append(starts, int32(len(qkv))), append(contexts, int32(r.done))
	}
	tables := make([]int32, len(rows)*stride)
	for i := range tables {
		tables[i] = -1 << 30 // an entry that must not be followed
	}
	for i, r := range rows {
		copy(tables[i*stride:], r.blocks)
		if w.params.Window > 0 { // blocks that no token sees any more are given back
			for b := range max(r.done-r.n+1-w.params.Window, 0) / w.blockTokens {
				tables[i*stride+b] = -1 << 30
			}
		}
	}
	in := w.input(qkv)
	q, dst := w.tensor(len(qkv), w.heads*w.kDim), w.tensor(len(qkv), w.heads*w.vDim)
	angles := w.tensor(len(qkv), 2*len(w.rotaryOf.InvFreq))
	w.step(func() {
		kv := kernels.KV{Pages: w.pages, Layout: &w.layout, Layer: cacheLayer, Slots: w.ints(slots...), Tables: w.ints(tables...), Stride: stride}
		w.d.CosSin(angles.Tensor, w.rotaryOf, w.ints(positions...))
		w.d.RotaryStore(q.Tensor, kv, in.Tensor, w.rotaryParams(angles.Tensor))
		if attend {
			w.d.Attention(dst.Tensor, q.Tensor, kv, kernels.Ragged{Starts: w.ints(starts...), Contexts: w.ints(contexts...)}, w.params)
		}
	})
	w.intact("rotaryStore's q", q)
	w.intact("attention", dst)
	out := make([][][]float32, len(rows))
	for i := range rows {
		for t := starts[i]; t < starts[i+1]; t++ {
			out[i] = append(out[i], append([]float32(nil), dst.Row(int(t))...))
		}
	}
	return out
}

// untouched wants 0xff in all blocks that no sequence was given, in the other layers' share of
// the bytes, and in the gaps between blocks and pages.
func (w *world) untouched() {
	w.Helper()
	perBlock := make([]int, 0, len(w.free))
	for _, id := range w.free {
		perBlock = append(perBlock, int(w.layout.BlockOffset(id)))
	}
	for i, off := range perBlock {
		for _, b := range w.pages.Host[off : off+int(w.layout.BlockBytes)] {
			if b != 0xff {
				w.Fatalf("free block %d was written", w.free[i])
			}
		}
	}
	used := w.layout.TokenBytes() * int64(w.blockTokens)
	for id := range int32(w.pages.Len/w.layout.PageBytes) * 3 {
		off := w.layout.BlockOffset(id)
		for _, b := range w.pages.Host[off+used : off+w.layout.BlockBytes] {
			if b != 0xff {
				w.Fatalf("block %d was written beyond its end", id)
			}
		}
	}
	// An entry of the layer in use that holds no NaN is one token's; there may be no more.
	var written int64
	for _, b := range w.pages.Host {
		if b != 0xff {
			written++
		}
	}
	if share := w.pages.Len / cacheLayers; written > share {
		w.Fatalf("%d bytes of %d were written by one of %d layers", written, w.pages.Len, cacheLayers)
	}
}

// turned norms and rotates one head in float64.
func (w *world) turned(x []float32, norm matrix, position int) []float64 {
	y := make([]float64, len(x))
	if w.norms {
		y = normed(x, norm.Row(0), normEps)
	} else {
		for i, v := range x {
			y[i] = float64(v)
		}
	}
	half := len(w.rotaryOf.InvFreq)
	for i, f := range w.rotaryOf.InvFreq {
		sin, cos := math.Sincos(float64(float32(position) * f))
		a, b := y[i], y[half+i]
		y[i], y[half+i] = a*cos-b*sin, b*cos+a*sin
	}
	return y
}

// check compares the attention outputs of the last len(got) positions of s with float64.
func (w *world) check(what string, s *sequence, got [][]float32) {
	w.Helper()
	// Rounding to the cache's type may fall either way when a turned key lies next to the middle.
	tol := w.tol.Attention
	if w.typ != kernels.F32 && (w.norms || w.vNorm || w.rotary > 0) {
		tol += map[kernels.DType]float64{kernels.F16: 1e-3, kernels.BF16: 8e-3, kernels.I8: 8e-3, kernels.F8E4M3: 6e-2}[w.typ]
	}
	keys := w.heads * w.kDim
	k, v := make([][][]float64, s.done), make([][][]float64, s.done) // [position][head]
	for p := range k {
		for g := range w.kvHeads {
			k[p] = append(k[p], cached(w.turned(s.qkv[p][keys+g*w.kDim:][:w.kDim], w.kNorm, p), w.typ))
			v[p] = append(v[p], cached(w.value(s.qkv[p], g), w.typ))
		}
	}
	weights := make([]float64, s.done)
	for t, out := range got {
		position := s.done - len(got) + t
		low := 0
		if w.params.Window > 0 {
			low = max(0, position+1-w.params.Window)
		}
		for h := range w.heads {
			g := h / (w.heads / w.kvHeads)
			q := w.turned(s.qkv[position][h*w.kDim:][:w.kDim], w.qNorm, position)
			largest, total := math.Inf(-1), 0.0
			for p := low; p <= position; p++ {
				var score float64
				for i, v := range q {
					score += v * k[p][g][i]
				}
				score *= float64(w.params.Scale)
				if c := float64(w.params.SoftCap); c > 0 {
					score = c * math.Tanh(score/c)
				}
				weights[p] = score
				largest = max(largest, score)
			}
			for p := low; p <= position; p++ {
				weights[p] = math.Exp(weights[p] - largest)
				total += weights[p]
			}
			want, size := make([]float64, w.vDim), make([]float64, w.vDim)
			for p := low; p <= position; p++ {
				for i, v := range v[p][g] {
					want[i] += weights[p] / total * v
					size[i] = max(size[i], math.Abs(v))
				}
			}
			for i, v := range want {
				w.close(fmt.Sprintf("%s: position %d, head %d, value %d", what, position, h, i), out[h*w.vDim+i], v, tol*size[i])
			}
		}
	}
}

// geometries are the shapes of real models and those between them; one of them in each type of
// cache that the device has.
func (h *harness) geometries() (gs []geometry) {
	params := func(dim, window int, softCap float32) kernels.AttentionParams {
		return kernels.AttentionParams{Scale: float32(1 / math.Sqrt(float64(dim))), Window: window, SoftCap: softCap}
	}
	none := valueOptions{}
	types := h.d.Info().KVTypes
	typ := types[0]
	gs = append(gs, geometry{9, 3, 64, 64, typ, 16, params(64, 0, 0), 0, false, none})
	for _, other := range types[1:] {
		gs = append(gs, geometry{3, 1, 72, 64, other, 16, params(64, 0, 0), 0, false, none})
	}
	for _, t := range types {
		switch t { // each its own: "cache codes" has all sizes in both
		case kernels.F8E4M3:
			gs = append(gs, geometry{2, 1, 256, 256, t, 32, params(256, 100, 50), 0, false, none})
		case kernels.I8:
			gs = append(gs, geometry{1, 1, 512, 512, t, 16, params(512, 0, 0), 0, false, valueOptions{keysAsValues: true}})
		}
	}
	return append(gs,
		geometry{3, 3, 80, 80, types[len(types)-1], 64, params(80, 5, 50), 40, true, none},
		geometry{2, 2, 128, 128, typ, 16, params(128, 0, 0), 128, true, none},
		geometry{4, 2, 32, 32, typ, 32, params(32, 0, 0), 32, false, none},
		geometry{16, 1, 16, 16, typ, 48, params(16, 0, 20), 0, false, none},
		geometry{2, 1, 256, 256, typ, 16, params(256, 100, 0), 64, true, valueOptions{vNorm: true}},
		geometry{6, 2, 96, 96, typ, 16, params(96, 1, 0), 0, false, none},
		geometry{4, 2, 64, 32, typ, 256, params(64, 257, 0), 0, false, none},
		geometry{2, 1, 24, 40, typ, 16, params(1, 0, 0), 0, false, none}, // large scores: a scale of 1
		geometry{2, 2, 192, 128, typ, 128, params(192, 48, 0), 64, false, none},
		geometry{2, 1, 512, 512, typ, 32, params(512, 0, 30), 512, true, valueOptions{vNorm: true, keysAsValues: true, still: 192}},
		geometry{2, 2, 48, 48, typ, 16, params(48, 0, 0), 16, true, valueOptions{keysAsValues: true, still: 3}},
	)
}

func attention(h *harness) {
	for _, g := range h.geometries() {
		h.sub(g.String(), func(h *harness) {
			w := h.world(g, 1400)
			long, middle, short := w.sequence(560), w.sequence(300), w.sequence(70)
			w.run(row{long, 270, true}, row{middle, 16, true})
			if !h.light {
				w.run(row{long, 260, true})
			}
			// Prefill, decode, a sequence without tokens, a later chunk and an early one in one step.
			idle := &sequence{qkv: long.qkv, blocks: long.blocks[:min(3, len(long.blocks))], done: 40}
			out := w.run(row{middle, 45, true}, row{long, 1, true}, row{idle, 0, true}, row{short, 19, true})
			w.check("chunk at 16", middle, out[0])
			w.check("decode of a long one", long, out[1])
			w.check("prefill", short, out[3])
			out = w.run(row{short, 1, true}, row{middle, 210, true}, row{long, 5, true})
			w.check("decode at 19", short, out[0])
			w.check("chunk over a partition", middle, out[1][195:])
			w.check("five more of it", long, out[2])
			w.untouched()
		})
	}
}

// attentionChunks wants one pass, chunks of any size and company, and token by token to agree in
// every bit, across partitions and in other blocks.
func attentionChunks(h *harness) {
	for i, g := range h.geometries() {
		length := kernels.AttentionPartition + 41
		if i == 0 {
			length += kernels.AttentionPartition
		}
		h.sub(g.String(), func(h *harness) {
			w := h.world(g, 3000)
			s := w.sequence(length)
			want := w.run(row{s, length, true})[0]
			strangers := []*sequence{w.sequence(length), w.sequence(length)}
			for _, size := range []int{1, 7, 64, 300} {
				if size == 1 && i%3 != 0 || size > length || h.light && size >= 64 && i%3 == 0 {
					continue // token by token is slow: some geometries will do
				}
				again := &sequence{qkv: s.qkv}
				end := length
				if h.light && size < 64 { // over the border of a partition
					w.fill(again, kernels.AttentionPartition-3*size-2)
					end = kernels.AttentionPartition + 3*size
				}
				others := strangers
				if size != 7 {
					others = nil
				}
				for again.done < end {
					from := again.done
					rows := []row{{again, min(size, length-from), true}}
					if len(others) > 0 && others[0].done+20 <= length {
						rows = append([]row{{others[0], 1 + from%20, true}}, rows...)
					}
					if len(others) > 1 && others[1].done+3 <= length {
						rows = append(rows, row{others[1], 3, true})
					}
					out := w.run(rows...)
					for j, r := range rows {
						if r.sequence == again {
							for t := range out[j] {
								w.sameBits(fmt.Sprintf("chunks of %d: position %d", size, from+t), out[j][t], want[from+t])
							}
						}
					}
				}
				w.free = append(w.free, again.blocks...)
				for _, o := range others {
					w.free = append(w.free, o.blocks...)
					o.blocks, o.done = nil, 0
				}
			}
		})
	}
}

// attentionWindow slides a window over contexts that are longer, in chunks and token by token.
func attentionWindow(h *harness) {
	for _, window := range []int{48, 1024} {
		for _, blockTokens := range []int{16, 256} {
			if h.light && (window == 48) != (blockTokens == 16) {
				continue
			}
			params := kernels.AttentionParams{Scale: 0.25, Window: window}
			g := geometry{4, 2, 16, 24, h.d.Info().KVTypes[0], blockTokens, params, 16, false, valueOptions{}}
			h.sub(g.String(), func(h *harness) {
				w := h.world(g, 4000)
				whole, s := w.sequence(1300), &sequence{}
				s.qkv = whole.qkv
				want := w.run(row{whole, 1300, true})[0]
				w.check("the end of a prompt", whole, want[1290:])
				for i, n := range []int{1000, 200, 60, 1, 4, 5, 1, 1, 28} {
					if h.light && i == 0 {
						w.fill(s, n)
						continue
					}
					from := s.done
					for t, out := range w.run(row{s, n, true})[0] {
						w.sameBits(fmt.Sprintf("position %d", from+t), out, want[from+t])
					}
				}
				w.check("the end of a chunk", s, want[1280:1300])
			})
		}
	}
}

// attentionSharedPrefix wants a sequence that finds its first blocks in the cache to get the same
// bits as the one that filled them.
func attentionSharedPrefix(h *harness) {
	for _, g := range h.geometries() {
		h.sub(g.String(), func(h *harness) {
			w := h.world(g, 30*g.blockTokens)
			length := 5*g.blockTokens + 3
			s := w.sequence(length)
			want := w.run(row{s, length, true})[0]
			for _, blocks := range []int{1, 3, 5} {
				if h.light && blocks != 3 {
					continue
				}
				done := blocks * g.blockTokens
				hit := &sequence{qkv: s.qkv, blocks: append([]int32(nil), s.blocks[:blocks]...), done: done}
				for t, out := range w.run(row{hit, length - done, true})[0] {
					w.sameBits(fmt.Sprintf("after %d shared blocks: position %d", blocks, done+t), out, want[done+t])
				}
			}
		})
	}
}

// attentionWithoutStore computes tokens again whose keys and values are in the cache: slot -1.
func attentionWithoutStore(h *harness) {
	for _, g := range h.geometries() {
		h.sub(g.String(), func(h *harness) {
			w := h.world(g, 300)
			s, other := w.sequence(50), w.sequence(20)
			want := w.run(row{s, 50, true})[0]
			cache := append([]byte(nil), w.pages.Host...)
			again := &sequence{qkv: s.qkv, blocks: s.blocks, done: 46}
			for t, out := range w.run(row{again, 4, false})[0] {
				w.sameBits(fmt.Sprintf("position %d", 46+t), out, want[46+t])
			}
			if string(cache) != string(w.pages.Host) {
				w.Fatal("slots of -1 were stored")
			}
			again.done = 49
			out := w.run(row{other, 20, true}, row{again, 1, false})
			w.sameBits("the last position beside a prefill", out[1][0], want[49])
			w.check("prefill beside slots of -1", other, out[0])
		})
	}
}

// attentionAfterDrafts stores tokens that are taken back, and then others in their place, as refused drafts are: nothing
// of them may be left.
func attentionAfterDrafts(h *harness) {
	for _, g := range h.geometries() {
		h.sub(g.String(), func(h *harness) {
			w := h.world(g, 300)
			s, draft := w.sequence(50), w.sequence(50)
			want := w.run(row{s, 50, true})[0]
			for i := range draft.qkv {
				for j := range draft.qkv[i] {
					draft.qkv[i][j] *= 100
				}
			}
			again := &sequence{qkv: s.qkv}
			for _, n := range []int{5, 1, 17, 9, 18} {
				from := again.done
				w.grow(again, from+6)
				draft.blocks, draft.done = again.blocks, from
				w.run(row{draft, min(6, 50-from), true})
				again.blocks = draft.blocks
				for t, out := range w.run(row{again, n, true})[0] {
					w.sameBits(fmt.Sprintf("position %d", from+t), out, want[from+t])
				}
			}
		})
	}
}

// rotaryStore checks the queries; what is stored shows in attention alone, checked there.
func rotaryStore(h *harness) {
	for i, g := range h.geometries() {
		g.norms = true
		for j, rotary := range []int{2, g.kDim / 4 * 2, g.kDim} {
			if h.light && j != i%3 {
				continue
			}
			g.rotary, g.still = rotary, min(g.still, rotary/4)
			h.sub(g.String(), func(h *harness) {
				const T = 37
				w := h.world(g, 100)
				s := w.sequence(T)
				in := w.input(s.qkv)
				w.grow(s, T)
				var slots, positions []int32
				for p := range T {
					slots = append(slots, s.blocks[p/g.blockTokens]*int32(g.blockTokens)+int32(p%g.blockTokens))
					positions = append(positions, int32(p*7))
				}
				angles := w.tensor(T, rotary)
				all := w.tensor(T, g.heads*g.kDim)
				run := func(q kernels.Tensor, from, to int) {
					kv := kernels.KV{Pages: w.pages, Layout: &w.layout, Layer: cacheLayer, Slots: w.ints(slots[from:to]...)}
					w.d.RotaryStore(q, kv, in.RowRange(from, to), w.rotaryParams(angles.RowRange(from, to)))
				}
				w.step(func() {
					w.d.CosSin(angles.Tensor, w.rotaryOf, w.ints(positions...))
					run(all.Tensor, 0, T)
				})
				for t := range T {
					for head := range g.heads {
						want := w.turned(s.qkv[t][head*g.kDim:][:g.kDim], w.qNorm, int(positions[t]))
						for i, v := range want {
							w.close(fmt.Sprintf("token %d, head %d, value %d", t, head, i), all.Row(t)[head*g.kDim+i], v, 4*w.tol.Elements*(1+math.Abs(v)))
						}
					}
				}
				w.intact("rotaryStore's q", all)
				w.intact("rotaryStore's qkv", in)
				cache := append([]byte(nil), w.pages.Host...)
				w.alone("rotaryStore's q", all, nil, run)
				if string(cache) != string(w.pages.Host) {
					w.Fatal("the same rows, computed in other batches, were stored with other bits")
				}
			})
		}
	}
}
