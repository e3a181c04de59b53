package sched

import "time"

// Row is N tokens of one sequence in a step, from position Start on. A decode, a prompt chunk and
// a check of drafts are the same thing.
type Row struct {
	Seq   *Sequence
	Start int
	N     int
	// Samples of the row's last positions are sampled: 0 in a chunk that does not reach the end
	// of the sequence, else 1 + Drafts.
	Samples int
	// Drafts of the row's last tokens are Draft, proposals that are no part of the sequence yet.
	Drafts int
	Draft  []int32
	// Logits of positions LogitsFrom to LogitsTo-1 are wanted as well (Sequence.PromptLogits).
	LogitsFrom, LogitsTo int

	epoch uint32
}

// Token returns the id at absolute position pos of the row. known is false when it is still being
// sampled by a step in flight; the device then feeds it.
func (r *Row) Token(pos int) (id int32, known bool) { panic("todo") }

// Plan is one step of one model. It is valid until the call of Plan that follows its Commit.
type Plan struct {
	Model  string
	Start  time.Time
	Rows   []Row
	Tokens int // sum of the rows' N
}

// Void says that row i's sequence has ended, or was preempted, since the row was planned: Commit
// will ignore the row's output, so nobody else should look at it either.
func (p *Plan) Void(i int) bool { panic("todo") }

// Output is what a step yields, by row.
type Output struct {
	// Tokens[i] are the tokens that row i yields: at most Row.Samples. Fewer than Samples means
	// that drafts were rejected; none that the last token has to be computed again.
	Tokens [][]int32
	// Stop[i] = k > 0 ends row i's sequence after its k-th new token (a stop string was matched).
	// May be nil.
	Stop []int
	// Errs[i] fails row i's sequence alone (its logits are not numbers). May be nil.
	Errs []error
}
