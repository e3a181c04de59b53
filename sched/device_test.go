package sched

import (
	"fmt"
	"slices"

	"github.com/openinfer-go/openinfer/kvcache"
)

// device stands for the hardware: it keeps, for every place in cache memory, which token of which
// prefix was stored there last, and checks before it computes a token that all it attends to is
// what it should be. So a block given to two sequences, a stale prefix hit, or a position that was
// not computed again after a preemption is found at the step that would have read it. Recurrent state
// is a chain of hashes over the tokens, which runs carry on from what the pages hold.
type device struct {
	cells  []tag
	caches map[string]*kvcache.Cache
	steps  int
}

// tag is all that a token's key and value depend on.
type tag struct {
	model  string
	id     kvcache.Identity
	group  int
	pos    int
	prefix uint64 // of the tokens up to and including this one
}

const (
	pageCells  = 1152 // divisible by 1, 2, 3, 4, 6 blocks a page times 16, 32, 48, 96 tokens a block
	tokenCells = 6    // at least, of a token: of a page with state every so many one is used
)

func newDevice(pages int) *device {
	return &device{cells: make([]tag, pages*pageCells), caches: map[string]*kvcache.Cache{}}
}

// place returns the cells of one token of a block.
func (d *device) place(c *kvcache.Cache, g int, id kvcache.BlockID, off int) []tag {
	per := pageCells / c.Config().BlocksPerPage
	tok := per / c.Config().Groups[g].BlockTokens
	lo := int(id)/c.Config().BlocksPerPage*pageCells + int(id)%c.Config().BlocksPerPage*per + off*tok
	return d.cells[lo : lo+tok]
}

func mix(h uint64, x int32) uint64 {
	h = (h ^ uint64(uint32(x))) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

const endToken = 0

// truth is a sequence with the answer that the model gives: the next token is a function of those
// before it, as in greedy sampling.
type truth struct {
	seq    *Sequence
	tokens []int32
	prefix []uint64
	stopAt int // sampled tokens after which a stop string matches; 0: never

	got    []int32 // from events
	final  *Event
	logits []bool // prompt positions whose logits were delivered
}

func newTruth(seq *Sequence) *truth {
	t := &truth{seq: seq, logits: make([]bool, len(seq.Prompt))}
	for _, id := range seq.Prompt {
		t.add(id)
	}
	for len(t.tokens) < len(seq.Prompt)+seq.MaxTokens+1 {
		t.add(int32(t.prefix[len(t.prefix)-1]>>7) & 31)
	}
	return t
}

func (t *truth) add(id int32) {
	h := uint64(len(t.seq.Model))
	if n := len(t.prefix); n > 0 {
		h = t.prefix[n-1]
	}
	t.tokens = append(t.tokens, id)
	t.prefix = append(t.prefix, mix(h, id))
}

// launch is a plan with copies of what a device is given when it is launched: later plans may
// change the tables.
type launch struct {
	plan   *Plan
	rows   []launchRow
	out    Output
	ran    bool
	reason error
}

type launchRow struct {
	id     kvcache.Identity
	runs   []kvcache.Run
	tables [][]kvcache.BlockID
	tokens []int32 // -1: fed by the device
}

func newLaunch(p *Plan) *launch {
	l := &launch{plan: p}
	for i := range p.Rows {
		r := &p.Rows[i]
		row := launchRow{id: blocksID(r.Seq), runs: r.Runs}
		for g := range r.Seq.queue.Cache.Config().Groups {
			row.tables = append(row.tables, slices.Clone(r.Seq.Blocks().Blocks(g)))
		}
		for pos := r.Start; pos < r.Start+r.N; pos++ {
			id, known := r.Token(pos)
			if !known {
				id = -1
			}
			row.tokens = append(row.tokens, id)
		}
		l.rows = append(l.rows, row)
	}
	return l
}

// blocksID is whose blocks a sequence may have.
func blocksID(seq *Sequence) kvcache.Identity {
	id := seq.Identity
	if seq.Regime() > 0 {
		id.Regime = fmt.Sprint(seq.Regime())
	}
	return id
}

// run computes the step: the rows' tokens are stored, and those that are sampled answered.
func (d *device) run(l *launch, truths map[*Sequence]*truth) error {
	l.ran = true
	n := len(l.plan.Rows)
	l.out = Output{Tokens: make([][]int32, n), Stop: make([]int, n), Errs: make([]error, n)}
	d.steps++
	for i := range l.plan.Rows {
		if d.steps%2 == 0 { // the rows of a step run side by side: in any order
			i = n - 1 - i
		}
		r := &l.plan.Rows[i]
		if err := d.runRow(r, &l.rows[i], truths[r.Seq], l.plan.Void(i), i, &l.out); err != nil {
			return fmt.Errorf("%s row %d, %d tokens at %d: %w", l.plan.Model, i, r.N, r.Start, err)
		}
	}
	return nil
}

func (d *device) runRow(r *Row, row *launchRow, t *truth, void bool, i int, out *Output) error {
	c := d.caches[r.Seq.Model]
	known := r.Start + r.N - r.Drafts
	for g, cfg := range c.Config().Groups {
		if cfg.Kind == kvcache.Recurrent {
			if err := d.runState(r, row, t, void, g, cfg.StatePages); err != nil {
				return err
			}
			continue
		}
		from := 0
		if cfg.Kind == kvcache.SlidingWindow {
			from = max(0, r.Start-cfg.Window+1)
		}
		for pos := from; pos < r.Start && !void; pos++ {
			b := row.tables[g][pos/cfg.BlockTokens]
			want := tag{r.Seq.Model, row.id, g, pos, t.prefix[pos]}
			for _, got := range d.place(c, g, b, pos%cfg.BlockTokens) {
				if got != want {
					return fmt.Errorf("group %d position %d in block %d: got %+v, want %+v", g, pos, b, got, want)
				}
			}
		}
		h := uint64(0)
		for pos := r.Start; pos < r.Start+r.N; pos++ {
			b := row.tables[g][pos/cfg.BlockTokens]
			if b == kvcache.Padding {
				return fmt.Errorf("group %d position %d is to be stored in the padding block", g, pos)
			}
			id := row.tokens[pos-r.Start]
			if pos < known {
				if id >= 0 && id != t.tokens[pos] {
					return fmt.Errorf("position %d: token %d, not %d", pos, id, t.tokens[pos])
				}
				h = t.prefix[pos]
			} else {
				h = mix(h, id)
			}
			w := tag{r.Seq.Model, row.id, g, pos, h}
			if void {
				w = tag{model: "void"} // a device may do anything with it
			}
			for k, cells := 0, d.place(c, g, b, pos%cfg.BlockTokens); k < len(cells); k++ {
				cells[k] = w
			}
		}
	}
	if r.Samples == 0 {
		return nil
	}
	at := known // position of the next token
	for k := range r.Samples {
		next := t.tokens[at]
		out.Tokens[i] = append(out.Tokens[i], next)
		if t.stopAt > 0 && at-len(r.Seq.Prompt)+1 == t.stopAt {
			out.Stop[i] = k + 1
		}
		at++
		if k < r.Drafts && r.Draft[k] != next {
			break
		}
	}
	return nil
}

// runState carries the row's recurrent state on, run by run.
func (d *device) runState(r *Row, row *launchRow, t *truth, void bool, g, pages int) error {
	at := r.Start
	for _, run := range row.runs {
		h := uint64(len(r.Seq.Model)) // of no tokens
		if run.From != at || run.To <= at || (run.In == nil) != (at == 0) || len(run.Out) != pages || at > 0 && len(run.In) != pages {
			return fmt.Errorf("run %+v at %d", run, at)
		}
		for i, pg := range run.In {
			first := int(pg) * pageCells
			if i == 0 {
				h = d.cells[first].prefix
			}
			want := tag{r.Seq.Model, row.id, g, at, h}
			if at <= len(t.prefix) && at <= r.Start+r.N-r.Drafts {
				want.prefix = t.prefix[at-1]
			}
			for j := first; j < first+pageCells && !void; j += tokenCells {
				if got := d.cells[j]; got != want {
					return fmt.Errorf("state at %d on page %d: got %+v, want %+v", at, pg, got, want)
				}
			}
		}
		for ; at < run.To; at++ {
			id := row.tokens[at-r.Start]
			if id < 0 {
				id = t.tokens[at]
			}
			h = mix(h, id)
		}
		w := tag{r.Seq.Model, row.id, g, at, h}
		if void {
			w = tag{model: "void"}
		}
		for _, pg := range run.Out {
			if pg == 0 {
				return fmt.Errorf("state at %d is to be stored on the padding page", at)
			}
			for j := 0; j < pageCells; j += tokenCells {
				d.cells[int(pg)*pageCells+j] = w
			}
		}
	}
	if at != r.Start+r.N {
		return fmt.Errorf("runs %+v end at %d, of %d", row.runs, at, r.Start+r.N)
	}
	return nil
}

// take checks an event against the truth.
func (t *truth) take(e Event) error {
	if t.final != nil {
		return fmt.Errorf("event %+v after the final one", e)
	}
	if e.Index != len(t.got) {
		return fmt.Errorf("event at index %d after %d tokens", e.Index, len(t.got))
	}
	t.got = append(t.got, e.Tokens...)
	n := len(t.seq.Prompt)
	if len(t.got) > t.seq.MaxTokens || !slices.Equal(t.got, t.tokens[n:n+len(t.got)]) {
		return fmt.Errorf("got %v, want the first of %v (at most %d)", t.got, t.tokens[n:], t.seq.MaxTokens)
	}
	if e.Reason != None {
		t.final = &e
	}
	want := t.reason()
	switch e.Reason {
	case None, Cancelled, Failed:
		if want != None && len(e.Tokens) > 0 {
			return fmt.Errorf("%d tokens end by %s, but the event says %s", len(t.got), want, e.Reason)
		}
	default:
		if want != e.Reason {
			return fmt.Errorf("%d tokens end by %s, but the event says %s", len(t.got), want, e.Reason)
		}
	}
	return nil
}

// reason is why the sequence should end with the tokens it got.
func (t *truth) reason() Reason {
	n := len(t.got)
	switch {
	case n > 0 && n >= t.seq.MinTokens && t.got[n-1] == endToken && t.seq.EndTokens != nil:
		return Stop
	case n > 0 && n == t.stopAt:
		return StopString
	case n >= t.seq.MaxTokens:
		return Length
	}
	return None
}
