package reasoning

import (
	"strings"

	"github.com/openinfer-go/openinfer/engine"
)

// Answer parts the events of one sequence and counts its tokens of reasoning.
type Answer struct {
	splitter *Splitter // nil: all is content
	marks    []int32   // of reasoning that is told apart by tokens
	inside   bool      // where the tokens counted so far have led
	count    int
	pending  int // tokens of what may be the beginning of a spelled mark
}

// NewAnswer begins an answer of a model that reasons as r says; inside and continued are as in New.
// The engine must have been asked for r.Marks.
func NewAnswer(r engine.Reasoning, inside, continued bool) *Answer {
	if r.Parser == "" {
		return &Answer{}
	}
	f := Format{Open: r.Open, Close: r.Close, Label: r.Label, Spelled: len(r.Marks) == 0}
	return &Answer{splitter: New(f, inside, continued), marks: r.Marks, inside: inside}
}

// Add returns what an event adds to the answer. Neighbours differ in what they are part of.
func (a *Answer) Add(ev engine.Event) []Part {
	if a.splitter == nil {
		if ev.Text == "" {
			return nil
		}
		return []Part{{Piece: Piece{Text: valid(ev.Text)}}}
	}
	var parts []Part
	before, at := a.splitter.Reasoning(), 0
	push := func(text string, mark bool) {
		if text != "" {
			parts = append(parts, a.splitter.Push(Piece{Text: valid(text), Mark: mark})...)
		}
	}
	for _, m := range ev.Marks {
		push(ev.Text[at:m.At], false)
		push(ev.Text[m.At:m.At+m.Len], true)
		at = m.At + m.Len
	}
	push(ev.Text[at:], false)
	if ev.Finish != engine.FinishNone {
		parts = append(parts, a.splitter.Finish(ev.Finish == engine.FinishLength)...)
	}
	a.counted(ev, before)
	return joined(parts)
}

// counted counts the tokens of an event; before: it began inside reasoning. Where marks are single
// tokens these say where each token is. Else an event's tokens are where its text is, once it is
// known not to be a piece of a mark.
func (a *Answer) counted(ev engine.Event, before bool) {
	if marks := a.marks; len(marks) > 0 {
		for _, t := range ev.Tokens {
			a.inside = a.inside || t.ID == marks[0]
			if a.inside {
				a.count++
			}
			a.inside = a.inside && t.ID != marks[1]
		}
		return
	}
	a.pending += len(ev.Tokens)
	if a.splitter.Undecided() {
		return
	}
	if before || a.splitter.Reasoning() {
		a.count += a.pending
	}
	a.pending = 0
}

// Tokens is how many tokens of reasoning have come, those of the marks around it included.
func (a *Answer) Tokens() int { return a.count }

// Reasoning reports whether the answer is inside reasoning, as far as it has come.
func (a *Answer) Reasoning() bool { return a.splitter != nil && a.splitter.Reasoning() }

// valid is text that can be shown, whatever made the events.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// joined makes one part of neighbours of a kind.
func joined(parts []Part) []Part {
	out := parts[:0]
	for _, p := range parts {
		if n := len(out); n > 0 && out[n-1].Reasoning == p.Reasoning {
			out[n-1].Text += p.Text
			continue
		}
		out = append(out, p)
	}
	return out
}
