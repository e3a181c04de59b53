// Package models says what a loaded model is to the engine: it issues the operators of one
// forward pass on a device.
//
// One architecture is one folder below this one, with its config, weights and forward pass;
// models/checkpoint reads files, models/tokenizer and models/chat turn text into ids. This package
// knows arrays and layers, never requests, sequences' lives or pages.
package models

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
)

// Model is a model whose weights are on a device. It has no state of its own between steps: what
// a step depends on is in its Batch and in the KV cache.
type Model interface {
	Shape() Shape
	// Groups are the model's cache groups, in the order of Batch.Groups.
	Groups() []CacheGroup
	// ScratchBytes is what Forward and Head carve from scratch for t tokens and s logit rows.
	ScratchBytes(t, s int) int64
	// Forward issues one step for the T tokens of b and returns the final hidden states [T, D]
	// (before the last norm), which lie in scratch.
	Forward(d kernels.Device, b *Batch, scratch kernels.Buffer) kernels.Tensor
	// Head turns rows of hidden (as Forward returned it, same scratch) into logits [len(rows), V].
	// It may be called several times, a tile of rows each.
	Head(d kernels.Device, logits, hidden kernels.Tensor, rows kernels.Ints, scratch kernels.Buffer)
	// Unload gives the weights' memory back.
	Unload(d kernels.Device)
}

// Shape is what others need to know of a model.
type Shape struct {
	Architecture string
	Vocab        int // rows of the output layer; ids that exist may be fewer
	MaxPosition  int // the context the checkpoint states
	Layers       int
	Hidden       int
	// Regimes are ascending lengths: a sequence of more than Regimes[i] tokens is computed under
	// regime i+1, all its tokens alike. Most models have none.
	Regimes     []int
	Parameters  int64
	WeightBytes int64 // on the device
	// DraftLayers are those of a head for more tokens than the next that the checkpoint has beside
	// the model. It is not on the device.
	DraftLayers int
}

// GroupKind is the lifetime of a cache group's blocks.
type GroupKind uint8

// Kinds of cache groups.
const (
	Full GroupKind = iota
	SlidingWindow
	Recurrent
)

// CacheGroup are layers whose cache has the same shape and lifetime.
type CacheGroup struct {
	Kind       GroupKind
	Layers     int
	Heads      int // key/value heads
	KDim, VDim int
	Window     int // SlidingWindow: positions a token sees, counting itself
	// Recurrent: Heads are value heads with a state [KDim,VDim] each; a convolution over ConvChannels
	// sees ConvColumns tokens before each.
	ConvChannels, ConvColumns int
}

// Batch is what a step works on; engine makes it.
type Batch struct {
	TokenIDs  kernels.Ints // [T]
	Positions kernels.Ints // [T]
	Ragged    kernels.Ragged
	Regimes   []int32 // [S]: which of Shape.Regimes a sequence is under; nil when there are none
	Groups    []GroupBatch
}

// GroupBatch are the arrays of one cache group; a layer's kernels.KV is made from it.
type GroupBatch struct {
	Pages  kernels.Buffer
	Layout *kernels.CacheLayout
	Slots  kernels.Ints
	Tables kernels.Ints
	Stride int
	// Of a recurrent group, which has none of the four before:
	State *kernels.StateLayout
	Runs  kernels.Runs
}

// KV returns the cache of one layer of the group.
func (g *GroupBatch) KV(layer int) kernels.KV {
	return kernels.KV{Pages: g.Pages, Layout: g.Layout, Layer: layer, Slots: g.Slots, Tables: g.Tables, Stride: g.Stride}
}

// LayerState returns the state of one layer of a recurrent group.
func (g *GroupBatch) LayerState(layer int) kernels.State {
	return kernels.State{Pages: g.Pages, Layout: g.State, Layer: layer, Runs: g.Runs}
}

// Architecture is a kind of model that can be loaded; models/registry lists them.
type Architecture struct {
	Name string   // for people, and Shape.Architecture
	HF   []string // model_type of config.json, or a class of its architectures
	GGUF []string // general.architecture
	// Load checks the whole checkpoint before it puts anything on the device. An error leaves
	// nothing there.
	Load func(*checkpoint.Checkpoint, kernels.Device) (Model, error)
}
