package engine

import (
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/engine/text"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/sched"
)

// sequence is one of a request's sequences as the step loop knows it; only the loop touches it
// once it is submitted.
type sequence struct {
	request *request
	index   int
	params  kernels.SampleParams
	banned  []int32 // until MinTokens
	text    *text.Stream
	grammar constraint // after what was drawn; of requests with a Grammar
	started bool       // a step has run it
	held    []Token    // drawn, but their text is not final yet
	prompt  []Token    // log probabilities of the prompt, until they went out
	usage   Usage

	sched  *sched.Sequence
	flight *flight // the last one that drew a token of it, and in which row
	row    int
	next   Event // of the token that the step in hand drew
	send   bool  // next says something
}

// starting is told that a step computes some of the sequence's tokens.
func (s *sequence) starting(q *sched.Sequence, now time.Time) {
	if !s.started {
		s.started = true
		s.usage.Queued = now.Sub(s.request.arrival)
		s.usage.Cached = q.CachedTokens()
		c := &s.request.model.count
		c.promptTokens.Add(int64(s.usage.Prompt))
		c.cachedTokens.Add(int64(s.usage.Cached))
	}
}

// penalised says that what it drew before changes how its next token is drawn.
func (s *sequence) penalised() bool {
	p := &s.params
	return p.Repetition != 1 || p.Presence != 0 || p.Frequency != 0
}

// sampling returns how to draw the sequence's token n; output is what it has drawn before, which only penalties need.
func (s *sequence) sampling(output []int32, n int) kernels.SampleParams {
	p := s.params
	p.Index = uint64(n)
	if s.penalised() {
		p.Prompt, p.Output = s.request.Prompt, output
	}
	if n < s.request.MinTokens {
		p.Banned = s.banned
	}
	if sim := s.request.model.simulated; sim != nil && s.request.Grammar == nil {
		p.Given = sim.token(&p, s.request.IgnoreEOS)
	}
	return p
}

// given returns how to score the prompt's token id.
func (s *sequence) given(id int32) kernels.SampleParams {
	return kernels.SampleParams{TopP: 1, Repetition: 1, Given: id, Logprobs: *s.request.PromptLogprobs}
}

// wantsPrompt reports whether this sequence computes the prompt's log probabilities: the first
// of its request does it for all.
func (s *sequence) wantsPrompt() bool { return s.request.PromptLogprobs != nil && s.index == 0 }

// scored takes the log probabilities of the prompt's token at pos. A sequence that was preempted
// comes by again.
func (s *sequence) scored(pos int, out kernels.Sampled) {
	s.scoreFirst()
	if pos == len(s.prompt) {
		s.prompt = append(s.prompt, newToken(out, true))
	}
}

// scoreFirst begins the prompt's log probabilities: nothing comes before its first token, so that one
// has none, and is all there is of a prompt of one token.
func (s *sequence) scoreFirst() {
	if s.prompt == nil {
		s.prompt = append(make([]Token, 0, len(s.request.Prompt)), Token{ID: s.request.Prompt[0]})
	}
}

// push takes the next drawn token and leaves what it means in next: the final event when that has a
// Finish.
func (s *sequence) push(out kernels.Sampled, now time.Time) {
	r, m := s.request, s.request.model
	s.usage.Completion++
	m.count.generatedTokens.Add(1)
	first := s.usage.Completion == 1
	if first {
		s.usage.FirstToken = now.Sub(r.arrival)
	}
	s.held = append(s.held, newToken(out, r.Logprobs != nil))

	_, stopToken := slices.BinarySearch(r.StopTokenIDs, out.ID)
	endToken := !r.IgnoreEOS && m.isEnd(out.ID)
	mark := slices.Contains(r.Marks, out.ID)
	var b []byte
	switch {
	case (stopToken || endToken) && !r.IncludeStop:
	case m.tok.IsSpecial(out.ID) && !r.KeepSpecial && !mark:
	default:
		b = m.tok.TokenBytes(out.ID)
	}
	push := s.text.Push
	if mark {
		push = s.text.PushMark
	}
	d := push(b, s.usage.Completion > r.MinTokens)
	ev := Event{Index: s.index, Text: d.Text, Marks: d.Marks, Tokens: s.take(d.Tokens), Usage: s.usage}
	if first && s.wantsPrompt() {
		s.scoreFirst()
		ev.Prompt, s.prompt = s.prompt, nil
	}
	switch {
	case d.Stopped:
		ev.Finish, ev.StopReason = FinishStop, r.Stop[d.Stop]
	case stopToken:
		ev.Finish, ev.StopReason = FinishStop, out.ID
	case endToken, r.Grammar != nil && s.grammar.state.MustEnd() && len(m.ends) == 0:
		ev.Finish = FinishStop
	case s.usage.Completion >= r.MaxTokens:
		ev.Finish = FinishLength
	}
	if ev.Finish != FinishNone && !d.Stopped {
		s.flush(&ev)
	}
	s.next, s.send = ev, first || ev.Text != "" || len(ev.Tokens) > 0
}

// pushForced takes tokens that were not drawn, as far as they do not end the sequence, and then the drawn one; it returns how many it took.
func (s *sequence) pushForced(forced []int32, out kernels.Sampled, now time.Time) (n int, err error) {
	var all Event
	send := false
	for n <= len(forced) && s.next.Finish == FinishNone {
		next := out
		if n < len(forced) {
			next = kernels.Sampled{ID: forced[n]}
		}
		if err = s.advance(next.ID); err != nil {
			break
		}
		s.push(next, now)
		n++
		for _, m := range s.next.Marks {
			all.Marks = append(all.Marks, Mark{At: m.At + len(all.Text), Len: m.Len})
		}
		all.Text += s.next.Text
		all.Tokens = append(all.Tokens, s.next.Tokens...)
		if s.next.Prompt != nil {
			all.Prompt = s.next.Prompt
		}
		send = send || s.send
	}
	s.request.model.count.forcedTokens.Add(int64(min(n, len(forced))))
	s.next.Text, s.next.Marks, s.next.Tokens, s.next.Prompt, s.send = all.Text, all.Marks, all.Tokens, all.Prompt, send
	return n, err
}

// end is the final event of a sequence that something else than its own tokens ended.
func (s *sequence) end(reason FinishReason, err error) Event {
	ev := s.next // what was drawn last and not sent yet
	ev.Index, ev.Usage = s.index, s.usage
	s.flush(&ev)
	ev.Finish, ev.StopReason, ev.Err = reason, nil, err
	return ev
}

// flush adds what was held back to the final event. A stop string that was complete but waited
// for a longer one counts now.
func (s *sequence) flush(ev *Event) {
	d := s.text.Finish()
	for _, m := range d.Marks {
		ev.Marks = append(ev.Marks, Mark{At: m.At + len(ev.Text), Len: m.Len})
	}
	ev.Text += d.Text
	ev.Tokens = append(ev.Tokens, s.take(d.Tokens)...)
	if d.Stopped {
		ev.Finish, ev.StopReason = FinishStop, s.request.Stop[d.Stop]
	}
}

// take releases the first n held tokens.
func (s *sequence) take(n int) []Token {
	if n == 0 {
		return nil
	}
	out := slices.Clone(s.held[:n])
	s.held = append(s.held[:0], s.held[n:]...)
	return out
}

func newToken(out kernels.Sampled, logprob bool) Token {
	t := Token{ID: out.ID, Logprob: out.Logprob, Rank: out.Rank, HasLogprob: logprob}
	for i, top := range out.Top {
		t.Top = append(t.Top, TokenLogprob{ID: top.ID, Logprob: top.Logprob, Rank: int32(i + 1)})
	}
	return t
}
