package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/engine/text"
	"github.com/openinfer-go/openinfer/sched"
)

// Request asks one model to continue one prompt N times. A client's request with several prompts
// is several of these.
type Request struct {
	ID     string // follows the request through logs; made up when empty
	Model  string
	Prompt []int32 // token ids, at least one; from Tokenize or RenderChat
	N      int     // sequences, 1 when 0

	Sampling  SamplingParams
	MaxTokens int // for each sequence; 0: as many as the context has room for
	MinTokens int // end tokens and stop strings are not obeyed before
	Stop      []string
	// IncludeStop leaves the matched stop string in the text.
	IncludeStop  bool
	StopTokenIDs []int32
	IgnoreEOS    bool
	// KeepSpecial leaves special tokens in the text.
	KeepSpecial bool
	// Marks are tokens that give an answer its structure (ModelInfo.Reasoning has some): special
	// or not, they stay in the text, and Event.Marks says where they are.
	Marks []int32

	// Logprobs, when not nil, asks for the log probability of each token and of the given number
	// of most likely ones; PromptLogprobs for those of the prompt's tokens. Both are of the raw
	// logits. PromptLogprobs computes the whole prompt, past the prefix cache.
	Logprobs       *int
	PromptLogprobs *int

	// Grammar is what the answer has to look like, from CompileGrammar for the same model; nil: anything. End tokens are drawn where it
	// may end and nowhere else. Min tokens do not keep an answer from ending that has nothing to add.
	Grammar *grammar.Grammar

	// CacheSalt parts prefix caches: only requests of one salt share blocks.
	CacheSalt string

	// SLA is the latency that is asked for; a zero part is the model's. A request that could not meet its TTFT is
	// refused with an *OverCapacityError that says what is predicted.
	SLA SLA
	// Priority: of requests that wait for one model, one with a lower number is served first, as in vLLM, in
	// [-MaxPriority, MaxPriority].
	Priority int
	// Key tells whose request it is, so that one caller's many do not keep another's few waiting.
	Key string
	// KeepAlive is after how long without a request the model is parked, until the next request: 0 at once,
	// negative never, nil as configured.
	KeepAlive *time.Duration
}

// SLA is the latency that a request asks for: the time to its first token, counted from its arrival, and the time for each token
// after that. A zero part asks for nothing.
type SLA = sched.SLA

// MaxPriority bounds Request.Priority.
const MaxPriority = 1000

// maxSLA bounds the parts of an SLA: longer ones ask for nothing.
const maxSLA = 24 * time.Hour

// SamplingParams are OpenAI's and vLLM's; ranges are checked by Validate.
type SamplingParams struct {
	Temperature       float32 // 0: greedy
	TopP              float32 // (0, 1]
	TopK              int     // 0: off
	MinP              float32 // [0, 1]
	PresencePenalty   float32 // [-2, 2]
	FrequencyPenalty  float32 // [-2, 2]
	RepetitionPenalty float32 // > 0; 1: off
	LogitBias         map[int32]float32
	// Seed makes the answer repeatable: same seed, same request, same answer, whatever else
	// is running. Nil draws one.
	Seed *int64
}

// Event is something that happened to one sequence of a request. Events of a sequence come in
// order; the last one, and only that, has a Finish.
type Event struct {
	Index  int     // which of the N sequences
	Text   string  // text that is now final, maybe empty; whole characters only
	Marks  []Mark  // which parts of Text are the request's Marks, in order; never a part of one
	Tokens []Token // the tokens whose text is hereby complete, in order
	// Prompt is there on the first event of the first sequence when PromptLogprobs was asked
	// for: one entry a prompt token; the first has no log probability.
	Prompt []Token
	Finish FinishReason
	// StopReason is the stop string or stop token id that ended the sequence, nil otherwise.
	StopReason any
	Err        error // with FinishError
	Usage      Usage // up to and with this event
}

// Mark is a part of an event's text that is one of the request's Marks: At and Len are bytes.
type Mark = text.Mark

// Token is a token with its log probabilities when they were asked for.
type Token struct {
	ID      int32
	Logprob float32
	Rank    int32
	Top     []TokenLogprob
	// HasLogprob is false for the first token of a prompt.
	HasLogprob bool
}

// TokenLogprob is one of the most likely tokens at a place.
type TokenLogprob struct {
	ID      int32
	Logprob float32
	Rank    int32
}

// Usage counts tokens of one sequence. Prompt and Cached are the same for all of a request.
type Usage struct {
	Prompt, Cached, Completion int
	// Queued is the time from Generate to the first step, FirstToken to the first token.
	Queued, FirstToken time.Duration
}

// FinishReason says why a sequence ended.
type FinishReason uint8

// A sequence ends for exactly one of these.
const (
	FinishNone      FinishReason = iota // not ended
	FinishStop                          // an end token, stop token or stop string
	FinishLength                        // MaxTokens or the model's context
	FinishCancelled                     // the caller went away or asked for it
	FinishError                         // Err says why
)

func (r FinishReason) String() string {
	return [...]string{"", "stop", "length", "cancelled", "error"}[r]
}

// Refusals and failures that a caller acts on.
var (
	// ErrUnknownModel: no model of that name; answer 404.
	ErrUnknownModel = errors.New("unknown model")
	// ErrContextLength: prompt and MaxTokens do not fit the model's context or the KV cache;
	// answer 400. Errors that wrap it carry both numbers.
	ErrContextLength = errors.New("context length exceeded")
	// ErrInvalid: something in the request is out of range; answer 400. InvalidError names it.
	ErrInvalid = errors.New("invalid request")
	// ErrOverCapacity: queues are full; answer 429 with OverCapacityError's RetryAfter.
	ErrOverCapacity = errors.New("over capacity")
	// ErrNotReady: the model is still loading; answer 503.
	ErrNotReady = errors.New("model is loading")
	// ErrClosed: the engine is shutting down; answer 503.
	ErrClosed = errors.New("engine is shutting down")
	// ErrLoad: the weights of a parked model could not be brought back; answer 503. The next request tries again.
	ErrLoad = errors.New("model could not be loaded")
	// ErrUnloaded: the model was unloaded by force; answer 503. The next request brings it back.
	ErrUnloaded = errors.New("model was unloaded")
	// ErrStep: the step that ran the sequence failed; answer 500.
	ErrStep = errors.New("step failed")
)

// InvalidError names the field of a request that is wrong and why.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Message }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// OverCapacityError says when it is worth asking again.
type OverCapacityError struct {
	Model      string
	RetryAfter time.Duration
	Waiting    int // sequences of the model that are accepted and do not run yet
	// Predicted is when the first token would have come, 0 when the queue was full, and Target when it was wanted, 0 when
	// only the time per token was; from the request's arrival. One predicted in time was refused because with it
	// others' tokens, or its own later ones, would have been late.
	Predicted, Target time.Duration
}

func (e *OverCapacityError) Error() string {
	retry := fmt.Sprintf("retry after %.0f s", math.Ceil(e.RetryAfter.Seconds()))
	predicted, target := e.Predicted.Round(100*time.Microsecond), e.Target.Round(time.Microsecond)
	switch {
	case e.Predicted > e.Target && e.Target > 0:
		return fmt.Sprintf("%v: model %s would give its first token after %v, wanted within %v; %s", ErrOverCapacity, e.Model, predicted, target, retry)
	case e.Target > 0:
		return fmt.Sprintf("%v: model %s would give its first token after %v, wanted within %v, but cannot promise that beside what it promised others; %s",
			ErrOverCapacity, e.Model, predicted, target, retry)
	case e.Predicted > 0:
		return fmt.Sprintf("%v: model %s cannot promise the time per token that is wanted beside what it promised others; %s", ErrOverCapacity, e.Model, retry)
	}
	return fmt.Sprintf("%v: model %s has %d requests waiting, as many as may; %s", ErrOverCapacity, e.Model, e.Waiting, retry)
}

// Is makes errors.Is(err, ErrOverCapacity) true.
func (e *OverCapacityError) Is(target error) bool { return target == ErrOverCapacity }

// ChatPrompt is a conversation to be rendered by the model's own template.
type ChatPrompt struct {
	Messages            json.RawMessage // the request's messages array
	AddGenerationPrompt bool
	ContinueFinal       bool
	Tools               json.RawMessage // the request's tools array, or nil
	Kwargs              json.RawMessage // chat_template_kwargs, an object or nil
	MaxTokens           int             // more are ErrContextLength; 0: as many as there are
}

// RenderedChat is a conversation as the model gets it.
type RenderedChat struct {
	Text string
	IDs  []int32
	// InReasoning: the prompt ends inside a block of reasoning, which the answer goes on with.
	InReasoning bool
}

// ModelInfo describes a served model.
type ModelInfo struct {
	Name         string
	Architecture string
	Path         string // "" when embedded
	Created      time.Time
	MaxModelLen  int
	Vocab        int // ids that exist: 0 .. Vocab-1
	EndTokens    []int32
	HasChat      bool // a chat template came with the checkpoint
	Reasoning    Reasoning
	Tools        ToolFormat
	Defaults     SamplingParams
	Ready        bool
	State        string    // where the weights are: "resident", "parked" or "loading"
	ParkAt       time.Time // when they are parked if no request comes before; zero: never, or they are not on the device
	WeightBytes  int64
	// Cache numbers are those of this model as if it had the whole pool.
	BlockTokens  int
	CacheTokens  int
	KVCacheDType string
	// Simulated names the card that no answer was computed on; "": answers are computed.
	Simulated string
}
