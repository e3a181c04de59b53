package engine

import (
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/kernels"
)

// simulation is what a model says on a device that computes nothing: words of its vocabulary in no order, and
// after a number of them the end. Both are a function of the model's name, the prompt and the request's seed (0
// when it has none), whatever else runs and however the prompt is computed.
type simulation struct {
	name  uint64     // a hash of it
	words []int32    // ids of whole words
	stop  int32      // id of a full stop, -1: none
	end   int32      // id that ends an answer, -1: none
	bytes [256]int32 // ids of single bytes, -1: none
}

// Lengths of answers in tokens: shortest plus an exponential distribution with a mean of spread, cut at longest.
// Together that is 198 on average; half of the answers have less than 145.
const (
	shortestAnswer = 20
	spreadOfAnswer = 180
	longestAnswer  = 800

	wordsToStop = 11 // one token in so many is a full stop
)

func newSimulation(name string, tok vocabulary, vocab int, ends []int32) *simulation {
	s := &simulation{stop: -1, end: -1}
	for _, b := range []byte(name) {
		s.name = mix(s.name ^ uint64(b))
	}
	if len(ends) > 0 {
		s.end = ends[0]
	}
	for i := range s.bytes {
		s.bytes[i] = -1
	}
	var others []int32
	for id := range int32(vocab) {
		if tok.IsSpecial(id) || slices.Contains(ends, id) {
			continue
		}
		if b := tok.TokenBytes(id); len(b) == 1 {
			s.bytes[b[0]] = id
		}
		switch b := tok.TokenBytes(id); {
		case isWord(b):
			s.words = append(s.words, id)
		case string(b) == ".":
			s.stop = id
		case len(b) > 0:
			others = append(others, id)
		}
	}
	if len(s.words) == 0 {
		s.words = others
	}
	return s
}

// isWord reports whether b is a space and at least three small letters.
func isWord(b []byte) bool {
	return len(b) > 3 && b[0] == ' ' && !slices.ContainsFunc(b[1:], func(c byte) bool { return c < 'a' || c > 'z' })
}

// seed is what the request's answers follow from.
func (s *simulation) seed(r *Request) uint64 {
	h := s.name
	for _, id := range r.Prompt {
		h = mix(h ^ uint64(id+1))
	}
	if r.Sampling.Seed != nil {
		h = mix(h ^ uint64(*r.Sampling.Seed))
	}
	return h
}

// token is the one that p draws; -1: another than this simulation's is wanted, and the device chooses among the
// allowed.
func (s *simulation) token(p *kernels.SampleParams, ignoreEnd bool) int32 {
	may := func(id int32) bool {
		allowed := p.Allowed == nil || int(id/32) < len(p.Allowed) && p.Allowed[id/32]>>(id%32)&1 != 0
		return id >= 0 && allowed && !slices.Contains(p.Banned, id)
	}
	if !ignoreEnd && p.Index >= answerLength(p.Seed) && may(s.end) {
		return s.end
	}
	h := mix(mix(p.Seed) + (p.Index+1)*0x9e3779b97f4a7c15)
	if h%wordsToStop == 0 && p.Index > 0 && may(s.stop) {
		return s.stop
	}
	if len(s.words) == 0 {
		return -1
	}
	if id := s.words[h/wordsToStop%uint64(len(s.words))]; may(id) {
		return id
	}
	return -1
}

// within is token for an answer within a grammar: words while it takes them, for a while, and then its shortest end.
func (s *simulation) within(p *kernels.SampleParams, state grammar.State, ignoreEnd bool) int32 {
	h := mix(mix(p.Seed) + (p.Index+1)*0x9e3779b97f4a7c15)
	if h>>32%4 != 0 && p.Index < shortestAnswer {
		if id := s.token(p, ignoreEnd); id >= 0 && id != s.end {
			return id
		}
	}
	if state.MayEnd() && s.end >= 0 && !slices.Contains(p.Banned, s.end) {
		return s.end
	}
	id, ok := state.ShortestControl()
	if b, isByte := state.Shortest(); isByte {
		id, ok = s.bytes[b], true
	}
	if ok && id >= 0 && !slices.Contains(p.Banned, id) {
		return id
	}
	return -1
}

// answerLength is the number of tokens before the end of an answer.
func answerLength(seed uint64) uint64 {
	u := (float64(mix(seed^0x6c656e677468)>>11) + 0.5) * 0x1p-53
	return uint64(min(shortestAnswer-spreadOfAnswer*math.Log(u), longestAnswer))
}
