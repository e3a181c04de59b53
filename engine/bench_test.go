package engine_test

import (
	"context"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
)

// BenchmarkOpen is the cold start of both embedded models, tokenizers and templates included.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		e, err := engine.Open(context.Background(), engine.Options{Models: demoModels()})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
