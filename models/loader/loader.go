// Package loader takes what a model needs from a checkpoint and puts it on a device.
//
// An architecture names its tensors first, then loads them all. In between, when every tensor has
// been found with its shape and none is left over, the checkpoint is known to be whole: a broken
// one costs no device memory and no time.
//
// Invariant: after an error nothing is left on the device.
package loader

import (
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
)

// Part is one matrix of the checkpoint: N outputs, K inputs.
type Part struct {
	Module  string
	N, K    int
	Options []checkpoint.Option
}

// Bias are the options of a matrix that has a bias or not: the config of a checkpoint in safetensors
// says so, in a GGUF file its tensors do.
func Bias(c *checkpoint.Checkpoint, is bool) []checkpoint.Option {
	switch {
	case c.Format() == checkpoint.GGUF:
		return []checkpoint.Option{checkpoint.WithOptionalBias()}
	case is:
		return []checkpoint.Option{checkpoint.WithBias()}
	}
	return nil
}

// Embedding are the options of the embedding: unless it is tied to the output layer its rows are only looked up.
func Embedding(tied bool) []checkpoint.Option {
	if tied {
		return nil
	}
	return []checkpoint.Option{checkpoint.LookedUp()}
}

// Loader gathers a model's tensors. The first error is kept.
type Loader struct {
	c          *checkpoint.Checkpoint
	err        error
	loads      []func(kernels.Device) (unload func(kernels.Device), bytes int64, err error)
	parameters int64
}

// New returns a loader from c.
func New(c *checkpoint.Checkpoint) *Loader { return &Loader{c: c} }

// Err is the first error; a loop over layers ends at it.
func (l *Loader) Err() error { return l.err }

// Fail records an error.
func (l *Loader) Fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// Weight will load the parts, stacked along their outputs, into dst.
func (l *Loader) Weight(dst **kernels.Weight, parts ...Part) {
	var ms []kernels.Matrix
	for _, p := range parts {
		if l.err != nil {
			return
		}
		m, err := l.c.Matrix(p.Module, p.N, p.K, p.Options...)
		l.Fail(err)
		ms = append(ms, m)
		l.parameters += int64(p.N)*int64(p.K) + int64(len(m.Bias))
	}
	l.loads = append(l.loads, func(d kernels.Device) (func(kernels.Device), int64, error) {
		w, err := d.Load(ms...)
		if err != nil {
			return nil, 0, err
		}
		*dst = w
		return func(d kernels.Device) { d.Unload(w) }, w.Bytes, nil
	})
}

// Head will load the output layer [n,k], or accepts one that repeats the embedding when tied.
func (l *Loader) Head(dst **kernels.Weight, tied bool, n, k int) {
	if !tied {
		l.Weight(dst, Part{Module: "lm_head", N: n, K: k})
	} else if l.err == nil {
		l.Fail(l.c.Alias("lm_head.weight", "model.embed_tokens.weight"))
	}
}

// Vector will load a tensor of n values into dst, after the changes.
func (l *Loader) Vector(dst *kernels.Tensor, name string, n int, changes ...func([]float32)) {
	l.Tensor(dst, name, []int{n}, changes...)
}

// Tensor will load a float tensor of this shape into dst, as one row, after the changes.
func (l *Loader) Tensor(dst *kernels.Tensor, name string, shape []int, changes ...func([]float32)) {
	if l.err != nil {
		return
	}
	v, err := l.c.Vector(name, shape...)
	if l.Fail(err); err != nil {
		return
	}
	for _, change := range changes {
		change(v)
	}
	l.parameters += int64(len(v))
	l.loads = append(l.loads, func(d kernels.Device) (func(kernels.Device), int64, error) {
		t, err := d.LoadVector(v)
		if err != nil {
			return nil, 0, err
		}
		*dst = t
		return func(d kernels.Device) { d.Free(t.Buf) }, t.Buf.Len, nil
	})
}

// Loaded is what lies on a device.
type Loaded struct {
	Parameters int64
	Bytes      int64
	unload     []func(kernels.Device)
}

// Unload gives it back.
func (l *Loaded) Unload(d kernels.Device) {
	for _, f := range slices.Backward(l.unload) {
		f(d)
	}
	l.unload = nil
}

// Load checks that nothing of the checkpoint is left and loads what was gathered.
func (l *Loader) Load(d kernels.Device) (*Loaded, error) {
	if l.err == nil {
		l.err = l.c.Finish()
	}
	if l.err != nil {
		return nil, l.err
	}
	done := &Loaded{Parameters: l.parameters}
	for _, load := range l.loads {
		unload, bytes, err := load(d)
		if err != nil {
			done.Unload(d)
			return nil, err
		}
		done.unload = append(done.unload, unload)
		done.Bytes += bytes
	}
	return done, nil
}
