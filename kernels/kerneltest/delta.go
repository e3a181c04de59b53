package kerneltest

import (
	"fmt"
	"math"
	"slices"
)

// chunkedShapes are shapes beyond recurrences that the chunked form may take in tiles.
func chunkedShapes() []recurrence {
	return append(recurrences(), recurrence{1, 2, 16, 256, 16, 3, 2}, recurrence{1, 2, 256, 16, 16, 3, 2}, recurrence{2, 4, 20, 40, 8, 3, 5})
}

// histories change a sequence's rows to what products of many tokens could get wrong.
var histories = []struct {
	name   string
	change func(w *memoryWorld, rows [][]float32)
}{
	{"as they come", func(w *memoryWorld, rows [][]float32) {
		if len(rows) >= 80 {
			w.unusual(rows)
		}
	}},
	// A quotient of products of such decays would be 0/0 after a few tokens.
	{"decays of exp(-50)", func(w *memoryWorld, rows [][]float32) { w.setDecay(rows, func(int) float64 { return 50 }) }},
	// Sums of logarithms would lose the small ones beside the large.
	{"a decay of exp(-1e6) among small ones", func(w *memoryWorld, rows [][]float32) {
		w.setDecay(rows, func(t int) float64 {
			if t%11 == 5 {
				return 1e6
			}
			return 0.02
		})
	}},
	{"no decay, beta 1, one key", func(w *memoryWorld, rows [][]float32) {
		w.setDecay(rows, func(int) float64 { return 1e-7 })
		w.sameKeys(rows, 0)
		for _, r := range rows {
			for h := range w.heads {
				r[w.b+h] = 30
			}
		}
	}},
	{"keys that are nearly one, turned round", func(w *memoryWorld, rows [][]float32) {
		w.setDecay(rows, func(int) float64 { return 1e-4 })
		w.sameKeys(rows, 1e-3)
		for t, r := range rows {
			keys := r[w.qkv+w.keyHeads*w.kDim:][:w.keyHeads*w.kDim]
			for i := range keys {
				keys[i] *= float32(1 - 2*(t%2))
			}
		}
	}},
	{"beta near 0 and 1", func(w *memoryWorld, rows [][]float32) {
		for t, r := range rows {
			for h := range w.heads {
				r[w.b+h] = float32(40*((t+h)%2) - 20)
			}
		}
	}},
}

// setDecay makes the decay of token t of every head exp(-of(t)).
func (w *memoryWorld) setDecay(rows [][]float32, of func(t int) float64) {
	for t, r := range rows {
		for h := range w.heads {
			softplus := of(t) / float64(w.rate.Row(0)[h])
			gate := softplus
			if softplus < 30 {
				gate = math.Log(math.Expm1(softplus))
			}
			r[w.a+h] = float32(gate - float64(w.dtBias.Row(0)[h]))
		}
	}
}

// sameKeys gives all tokens the first one's keys, but for a part of their own.
func (w *memoryWorld) sameKeys(rows [][]float32, own float32) {
	from, to := w.qkv+w.keyHeads*w.kDim, w.qkv+2*w.keyHeads*w.kDim
	for _, r := range rows[1:] {
		for i := from; i < to; i++ {
			r[i] = rows[0][i] + own*r[i]
		}
	}
}

// recurrentChunked wants the chunked delta rule to be near the exact values for runs of any length, wherever
// they begin, and a run's bits not to depend on what else is in the step.
func recurrentChunked(h *harness) {
	for i, r := range chunkedShapes() {
		for j := range 2 { // of the histories, so that each comes with large and small shapes
			if h.light && j > 0 {
				continue
			}
			like := histories[(i+3*j)%len(histories)]
			h.sub(r.String()+", "+like.name, func(h *harness) {
				// Lengths around one to three chunks of 16, 32 and 64 tokens, some for each shape.
				lengths := [][]int{{64, 47, 2}, {130, 17, 31}, {193, 16, 1}}[i%3]
				w := h.memory(r, 2*len(lengths)+4)
				w.chunked = true
				var runs []stateRun
				for _, T := range lengths {
					rows := w.history(T)
					like.change(w, rows)
					runs = append(runs, stateRun{rows: rows, out: w.state()})
				}
				together := w.run(runs...)
				for i, run := range runs {
					w.nearStepped(fmt.Sprintf("sequence %d of %d tokens", i, len(run.rows)), run.rows, together[i], w.stored(run.out))
					if h.light && i != 1 {
						continue
					}
					alone := stateRun{rows: run.rows, out: w.state()}
					for t, row := range w.run(alone)[0] {
						h.sameBits(fmt.Sprintf("sequence %d alone, token %d", i, t), row, together[i][t])
					}
					h.sameBits(fmt.Sprintf("state of sequence %d alone", i), w.stored(alone.out), w.stored(run.out))
				}

				// Cut twice in one step, where a snapshot is left and in the middle of what follows, and continued
				// by one token in place.
				rows := runs[0].rows
				cut, last := len(rows)/3, len(rows)-1
				snapshot, own, other := w.state(), w.state(), w.state()
				out := w.run(stateRun{rows[:cut], nil, snapshot}, stateRun{runs[1].rows, nil, other}, stateRun{rows[cut : cut+18], snapshot, own}, stateRun{rows[cut+18 : last], own, own})
				end := w.run(stateRun{rows[last:], own, own})
				w.nearStepped("cut twice", rows, slices.Concat(out[0], out[2], out[3], end[0]), w.stored(own))
				w.untouched()
			})
		}
	}
}

// nearStepped wants what the delta rule gave, and the state it left, to be near the exact values.
func (w *memoryWorld) nearStepped(what string, rows, got [][]float32, stored []float32) {
	w.Helper()
	for head := range w.heads {
		outs, state, size := stepped(w.tokens(rows, head), w.kDim, w.vDim)
		tol := 0.25 * w.tol.Elements * size
		near := func(part string, i int, got []float32, want []float64) {
			w.Helper()
			for j, v := range want {
				if diff := math.Abs(float64(got[j]) - v); !(diff <= tol) {
					w.Fatalf("%s: head %d, %s %d, value %d: got %v, want %v, differ by %.3g, allowed %.3g", what, head, part, i, j, got[j], v, diff, tol)
				}
			}
		}
		for t, out := range outs {
			near("token", t, got[t][w.channels+head*w.vDim:], out)
		}
		for i := range w.kDim {
			near("row of the state", i, stored[(head*w.kDim+i)*w.vDim:], state[i*w.vDim:][:w.vDim])
		}
	}
}
