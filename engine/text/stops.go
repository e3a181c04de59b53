package text

// Stops finds the first stop string in a text that comes in pieces, and holds text back only as
// long as it may still be the start of a stop.
//
// The match is the leftmost one; of stops that start at the same place, the one that is complete
// first (the shortest). So with the stops "abcd" and "bc", the text "abc" is undecided: the next
// character says whether the answer ends before "abcd" or before "bc".
//
// The stops are one Aho-Corasick automaton over bytes: the current node is the longest end of the
// text that is the start of a stop, so its depth is what must be held back. Work is amortised
// constant per byte, whatever the number of stops.
type Stops struct {
	nodes   []stopNode
	edges   map[uint64]int32 // node<<8 | byte -> node
	include bool

	state   int32
	pos     int    // bytes of text seen
	held    []byte // the text's last bytes, not given out, after head bytes that were
	head    int
	start   int // of the best complete match, -1 for none
	end     int
	which   int
	matched bool
}

type stopNode struct {
	fail  int32
	depth int
	// The longest stop that is an end of this node's string, or none: which is -1.
	length, which int
}

// NewStops prepares for one text. include leaves the matched stop at the end of the text. An
// empty stop is not looked for.
func NewStops(stops []string, include bool) *Stops {
	s := &Stops{nodes: []stopNode{{which: -1}}, edges: map[uint64]int32{}, include: include, start: -1, which: -1}
	for i, stop := range stops {
		node := int32(0)
		for j := range len(stop) {
			key := uint64(node)<<8 | uint64(stop[j])
			next, ok := s.edges[key]
			if !ok {
				next = int32(len(s.nodes))
				s.nodes = append(s.nodes, stopNode{depth: j + 1, which: -1})
				s.edges[key] = next
			}
			node = next
		}
		if node != 0 && s.nodes[node].which < 0 {
			s.nodes[node].length, s.nodes[node].which = len(stop), i
		}
	}
	s.link(stops)
	return s
}

// link sets the failure links, shorter strings before longer ones.
func (s *Stops) link(stops []string) {
	at := make([]int32, len(stops))
	for depth := 0; ; depth++ {
		deeper := false
		for i, stop := range stops {
			if depth >= len(stop) {
				continue
			}
			deeper = true
			parent, b := at[i], stop[depth]
			node := s.edges[uint64(parent)<<8|uint64(b)]
			at[i] = node
			if depth > 0 {
				fail := s.step(s.nodes[parent].fail, b)
				s.nodes[node].fail = fail
				if s.nodes[node].which < 0 {
					s.nodes[node].length, s.nodes[node].which = s.nodes[fail].length, s.nodes[fail].which
				}
			}
		}
		if !deeper {
			return
		}
	}
}

// Again returns the same stops for another text. The automaton is shared; nothing changes it.
func (s *Stops) Again() *Stops {
	return &Stops{nodes: s.nodes, edges: s.edges, include: s.include, start: -1, which: -1}
}

func (s *Stops) step(node int32, b byte) int32 {
	for {
		if next, ok := s.edges[uint64(node)<<8|uint64(b)]; ok {
			return next
		}
		if node == 0 {
			return 0
		}
		node = s.nodes[node].fail
	}
}

// Push takes the next piece of text and returns what is final now. Once matched is true, which
// is the index of the stop, nothing more comes out and further text is ignored.
func (s *Stops) Push(text string) (emit string, matched bool, which int) {
	if s.matched {
		return "", true, s.which
	}
	if len(s.nodes) == 1 {
		s.pos += len(text)
		return text, false, -1
	}
	s.held = append(s.held, text...)
	for i := range len(text) {
		s.state = s.step(s.state, text[i])
		s.pos++
		node := &s.nodes[s.state]
		if node.which >= 0 {
			if from := s.pos - node.length; s.start < 0 || from < s.start {
				s.start, s.end, s.which = from, s.pos, node.which
			}
		}
		if s.start >= 0 && s.pos-node.depth >= s.start {
			return s.finish(len(text) - i - 1), true, s.which
		}
	}
	return s.take(len(s.held) - s.head - s.nodes[s.state].depth), false, -1
}

// take gives out n held bytes. What is left moves to the front once it is the smaller part, so
// that a byte is moved a constant number of times.
func (s *Stops) take(n int) string {
	out := string(s.held[s.head : s.head+n])
	s.head += n
	if s.head > len(s.held)/2 {
		s.held = s.held[:copy(s.held, s.held[s.head:])]
		s.head = 0
	}
	return out
}

// Skip passes text through in which stops are not obeyed. A stop that began before it is not
// completed by it: what was held back comes out, too.
func (s *Stops) Skip(text string) string {
	if s.matched {
		return ""
	}
	s.pos += len(text)
	s.state, s.start, s.which = 0, -1, -1
	return s.take(len(s.held)-s.head) + text
}

// Flush ends the text and returns what was held back. A stop that is complete but waited for an
// earlier one to fail counts now: matched is true and the text ends with it.
func (s *Stops) Flush() (emit string, matched bool, which int) {
	if s.matched {
		return "", true, s.which
	}
	if s.start >= 0 {
		return s.finish(0), true, s.which
	}
	return s.take(len(s.held) - s.head), false, -1
}

// finish cuts the held text at the match; unseen of its bytes were not looked at.
func (s *Stops) finish(unseen int) string {
	cut := s.start
	if s.include {
		cut = s.end
	}
	s.matched = true
	return s.take(len(s.held) - s.head - unseen - (s.pos - cut))
}
