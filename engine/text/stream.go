package text

// Delta is what one token, or the end, adds to a text.
type Delta struct {
	Text string // final, whole characters
	// Tokens is how many more tokens belong to the text given out so far. A token is released
	// with the text that completes it, never before: one that is held back as the start of a
	// stop or ends inside a character comes with a later Delta. When the text ends, the rest
	// come, those of the stop string included.
	Tokens int
	// Stopped is true when a stop string ended the text; Stop is its index.
	Stopped bool
	Stop    int
}

// Stream turns one sequence's tokens into text.
type Stream struct {
	chars   Assembler
	stops   *Stops
	decoded int // bytes of text that came out of chars
	emitted int // bytes of text given out
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
func (s *Stream) Push(token []byte, obey bool) Delta {
	if s.over {
		return Delta{Stop: -1}
	}
	chars := s.chars.Push(token)
	s.decoded += len(chars)
	end := s.decoded
	if s.chars.Pending() {
		end++ // complete with the next character, of which it is a part
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
