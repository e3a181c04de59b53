package engine

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/openinfer-go/openinfer/engine/text"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/sched"
)

// Ranges of a request, OpenAI's and vLLM's.
const (
	maxN        = 128
	maxLogprobs = 64 // of the most likely tokens
	maxBias     = 100
	// maxStopBytes bounds all stop strings together: each byte of them costs some 60 bytes of
	// automaton.
	maxStopBytes = 64 << 10
)

// request is what the loop knows of a Request.
type request struct {
	Request
	model     *model
	arrival   time.Time
	seqs      []*sequence
	sink      *sink
	cancelled atomic.Bool
	left      int // sequences without a final event; the loop's
	// detach undoes the watch over the caller's context.
	detach func() bool
}

// Generate checks r and hands it to the scheduler, which accepts or refuses it at once, whatever step is
// running; an error means that nothing was started. The iterator, good for one range, yields the events of all sequences as they come and ends after the
// last one's final event. Breaking out of the range, or the end of ctx, cancels what still runs;
// after the end of ctx the final events (FinishCancelled) are still yielded. A caller that never
// ranges must end ctx.
func (e *Engine) Generate(ctx context.Context, r Request) (iter.Seq[Event], error) {
	m, err := e.ready(r.Model)
	if err != nil {
		return nil, err
	}
	if r.N == 0 {
		r.N = 1
	}
	if r.MaxTokens == 0 {
		r.MaxTokens = max(m.info.MaxModelLen-len(r.Prompt), 0)
		if r.MaxTokens == 0 && len(r.Prompt) > 0 {
			return nil, fmt.Errorf("%w: the prompt has %d tokens, model %s has a context of %d and the answer needs at least 1",
				ErrContextLength, len(r.Prompt), r.Model, m.info.MaxModelLen)
		}
	}
	if err := r.validate(m); err != nil {
		return nil, err
	}
	q := newRequest(r, m)
	q.detach = context.AfterFunc(ctx, func() { e.cancel(q) })
	if err := e.submit(q); err != nil {
		q.detach()
		return nil, err
	}
	return q.sink.all(ctx, func() { e.cancel(q) }), nil
}

// validate checks every field of r against the model. The error names the field.
func (r *Request) validate(m *model) error {
	invalid := func(field, format string, args ...any) error {
		return &InvalidError{field, fmt.Sprintf(format, args...)}
	}
	between := func(field string, v, low, high float32) error {
		if !(v >= low && v <= high) { // NaN is outside, too
			return invalid(field, "%v is not in [%v, %v]", v, low, high)
		}
		return nil
	}
	p := &r.Sampling
	if p.TopP == 0 { // the zero SamplingParams are greedy
		p.TopP = 1
	}
	if p.RepetitionPenalty == 0 {
		p.RepetitionPenalty = 1
	}
	for _, err := range []error{
		between("temperature", p.Temperature, 0, 2),
		between("top_p", p.TopP, math.SmallestNonzeroFloat32, 1),
		between("min_p", p.MinP, 0, 1),
		between("presence_penalty", p.PresencePenalty, -2, 2),
		between("frequency_penalty", p.FrequencyPenalty, -2, 2),
		between("repetition_penalty", p.RepetitionPenalty, math.SmallestNonzeroFloat32, math.MaxFloat32),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case len(r.Prompt) == 0:
		return invalid("prompt", "no tokens")
	case r.N < 1 || r.N > maxN:
		return invalid("n", "%d is not in [1, %d]", r.N, maxN)
	case p.TopK < 0:
		return invalid("top_k", "%d is negative", p.TopK)
	case r.MaxTokens < 1:
		return invalid("max_tokens", "%d is less than 1", r.MaxTokens)
	case r.Priority < -MaxPriority || r.Priority > MaxPriority:
		return invalid("priority", "%d is not in [%d, %d]", r.Priority, -MaxPriority, MaxPriority)
	case r.MinTokens < 0 || r.MinTokens > r.MaxTokens:
		return invalid("min_tokens", "%d is not in [0, max_tokens = %d]", r.MinTokens, r.MaxTokens)
	}
	if err := checkSLA(r.SLA); err != nil {
		return invalid("sla", "%v", err)
	}
	id := func(field string, id int32) error {
		if id < 0 || int(id) >= m.info.Vocab {
			return invalid(field, "token id %d is not in the vocabulary of %s, [0, %d)", id, r.Model, m.info.Vocab)
		}
		return nil
	}
	for _, t := range r.Prompt {
		if err := id("prompt", t); err != nil {
			return err
		}
	}
	for _, t := range r.StopTokenIDs {
		if err := id("stop_token_ids", t); err != nil {
			return err
		}
	}
	for _, t := range r.Marks {
		if err := id("marks", t); err != nil {
			return err
		}
	}
	if r.MinTokens > 0 && len(r.banned(m)) == m.info.Vocab {
		return invalid("stop_token_ids", "every token would end the answer, and min_tokens of %d lets none of them", r.MinTokens)
	}
	for t, b := range p.LogitBias {
		if err := id("logit_bias", t); err != nil {
			return err
		}
		if err := between(fmt.Sprintf("logit_bias[%d]", t), b, -maxBias, maxBias); err != nil {
			return err
		}
	}
	if r.Grammar != nil && !r.Grammar.For(m.grammarVocabulary()) {
		return invalid("grammar", "was compiled for another model than %s", r.Model)
	}
	if slices.Contains(r.Stop, "") {
		return invalid("stop", "a stop string is empty")
	}
	stopBytes := 0
	for _, s := range r.Stop {
		stopBytes += len(s)
	}
	if stopBytes > maxStopBytes {
		return invalid("stop", "%d bytes of stop strings exceed %d", stopBytes, maxStopBytes)
	}
	for _, l := range []struct {
		field string
		n     *int
	}{{"logprobs", r.Logprobs}, {"prompt_logprobs", r.PromptLogprobs}} {
		if l.n != nil && (*l.n < 0 || *l.n > maxLogprobs) {
			return invalid(l.field, "%d is not in [0, %d]", *l.n, maxLogprobs)
		}
	}
	if total := len(r.Prompt) + r.MaxTokens; total > m.info.MaxModelLen || total < 0 {
		return fmt.Errorf("%w: %d tokens of prompt and max_tokens %d exceed the context length %d of model %s",
			ErrContextLength, len(r.Prompt), r.MaxTokens, m.info.MaxModelLen, r.Model)
	}
	return nil
}

// banned are the ids that are not drawn until MinTokens: whatever would end the sequence, and what
// never is.
func (r *Request) banned(m *model) []int32 {
	ids := slices.Concat(r.StopTokenIDs, m.never)
	if !r.IgnoreEOS {
		ids = append(ids, m.info.EndTokens...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func newRequest(r Request, m *model) *request {
	if r.ID == "" {
		r.ID = fmt.Sprintf("req-%016x", rand.Uint64())
	}
	r.Prompt, r.Stop, r.StopTokenIDs = slices.Clone(r.Prompt), slices.Clone(r.Stop), slices.Clone(r.StopTokenIDs)
	slices.Sort(r.StopTokenIDs) // each token drawn is looked for
	r.StopTokenIDs = slices.Compact(r.StopTokenIDs)
	q := &request{Request: r, model: m, arrival: time.Now(), sink: newSink(r.N), left: r.N}
	seed := rand.Uint64()
	if r.Sampling.Seed != nil {
		seed = uint64(*r.Sampling.Seed)
	}
	if m.simulated != nil {
		seed = m.simulated.seed(&r)
	}
	p := kernels.SampleParams{
		Temperature: r.Sampling.Temperature, TopK: r.Sampling.TopK, TopP: r.Sampling.TopP, MinP: r.Sampling.MinP,
		Repetition: r.Sampling.RepetitionPenalty, Presence: r.Sampling.PresencePenalty,
		Frequency: r.Sampling.FrequencyPenalty, Given: -1, Logprobs: -1, Banned: m.never,
	}
	if r.Logprobs != nil {
		p.Logprobs = *r.Logprobs
	}
	for id, b := range r.Sampling.LogitBias {
		p.Bias = append(p.Bias, kernels.TokenBias{ID: id, Bias: b})
	}
	slices.SortFunc(p.Bias, func(a, b kernels.TokenBias) int { return int(a.ID - b.ID) })
	banned := r.banned(m)
	stops := text.NewStops(r.Stop, r.IncludeStop)
	marks := m.snapshotMarks(q.Prompt)
	for i := range r.N {
		p.Seed = sequenceSeed(seed, i)
		s := &sequence{request: q, index: i, params: p, banned: banned, text: text.NewStream(stops)}
		s.usage.Prompt = len(r.Prompt)
		if r.Grammar != nil {
			s.grammar = q.look(r.Grammar.Start())
		}
		s.sched = &sched.Sequence{
			Model: r.Model, Prompt: q.Prompt, MaxTokens: r.MaxTokens, PromptLogits: s.wantsPrompt(), Marks: marks,
			SLA: r.SLA, Priority: -r.Priority, Key: r.Key, User: s,
		}
		s.sched.Identity.Salt = r.CacheSalt
		q.seqs = append(q.seqs, s)
	}
	return q
}

// sequenceSeed derives the seed of the i-th sequence of a request: neighbours share nothing, and
// seeds that differ by one do not meet (the finaliser is a bijection, splitmix64's).
func sequenceSeed(seed uint64, i int) uint64 {
	z := mix(seed+0x9e3779b97f4a7c15) + uint64(i)*0xbf58476d1ce4e5b9
	return mix(z)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
