package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/api/reasoning"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/engine/grammar"
)

// prompt is one of the prompts of a client's request.
type prompt struct {
	text   string // for echo
	ids    []int32
	scores []engine.Token // their log probabilities, when asked for and once they are there
	held   []update       // what came before the scores that go before it
}

// countedTokens is how many tokens of a prompt are counted, so that a client is told by how much a
// prompt is too long; one that is longer still is not worth the work.
func (g *generation) countedTokens() int { return max(2*g.model.MaxModelLen, 16<<10) }

// tooLong blames a prompt of more than countedTokens on its field.
func (g *generation) tooLong(err error, field string) error {
	if !errors.Is(err, engine.ErrContextLength) {
		return err
	}
	if g.cut {
		e := invalid(field, "prompt is too long: more than %d tokens > %d maximum", g.countedTokens(), g.model.MaxModelLen-1)
		e.code = "context_length_exceeded"
		return e
	}
	e := invalid(field, "more than %d tokens of prompt exceed the model's context length of %d", g.countedTokens(), g.model.MaxModelLen)
	e.code = "context_length_exceeded"
	return e
}

// choice is one answer: sequence s of prompt p has index p*n+s.
type choice struct {
	index  int
	prompt *prompt

	begun     bool // something of it was sent
	answer    *reasoning.Answer
	text      strings.Builder
	reasoning strings.Builder
	calls     []call
	reader    calls
	sent      int  // calls whose beginning was sent
	sending   bool // the last of them is of a custom tool
	tokens    []engine.Token
	cursor    textCursor

	finish     engine.FinishReason
	stopReason any
	usage      engine.Usage

	firstToken, lastToken time.Time // as seen here, for metrics
}

// generation is a client's request for text, from the parsed body to the reply.
type generation struct {
	params
	h       *Handler
	shape   shape
	cut     bool // as form has it
	id      string
	created int64
	model   engine.ModelInfo
	arrival time.Time
	spell   speller

	prompts []prompt
	choices []choice
	// Chat parts answers into reasoning and content: by reasoning, whose zero value does not.
	reasoning              engine.Reasoning
	inReasoning, continued bool // where the prompt ends
	hideReasoning          bool
	tools                  toolset // that answers may call
	echo                   bool
	// promptOnly drops what is generated: the engine always makes a token, the client wants none.
	promptOnly bool
	maxNew     []int // by prompt
	grammar    *grammar.Grammar
	key        string
	account    *account        // charged for tokens; nil: there are no API keys
	logged     strings.Builder // the beginning of the first answer, for the log
}

// shape makes an endpoint's objects of a generation.
type shape interface {
	// whole is the body of a reply that is not a stream.
	whole(g *generation) any
	// chunks are the events for something new of a choice: text and tokens that were added to
	// it, or its end.
	chunks(g *generation, c *choice, grown []piece, tokens []engine.Token, end bool) []any
	// usage is the last chunk of a stream that was asked for usage.
	usage(g *generation) any
}

// update is an event of one of the prompts.
type update struct {
	prompt int
	engine.Event
}

// start hands all prompts to the engine: all are accepted or none. The channel is closed after
// the last event; stop cancels what still runs and waits for that.
func (g *generation) start(ctx context.Context) (updates <-chan update, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var started []iter.Seq[engine.Event]
	for i := range g.prompts {
		events, err := g.h.gen.Generate(ctx, g.request(i))
		if err != nil {
			cancel()
			for _, s := range started { // what was accepted ends, and is read to its end
				for range s {
				}
			}
			return nil, nil, err
		}
		started = append(started, events)
	}
	out := make(chan update, 64)
	var readers sync.WaitGroup
	for i, events := range started {
		readers.Go(func() {
			for ev := range events {
				select {
				case out <- update{i, ev}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		readers.Wait()
		close(out)
	}()
	return out, func() {
		cancel()
		for range out {
		}
	}, nil
}

// request is the engine's form of prompt i.
func (g *generation) request(i int) engine.Request {
	r := engine.Request{
		ID: g.id, Model: g.model.Name, Prompt: g.prompts[i].ids, N: g.n,
		Sampling: g.sampling, MaxTokens: g.maxNew[i], MinTokens: g.minTokens,
		Stop: g.stop, IncludeStop: g.includeStop, StopTokenIDs: g.stopTokenIDs,
		IgnoreEOS: g.ignoreEOS, KeepSpecial: g.keepSpecial, Marks: g.marks(),
		Logprobs: g.logprobs, PromptLogprobs: g.promptLogprobs, CacheSalt: g.cacheSalt, Grammar: g.grammar,
		SLA: g.sla, Priority: g.priority, Key: g.key, KeepAlive: g.keepAlive,
	}
	if len(g.prompts) > 1 {
		r.ID = fmt.Sprintf("%s-%d", g.id, i)
	}
	if g.promptOnly {
		r.N, r.MaxTokens, r.Logprobs = 1, 1, nil
	}
	if g.echo && g.logprobs != nil && (r.PromptLogprobs == nil || *r.PromptLogprobs < *g.logprobs) {
		r.PromptLogprobs = g.logprobs
	}
	return r
}

// marks are the tokens that an answer's structure is read by.
func (g *generation) marks() []int32 {
	if len(g.tools.tools) == 0 {
		return g.reasoning.Marks
	}
	return slices.Concat(g.reasoning.Marks, g.model.Tools.Marks)
}

// serve runs the generation and replies.
func (g *generation) serve(w *reply, r *http.Request) error {
	g.choices = make([]choice, len(g.prompts)*g.n)
	for i := range g.choices {
		g.choices[i] = choice{
			index: i, prompt: &g.prompts[i/g.n], answer: reasoning.NewAnswer(g.reasoning, g.inReasoning, g.continued),
			reader: newCalls(&g.tools, g.model.Tools.Parser),
		}
	}
	for _, p := range g.prompts {
		g.account.take(len(p.ids))
	}
	w.id = g.id
	defer func() { g.report(w) }()
	ctx, leave := g.h.running.enter(r.Context(), g.id, g.model.Name)
	defer leave()
	r = r.WithContext(ctx)

	updates, stop := (<-chan update)(nil), func() {}
	if g.promptOnly && g.logprobs == nil && g.promptLogprobs == nil {
		updates = g.echoed()
	} else {
		var err error
		if updates, stop, err = g.start(r.Context()); err != nil {
			return err
		}
	}
	defer stop()
	if g.stream {
		return g.streamTo(w, r, updates)
	}
	for u := range updates {
		if err := g.failure(r.Context(), u); err != nil {
			return err
		}
		for _, e := range g.settle(u) {
			g.add(e)
		}
	}
	if err := g.unfinished(r.Context()); err != nil {
		return err
	}
	return w.json(http.StatusOK, g.shape.whole(g))
}

// maxPacket is how many bytes of events gather before they are sent, however many more are ready.
const maxPacket = 32 << 10

// streamTo replies with a stream. Once something of it was sent, errors become its last event.
func (g *generation) streamTo(w *reply, r *http.Request, updates <-chan update) error {
	out := w.sse
	if out == nil {
		out = newSSE(w, g.h.WriteTimeout)
	}
	keepAlive := time.NewTimer(g.h.KeepAlive)
	defer keepAlive.Stop()
	abort := func(err error) error {
		if !out.begun && len(out.buf) == 0 {
			return err
		}
		e := asError(err)
		w.failed(e)
		if err := out.event(w.dialect.errorEvent(w, e)); err != nil {
			return err
		}
		if err := out.flush(); err != nil {
			return w.gone(err)
		}
		return nil
	}
	for open := true; open; {
		var u update
		select {
		case u, open = <-updates:
			for ready := true; open && ready; { // and what else is there
				if err := g.failure(r.Context(), u); err != nil {
					return abort(err)
				}
				for _, e := range g.settle(u) {
					if err := g.emit(out, e); err != nil {
						return abort(err)
					}
				}
				if len(out.buf) >= maxPacket {
					break
				}
				select {
				case u, open = <-updates:
				default:
					ready = false
				}
			}
		case <-keepAlive.C:
			out.heartbeat()
		case <-r.Context().Done():
			return abort(context.Cause(r.Context()))
		}
		if len(out.buf) > 0 {
			if err := out.flush(); err != nil {
				return w.gone(err)
			}
			keepAlive.Reset(g.h.KeepAlive)
		}
	}
	if err := g.unfinished(r.Context()); err != nil {
		return abort(err)
	}
	if g.includeUsage {
		if err := out.event(g.shape.usage(g)); err != nil {
			return abort(err)
		}
	}
	out.done()
	if err := out.flush(); err != nil {
		return w.gone(err)
	}
	return nil
}

// emit writes the chunks of one update.
func (g *generation) emit(out *sse, u update) error {
	c, grown := g.add(u)
	var all []any
	if len(grown) > 0 || len(u.Tokens) > 0 && (g.logprobs != nil || g.returnIDs) || !c.begun {
		all = g.shape.chunks(g, c, grown, u.Tokens, false)
		c.begun = true
	}
	if u.Finish != engine.FinishNone {
		all = append(all, g.shape.chunks(g, c, nil, nil, true)...)
	}
	for _, chunk := range all {
		if err := out.event(chunk); err != nil {
			return err
		}
	}
	return nil
}

// settle returns the updates that u makes ready. Scores of a prompt come with its first sequence;
// the others wait for them when they are echoed. A request for the prompt alone has its choices
// made here: the engine ran one sequence for a prompt and its token is dropped.
func (g *generation) settle(u update) []update {
	p := &g.prompts[u.prompt]
	if u.Prompt != nil {
		p.scores = u.Prompt
	}
	if !g.promptOnly {
		if g.echo && g.logprobs != nil && p.scores == nil {
			p.held = append(p.held, u)
			return nil
		}
		if p.held == nil {
			return []update{u}
		}
		ready := append(p.held, u)
		p.held = nil
		return ready
	}
	if u.Finish == engine.FinishNone {
		return nil
	}
	all := make([]update, g.n)
	for i := range all {
		all[i] = update{u.prompt, engine.Event{Index: i, Finish: engine.FinishLength,
			Usage: engine.Usage{Prompt: u.Usage.Prompt, Cached: u.Usage.Cached}}}
	}
	return all
}

// echoed are the updates of a request that needs no engine: the prompt back, nothing else.
func (g *generation) echoed() <-chan update {
	out := make(chan update, len(g.prompts))
	for i, p := range g.prompts {
		out <- update{i, engine.Event{Finish: engine.FinishLength, Usage: engine.Usage{Prompt: len(p.ids)}}}
	}
	close(out)
	return out
}

// add takes an update into its choice and the metrics, and returns what it adds to the text. A
// stream keeps no text.
func (g *generation) add(u update) (*choice, []piece) {
	c := &g.choices[u.prompt*g.n+u.Index]
	grown := c.reader.pieces(c.answer.Add(u.Event), c.answer.Reasoning(), u.Finish)
	if g.hideReasoning {
		grown = slices.DeleteFunc(grown, func(p piece) bool { return p.kind == reasoningPiece })
	}
	if !g.stream {
		for _, p := range grown {
			c.grow(p)
		}
		if g.returnIDs || g.logprobs != nil {
			c.tokens = append(c.tokens, u.Tokens...)
		}
	}
	if n := u.Usage.Completion - c.usage.Completion; n > 0 && !g.promptOnly {
		g.account.take(n)
	}
	if left := g.h.LogText - g.logged.Len(); left > 0 && c.index == 0 {
		g.logged.WriteString(shorten(u.Text, left))
	}
	c.usage = u.Usage
	if u.Finish != engine.FinishNone {
		c.finish, c.stopReason = u.Finish, u.StopReason
	}
	g.h.metrics.observe(g, c, u)
	return c, grown
}

// grow adds a piece to an answer that is sent as a whole.
func (c *choice) grow(p piece) {
	switch p.kind {
	case reasoningPiece:
		c.reasoning.WriteString(p.text)
	case contentPiece:
		c.text.WriteString(p.text)
	case callPiece:
		c.calls = append(c.calls, p.call)
	case argumentsPiece:
		c.calls[len(c.calls)-1].arguments += p.text
	}
}

// failure is why an update ends the whole request, nil if it does not.
func (g *generation) failure(ctx context.Context, u update) error {
	switch u.Finish {
	case engine.FinishError:
		if u.Err == nil {
			return engine.ErrStep
		}
		return u.Err
	case engine.FinishCancelled:
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return engine.ErrClosed // nobody but the engine itself can have done it
	}
	return nil
}

// unfinished is the error of a reply whose choices did not all end.
func (g *generation) unfinished(ctx context.Context) error {
	for i := range g.choices {
		if g.choices[i].finish == engine.FinishNone {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return errors.New("api: the engine's events ended before the answer did")
		}
	}
	return nil
}

// usage sums over prompts and choices; a prompt counts once however many answers it has.
func (g *generation) usage() *usage {
	u, reasoned := &usage{}, 0
	for i := range g.prompts {
		u.Prompt += len(g.prompts[i].ids)
		cached := 0
		for _, c := range g.choices[i*g.n : (i+1)*g.n] {
			u.Completion += c.usage.Completion
			cached = max(cached, c.usage.Cached)
			reasoned += c.answer.Tokens()
		}
		u.Details.Cached += cached
	}
	u.Total = u.Prompt + u.Completion
	if g.reasoning.Parser != "" {
		u.CompletionDetails = &completionDetails{reasoned}
	}
	return u
}

// chunkUsage is what a chunk says of usage so far.
func (g *generation) chunkUsage() *usage {
	if !g.continuousUsage {
		return nil
	}
	return g.usage()
}

// usage is OpenAI's usage object.
type usage struct {
	Prompt     int          `json:"prompt_tokens"`
	Total      int          `json:"total_tokens"`
	Completion int          `json:"completion_tokens"`
	Details    usageDetails `json:"prompt_tokens_details"`
	// CompletionDetails are there for models that reason.
	CompletionDetails *completionDetails `json:"completion_tokens_details,omitzero"`
}

type usageDetails struct {
	Cached int `json:"cached_tokens"`
}

// completionDetails counts the tokens of reasoning with those of the marks around it.
type completionDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

// report leaves in the log line what became of the request.
func (g *generation) report(w *reply) {
	u := g.usage()
	if n := g.h.LogText; n > 0 {
		ids := g.prompts[0].ids
		text, err := g.h.gen.Detokenize(g.model.Name, ids[:min(len(ids), n)])
		if err != nil {
			text = err.Error()
		}
		w.promptText, w.answerText = shorten(text, n), g.logged.String()
	}
	w.promptTokens, w.completionTokens, w.cachedTokens = u.Prompt, u.Completion, u.Details.Cached
	for _, c := range g.choices {
		if first := c.firstToken.Sub(g.arrival); !c.firstToken.IsZero() && (w.ttft == 0 || first < w.ttft) {
			w.ttft = first
		}
		if w.outcome == "" || c.finish != engine.FinishLength {
			w.outcome = c.finish.String()
		}
	}
}

// tokenIDs of tokens, when the client asked for them.
func (g *generation) tokenIDs(tokens []engine.Token) []int32 {
	if !g.returnIDs {
		return nil
	}
	ids := make([]int32, len(tokens))
	for i, t := range tokens {
		ids[i] = t.ID
	}
	return ids
}

// promptIDs of a prompt, when the client asked for them.
func (g *generation) promptIDs(p *prompt) []int32 {
	if !g.returnIDs {
		return nil
	}
	return p.ids
}

// finishReason is OpenAI's, null while there is none.
func finishReason(c *choice, end bool) *string {
	if !end {
		return nil
	}
	s := c.finish.String()
	if c.reader.begun > 0 && c.finish == engine.FinishStop {
		s = "tool_calls"
	}
	return &s
}
