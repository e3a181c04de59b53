package engine

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/kernels"
)

// Structured output: what a Grammar allows becomes the mask that a token is drawn with. A grammar is compiled in its
// request's goroutine and kept. A row's mask follows from the token before it, so it is made where that is known first:
// beside the device, while it computes the logits that are masked.

// maxGrammars is how many compiled grammars are kept.
const maxGrammars = 32

// grammars are those compiled last, by what they mean and for whom.
type grammars struct {
	mu    sync.Mutex
	byKey map[grammarKey]*list.Element
	order list.List     // of *compiling, the latest used first
	slots chan struct{} // compilations at a time
}

type grammarKey struct {
	vocabulary *grammar.Vocabulary
	expr       [sha256.Size]byte
}

// compiling is a grammar that is, or is being, compiled.
type compiling struct {
	key  grammarKey
	done chan struct{}
	g    *grammar.Grammar
	err  error
}

func newGrammars() *grammars {
	return &grammars{byKey: map[grammarKey]*list.Element{}, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/4))}
}

// CompileGrammar makes of expr what Request.Grammar takes, or finds it made: equal expressions of one model give one Grammar. It
// works in the caller's goroutine, few at a time, and disturbs no step. What cannot be compiled is a *grammar.Error.
func (e *Engine) CompileGrammar(ctx context.Context, model string, expr grammar.Expr) (*grammar.Grammar, error) {
	m, err := e.ready(model)
	if err != nil {
		return nil, err
	}
	gs := e.grammars
	key := grammarKey{m.grammarVocabulary(), expr.Key()}
	for {
		gs.mu.Lock()
		el, ok := gs.byKey[key]
		if !ok {
			c := &compiling{key: key, done: make(chan struct{})}
			el = gs.order.PushFront(c)
			gs.byKey[key] = el
			for gs.order.Len() > maxGrammars {
				last := gs.order.Back()
				delete(gs.byKey, gs.order.Remove(last).(*compiling).key)
			}
			gs.mu.Unlock()
			gs.compile(ctx, c, el, expr)
			return c.g, c.err
		}
		gs.order.MoveToFront(el)
		c := el.Value.(*compiling)
		gs.mu.Unlock()
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !errors.Is(c.err, context.Canceled) && !errors.Is(c.err, context.DeadlineExceeded) {
			return c.g, c.err
		} // who compiled it went away
	}
}

func (gs *grammars) compile(ctx context.Context, c *compiling, el *list.Element, expr grammar.Expr) {
	defer close(c.done)
	select {
	case gs.slots <- struct{}{}:
		c.g, c.err = grammar.Compile(ctx, expr, c.key.vocabulary)
		<-gs.slots
	case <-ctx.Done():
		c.err = ctx.Err()
	}
	if c.err != nil { // errors are cheap to find again
		gs.mu.Lock()
		if gs.byKey[c.key] == el {
			delete(gs.byKey, c.key)
			gs.order.Remove(el)
		}
		gs.mu.Unlock()
	}
}

// grammarVocabulary is prepared when a model's first grammar is compiled.
func (m *model) grammarVocabulary() *grammar.Vocabulary {
	m.grammarOnce.Do(func() {
		tokens := make([]grammar.Token, m.info.Vocab)
		for i := range tokens {
			id := int32(i)
			if slices.Contains(m.never, id) {
				continue
			}
			tokens[i] = grammar.Token{Bytes: m.tok.TokenBytes(id), Control: m.tok.IsSpecial(id) || m.marks[id]}
		}
		m.grammarTokens = grammar.NewVocabulary(tokens, m.ends)
	})
	return m.grammarTokens
}

// mask is a row whose token is drawn within a grammar.
type mask struct {
	seq    *sequence
	head   int // in heads and params
	from   int // row of the step before that draws the token before this one; -1: state knows it
	state  constraint
	number int // of the token in its sequence
}

// masking makes the masks of the rows that need some, beside what else computes; wait returns when they are there.
func (st *step) masking(drawn []int32) (wait func()) {
	if len(st.masks) == 0 {
		return func() {}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	next := 0
	var panicked any
	for range min(len(st.masks), runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					mu.Lock()
					panicked = p
					mu.Unlock()
				}
			}()
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(st.masks) {
					return
				}
				m := &st.masks[i]
				if m.from >= 0 {
					// A token that its grammar refuses ends the sequence when the step before lands.
					m.state, _ = m.seq.request.advance(m.state, drawn[m.from])
				}
				m.seq.constrain(&st.params[m.head], m.state, m.number)
			}
		})
	}
	return func() {
		all.Wait()
		if panicked != nil {
			panic(panicked)
		}
	}
}

// constrain puts the state's mask into how the sequence's token n is drawn.
func (s *sequence) constrain(p *kernels.SampleParams, c constraint, n int) {
	m := s.request.model
	if len(c.forced) > 0 {
		p.Allowed = only(c.forced[0], m.info.Vocab)
		if m.simulated != nil {
			p.Given = c.forced[0]
		}
		return
	}
	p.Allowed = c.state.Mask()
	if n < s.request.MinTokens && nothingBut(p.Allowed, p.Banned) {
		p.Banned = s.params.Banned // the grammar has no more to say: it goes before min_tokens
	}
	if sim := m.simulated; sim != nil {
		p.Given = sim.within(p, c.state, s.request.IgnoreEOS)
	}
}

// nothingBut reports whether every id of mask is among ids.
func nothingBut(mask []uint32, ids []int32) bool {
	total := 0
	for _, w := range mask {
		if total += bits.OnesCount32(w); total > len(ids) {
			return false
		}
	}
	for _, id := range ids {
		if int(id/32) < len(mask) && mask[id/32]>>(id%32)&1 != 0 {
			total--
		}
	}
	return total <= 0
}

// advance takes a drawn token into the sequence's grammar.
func (s *sequence) advance(id int32) error {
	next, ok := s.request.advance(s.grammar, id)
	if !ok {
		return fmt.Errorf("%w: token %d is outside the grammar", ErrStep, id)
	}
	s.grammar = next
	return nil
}
