package api

import (
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/api/reasoning"
	"github.com/openinfer-go/openinfer/engine"
)

// reasoningFormat is how the answers to one prompt are parted. Nil: they are content.
type reasoningFormat struct {
	engine.Reasoning
	inside, continued bool
}

func newReasoningFormat(r engine.Reasoning, inside, continued bool) *reasoningFormat {
	if r.Parser == "" {
		return nil
	}
	return &reasoningFormat{r, inside, continued}
}

// marks are the tokens that the engine is to point out.
func (f *reasoningFormat) marks() []int32 {
	if f == nil {
		return nil
	}
	return f.Marks
}

// split begins an answer.
func (f *reasoningFormat) split() *reasoningSplit {
	if f == nil {
		return &reasoningSplit{}
	}
	return &reasoningSplit{
		splitter: reasoning.New(reasoning.Format{Open: f.Open, Close: f.Close, Label: f.Label, Spelled: len(f.Marks) == 0}, f.inside, f.continued),
		format:   f, inside: f.inside,
	}
}

// reasoningSplit parts the events of one answer and counts its tokens of reasoning, marks included.
type reasoningSplit struct {
	splitter *reasoning.Splitter // nil: all is content
	format   *reasoningFormat
	inside   bool // where the tokens counted so far have led
	count    int
	pending  int // tokens of what may be the beginning of a spelled mark
}

// add returns what an event adds to the answer.
func (s *reasoningSplit) add(ev engine.Event) []reasoning.Part {
	if s.splitter == nil {
		if ev.Text == "" {
			return nil
		}
		return []reasoning.Part{{Piece: reasoning.Piece{Text: valid(ev.Text)}}}
	}
	var parts []reasoning.Part
	before, at := s.splitter.Reasoning(), 0
	push := func(text string, mark bool) {
		if text != "" {
			parts = append(parts, s.splitter.Push(reasoning.Piece{Text: valid(text), Mark: mark})...)
		}
	}
	for _, m := range ev.Marks {
		push(ev.Text[at:m.At], false)
		push(ev.Text[m.At:m.At+m.Len], true)
		at = m.At + m.Len
	}
	push(ev.Text[at:], false)
	if ev.Finish != engine.FinishNone {
		parts = append(parts, s.splitter.Finish(ev.Finish == engine.FinishLength)...)
	}
	s.counted(ev, before)
	return joined(parts)
}

// counted counts the tokens of an event; before: it began inside reasoning. Where marks are single
// tokens these say where each token is. Else an event's tokens are where its text is, once it is
// known not to be a piece of a mark.
func (s *reasoningSplit) counted(ev engine.Event, before bool) {
	if marks := s.format.Marks; len(marks) > 0 {
		for _, t := range ev.Tokens {
			s.inside = s.inside || t.ID == marks[0]
			if s.inside {
				s.count++
			}
			s.inside = s.inside && t.ID != marks[1]
		}
		return
	}
	s.pending += len(ev.Tokens)
	if s.splitter.Undecided() {
		return
	}
	if before || s.splitter.Reasoning() {
		s.count += s.pending
	}
	s.pending = 0
}

// tokens is how many tokens of reasoning there were.
func (s *reasoningSplit) tokens() int { return s.count }

// inReasoning reports whether what comes next is reasoning.
func (c *choice) inReasoning() bool { return c.split.splitter != nil && c.split.splitter.Reasoning() }

// valid is text that a client can read, whatever a Generator says.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// joined makes one part of neighbours of a kind.
func joined(parts []reasoning.Part) []reasoning.Part {
	out := parts[:0]
	for _, p := range parts {
		if n := len(out); n > 0 && out[n-1].Reasoning == p.Reasoning {
			out[n-1].Text += p.Text
			continue
		}
		out = append(out, p)
	}
	return slices.Clip(out)
}
