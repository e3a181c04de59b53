package ref

import (
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// deltaChunk is how many tokens of a run the chunked gated delta rule takes together; the last of a run are fewer.
const deltaChunk = 64

// deltaToken is what the gated delta rule sees of a token in one head: query and key of unit length (the
// query over sqrt(KDim), too), the value, and where the output goes.
type deltaToken struct {
	q, k        []float64 // [KDim]
	v, y        []float32 // [VDim]
	decay, beta float64
}

// GatedDelta implements kernels.Device.
func (d *Device) GatedDelta(dst, qkv, a, b kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
	if d.err != nil || !d.ok(check.GatedDelta(dst, qkv, a, b, p, s)) {
		return
	}
	l := s.Layout
	K, V := l.KDim, l.VDim
	rate, bias := p.Rate.Row(0), p.DtBias.Row(0)
	rs := runs(s)
	d.each(l.Heads, func(first, last int) {
		for h := first; h < last; h++ {
			g := h / (l.Heads / p.KeyHeads)
			for _, r := range rs {
				if r.from == r.to {
					continue
				}
				S := unit(s, r.out, h)
				if r.in == nil {
					clear(S)
				} else {
					copy(S, unit(s, r.in, h))
				}
				tokens := make([]deltaToken, r.to-r.from)
				for i := range tokens {
					t := r.from + i
					row := qkv.Row(t)
					tokens[i] = deltaToken{
						q:     unitLength(row[g*K:(g+1)*K], p.Eps, 1/math.Sqrt(float64(K))),
						k:     unitLength(row[(p.KeyHeads+g)*K:][:K], p.Eps, 1),
						v:     row[2*p.KeyHeads*K+h*V:][:V],
						y:     dst.Row(t)[h*V:][:V],
						decay: math.Exp(-float64(rate[h]) * softplus(float64(a.Row(t)[h])+float64(bias[h]))),
						beta:  activate(kernels.Sigmoid, float64(b.Row(t)[h])),
					}
				}
				if !p.Chunked {
					deltaSteps(S, tokens)
					continue
				}
				for c := range slices.Chunk(tokens, deltaChunk) {
					deltaMany(S, c)
				}
			}
		}
	})
}

// deltaSteps takes a head's state S [KDim,VDim] through tokens one by one:
//
//	S = decay S;  S = S + k (beta (v - S^T k))^T;  y = S^T q
func deltaSteps(S []float32, tokens []deltaToken) {
	for _, t := range tokens {
		V := len(t.v)
		for j := range V {
			var known float64
			for i, k := range t.k {
				known += float64(S[i*V+j]) * k
			}
			e := t.beta * (float64(t.v[j]) - t.decay*known)
			var sum float64
			for i, k := range t.k {
				next := float32(float64(S[i*V+j])*t.decay + k*e)
				S[i*V+j] = next
				sum += float64(next) * t.q[i]
			}
			t.y[j] = float32(sum)
		}
	}
}

// deltaMany takes a head's state through C tokens at once, by products of matrices. With d[t,i] the product
// of the decays of tokens i+1 to t, b[t] that of tokens 0 to t, and e[t] what token t adds to the state along
// k[t], the state after token t is b[t] S + sum over i <= t of d[t,i] k[i] e[i]^T. So (I + L) E = B (V - diag(b) K S) for
// the rows e[t] of E, with B = diag(beta) and L[t,i] = beta[t] d[t,i] k[t].k[i] below the diagonal: a triangular
// system, solved from its first row on. (The papers invert I + L once for all columns, T = (I + L)^-1 B, and write
// E = U - W S with U = T V and W = T diag(b) K. |T| <= 1: a product of contractions.) Then
//
//	y[t] = b[t] S^T q[t] + sum over i <= t of d[t,i] (q[t].k[i]) e[i]
//	S    = b[C-1] S + sum over t of d[C-1,t] k[t] e[t]^T
//
// d is multiplied up, a row from the one before: a quotient b[t]/b[i] would be 0/0 where decays vanish, and
// the difference of two sums of logarithms would lose a small decay beside a large one. No sum takes in a
// later token: what is not a number must not spread backwards.
func deltaMany(S []float32, tokens []deltaToken) {
	C, V := len(tokens), len(tokens[0].v)
	L, A := make([][]float64, C), make([][]float64, C) // L as above, and d[t,i] q[t].k[i]
	b, d := make([]float64, C), make([]float64, C)     // d: the row of token t, at last of the last
	before := 1.0
	for t, x := range tokens {
		before *= x.decay
		b[t] = before
		for i := range t {
			d[i] *= x.decay
		}
		d[t] = 1
		L[t], A[t] = make([]float64, t), make([]float64, t+1)
		for i := range t {
			L[t][i] = x.beta * d[i] * dot(x.k, tokens[i].k)
		}
		for i := range t + 1 {
			A[t][i] = d[i] * dot(x.q, tokens[i].k)
		}
	}
	// Columns of the state do not meet.
	column, e := make([]float64, len(tokens[0].k)), make([]float64, C)
	for j := range V {
		for i := range column {
			column[i] = float64(S[i*V+j])
		}
		for t, x := range tokens {
			e[t] = x.beta*(float64(x.v[j])-b[t]*dot(x.k, column)) - dot(L[t], e[:t])
		}
		for t, x := range tokens {
			x.y[j] = float32(b[t]*dot(x.q, column) + dot(A[t], e[:t+1]))
		}
		for i := range column {
			sum := b[C-1] * column[i]
			for t, x := range tokens {
				sum += d[t] * x.k[i] * e[t]
			}
			S[i*V+j] = float32(sum)
		}
	}
}

// unitLength is x / sqrt(sum of x^2 + eps) * scale.
func unitLength(x []float32, eps float32, scale float64) []float64 {
	var squares float64
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	scale /= math.Sqrt(squares + float64(eps))
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) * scale
	}
	return y
}

func softplus(x float64) float64 {
	if x > 30 { // where exp(-x) no longer counts
		return x
	}
	return math.Log1p(math.Exp(x))
}
