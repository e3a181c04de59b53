package quantize

import (
	"context"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/registry"
)

// MeasureLoaded loads a checkpoint and computes its perplexity on a text, with a KV cache of the given type.
func MeasureLoaded(ctx context.Context, open Open, d kernels.Device, kv kernels.DType, text string, w Windows, progress func(done, all int)) (Perplexity, error) {
	return measureOn(ctx, open, d, kv, text, w, stepTokens, progress)
}

// MeasureStreamed is MeasureLoaded with one weight in memory at a time. Every streamTokens tokens read all of
// the checkpoint.
func MeasureStreamed(ctx context.Context, open Open, d kernels.Device, text string, w Windows, progress func(done, all int)) (Perplexity, error) {
	s, err := newStream(d)
	if err != nil {
		return Perplexity{}, err
	}
	defer s.release()
	return measureOn(ctx, open, s, d.Info().KVTypes[0], text, w, streamTokens, progress)
}

func measureOn(ctx context.Context, open Open, d kernels.Device, kv kernels.DType, text string, w Windows, tokens int, progress func(done, all int)) (Perplexity, error) {
	c, err := open()
	if err != nil {
		return Perplexity{}, err
	}
	defer c.Close()
	tok, err := registry.Tokenizer(c)
	if err != nil {
		return Perplexity{}, err
	}
	m, err := registry.Load(c, d)
	if err != nil {
		return Perplexity{}, err
	}
	defer m.Unload(d)
	return measure(ctx, d, m, kv, ReadText(tok, text), w, tokens, progress)
}
