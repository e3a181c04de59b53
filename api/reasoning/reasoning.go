// Package reasoning parts an answer into reasoning and content as it comes.
//
// Splitter is a state machine over pieces: stretches of text, and marks, which are single tokens
// that give an answer its structure. It knows nothing of tokens, models and HTTP; which format a
// model has and whether its prompt ends inside reasoning is said to it. Answer feeds it an engine's
// events and counts tokens. Marks that it does not know pass
// through where they stand, for whoever reads tool calls out of the parts.
//
// Reasoning stands between Open and Close, any number of times and anywhere. What never closes is
// reasoning to the end; what closes twice, or opens twice, loses the second mark. White space
// around marks is layout and goes: before and after reasoning, and before the content that follows
// it. A second block begins on a line of its own. White space of an answer without marks stays.
//
// Invariant: no part holds a mark of the format or a piece of one, and how the text is cut does
// not show: the joined parts of any cut are those of the uncut text.
package reasoning

import (
	"strings"
	"unicode"
)

// Piece is a stretch of an answer.
type Piece struct {
	Text string
	// Mark: Text is one token that gives structure.
	Mark bool
}

// Part is a piece and what it is part of. Its text is not empty.
type Part struct {
	Reasoning bool // else content
	Piece
}

// Format says what stands around reasoning.
type Format struct {
	Open, Close string
	// Label follows Open; it belongs to the mark. "" for none.
	Label string
	// Spelled: Open and Close count also where text spells them out; else only as marks.
	Spelled bool
}

// Splitter parts one answer.
type Splitter struct {
	format    Format
	reasoning bool   // where the answer is
	content   bool   // some content was given out
	thought   bool   // some reasoning was given out
	block     bool   // and some of it in this block
	marked    bool   // the answer began inside reasoning or had a mark
	labelling bool   // a label may follow
	label     string // the beginning of one
	space     string // white space that may be layout
	held      string // the beginning of a spelled mark
	parts     []Part
}

// New begins an answer. inside: the prompt ends inside reasoning. continued: it ends with text that
// the answer goes on with, so that white space at its beginning counts.
func New(f Format, inside, continued bool) *Splitter {
	return &Splitter{format: f, reasoning: inside, marked: inside, block: inside && continued, content: !inside && continued}
}

// Reasoning reports whether the answer is inside reasoning, as far as it has come.
func (s *Splitter) Reasoning() bool { return s.reasoning }

// Undecided reports whether the end of what came may be the beginning of a mark.
func (s *Splitter) Undecided() bool { return s.held != "" }

// Push takes the next piece and returns what is final now.
func (s *Splitter) Push(p Piece) []Part {
	s.parts = nil
	switch {
	case p.Mark:
		s.release()
		s.mark(p.Text)
	case s.format.Spelled:
		s.spelled(p.Text)
	default:
		s.text(p.Text)
	}
	return s.parts
}

// Finish ends the answer and returns the rest. What could have become a mark is text, unless the
// answer was cut off by a limit: then it is left out, but for a single character of content, which
// may well be a sign of comparison.
func (s *Splitter) Finish(cut bool) []Part {
	s.parts = nil
	if cut && (s.reasoning || len(s.held) > 1) {
		s.held = ""
	}
	s.release()
	if !s.reasoning && !s.marked {
		s.give(s.space, false)
	}
	s.space, s.label = "", ""
	return s.parts
}

// release gives up on a mark that was begun.
func (s *Splitter) release() {
	held := s.held
	s.held = ""
	s.text(held)
}

// spelled looks for marks in text.
func (s *Splitter) spelled(text string) {
	text, s.held = s.held+text, ""
	for {
		at, mark := -1, ""
		for _, m := range []string{s.format.Open, s.format.Close} {
			if i := strings.Index(text, m); i >= 0 && (at < 0 || i < at) {
				at, mark = i, m
			}
		}
		if at < 0 {
			break
		}
		s.text(text[:at])
		s.mark(mark)
		text = text[at+len(mark):]
	}
	n := max(begun(text, s.format.Open), begun(text, s.format.Close))
	s.held = text[len(text)-n:]
	s.text(text[:len(text)-n])
}

// begun is the length of the longest end of text that begins mark and is not all of it.
func begun(text, mark string) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}

func (s *Splitter) mark(text string) {
	switch text {
	case s.format.Open:
		if !s.reasoning {
			s.reasoning, s.block, s.space = true, false, ""
		}
		s.marked, s.labelling, s.label = true, s.format.Label != "" && !s.block, ""
	case s.format.Close:
		if s.reasoning {
			s.space = ""
		}
		s.reasoning, s.marked, s.labelling, s.label = false, true, false, ""
	default:
		s.unlabel()
		if s.reasoning && s.block || !s.reasoning && !s.marked {
			s.give(s.space, false)
		}
		s.space = ""
		s.give(text, true)
	}
}

// unlabel makes text of what began like a label.
func (s *Splitter) unlabel() {
	label := s.label
	s.labelling, s.label = false, ""
	s.text(label)
}

// text takes text without marks.
func (s *Splitter) text(text string) {
	if text == "" {
		return
	}
	if s.labelling {
		s.label += text
		if rest, ok := strings.CutPrefix(s.label, s.format.Label); ok {
			s.labelling, s.label = false, ""
			s.text(rest)
		} else if !strings.HasPrefix(s.format.Label, s.label) {
			s.unlabel()
		}
		return
	}
	if s.content && !s.reasoning {
		s.give(text, false)
		return
	}
	text = s.space + text
	s.space = ""
	if s.reasoning && !s.block || !s.reasoning && s.marked {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	body := text
	if s.reasoning {
		body = strings.TrimRightFunc(text, unicode.IsSpace)
	} else if strings.TrimSpace(text) == "" {
		body = ""
	}
	s.space = text[len(body):]
	s.give(body, false)
}

// give gives text out where the answer is.
func (s *Splitter) give(text string, mark bool) {
	if text == "" {
		return
	}
	if s.reasoning {
		if s.thought && !s.block {
			s.parts = append(s.parts, Part{true, Piece{"\n", false}})
		}
		s.thought, s.block = true, true
	} else {
		s.content = true
	}
	s.parts = append(s.parts, Part{s.reasoning, Piece{text, mark}})
}
