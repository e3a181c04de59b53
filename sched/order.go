package sched

import "cmp"

// The waiting sequences of a model are admitted in this order: by priority; those whose SLA can still be met
// before the others; between keys, the one that was given least; then by deadline; then by age. One admission in
// every fairTurn goes to the oldest, whatever it is: so nobody waits for ever behind priorities, deadlines or keys
// without end.
//
// Finding the next one takes no scan. A model has two lanes, for prompts that are longer than a step and the
// others, because the long ones have few places. A lane is a heap of keys, and each key a heap of its sequences.

// fairTurn is one in how many admissions the oldest gets.
const fairTurn = 8

// account is what one key has at one model.
type account struct {
	key  string
	used float64 // tokens of work it was given, and never less than the key that was served last
	held int     // sequences, waiting and running
	lane [2]lane
}

// lane is an account's waiting sequences of one kind.
type lane struct {
	account *account
	seqs    heap[*Sequence]
	place   int
}

func (l *lane) setPlace(i int)     { l.place = i }
func (q *Sequence) setPlace(i int) { q.place = int32(i) }

// before says whether q should be admitted before another one of its key.
func (q *Sequence) before(o *Sequence) bool {
	if c := q.class(o); c != 0 {
		return c < 0
	}
	return q.sooner(o) < 0
}

func (q *Sequence) class(o *Sequence) int {
	if c := cmp.Compare(o.Priority, q.Priority); c != 0 {
		return c
	}
	return cmp.Compare(b2i(q.due == never), b2i(o.due == never))
}

func (q *Sequence) sooner(o *Sequence) int {
	if c := cmp.Compare(q.due, o.due); c != 0 {
		return c
	}
	return cmp.Compare(q.age, o.age)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (l *lane) before(o *lane) bool {
	a, b := l.seqs.list[0], o.seqs.list[0]
	if c := a.class(b); c != 0 {
		return c < 0
	}
	if l.account != o.account {
		if c := cmp.Compare(l.account.used, o.account.used); c != 0 {
			return c < 0
		}
	}
	return a.sooner(b) < 0
}

// account returns the key's account, new when the key has nothing here.
func (q *queue) account(key string) *account {
	a := q.accounts[key]
	if a == nil {
		a = &account{key: key, used: q.given}
		a.lane[0].account, a.lane[1].account = a, a
		if q.accounts == nil {
			q.accounts = map[string]*account{}
		}
		q.accounts[key] = a
	}
	return a
}

// hold counts a sequence that was accepted to its key.
func (q *queue) hold(seq *Sequence) {
	seq.account = q.account(seq.Key)
	seq.account.held++
}

// letGo forgets a sequence that ended.
func (q *queue) letGo(seq *Sequence) {
	if seq.account.held--; seq.account.held == 0 {
		delete(q.accounts, seq.Key)
	}
}

func (q *queue) laneOf(seq *Sequence) uint8 { return uint8(b2i(seq.length > q.MaxBatchTokens)) }

// enqueue puts a waiting sequence in order, unless it waits for another one to compute its prompt.
func (q *queue) enqueue(seq *Sequence) {
	seq.place = -1
	if seq.follows() {
		return
	}
	seq.lane = q.laneOf(seq)
	a := seq.account
	if len(a.lane[0].seqs.list)+len(a.lane[1].seqs.list) == 0 {
		a.used = max(a.used, q.given)
	}
	q.countPlain(seq, 1)
	l := &a.lane[seq.lane]
	l.seqs.push(seq)
	if len(l.seqs.list) == 1 {
		q.lanes[seq.lane].push(l)
	} else {
		q.lanes[seq.lane].fix(l.place)
	}
	q.dirty = true
}

// dequeue takes it out again. No-op when it is not in.
func (q *queue) dequeue(seq *Sequence) {
	if seq.place < 0 {
		return
	}
	q.countPlain(seq, -1)
	l := &seq.account.lane[seq.lane]
	heap := &q.lanes[seq.lane]
	if len(l.seqs.list) == 1 {
		heap.remove(l.place)
	}
	l.seqs.remove(int(seq.place))
	if len(l.seqs.list) > 0 {
		heap.fix(l.place)
	}
	seq.place = -1
	q.dirty = true
}

// countPlain counts a sequence in lanes that has no deadline.
func (q *queue) countPlain(seq *Sequence, by int) {
	switch {
	case seq.due != never:
	case seq.late:
		q.waitingLate += by
	default:
		q.waitingPlain += by
	}
}

// chargeKey books what a sequence that is admitted takes to its key.
func (q *queue) chargeKey(seq *Sequence) {
	a := seq.account
	q.given = max(q.given, a.used)
	a.used += float64(seq.length-seq.planned) + q.cost.tokensLeft(seq)
	for i := range a.lane {
		if l := &a.lane[i]; len(l.seqs.list) > 0 {
			q.lanes[i].fix(l.place)
		}
	}
}

// head is the next in order, of all or of those that are not long; nil when there is none.
func (q *queue) head(long bool) *Sequence {
	var best *lane
	if h := &q.lanes[0]; len(h.list) > 0 {
		best = h.list[0]
	}
	if h := &q.lanes[1]; long && len(h.list) > 0 && (best == nil || h.list[0].before(best)) {
		best = h.list[0]
	}
	if best == nil {
		return nil
	}
	return best.seqs.list[0]
}

// oldest is the waiting sequence that came first, of those that may be admitted at all.
func (q *queue) oldest(long bool) *Sequence {
	for _, seq := range q.waiting {
		if seq.place >= 0 && (long || seq.lane == 0) {
			return seq
		}
	}
	return nil
}

// heap is a binary heap whose elements know their places.
type heap[T ordered[T]] struct{ list []T }

type ordered[T any] interface {
	before(T) bool
	setPlace(int)
}

var (
	_ ordered[*lane]     = (*lane)(nil)
	_ ordered[*Sequence] = (*Sequence)(nil)
)

func (h *heap[T]) push(x T) {
	h.list = append(h.list, x)
	x.setPlace(len(h.list) - 1)
	h.up(len(h.list) - 1)
}

func (h *heap[T]) remove(i int) {
	n := len(h.list) - 1
	if i != n {
		h.swap(i, n)
	}
	var none T
	h.list[n].setPlace(-1)
	h.list[n] = none
	h.list = h.list[:n]
	if i != n {
		h.fix(i)
	}
}

func (h *heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T]) swap(i, j int) {
	l := h.list
	l[i], l[j] = l[j], l[i]
	l[i].setPlace(i)
	l[j].setPlace(j)
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h.list[i].before(h.list[p]) {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h *heap[T]) down(i int) bool {
	moved := false
	for {
		c := 2*i + 1
		if c >= len(h.list) {
			return moved
		}
		if c+1 < len(h.list) && h.list[c+1].before(h.list[c]) {
			c++
		}
		if !h.list[c].before(h.list[i]) {
			return moved
		}
		h.swap(i, c)
		i, moved = c, true
	}
}
