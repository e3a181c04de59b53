// Package apitest has a scripted stand-in for an engine, for tests of the HTTP layer and of
// clients. It computes nothing: what it answers is a function of the request that the test gives.
//
// Its tokens are bytes, so that every character beyond ASCII is several tokens. It keeps an
// engine's promises: one final event a sequence, cancellation by context or by leaving the range,
// bounded queues.
package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/engine"
)

// The tokens that are not bytes.
const (
	BOS      = 256
	ImStart  = 257
	ImEnd    = 258 // ends an answer
	Think    = 259
	EndThink = 260
	Vocab    = 300
)

var control = map[int32]string{BOS: "<s>", ImStart: "<|im_start|>", ImEnd: "<|im_end|>", Think: "<think>", EndThink: "</think>"}

// Answer is what a request gets.
type Answer struct {
	Text string
	// Step, when not nil, is received from before each token; Delay passes before each token.
	Step  <-chan struct{}
	Delay time.Duration
	// Prefill passes before the first token.
	Prefill time.Duration
	// FailAfter, unless it is 0, ends a sequence with Err after so many tokens; below 0: before the first.
	FailAfter int
	Err       error
	// Infinite makes every second log probability minus infinity, and every third NaN.
	Infinite bool
	Cached   int
}

// Generator serves Names; the zero limits are none.
type Generator struct {
	Names []string
	// Reasoning is that of all models. With Marks, which are Think and EndThink, an answer's
	// text has these tokens where it has their text.
	Reasoning engine.Reasoning
	Tools     engine.ToolFormat // of all models
	// Opens: the template opens a block of reasoning, unless it is told enable_thinking false.
	Opens      bool
	MaxLen     int // context length, 4096 when 0
	Answer     func(engine.Request) Answer
	MaxRunning int
	MaxWaiting int
	HealthNow  func() engine.Health // healthy and ready when nil
	Card       *engine.CardStats
	// Loading, when not nil, is closed when the models are loaded; LoadErr is what came of it.
	Loading <-chan struct{}
	LoadErr error

	Tokenized atomic.Int64 // calls of Tokenize and RenderChat
	Live      atomic.Int64 // sequences that run
	Started   atomic.Int64 // sequences that ever ran

	mu       sync.Mutex
	parked   map[string]bool
	kept     map[string]time.Duration
	waiting  int
	running  int
	freed    chan struct{} // closed and made anew when a request ends
	requests []engine.Request
	open     []engine.Request // those that have not ended
	finished map[engine.FinishReason]int64
	counts   engine.ModelStats
}

// Requests returns what Generate was asked for so far.
func (g *Generator) Requests() []engine.Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]engine.Request(nil), g.requests...)
}

func (g *Generator) Models() []engine.ModelInfo {
	var all []engine.ModelInfo
	ready := g.Health().Ready
	for _, n := range g.Names {
		m := engine.ModelInfo{Name: n, Created: time.Unix(1700000000, 0), State: "loading"}
		if ready {
			m.State = "resident"
			g.mu.Lock()
			if g.parked[n] {
				m.State = "parked"
			} else if d, ok := g.kept[n]; ok && d >= 0 {
				m.ParkAt = time.Now().Add(d)
			}
			g.mu.Unlock()
			m.Architecture, m.MaxModelLen, m.Vocab, m.EndTokens = "bytes", g.maxLen(), Vocab, []int32{ImEnd}
			m.Reasoning, m.Tools = g.Reasoning, g.Tools
			m.HasChat, m.Ready, m.BlockTokens, m.CacheTokens, m.KVCacheDType = true, true, 16, 1605, "fp16"
			m.Defaults = engine.SamplingParams{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
		}
		all = append(all, m)
	}
	return all
}

func (g *Generator) maxLen() int {
	if g.MaxLen == 0 {
		return 4096
	}
	return g.MaxLen
}

func (g *Generator) Tokenize(model, text string, addSpecial bool) ([]int32, error) {
	g.Tokenized.Add(1)
	var ids []int32
	if addSpecial {
		ids = append(ids, BOS)
	}
	return append(ids, Bytes(text)...), nil
}

func (g *Generator) TokenizeAtMost(model, text string, addSpecial bool, tokens int) ([]int32, error) {
	ids, err := g.Tokenize(model, text, addSpecial)
	if err == nil && tokens > 0 && len(ids) > tokens {
		return nil, engine.ErrContextLength
	}
	return ids, err
}

// Bytes are a text's tokens.
func Bytes(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range len(text) {
		ids[i] = int32(text[i])
	}
	return ids
}

// RenderChat writes ChatML. A system message that is not the first is refused, as templates do.
func (g *Generator) RenderChat(model string, p engine.ChatPrompt) (engine.RenderedChat, error) {
	g.Tokenized.Add(1)
	var messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(p.Messages, &messages); err != nil {
		return engine.RenderedChat{}, err
	}
	kwargs := struct {
		Thinking bool `json:"enable_thinking"`
	}{true}
	if p.Kwargs != nil {
		if err := json.Unmarshal(p.Kwargs, &kwargs); err != nil {
			return engine.RenderedChat{}, err
		}
	}
	var ids []int32
	for i, m := range messages {
		if m.Role == "system" && i > 0 {
			return engine.RenderedChat{}, &engine.InvalidError{Field: "messages", Message: "the template wants system first"}
		}
		var content string
		if json.Unmarshal(m.Content, &content) != nil {
			var parts []struct {
				Text string `json:"text"`
			}
			_ = json.Unmarshal(m.Content, &parts) // null is no text
			for _, part := range parts {
				content += part.Text
			}
		}
		ids = append(append(ids, ImStart), Bytes(m.Role+"\n"+content)...)
		if i < len(messages)-1 || !p.ContinueFinal {
			ids = append(append(ids, ImEnd), '\n')
		}
	}
	if p.AddGenerationPrompt {
		ids = append(append(ids, ImStart), Bytes("assistant\n")...)
	}
	if p.MaxTokens > 0 && len(ids) > p.MaxTokens {
		return engine.RenderedChat{}, engine.ErrContextLength
	}
	text, err := g.Detokenize(model, ids)
	return engine.RenderedChat{Text: text, IDs: ids, InReasoning: g.Opens && kwargs.Thinking}, err
}

func (g *Generator) Detokenize(model string, ids []int32) (string, error) {
	var b strings.Builder
	for _, id := range ids {
		_, raw, err := g.TokenText(model, id)
		if err != nil {
			return "", err
		}
		b.Write(raw)
	}
	return strings.ToValidUTF8(b.String(), "\ufffd"), nil
}

func (g *Generator) TokenText(model string, id int32) (string, []byte, error) {
	if id >= 0 && id < 256 {
		raw := []byte{byte(id)}
		return strings.ToValidUTF8(string(raw), "\ufffd"), raw, nil
	}
	if s, ok := control[id]; ok {
		return s, []byte(s), nil
	}
	if id >= 0 && int(id) < Vocab { // a vocabulary has ids without text
		return "", nil, nil
	}
	return "", nil, fmt.Errorf("apitest: no token %d", id)
}

func (g *Generator) known(model string) error {
	for _, n := range g.Names {
		if n == model {
			if !g.Health().Ready {
				return engine.ErrNotReady
			}
			return nil
		}
	}
	return engine.ErrUnknownModel
}

func (g *Generator) Admit(r engine.Request) error {
	if err := g.known(r.Model); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over(r.N)
}

// LoadModel and UnloadModel move nothing, and Models tells of it.
func (g *Generator) LoadModel(_ context.Context, model string) error { return g.park(model, false) }

// KeepAlive notes what it was told, for Kept.
func (g *Generator) KeepAlive(model string, d time.Duration) error {
	if err := g.known(model); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kept == nil {
		g.kept = map[string]time.Duration{}
	}
	g.kept[model] = d
	return nil
}

// Kept is what KeepAlive was told last of a model.
func (g *Generator) Kept(model string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kept[model]
}

// UnloadModel parks the model.
func (g *Generator) UnloadModel(_ context.Context, model string, force bool) error {
	return g.park(model, true)
}

func (g *Generator) park(model string, parked bool) error {
	if err := g.known(model); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.parked == nil {
		g.parked = map[string]bool{}
	}
	g.parked[model] = parked
	return nil
}

// over says whether n more sequences are too many. It is called with mu held.
func (g *Generator) over(n int) error {
	if g.MaxRunning > 0 && g.running+g.waiting+n > g.MaxRunning+g.MaxWaiting {
		g.counts.RefusedFull++
		return &engine.OverCapacityError{RetryAfter: 1500 * time.Millisecond, Waiting: g.waiting}
	}
	return nil
}

// Generate runs the script inside the iterator.
func (g *Generator) Generate(ctx context.Context, r engine.Request) (iter.Seq[engine.Event], error) {
	if err := g.known(r.Model); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.over(r.N); err != nil {
		return nil, err
	}
	g.waiting += r.N
	if g.freed == nil {
		g.freed = make(chan struct{})
		g.finished = map[engine.FinishReason]int64{}
	}
	g.requests, g.open = append(g.requests, r), append(g.open, r)
	return func(yield func(engine.Event) bool) {
		defer g.ended(r.ID)
		g.run(ctx, r, yield)
	}, nil
}

func (g *Generator) ended(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.IndexFunc(g.open, func(r engine.Request) bool { return r.ID == id }); i >= 0 {
		g.open = slices.Delete(g.open, i, i+1)
	}
}

// admitted waits for room to run.
func (g *Generator) admitted(ctx context.Context, n int) bool {
	for {
		g.mu.Lock()
		if g.MaxRunning == 0 || g.running == 0 || g.running+n <= g.MaxRunning {
			g.waiting -= n
			g.running += n
			g.mu.Unlock()
			g.Live.Add(int64(n))
			g.Started.Add(int64(n))
			return true
		}
		freed := g.freed
		g.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			g.mu.Lock()
			g.waiting -= n
			g.mu.Unlock()
			return false
		}
	}
}

func (g *Generator) run(ctx context.Context, r engine.Request, yield func(engine.Event) bool) {
	open := make([]bool, r.N)
	usage := make([]engine.Usage, r.N)
	for i := range open {
		open[i] = true
	}
	cancel := func() {
		for i := range open {
			if open[i] {
				g.count(engine.FinishCancelled)
				if !yield(engine.Event{Index: i, Finish: engine.FinishCancelled, Usage: usage[i]}) {
					return
				}
			}
		}
	}
	if !g.admitted(ctx, r.N) {
		cancel()
		return
	}
	defer func() {
		g.Live.Add(-int64(r.N))
		g.mu.Lock()
		g.running -= r.N
		close(g.freed)
		g.freed = make(chan struct{})
		g.mu.Unlock()
	}()
	a := Answer{Text: "Hello there."}
	if g.Answer != nil {
		a = g.Answer(r)
	}
	if !wait(ctx, a.Prefill, nil) {
		cancel()
		return
	}
	streams := make([]*sequence, r.N)
	for i := range streams {
		streams[i] = newSequence(r, a)
	}
	for left := r.N; left > 0; {
		for i, s := range streams {
			if !open[i] {
				continue
			}
			if !wait(ctx, a.Delay, a.Step) {
				cancel()
				return
			}
			ev := s.step()
			ev.Index, usage[i] = i, ev.Usage
			if i == 0 && ev.Usage.Completion <= 1 && r.PromptLogprobs != nil {
				for j, id := range r.Prompt {
					t := scored(id, *r.PromptLogprobs, a, j)
					if t.HasLogprob = j > 0; !t.HasLogprob {
						t = engine.Token{ID: id}
					}
					ev.Prompt = append(ev.Prompt, t)
				}
			}
			if ev.Finish != engine.FinishNone {
				open[i] = false
				left--
				g.count(ev.Finish)
				g.mu.Lock()
				g.counts.GeneratedTokens += int64(ev.Usage.Completion)
				if i == 0 {
					g.counts.PromptTokens += int64(len(r.Prompt))
				}
				g.mu.Unlock()
			}
			if !yield(ev) {
				return
			}
		}
	}
}

func (g *Generator) count(r engine.FinishReason) {
	g.mu.Lock()
	g.finished[r]++
	g.mu.Unlock()
}

// wait returns false when ctx ended first.
func wait(ctx context.Context, d time.Duration, step <-chan struct{}) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if step != nil {
		select {
		case <-step:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// sequence plays one answer, a byte a token but for marks.
type sequence struct {
	r       engine.Request
	a       Answer
	tokens  []int32 // of the text, cut before or after the first stop string
	stopped any
	made    int
	held    []engine.Token // of a character that is not whole yet
}

func newSequence(r engine.Request, a Answer) *sequence {
	s := &sequence{r: r, a: a}
	text, at := a.Text, len(a.Text)
	for _, stop := range r.Stop {
		if i := strings.Index(a.Text, stop); i >= 0 && (i < at || s.stopped == nil) {
			at, s.stopped = i, stop
			text = a.Text[:i]
			if r.IncludeStop {
				text += stop
			}
		}
	}
	for text != "" {
		id := int32(text[0])
		for _, m := range r.Marks {
			if strings.HasPrefix(text, control[m]) {
				id = m
			}
		}
		s.tokens = append(s.tokens, id)
		text = text[len(tokenText(id)):]
	}
	return s
}

// tokenText is the text of a byte or a mark, none of another token.
func tokenText(id int32) string {
	switch {
	case id < 256:
		return string([]byte{byte(id)})
	case id >= Think:
		return control[id]
	}
	return ""
}

func (s *sequence) step() engine.Event {
	ev := engine.Event{}
	var id int32 = ImEnd
	end := s.made >= len(s.tokens)
	if !end {
		id = s.tokens[s.made]
	}
	s.made++
	ev.Usage = engine.Usage{Prompt: len(s.r.Prompt), Cached: s.a.Cached, Completion: s.made}
	if s.a.FailAfter != 0 && s.made > max(s.a.FailAfter, 0) {
		ev.Finish, ev.Err = engine.FinishError, s.a.Err
		return ev
	}
	t := engine.Token{ID: id}
	if s.r.Logprobs != nil {
		t = scored(id, *s.r.Logprobs, s.a, s.made)
	}
	s.held = append(s.held, t)
	var b []byte
	for _, h := range s.held {
		if h.ID >= Think {
			ev.Marks = append(ev.Marks, engine.Mark{At: len(b), Len: len(control[h.ID])})
		}
		b = append(b, tokenText(h.ID)...)
	}
	whole := utf8.Valid(b)
	switch {
	case end:
		ev.Finish, ev.StopReason = engine.FinishStop, s.stopped
	case s.made == s.r.MaxTokens:
		ev.Finish = engine.FinishLength
	}
	if whole {
		ev.Text = string(b)
	} else {
		ev.Marks = nil
	}
	if whole || ev.Finish != engine.FinishNone { // a half character at the end is dropped
		ev.Tokens, s.held = s.held, nil
	}
	return ev
}

// scored gives a token made-up log probabilities: it is the most likely one, its neighbours follow.
func scored(id int32, top int, a Answer, at int) engine.Token {
	t := engine.Token{ID: id, Logprob: -0.25 - float32(at%8)/8, Rank: 1, HasLogprob: true}
	if a.Infinite {
		switch {
		case at%2 == 0:
			t.Logprob = float32(math.Inf(-1))
		case at%3 == 0:
			t.Logprob = float32(math.NaN())
		}
	}
	for k := range int32(top) {
		t.Top = append(t.Top, engine.TokenLogprob{ID: (id + k) % 256, Logprob: t.Logprob - float32(k), Rank: k + 1})
	}
	return t
}

// Occupancy has the pages of Stats, of which the first model has those that are cached, and the requests that are being answered.
func (g *Generator) Occupancy() engine.Occupancy {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := engine.Occupancy{Plan: engine.MemoryPlan{Device: "scripted", FreeBytes: 20 << 20, KVBytes: 10 << 20, PageBytes: 1 << 20, Pages: 11}}
	o.Pages = []engine.PageRun{{Model: g.Names[0], Use: engine.CachedPage, Pages: 2}, {Use: engine.FreePage, Pages: 8}}
	for _, r := range g.open {
		s := engine.SequenceInfo{Request: r.ID, Model: r.Model, Prompt: len(r.Prompt), MaxTokens: r.MaxTokens, Priority: r.Priority}
		s.Running, s.SLA = g.running > 0, r.SLA
		o.Sequences = append(o.Sequences, s)
	}
	return o
}

func (g *Generator) Stats() engine.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := engine.Stats{Card: g.Card, PagesTotal: 10, PagesFree: 8, PagesCached: 2, PageBytes: 1 << 20, Steps: 5}
	for _, n := range g.Names {
		m := g.counts
		m.Name, m.Running, m.Waiting = n, g.running, g.waiting
		m.Finished = map[engine.FinishReason]int64{}
		for r, c := range g.finished {
			m.Finished[r] = c
		}
		s.Models = append(s.Models, m)
	}
	return s
}

func (g *Generator) Await(ctx context.Context, model string) error {
	if g.Loading == nil {
		return g.known(model)
	}
	select {
	case <-g.Loading:
		return g.LoadErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Generator) Health() engine.Health {
	if g.HealthNow != nil {
		return g.HealthNow()
	}
	if g.Loading != nil {
		select {
		case <-g.Loading:
			if g.LoadErr != nil {
				return engine.Health{Reason: g.LoadErr.Error()}
			}
		default:
			return engine.Health{OK: true, Reason: "loading"}
		}
	}
	return engine.Health{OK: true, Ready: true, Heartbeat: time.Millisecond}
}
