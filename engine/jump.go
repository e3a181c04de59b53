package engine

import (
	"bytes"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// Jump-forward. Where a grammar leaves one choice of text, as in the name of a required property, the model has nothing to
// say: the text's tokens, as the tokenizer cuts it, are what comes, and as far as they are known a step computes them in one row
// like drafts, with logits for what follows them alone. They are that whether or not a step has room for several at a time, so that an
// answer does not depend on what else runs. The last token is left to the model, for the text behind it may belong to it too.

// minAwaited is how many forced tokens are worth a step in which their sequence waits for the token in flight.
const minAwaited = 3

// maxForcedTexts is how many texts' tokens are kept.
const maxForcedTexts = 4096

// constraint is where an answer stands in its grammar.
type constraint struct {
	state  grammar.State
	forced []int32 // what comes next whatever the model says
}

// advance is the constraint after a token; false, and as it was, for one that may not come.
func (r *request) advance(c constraint, id int32) (constraint, bool) {
	if len(c.forced) == 0 {
		state, ok := c.state.Advance(id)
		if !ok {
			return c, false
		}
		return r.look(state), true
	}
	state, ok := c.state.AdvanceBytes(r.model.tok.TokenBytes(id))
	if id != c.forced[0] || !ok {
		return c, false
	}
	if len(c.forced) == 1 {
		return r.look(state), true
	}
	return constraint{state, c.forced[1:]}, true
}

// look looks ahead from state.
func (r *request) look(state grammar.State) constraint {
	c := constraint{state: state}
	if len(r.Sampling.LogitBias) > 0 { // who says which tokens are wanted shall have the choice
		return c
	}
	text := state.Forced()
	if len(text) < 2 {
		return c
	}
	after, ok := state.AdvanceBytes(text)
	c.forced = r.model.forced.tokens(r.model, text, ok && after.MustEnd())
	return c
}

// forcedTexts are the tokens of forced texts, by whether nothing follows and by text.
type forcedTexts struct {
	mu   sync.Mutex
	kept [2]map[string][]int32
}

// tokens cuts text as the tokenizer does, as far as its tokens spell just that. Without ends the last one is left away.
func (f *forcedTexts) tokens(m *model, text []byte, ends bool) []int32 {
	kind := 0
	if ends {
		kind = 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, ok := f.kept[kind][string(text)]
	if ok {
		return ids
	}
	whole := text
	for !utf8.Valid(whole) && len(whole) > len(text)-utf8.UTFMax {
		whole = whole[:len(whole)-1]
	}
	ids = m.tok.Encode(string(whole), tokenizer.Options{NoControl: true})
	if len(whole) < len(text) || !ends {
		ids = ids[:max(0, len(ids)-1)]
	}
	left := whole
	for i, id := range ids {
		b := m.tok.TokenBytes(id)
		if len(b) == 0 || !bytes.HasPrefix(left, b) || m.tok.IsSpecial(id) || m.marks[id] || m.isEnd(id) || slices.Contains(m.never, id) {
			ids = ids[:i]
			break
		}
		left = left[len(b):]
	}
	ids = slices.Clip(ids)
	if f.kept[kind] == nil || len(f.kept[kind]) >= maxForcedTexts {
		f.kept[kind] = map[string][]int32{}
	}
	f.kept[kind][string(text)] = ids
	return ids
}

// propose hands the forced tokens of a step's sequences to the scheduler. It is called with mu held, after the step's Commit.
func (st *step) propose() {
	for i := range st.masks {
		s := st.masks[i].seq
		if s.request.Logprobs != nil { // each token's own step says its
			continue
		}
		if n := len(s.grammar.forced); n > 0 {
			s.sched.SetDraft(s.grammar.forced)
			if n >= minAwaited {
				s.sched.AwaitDraft()
			}
		}
	}
}

// only is the mask of one token of a vocabulary.
func only(id int32, vocab int) []uint32 {
	mask := make([]uint32, (vocab+31)/32)
	mask[id/32] = 1 << (id % 32)
	return mask
}
