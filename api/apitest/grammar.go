package apitest

import (
	"context"
	"sync"

	"github.com/openinfer-go/openinfer/engine/grammar"
)

// vocabulary is that of Detokenize, for grammars.
var vocabulary = sync.OnceValue(func() *grammar.Vocabulary {
	tokens := make([]grammar.Token, Vocab)
	for b := range 256 {
		tokens[b].Bytes = []byte{byte(b)}
	}
	for id, text := range control {
		tokens[id] = grammar.Token{Bytes: []byte(text), Control: true}
	}
	return grammar.NewVocabulary(tokens, []int32{ImEnd})
})

// CompileGrammar compiles for the stand-in's vocabulary. Its answers are what the test says, whatever the grammar.
func (g *Generator) CompileGrammar(ctx context.Context, model string, expr grammar.Expr) (*grammar.Grammar, error) {
	if err := g.known(model); err != nil {
		return nil, err
	}
	return grammar.Compile(ctx, expr, vocabulary())
}
