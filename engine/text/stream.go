package text

import "unicode/utf8"

// Delta is what one token, or the end, adds to a text.
type Delta struct {
	Text string // final, whole characters
	// Marks are the marks in Text, in order.
	Marks []Mark
	// Tokens is how many more tokens belong to the text given out so far. A token is released
	// with the text that completes it, never before: one that is held back as the start of a
	// stop or ends inside a character comes with a later Delta. When the text ends, the rest
	// come, those of the stop string included.
	Tokens int
	// Stopped is true when a stop string ended the text; Stop is its index.
	Stopped bool
	Stop    int
}

// Mark is a token that gives an answer its structure, such as </think>: where its text is.
type Mark struct {
	At, Len int // bytes
}

// Stream turns one sequence's tokens into text. A mark is given out in one piece; one that a stop
// string cuts is left out.
type Stream struct {
	chars   Assembler
	stops   *Stops
	decoded int    // bytes of text that came out of chars
	emitted int    // bytes of text given out
	part    string // what came out of stops and is the beginning of a mark
	marks   []Mark // not given out yet; At counts from the start of the text
	// ends holds, for tokens not released yet, how much text must be out for the token to be
	// complete.
	ends []int
	over bool
}

// NewStream starts a text that ends at one of the stops, which are not used up: they are good for
// any number of texts.
func NewStream(stops *Stops) *Stream {
	return &Stream{stops: stops.Again()}
}

// Push takes the bytes of the next token, none for one that has no text. With obey false, stop
// strings are not looked for in its text, nor across it.
func (s *Stream) Push(token []byte, obey bool) Delta { return s.push(token, false, obey) }

// PushMark is Push for a token that is a mark.
func (s *Stream) PushMark(token []byte, obey bool) Delta { return s.push(token, true, obey) }

func (s *Stream) push(token []byte, mark, obey bool) Delta {
	if s.over {
		return Delta{Stop: -1}
	}
	chars := s.chars.Push(token)
	s.decoded += len(chars)
	end := s.decoded
	if s.chars.Pending() {
		end++ // complete with the next character, of which it is a part
	} else if mark && len(token) > 0 && utf8.Valid(token) {
		s.marks = append(s.marks, Mark{s.decoded - len(token), len(token)})
	}
	s.ends = append(s.ends, end)
	d := Delta{Stop: -1}
	if obey {
		d.Text, d.Stopped, d.Stop = s.stops.Push(chars)
	} else {
		d.Text = s.stops.Skip(chars)
	}
	return s.release(d, d.Stopped)
}

// Finish ends the text, for a reason outside it, and returns what was held back.
func (s *Stream) Finish() Delta {
	if s.over {
		return Delta{Stop: -1}
	}
	d := Delta{}
	d.Text, d.Stopped, d.Stop = s.stops.Push(s.chars.Flush())
	if !d.Stopped {
		d.Text, d.Stopped, d.Stop = s.stops.Flush()
	}
	return s.release(d, true)
}

func (s *Stream) release(d Delta, over bool) Delta {
	d = s.wholeMarks(d)
	s.emitted += len(d.Text)
	if s.over = over; over {
		d.Tokens, s.ends = len(s.ends), nil
		return d
	}
	for d.Tokens < len(s.ends) && s.ends[d.Tokens] <= s.emitted {
		d.Tokens++
	}
	s.ends = append(s.ends[:0], s.ends[d.Tokens:]...)
	return d
}

// wholeMarks says which marks are in the text that is to be given out, and keeps back one of which
// it has only the beginning.
func (s *Stream) wholeMarks(d Delta) Delta {
	if len(s.marks) == 0 {
		return d
	}
	d.Text, s.part = s.part+d.Text, ""
	for len(s.marks) > 0 {
		m := s.marks[0]
		m.At -= s.emitted
		if m.At >= len(d.Text) {
			break
		}
		if m.At+m.Len > len(d.Text) {
			d.Text, s.part = d.Text[:m.At], d.Text[m.At:]
			break
		}
		d.Marks = append(d.Marks, m)
		s.marks = s.marks[1:]
	}
	return d
}
