package kerneltest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
)

// recurrence is the shape of a layer with a state: a convolution over channels with columns before a
// token, and a gated delta rule.
type recurrence struct {
	keyHeads, heads, kDim, vDim int
	channels, columns           int
	pageUnits                   int // that fit a page
}

func (r recurrence) String() string {
	return fmt.Sprintf("%d key heads, %d heads of %dx%d, %d channels by %d, %d units a page",
		r.keyHeads, r.heads, r.kDim, r.vDim, r.channels, r.columns+1, r.pageUnits)
}

// recurrences are shapes of real models made small, and odd ones: sizes that are no multiple of a
// vector, convolutions of 2 to 8 tokens, columns that need several units.
func recurrences() []recurrence {
	return []recurrence{
		{2, 4, 128, 128, 2*2*128 + 4*128, 3, 2},
		{1, 3, 16, 24, 33, 1, 5},
		{2, 6, 64, 20, 300, 7, 1},
		{1, 1, 256, 40, 8, 3, 4},
		{3, 3, 7, 5, 61, 2, 3},
		{1, 2, 33, 64, 520, 4, 3},
	}
}

const (
	stateLayers = 3
	stateLayer  = 1 // the one that is used: the others must stay as they are
	deltaEps    = 1e-6
)

// memoryWorld is an arena of pages and the device's side of one layer. A row of a sequence has what the
// convolution and the delta rule read, side by side: channels, qkv, a, b.
type memoryWorld struct {
	*harness
	recurrence
	layout           kernels.StateLayout
	pages            kernels.Buffer
	chunked          bool // what GatedDelta is asked for
	free             []int32
	written          [][]int32 // pages of states that were written
	w, rate, dtBias  matrix
	qkv, a, b, width int // where a row's parts begin, and its length
}

func (h *harness) memory(r recurrence, states int) *memoryWorld {
	h.Helper()
	w := &memoryWorld{harness: h, recurrence: r}
	w.layout = kernels.StateLayout{Layers: stateLayers, Heads: r.heads, KDim: r.kDim, VDim: r.vDim, ConvChannels: r.channels, ConvColumns: r.columns}
	w.layout.PageBytes = int64(r.pageUnits)*w.layout.UnitBytes() + 64
	if r.kDim*r.vDim < 16 {
		w.layout.PageBytes = int64(r.pageUnits) * w.layout.UnitBytes()
	}
	n := states*w.layout.StatePages() + 3
	w.pages = h.alloc(int64(n) * w.layout.PageBytes)
	for i := range w.pages.Host {
		w.pages.Host[i] = 0xff
	}
	for _, p := range h.rnd.Perm(n - 1) {
		w.free = append(w.free, int32(p+1)) // page 0 is nobody's
	}
	w.w = h.input(h.rows(1, r.channels*(r.columns+1)))
	rate, bias := make([]float32, r.heads), make([]float32, r.heads)
	for i := range rate {
		rate[i], bias[i] = float32(math.Exp(h.rnd.Float64()*4-2)), float32(h.rnd.NormFloat64()-1)
	}
	w.rate, w.dtBias = h.input([][]float32{rate}), h.input([][]float32{bias})
	w.qkv = r.channels
	w.a = w.qkv + 2*r.keyHeads*r.kDim + r.heads*r.vDim
	w.b = w.a + r.heads
	w.width = w.b + r.heads
	return w
}

// state takes pages for one.
func (w *memoryWorld) state() []int32 {
	n := w.layout.StatePages()
	p := w.free[:n:n]
	w.free = w.free[n:]
	return p
}

// values returns where a unit of the layer in use lies.
func (w *memoryWorld) unit(pages []int32, unit int) []float32 {
	b := w.pages.Host[w.layout.Offset(pages, stateLayer, unit):][:w.layout.UnitBytes()]
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// stored is the layer's part of a state: heads, then the columns of the convolution.
func (w *memoryWorld) stored(pages []int32) []float32 {
	var v []float32
	for h := range w.heads {
		v = append(v, w.unit(pages, h)...)
	}
	per := w.layout.UnitChannels()
	for c := 0; c < w.channels; c += per {
		n := min(per, w.channels-c)
		v = append(v, w.unit(pages, w.heads+c/per)[:n*w.columns]...)
	}
	return v
}

// history is a sequence's rows.
func (w *memoryWorld) history(T int) [][]float32 {
	rows := w.rows(T, w.width)
	for _, r := range rows {
		for i := range w.heads {
			r[w.a+i] = float32(w.rnd.NormFloat64())
			r[w.b+i] = float32(w.rnd.NormFloat64() * 2)
		}
	}
	return rows
}

// a run has some rows of a history; in nil begins with zeros.
type stateRun struct {
	rows    [][]float32
	in, out []int32
}

// run computes runs in one step and returns the rows that each gave: convolution, then delta rule.
func (w *memoryWorld) run(runs ...stateRun) [][][]float32 {
	w.Helper()
	var rows [][]float32
	starts, in, out := []int32{0}, []int32{}, []int32{}
	for _, r := range runs {
		rows = append(rows, r.rows...)
		starts = append(starts, int32(len(rows)))
		if r.in == nil {
			r.in = make([]int32, w.layout.StatePages())
			for i := range r.in[1:] {
				r.in[i+1] = -1 << 30 // must not be followed
			}
		}
		in, out = append(in, r.in...), append(out, r.out...)
		if len(r.rows) > 0 {
			w.written = append(w.written, r.out)
		}
	}
	x := w.input(rows)
	conv, delta := w.tensor(len(rows), w.channels), w.tensor(len(rows), w.heads*w.vDim)
	w.step(func() {
		s := kernels.State{Pages: w.pages, Layout: &w.layout, Layer: stateLayer, Runs: kernels.Runs{Starts: w.ints(starts...), In: w.ints(in...), Out: w.ints(out...)}}
		w.d.CausalConv(conv.Tensor, x.ColRange(0, w.channels), w.w.Tensor, s)
		p := kernels.DeltaParams{KeyHeads: w.keyHeads, Rate: w.rate.Tensor, DtBias: w.dtBias.Tensor, Eps: deltaEps, Chunked: w.chunked}
		w.d.GatedDelta(delta.Tensor, x.ColRange(w.qkv, w.a), x.ColRange(w.a, w.b), x.ColRange(w.b, w.width), p, s)
	})
	w.intact("causalConv", conv)
	w.intact("gatedDelta", delta)
	w.intact("the rows that they read", x)
	result := make([][][]float32, len(runs))
	for i := range runs {
		for t := starts[i]; t < starts[i+1]; t++ {
			result[i] = append(result[i], append(slices.Clone(conv.Row(int(t))), delta.Row(int(t))...))
		}
	}
	return result
}

// untouched wants 0xff in all pages and units that no run had to write.
func (w *memoryWorld) untouched() {
	w.Helper()
	mine := make([]bool, len(w.pages.Host))
	mark := func(off, n int64) {
		for i := off; i < off+n; i++ {
			mine[i] = true
		}
	}
	per := w.layout.UnitChannels()
	for _, pages := range w.written {
		for h := range w.heads {
			mark(w.layout.Offset(pages, stateLayer, h), w.layout.UnitBytes())
		}
		for c := 0; c < w.channels; c += per {
			mark(w.layout.Offset(pages, stateLayer, w.heads+c/per), int64(min(per, w.channels-c)*w.columns*4))
		}
	}
	for i, b := range w.pages.Host {
		if !mine[i] && b != 0xff {
			w.Fatalf("byte %d of page %d was written", int64(i)%w.layout.PageBytes, int64(i)/w.layout.PageBytes)
		}
	}
}

// recurrent wants what a state gives to be near the exact values, in its recurrent and in its chunked form.
func recurrent(h *harness) {
	for _, r := range recurrences() {
		h.sub(r.String(), func(h *harness) {
			const T = 83
			w := h.memory(r, 2)
			rows := w.history(T)
			w.unusual(rows)
			pages := w.state()
			got := w.run(stateRun{rows: rows, out: pages})[0]
			w.untouched()
			stored := w.stored(pages)
			for c := range w.channels {
				for t := range T {
					want := w.convolved(rows, t, c)
					h.near(fmt.Sprintf("convolution: token %d, channel %d", t, c), got[t][c], want.value, want.size)
				}
				for j := range w.columns {
					at := w.heads*w.kDim*w.vDim + c*w.columns + j
					h.sameBits("a channel's columns", stored[at:at+1], []float32{rows[T-w.columns+j][c]})
				}
			}
			for head := range w.heads {
				tokens := w.tokens(rows, head)
				outs, state, size := stepped(tokens, w.kDim, w.vDim)
				for _, chunk := range []int{16, 64} {
					other, last := chunked(tokens, w.kDim, w.vDim, chunk)
					for t := range outs {
						for j, v := range outs[t] {
							if d := math.Abs(v - other[t][j]); d > 1e-12*size {
								h.Fatalf("head %d, token %d, value %d: chunks of %d give %v, steps %v", head, t, j, chunk, other[t][j], v)
							}
						}
					}
					for i, v := range state {
						if d := math.Abs(v - last[i]); d > 1e-12*size {
							h.Fatalf("head %d, state %d: chunks of %d give %v, steps %v", head, i, chunk, last[i], v)
						}
					}
				}
				tol := 0.25 * h.tol.Elements * size
				for t := range outs {
					for j, v := range outs[t] {
						h.close(fmt.Sprintf("head %d, token %d, value %d", head, t, j), got[t][w.channels+head*w.vDim+j], v, tol)
					}
				}
				for i, v := range state {
					h.close(fmt.Sprintf("head %d, state %d,%d", head, i/w.vDim, i%w.vDim), stored[head*w.kDim*w.vDim+i], v, tol)
				}
			}
		})
	}
}

// unusual puts gates where exponentials overflow into some rows, and keys and queries without a length.
func (w *memoryWorld) unusual(rows [][]float32) {
	for i, v := range []float32{1e30, -1e30, 25, -25, 100, -100} {
		rows[10+i][w.a+i%w.heads], rows[20+i][w.b+i%w.heads] = v, v
	}
	clear(rows[30][w.qkv : w.qkv+2*w.keyHeads*w.kDim])
	for i := range 2 * w.keyHeads * w.kDim {
		rows[31][w.qkv+i] *= 1e-5
		rows[32][w.qkv+i] *= 1e15
	}
	for i, v := range []float32{1e30, -1e30, 1e4, -1e4, 88, -88} {
		rows[50+8*i%32][i%w.channels] = v
	}
}

type sized struct{ value, size float64 }

// convolved is channel c of token t.
func (w *memoryWorld) convolved(rows [][]float32, t, c int) sized {
	var sum, size float64
	for j := range w.columns + 1 {
		if p := t - w.columns + j; p >= 0 {
			v := float64(rows[p][c]) * float64(w.w.Row(0)[c*(w.columns+1)+j])
			sum, size = sum+v, max(size, math.Abs(v))
		}
	}
	return sized{activations[kernels.SiLU](sum), size}
}

// deltaToken is what one head sees of a token: keys and queries of unit length, and gates.
type deltaToken struct {
	q, k, v        []float64
	logDecay, beta float64
}

func (w *memoryWorld) tokens(rows [][]float32, head int) []deltaToken {
	g := head / (w.heads / w.keyHeads)
	unit := func(x []float32, scale float64) []float64 {
		squares := deltaEps
		for _, v := range x {
			squares += float64(v) * float64(v)
		}
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = float64(v) * scale / math.Sqrt(squares)
		}
		return y
	}
	ts := make([]deltaToken, len(rows))
	for t, r := range rows {
		qkv := r[w.qkv:w.a]
		gate := float64(r[w.a+head]) + float64(w.dtBias.Row(0)[head])
		softplus := gate
		if gate < 40 {
			softplus = math.Log1p(math.Exp(gate))
		}
		ts[t] = deltaToken{
			q:        unit(qkv[g*w.kDim:][:w.kDim], 1/math.Sqrt(float64(w.kDim))),
			k:        unit(qkv[(w.keyHeads+g)*w.kDim:][:w.kDim], 1),
			logDecay: -float64(w.rate.Row(0)[head]) * softplus,
			beta:     logistic(float64(r[w.b+head])),
		}
		for _, v := range qkv[2*w.keyHeads*w.kDim+head*w.vDim:][:w.vDim] {
			ts[t].v = append(ts[t].v, float64(v))
		}
	}
	return ts
}

// stepped is the rule as it is defined, token by token: outputs, the last state, and 1 + the largest value
// of a state or of what went into it.
func stepped(ts []deltaToken, K, V int) (outs [][]float64, S []float64, size float64) {
	S = make([]float64, K*V)
	for _, t := range ts {
		out := make([]float64, V)
		for j := range V {
			var known float64
			for i, k := range t.k {
				S[i*V+j] *= math.Exp(t.logDecay)
				known += S[i*V+j] * k
			}
			size = max(size, math.Abs(t.v[j]))
			for i, k := range t.k {
				S[i*V+j] += k * t.beta * (t.v[j] - known)
				out[j] += S[i*V+j] * t.q[i]
			}
		}
		outs = append(outs, out)
	}
	return outs, S, 1 + size
}

// chunked is the same rule in the form that works on chunks of C tokens with matrix products (Yang, Kautz,
// Hatamizadeh 2024, section 3.3). With g[t] the product of decays from the chunk's start, the state after
// token t is g[t] S + sum of g[t]/g[i] k[i] e[i]^T over i <= t. The errors e solve (I + L) E = B (V - G K S),
// L[t,i] = beta[t] g[t]/g[i] k[t].k[i] for i < t, so that with T = (I + L)^-1 they are U - W S.
func chunked(ts []deltaToken, K, V, C int) (outs [][]float64, S []float64) {
	S = make([]float64, K*V)
	for len(ts) > 0 {
		c := ts[:min(C, len(ts))]
		ts = ts[len(c):]
		logs := make([]float64, len(c)) // of g
		var sum float64
		for t := range c {
			sum += c[t].logDecay
			logs[t] = sum
		}
		// Differences of the large sums lose what the small decays say, so they are summed again.
		ratio := func(t, i int) float64 {
			var sum float64
			for _, x := range c[i+1 : t+1] {
				sum += x.logDecay
			}
			return math.Exp(sum)
		}
		T := make([][]float64, len(c))
		for t := range c {
			T[t] = make([]float64, len(c))
			T[t][t] = 1
			for i := range t {
				l := c[t].beta * ratio(t, i) * dot(c[t].k, c[i].k)
				for j := range i + 1 {
					T[t][j] -= l * T[i][j]
				}
			}
		}
		E := make([][]float64, len(c))
		for t := range c {
			U, W := make([]float64, V), make([]float64, K)
			for i := range t + 1 {
				axpy(U, T[t][i]*c[i].beta, c[i].v)
				axpy(W, T[t][i]*c[i].beta*math.Exp(logs[i]), c[i].k)
			}
			E[t] = U
			for i, w := range W {
				axpy(E[t], -w, S[i*V:(i+1)*V])
			}
		}
		for t := range c {
			out := make([]float64, V)
			for i, q := range c[t].q {
				axpy(out, math.Exp(logs[t])*q, S[i*V:(i+1)*V])
			}
			for i := range t + 1 {
				axpy(out, ratio(t, i)*dot(c[t].q, c[i].k), E[i])
			}
			outs = append(outs, out)
		}
		last := len(c) - 1
		for i := range S {
			S[i] *= math.Exp(logs[last])
		}
		for t := range c {
			for i, k := range c[t].k {
				axpy(S[i*V:(i+1)*V], ratio(last, t)*k, E[t])
			}
		}
	}
	return outs, S
}

func dot(a, b []float64) (sum float64) {
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

func axpy(y []float64, a float64, x []float64) {
	for i, v := range x {
		y[i] += a * v
	}
}

// recurrentRuns wants the same bits however a sequence is cut into runs, in whatever company, on whatever
// pages, in place or not, and states that a run begins with left as they are.
func recurrentRuns(h *harness) {
	for _, r := range recurrences() {
		h.sub(r.String(), func(h *harness) {
			const T = 70
			w := h.memory(r, 16)
			rows := w.history(T)
			first := w.state()
			want := w.run(stateRun{rows: rows, out: first})[0]
			final := w.stored(first)
			same := func(what string, from int, got [][]float32) {
				h.Helper()
				for t, row := range got {
					h.sameBits(fmt.Sprintf("%s: token %d", what, from+t), row, want[from+t])
				}
			}

			// In place, beside strangers and a run without tokens.
			idle := w.state()
			for _, size := range []int{1, 2, 9, 64} {
				own := w.state()
				strangers := [2][]int32{w.state(), w.state()}
				for from, n := 0, 0; from < T; from += n {
					n = size
					if h.light && size < 9 && from == 0 {
						n = T - 5*size
					}
					me := stateRun{rows[from:min(from+n, T)], own, own}
					runs := []stateRun{{w.history(3), strangers[0], strangers[0]}, {nil, nil, idle}, me, {w.history(1), strangers[1], strangers[1]}}
					if from == 0 {
						for i := range runs {
							runs[i].in = nil
						}
					}
					if size == 64 {
						runs = runs[2:3]
					}
					out := w.run(runs...)
					same(fmt.Sprintf("runs of %d", size), from, out[slices.IndexFunc(runs, func(r stateRun) bool { return &r.rows == &me.rows || len(r.rows) > 0 && &r.rows[0] == &me.rows[0] })])
				}
				h.sameBits(fmt.Sprintf("state after runs of %d", size), w.stored(own), final)
				w.free = append(w.free, own...)
				w.free = append(w.free, strangers[0]...)
				w.free = append(w.free, strangers[1]...)
			}

			// Three runs of a sequence in one step, with another's between them. The first leaves a
			// snapshot, which stays as it is while others begin with it.
			snapshot, own, other := w.state(), w.state(), w.state()
			out := w.run(stateRun{rows[:33], nil, snapshot}, stateRun{rows[:40], nil, other}, stateRun{rows[33:34], snapshot, own}, stateRun{rows[34:], own, own})
			same("before a snapshot", 0, out[0])
			same("another sequence", 0, out[1])
			same("from a snapshot", 33, out[2])
			same("after a snapshot", 34, out[3])
			h.sameBits("state after three runs", w.stored(own), final)
			before := bytes.Clone(w.pages.Host)
			third, fourth := w.state(), w.state()
			out = w.run(stateRun{rows[33:50], snapshot, third}, stateRun{rows[33:], snapshot, fourth}, stateRun{rows[40:41], other, other})
			same("from a shared snapshot", 33, out[0])
			same("from a shared snapshot", 33, out[1])
			same("one token in place", 40, out[2])
			h.sameBits("state from a shared snapshot", w.stored(fourth), final)
			for _, p := range append(slices.Clone(snapshot), own...) {
				from, to := int64(p)*w.layout.PageBytes, int64(p+1)*w.layout.PageBytes
				if !bytes.Equal(before[from:to], w.pages.Host[from:to]) {
					h.Fatalf("page %d of a state that runs began with, or of another sequence, was written", p)
				}
			}
			w.untouched()
		})
	}
}

// recurrentDecode advances many sequences by a token each, and wants the bits of each one alone.
func recurrentDecode(h *harness) {
	for _, r := range recurrences()[:3] {
		h.sub(r.String(), func(h *harness) {
			const S, T = 9, 4
			w := h.memory(r, S+1)
			var rows [S][][]float32
			var want [S][][]float32
			var final [S][]float32
			alone := w.state()
			for s := range S {
				rows[s] = w.history(T)
				want[s] = w.run(stateRun{rows: rows[s], out: alone})[0]
				final[s] = w.stored(alone)
			}
			var pages [S][]int32
			for t := range T {
				var runs []stateRun
				for s := range S {
					if t == 0 {
						pages[s] = w.state()
						runs = append(runs, stateRun{rows[s][:1], nil, pages[s]})
					} else {
						runs = append(runs, stateRun{rows[s][t : t+1], pages[s], pages[s]})
					}
				}
				for s, out := range w.run(runs...) {
					h.sameBits(fmt.Sprintf("sequence %d, token %d", s, t), out[0], want[s][t])
				}
			}
			for s := range S {
				h.sameBits(fmt.Sprintf("state of sequence %d", s), w.stored(pages[s]), final[s])
			}
			w.untouched()
		})
	}
}

// recurrentNaN wants a value that is not a number to spoil what depends on it, and nothing else.
func recurrentNaN(h *harness) {
	r := recurrences()[1]
	const T, bad = 150, 74
	for _, chunked := range []bool{false, true} {
		w := h.memory(r, 2)
		w.chunked = chunked
		rows := w.history(T)
		want := w.run(stateRun{rows: rows, out: w.state()})[0]
		value, channel := 5, 3 // of all heads' values; of channels
		rows[bad] = slices.Clone(rows[bad])
		rows[bad][w.qkv+2*w.keyHeads*w.kDim+value] = float32(math.NaN())
		rows[bad][channel] = float32(math.NaN())
		for t, row := range w.run(stateRun{rows: rows, out: w.state()})[0] {
			for i, got := range row {
				spoiled := t >= bad && (i == w.channels+value || i == channel && t <= bad+w.columns)
				if spoiled != (got != got) {
					h.Fatalf("chunked %v, token %d, value %d: got %v", chunked, t, i, got)
				}
				if !spoiled {
					h.sameBits(fmt.Sprintf("chunked %v, token %d, value %d", chunked, t, i), []float32{got}, want[t][i:i+1])
				}
			}
		}
	}
}
