package sched

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// watch returns a check, to be called after a plan, that nobody whom memory refuses is passed by more than MaxOvertakes
// younger ones while its model admits.
func (w *world) watch(t *rapid.T) func() {
	blocked := map[*queue]*Sequence{}
	was := map[*Sequence]bool{}
	for _, q := range w.s.queues {
		if q.admits() {
			blocked[q] = q.blocked
		}
		for _, seq := range q.running {
			was[seq] = true
		}
	}
	return func() {
		for _, q := range w.s.queues {
			b := blocked[q]
			if b == nil || b != q.blocked || b != w.passed[q.Name].seq {
				w.passed[q.Name] = passed{seq: q.blocked}
			}
			if b == nil || b != q.blocked {
				continue
			}
			n := w.passed[q.Name]
			for _, o := range w.s.queues {
				for _, seq := range o.running {
					if !was[seq] && seq.age > b.age {
						n.by++
					}
				}
			}
			if w.passed[q.Name] = n; n.by > w.s.limits.MaxOvertakes {
				t.Fatalf("sequence %d of %s waits for memory, and %d younger ones were admitted", b.age, q.Name, n.by)
			}
		}
	}
}

// passed is who waits for memory, and by how many younger ones it was passed.
type passed struct {
	seq *Sequence
	by  int
}

const siegeTokens = 48 // of a request, at most

// siege lets smaller requests come, some of more priority or of other keys, for as long as the oldest of all sequences has not ended, and checks that it does.
func (w *world) siege(t *rapid.T) {
	if len(w.alive) == 0 || uniform(t, "really", 0, 3) != 1 {
		t.Skip()
	}
	oldest := w.alive[0]
	sla := oldest.seq.sla // beside others with deadlines it gets what it asks for, and no more
	asked := sla.TTFT + sla.TPOT*time.Duration(oldest.seq.MaxTokens)
	if asked > 10*time.Second {
		t.Skip("it has time")
	}
	// In its model one admission in fairTurn is its; and a model gets a ninth of the time at least, beside two of weight 4.
	bound := w.steps + w.bound() + int(asked/leastStep) + fairTurn*siegeTokens*9
	seen.sieges++
	for i := 0; oldest.final == nil; i++ {
		q := w.s.queues[i%len(w.s.queues)]
		seq := &Sequence{Model: q.Name, Prompt: []int32{int32(i), 2, 3}, MaxTokens: 5 + i%(siegeTokens-8), Priority: i % 2, Key: []string{"", "k", "m"}[i%3]}
		if err := w.s.Submit(w.now, seq); err == nil {
			tr := newTruth(seq)
			w.truths[seq] = tr
			w.alive = append(w.alive, tr)
		} else {
			w.refused++
		}
		w.step(t)
		if w.steps > bound {
			t.Fatalf("sequence %d of %s, the oldest, has not ended after %d steps: %s", oldest.seq.age, oldest.seq.Model, w.steps, w.describe())
		}
	}
	if err := w.s.Verify(); err != nil {
		t.Fatal(err)
	}
}

// describe is who runs and waits, and where weights are.
func (w *world) describe() string {
	var b strings.Builder
	for _, q := range w.s.queues {
		fmt.Fprintf(&b, "\n%s: running", q.Name)
		for _, seq := range q.running {
			fmt.Fprint(&b, " ", seq.age)
		}
		fmt.Fprint(&b, ", waiting")
		for _, seq := range q.waiting {
			fmt.Fprint(&b, " ", seq.age)
		}
		fmt.Fprintf(&b, ", %d bytes, %s, %+v", q.WeightBytes, q.weights.state, q.weights)
	}
	return b.String()
}

// bound is how many steps are enough for all that is there: what it computes, with what is preempted and what
// passes by, and the turns that models take, when they do not fit together, of two MinResident at the most.
func (w *world) bound() int {
	tokens, turn := 0, time.Duration(0)
	for _, tr := range w.alive {
		tokens += len(tr.tokens)
	}
	models := len(w.s.queues)
	for _, q := range w.s.queues {
		turn = max(turn, 2*w.s.minResident(q))
	}
	return 10*(10+tokens)*models + (maxPassed+models)*int(turn/leastStep)
}
