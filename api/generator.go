package api

import (
	"context"
	"iter"
	"time"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/engine/grammar"
)

// Generator is what the HTTP layer needs of an engine; engine.Engine is one. The methods may be
// called from any goroutine and mean what engine.Engine says of them.
type Generator interface {
	Models() []engine.ModelInfo
	Tokenize(model, text string, addSpecial bool) ([]int32, error)
	TokenizeAtMost(model, text string, addSpecial bool, tokens int) ([]int32, error)
	RenderChat(model string, p engine.ChatPrompt) (engine.RenderedChat, error)
	Detokenize(model string, ids []int32) (string, error)
	TokenText(model string, id int32) (string, []byte, error)
	Admit(r engine.Request) error
	Await(ctx context.Context, model string) error
	CompileGrammar(ctx context.Context, model string, expr grammar.Expr) (*grammar.Grammar, error)
	Generate(ctx context.Context, r engine.Request) (iter.Seq[engine.Event], error)
	KeepAlive(model string, d time.Duration) error
	LoadModel(ctx context.Context, model string) error
	UnloadModel(ctx context.Context, model string, force bool) error
	Stats() engine.Stats
	Occupancy() engine.Occupancy
	Health() engine.Health
}

var _ Generator = (*engine.Engine)(nil)
