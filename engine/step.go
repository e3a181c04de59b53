package engine

import (
	"fmt"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/sched"
)

// headTile is how many rows of logits there are at a time: a row of a vocabulary of 150,000 is
// 600 KB, so a prompt's worth of them would be gigabytes.
const headTile = 64

// step turns a plan (sequences, tokens, blocks) into arrays, runs the model over them and gives
// the drawn tokens back to their sequences. Its arrays are reused: a step makes no garbage but
// events. A step that is planned while another runs has arrays of its own; one step runs at a time,
// so there is one scratch buffer.
//
// A token that the step before is still drawing is left open by build and filled in by fill, just
// before the step runs: the row's last token, and the last entry of the history that penalties see.
type step struct {
	ids, positions, starts, contexts []int32
	regimes                          []int32
	groups                           []models.GroupBatch
	slots, tables                    [][]int32 // by group
	runs, from, into                 []int32   // of the recurrent group
	batch                            models.Batch

	heads   []head // rows of logits wanted
	rows    []int32
	params  []kernels.SampleParams
	sampled []kernels.Sampled
	feeds   []feed
	history []int32 // behind some params' Output
	void    []bool  // rows that count no more
	masks   []mask

	out    sched.Output
	tokens []int32 // behind out.Tokens
}

// head is one row of logits: what it is for.
type head struct {
	row    int // of the plan
	hidden int32
	score  int // the prompt's position that is scored; 0: a token is drawn
}

// feed is where a token goes that the step before draws.
type feed struct {
	from  int    // row of the step before
	to    int    // place in ids
	penal *int32 // place in history; nil: nowhere
}

// arena is the memory of steps and cache: scratch and the shared pages.
type arena struct {
	buffer  kernels.Buffer // both
	scratch kernels.Buffer
	pages   kernels.Buffer
}

// run executes the step and leaves the drawn tokens in st.sampled. drawn are those of the step before.
func (st *step) run(d kernels.Device, a arena, m *model, drawn []int32) error {
	masked := st.masking(drawn)
	defer masked()
	d.Begin()
	b := &st.batch
	b.TokenIDs = d.Upload(kernels.Ints{Host: st.ids})
	b.Positions = d.Upload(kernels.Ints{Host: st.positions})
	b.Ragged.Starts = d.Upload(kernels.Ints{Host: st.starts})
	b.Ragged.Contexts = d.Upload(kernels.Ints{Host: st.contexts})
	b.Regimes = nil
	if len(m.regimes) > 0 {
		b.Regimes = st.regimes
	}
	for g := range st.groups {
		if st.groups[g].State != nil {
			st.groups[g].Runs = kernels.Runs{
				Starts: d.Upload(kernels.Ints{Host: st.runs}), In: d.Upload(kernels.Ints{Host: st.from}), Out: d.Upload(kernels.Ints{Host: st.into}),
			}
			continue
		}
		st.groups[g].Slots = d.Upload(kernels.Ints{Host: st.slots[g]})
		st.groups[g].Tables = d.Upload(kernels.Ints{Host: st.tables[g]})
	}
	b.Groups = st.groups
	logits := m.logits(a)
	hidden := m.impl.Forward(d, b, m.modelScratch(a))
	st.sampled = resize(st.sampled, len(st.heads))
	for from := 0; from < len(st.heads); from += headTile {
		to := min(from+headTile, len(st.heads))
		tile := logits.RowRange(0, to-from)
		m.impl.Head(d, tile, hidden, d.Upload(kernels.Ints{Host: st.rows[from:to]}), m.modelScratch(a))
		masked()
		d.Sample(st.sampled[from:to], tile, m.vocab, st.params[from:to])
	}
	return d.End()
}

// build fills the arrays of f for its plan; before is the flight ahead of it that has not landed, nil if there
// is none.
func (st *step) build(a arena, f, before *flight, now time.Time) {
	m, plan := f.model, f.plan
	st.ids, st.positions = st.ids[:0], st.positions[:0]
	st.starts, st.contexts = append(st.starts[:0], 0), st.contexts[:0]
	st.heads, st.rows, st.params = st.heads[:0], st.rows[:0], st.params[:0]
	st.feeds, st.history, st.regimes, st.masks = st.feeds[:0], st.history[:0], st.regimes[:0], st.masks[:0]
	for i := range plan.Rows {
		row := &plan.Rows[i]
		s := row.Seq.User.(*sequence)
		s.starting(row.Seq, now)
		first := int32(len(st.ids)) - int32(row.Start) // hidden row of position 0
		open := -1                                     // index in feeds
		for pos := row.Start; pos < row.Start+row.N; pos++ {
			id, known := row.Token(pos)
			if !known {
				if pos != row.Start+row.N-1 || before == nil || s.flight != before {
					panic(fmt.Sprintf("engine: token %d of a row is not known, and no step before draws it", pos))
				}
				open = len(st.feeds)
				st.feeds = append(st.feeds, feed{from: s.row, to: len(st.ids)})
			}
			st.ids = append(st.ids, id)
			st.positions = append(st.positions, int32(pos))
		}
		st.starts = append(st.starts, int32(len(st.ids)))
		st.contexts = append(st.contexts, int32(row.Start+row.N))
		st.regimes = append(st.regimes, int32(row.Seq.Regime()))
		prompt := s.request.Prompt
		for pos := row.LogitsFrom; pos < row.LogitsTo; pos++ {
			if pos+1 < len(prompt) { // logits at pos are about the token after
				st.want(head{row: i, hidden: first + int32(pos), score: pos + 1}, s.given(prompt[pos+1]))
			}
		}
		if row.Samples > 0 {
			st.want(head{row: i, hidden: first + int32(row.Start+row.N-1)}, st.sampling(s, row, open))
			if s.request.Grammar != nil {
				m := mask{seq: s, head: len(st.heads) - 1, from: -1, state: s.grammar, number: row.Seq.SampledTokens() + row.Drafts}
				if open >= 0 {
					m.from, m.number = st.feeds[open].from, m.number+1
				}
				for _, id := range row.Draft[:row.Drafts] {
					m.state, _ = s.request.advance(m.state, id)
				}
				st.masks = append(st.masks, m)
			}
			s.flight, s.row = f, i
		}
	}
	n := len(m.cut.groups)
	st.groups = resize(st.groups, n)
	st.slots, st.tables = resize(st.slots, n), resize(st.tables, n)
	for g, group := range m.cut.groups {
		if group.Kind == models.Recurrent {
			st.buildRuns(plan)
			st.groups[g] = models.GroupBatch{Pages: a.pages, State: m.cut.state}
		} else {
			st.buildGroup(a, m, plan, g)
		}
	}
}

// sampling returns how to draw the next token of a sequence, after its row: the scheduler knows what was
// drawn so far but for what open draws, a feed, -1 if there is none.
func (st *step) sampling(s *sequence, row *sched.Row, open int) kernels.SampleParams {
	n := row.Seq.SampledTokens()
	var output []int32
	if s.penalised() {
		output = row.Seq.Sampled()
	}
	if row.Drafts > 0 {
		n += row.Drafts
		if s.penalised() {
			from := len(st.history)
			st.history = append(append(st.history, output...), row.Draft...)
			output = st.history[from:]
		}
	}
	if open >= 0 {
		n++
		if s.penalised() {
			from := len(st.history)
			st.history = append(append(st.history, output...), 0)
			output = st.history[from:] // stays with its array when history grows out of it
			st.feeds[open].penal = &output[n-1]
		}
	}
	return s.sampling(output, n)
}

// fill puts in the tokens that the rows of the step before drew. A row that drew none ends its
// sequence, so that nobody looks at what follows from the token that stands for it.
func (st *step) fill(drawn []int32) {
	for _, f := range st.feeds {
		st.ids[f.to] = drawn[f.from]
		if f.penal != nil {
			*f.penal = drawn[f.from]
		}
	}
}

// drawn appends the token that each of n rows drew, 0 where there is none.
func (st *step) drawn(ids []int32, n int, err error) []int32 {
	ids = append(ids, make([]int32, n)...)
	if err != nil {
		return ids
	}
	for i, h := range st.heads {
		if out := &st.sampled[i]; h.score == 0 && !out.NaN {
			ids[h.row] = out.ID
		}
	}
	return ids
}

// buildRuns fills the runs of the recurrent group.
func (st *step) buildRuns(plan *sched.Plan) {
	st.runs, st.from, st.into = append(st.runs[:0], 0), st.from[:0], st.into[:0]
	first := int32(0)
	for i := range plan.Rows {
		row := &plan.Rows[i]
		for _, r := range row.Runs {
			st.runs = append(st.runs, first+int32(r.To-row.Start))
			for k, page := range r.Out {
				in := int32(0)
				if r.In != nil {
					in = int32(r.In[k])
				}
				st.from, st.into = append(st.from, in), append(st.into, int32(page))
			}
		}
		first += int32(row.N)
	}
}

func (st *step) want(h head, p kernels.SampleParams) {
	st.heads, st.rows, st.params = append(st.heads, h), append(st.rows, h.hidden), append(st.params, p)
}

// buildGroup fills the slots and block tables of one cache group.
func (st *step) buildGroup(a arena, m *model, plan *sched.Plan, g int) {
	layout := &m.cut.layouts[g]
	per := layout.BlockTokens
	stride := 1
	for _, c := range st.contexts {
		stride = max(stride, (int(c)+per-1)/per)
	}
	slots, tables := st.slots[g][:0], resize(st.tables[g], stride*len(plan.Rows))
	for i := range plan.Rows {
		row := &plan.Rows[i]
		blocks := row.Seq.Blocks().Blocks(g)
		table := tables[i*stride : (i+1)*stride]
		clear(table)
		for j := range min(len(blocks), stride) {
			table[j] = int32(blocks[j])
		}
		for pos := row.Start; pos < row.Start+row.N; pos++ {
			slots = append(slots, table[pos/per]*int32(per)+int32(pos%per))
		}
	}
	st.slots[g], st.tables[g] = slots, tables
	st.groups[g] = models.GroupBatch{Pages: a.pages, Layout: layout, Stride: stride}
}

// collect takes the drawn tokens into their sequences, which decides where text ends, and
// returns what the scheduler needs to know.
func (st *step) collect(plan *sched.Plan, now time.Time) sched.Output {
	n := len(plan.Rows)
	st.tokens = st.tokens[:0]
	st.out.Tokens, st.out.Stop, st.out.Errs = resize(st.out.Tokens, n), resize(st.out.Stop, n), resize(st.out.Errs, n)
	clear(st.out.Tokens)
	clear(st.out.Stop)
	clear(st.out.Errs)
	for i, h := range st.heads {
		row := &plan.Rows[h.row]
		s := row.Seq.User.(*sequence)
		out := &st.sampled[i]
		switch {
		case st.void[h.row] || st.out.Errs[h.row] != nil:
		case out.NaN:
			st.out.Errs[h.row] = fmt.Errorf("%w: the logits at token %d are not numbers", ErrStep, st.contexts[h.row])
		case h.score > 0:
			s.scored(h.score, *out)
		default:
			from, n := len(st.tokens), 1
			st.tokens = append(append(st.tokens, row.Draft[:row.Drafts]...), out.ID)
			if s.request.Grammar == nil {
				s.push(*out, now)
			} else if n, st.out.Errs[h.row] = s.pushForced(row.Draft[:row.Drafts], *out, now); st.out.Errs[h.row] != nil {
				break
			}
			st.out.Tokens[h.row] = st.tokens[from : from+n : from+n]
			if s.next.Finish == FinishStop {
				st.out.Stop[h.row] = n
			}
		}
	}
	return st.out
}

// resize returns s with n elements; what they hold is unspecified.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return append(s[:cap(s)], make([]T, n-cap(s))...)
	}
	return s[:n]
}
