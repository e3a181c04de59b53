package config

import (
	"fmt"
	"math"

	"github.com/openinfer-go/openinfer/models/checkpoint"
)

// Metadata reads the keys of an architecture in a GGUF file ("block_count" stands for
// llama.block_count) as Reader reads those of a config.json: the first error is kept, names its key,
// and every value read after it is zero.
type Metadata struct {
	m    *checkpoint.Metadata
	arch string
	err  error
}

// NewMetadata reads those of c, which is a GGUF file.
func NewMetadata(c *checkpoint.Checkpoint) *Metadata {
	return &Metadata{m: c.GGUF(), arch: c.Architecture()}
}

// Err is the first error.
func (m *Metadata) Err() error { return m.err }

// Keep records an error, unless there was one before.
func (m *Metadata) Keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

// Fail records an error about a key, unless there was one before.
func (m *Metadata) Fail(name, format string, args ...any) {
	m.Keep(fmt.Errorf("metadata %s.%s: %s", m.arch, name, fmt.Sprintf(format, args...)))
}

// Has says whether the key is there.
func (m *Metadata) Has(name string) bool { return m.m.Has(m.arch + "." + name) }

// IntOr reads a whole number, or def when the key is not there.
func (m *Metadata) IntOr(name string, def int) int {
	return read(m, name, func(key string) (int, error) { return m.m.IntOr(key, def) })
}

// Size reads a whole number from 1 to Limit.
func (m *Metadata) Size(name string) int {
	n := read(m, name, m.m.Int)
	if m.err == nil && (n < 1 || n > Limit) {
		m.Fail(name, "%d is not within 1 and %d", n, Limit)
		return 0
	}
	return n
}

// SizeOr is Size, or def when the key is not there.
func (m *Metadata) SizeOr(name string, def int) int {
	if !m.Has(name) {
		return def
	}
	return m.Size(name)
}

// Positive reads a number above 0 that float32 holds, too.
func (m *Metadata) Positive(name string) float64 {
	v := read(m, name, m.m.Float)
	if m.err == nil && (!(v > 0) || v > math.MaxFloat32 || float32(v) == 0) {
		m.Fail(name, "%v is not a positive number", v)
		return 0
	}
	return v
}

// PositiveOr is Positive, or def when the key is not there.
func (m *Metadata) PositiveOr(name string, def float64) float64 {
	if !m.Has(name) {
		return def
	}
	return m.Positive(name)
}

// TextOr reads a text, or def when the key is not there.
func (m *Metadata) TextOr(name, def string) string {
	return read(m, name, func(key string) (string, error) { return m.m.StringOr(key, def) })
}

// tokens counts those of the tokenizer.
func (m *Metadata) tokens() int {
	if m.err != nil {
		return 0
	}
	list, err := m.m.Strings("tokenizer.ggml.tokens")
	if err == nil && (len(list) < 1 || len(list) > Limit) {
		err = fmt.Errorf("metadata tokenizer.ggml.tokens: %d are not within 1 and %d", len(list), Limit)
	}
	m.err = err
	return len(list)
}

func read[T any](m *Metadata, name string, get func(string) (T, error)) (v T) {
	if m.err != nil {
		return v
	}
	v, m.err = get(m.arch + "." + name)
	if m.err != nil {
		var zero T
		return zero
	}
	return v
}
