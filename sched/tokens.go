package sched

import (
	"fmt"
	"slices"
)

// tail is the last tokens of a running sequence before the newest, those that are not in Sequence.tokens yet. The tails of a
// scheduler lie side by side, a line of memory each: the ends of thousands of slices are on as many pages, and each step that wrote
// there would wait for the processor to find all of them. Sixteen tokens are moved at once: mostly those of a block that
// is full, whose hash needs them. The newest token is not computed yet, and so in no full block.
type tail [16]int32

// newTail gives a sequence that begins to run a tail, and freeTail takes it back.
func (s *Scheduler) newTail(seq *Sequence) {
	if len(s.tails) == 0 {
		slab := make([]tail, 64)
		for i := range slab {
			s.tails = append(s.tails, &slab[len(slab)-1-i])
		}
	}
	seq.tail = s.tails[len(s.tails)-1]
	s.tails = s.tails[:len(s.tails)-1]
}

func (s *Scheduler) freeTail(seq *Sequence) {
	seq.flush()
	if seq.tail != nil {
		s.tails = append(s.tails, seq.tail)
		seq.tail = nil
	}
}

// spill moves what is in the tail to the other tokens, and flush the newest one, too.
func (q *Sequence) spill() {
	if q.fill > 1 {
		q.tokens = append(q.tokens, q.tail[:q.fill-1]...)
		q.fill = 1
	}
}

func (q *Sequence) flush() {
	q.spill()
	if q.fill > 0 {
		q.tokens = append(q.tokens, q.newest)
		q.fill = 0
	}
}

// Tokens returns prompt and sampled tokens known so far; the slice is the scheduler's own.
func (q *Sequence) Tokens() []int32 {
	q.flush()
	return q.tokens
}

// Sampled returns the tokens sampled so far, and SampledTokens how many they are: each step may ask for that.
func (q *Sequence) Sampled() []int32   { return q.Tokens()[q.prompt:] }
func (q *Sequence) SampledTokens() int { return q.sampled() }

func (q *Sequence) sampled() int { return q.length - int(q.prompt) }

// token is the one at a position before length.
func (q *Sequence) token(pos int) int32 {
	i := pos - q.length + int(q.fill)
	switch {
	case i < 0:
		return q.tokens[pos]
	case pos == q.length-1:
		return q.newest
	}
	return q.tail[i]
}

// push appends a sampled token and says whether it is the last. stop says that a stop string
// ends with it.
func (q *Sequence) push(token int32, stop bool) Reason {
	if int(q.fill) > len(q.tail) { // else seal does it, for many sequences at once
		q.spill()
	}
	if q.fill > 0 {
		q.tail[(q.fill-1)%uint8(len(q.tail))] = q.newest
	}
	q.newest = token
	q.fill++
	q.length++
	switch {
	case q.EndTokens != nil && slices.Contains(q.EndTokens, token) && q.sampled() >= q.MinTokens:
		return Stop
	case stop:
		return StopString
	case q.length >= int(q.limit):
		return Length
	}
	return None
}

// verifyTails checks that each running sequence, and nobody else, has a tail of its own, and all its tokens.
func (s *Scheduler) verifyTails() error {
	owners := map[*tail]bool{}
	for _, t := range s.tails {
		if t == nil || owners[t] {
			return fmt.Errorf("sched: a tail is free twice")
		}
		owners[t] = true
	}
	for _, q := range s.queues {
		for _, list := range [][]*Sequence{q.waiting, q.running} {
			for _, seq := range list {
				if (seq.tail != nil) != (seq.state == running) || seq.tail != nil && owners[seq.tail] {
					return fmt.Errorf("sched: %s: sequence %d in state %d: a tail is missing, left over or another one's", q.Name, seq.age, seq.state)
				}
				owners[seq.tail] = true
				if seq.length != len(seq.tokens)+int(seq.fill) || int(seq.prompt) != len(seq.Prompt) || int(seq.limit) != len(seq.Prompt)+seq.MaxTokens {
					return fmt.Errorf("sched: %s: sequence %d has %d tokens and %d new ones, counted %d; a prompt of %d, counted %d; ends at %d", q.Name,
						seq.age, len(seq.tokens), seq.fill, seq.length, len(seq.Prompt), seq.prompt, seq.limit)
				}
			}
		}
	}
	return nil
}
