package engine

import (
	"context"
	"errors"
	"iter"
)

// Engine serves the models of its Options. All methods may be called from any goroutine.
type Engine struct{}

var errSkeleton = errors.New("engine: not built yet")

// New checks o and returns an engine that has loaded nothing: Models, Health and Stats answer,
// everything else says ErrNotReady until Load has loaded the model asked for.
func New(o Options) (*Engine, error) { return nil, errSkeleton }

// Load opens the device, loads every model and starts the step loop. It returns when every model
// is ready; its error names the model at fault, and the engine is then closed. Called once.
func (e *Engine) Load(ctx context.Context) error { return errSkeleton }

// Open is New and Load.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := e.Load(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Close ends every sequence with ErrClosed, stops the step loop and gives all memory back. A
// second Close does nothing.
func (e *Engine) Close() error { return nil }

// Drain refuses new requests with ErrClosed and waits until the running and waiting ones are done
// or ctx ends. It returns ctx's error if sequences were left; Close then ends them.
func (e *Engine) Drain(ctx context.Context) error { return nil }

// Models describes the served models in the order of Options.Models, also those still loading
// (Ready false, only Name, Path and Created set).
func (e *Engine) Models() []ModelInfo { return nil }

// Model is Models for one name, or ErrUnknownModel.
func (e *Engine) Model(name string) (ModelInfo, error) { return ModelInfo{}, nil }

// Tokenize turns text into token ids; control tokens written in text are honoured. addSpecial adds
// what the tokenizer adds around a text (begin of text).
func (e *Engine) Tokenize(model, text string, addSpecial bool) ([]int32, error) {
	return nil, errSkeleton
}

// RenderChat renders a conversation by the model's own template and turns it into ids. Text from
// messages never becomes a control token. What is wrong with a conversation is an InvalidError on
// "messages" (or "chat_template_kwargs"), also a model without a template.
func (e *Engine) RenderChat(model string, p ChatPrompt) (text string, ids []int32, err error) {
	return "", nil, errSkeleton
}

// Detokenize turns ids into text, special tokens included. Invalid UTF-8 becomes U+FFFD.
func (e *Engine) Detokenize(model string, ids []int32) (string, error) { return "", errSkeleton }

// TokenText returns how a token is written: its vocabulary text (valid UTF-8, U+FFFD for parts of
// characters) and the exact bytes it stands for.
func (e *Engine) TokenText(model string, id int32) (string, []byte, error) {
	return "", nil, errSkeleton
}

// Admit is the cheap check before a request's text is touched: it returns what Generate would
// (ErrUnknownModel, ErrNotReady, ErrClosed, *OverCapacityError) for n more sequences now, and
// reserves nothing.
func (e *Engine) Admit(model string, n int) error { return errSkeleton }

// Generate checks r and hands it to the step loop; an error means that nothing was started. The
// iterator, good for one range, yields the events of all sequences as they come and ends after the
// last one's final event. Breaking out of the range, or the end of ctx, cancels what still runs;
// after the end of ctx the final events (FinishCancelled) are still yielded. A caller that never
// ranges must end ctx.
func (e *Engine) Generate(ctx context.Context, r Request) (iter.Seq[Event], error) {
	return nil, errSkeleton
}

// Stats is a snapshot of counters and gauges. It has no side effect.
func (e *Engine) Stats() Stats { return Stats{} }

// Health says whether the step loop lives and every model is loaded.
func (e *Engine) Health() Health { return Health{} }

// Plan is the memory plan made at start-up; the zero plan before.
func (e *Engine) Plan() MemoryPlan { return MemoryPlan{} }
