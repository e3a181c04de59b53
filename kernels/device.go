package kernels

import "fmt"

// Info describes a device to people and to the memory plan.
type Info struct {
	Name        string // "cpu", "ref"
	Description string // for example "AMD EPYC, 2 threads, avx2+fma+f16c, activations int8 per 32"
	Threads     int
	MemoryBytes int64 // free for us when the device was opened
	// Dedicated: the memory is a card's own and nothing else needs it.
	Dedicated bool
	// Simulated names the card that a device without arithmetic stands for; "": the device computes.
	Simulated string
	KVTypes   []DType
	// ChunkedDelta is what a model passes as DeltaParams.Chunked: the device gains by it, and does not promise the
	// same bits wherever a prompt is cut.
	ChunkedDelta bool
}

// Device runs the operators. Methods that load may be called from several goroutines; the
// operators of a step, from Begin to End, from one. Shapes that do not fit each other are a
// step error, never a fault.
//
// Activations are float32 tensors. x and dst of an operator may not overlap unless it says so.
type Device interface {
	Info() Info

	// Alloc takes bytes of zeroed device memory; used while loading and for the one arena.
	Alloc(bytes int64) (Buffer, error)
	Free(Buffer)
	// Load packs the parts, stacked along their outputs (all with the same K).
	Load(parts ...Matrix) (*Weight, error)
	Unload(*Weight)
	// LoadVector copies v to the device as a float32 tensor of one row.
	LoadVector(v []float32) (Tensor, error)
	Close() error

	// Begin starts a step: it forgets the last one's error.
	Begin()
	// Upload makes the array known to the device for this step.
	Upload(Ints) Ints
	// End waits for the step and returns its first error.
	End() error

	// EmbedRows: dst[t] = scale * table[ids[t]].
	EmbedRows(dst Tensor, table *Weight, ids Ints, scale float32)
	// RMSNorm: dst[t] = x[t] / sqrt(mean(x[t]^2) + eps) * w. dst may be x.
	RMSNorm(dst, x, w Tensor, eps float32)
	// RMSNormAdd: dst[t] = (dst[t] + x[t] / sqrt(mean(x[t]^2) + eps) * w) * scale.
	RMSNormAdd(dst, x, w Tensor, eps, scale float32)
	// NormGate, over each head of w.Cols values: dst[t] = x[t] / sqrt(mean(x[t]^2) + eps) * w *
	// silu(gate[t]). dst may be x.
	NormGate(dst, x, gate, w Tensor, eps float32)
	// Linear: dst[t] = x[t] w^T (+ bias).
	Linear(dst, x Tensor, w *Weight)
	// LinearAdd: dst[t] += x[t] w^T (+ bias).
	LinearAdd(dst, x Tensor, w *Weight)
	// CosSin: dst[t] = cos and then sin, [Dim/2] each, of positions[t] * r.InvFreq, times r.Scale.
	CosSin(dst Tensor, r Rotary, positions Ints)
	// RotaryStore splits qkv[t] into H query heads, G key heads and G value heads (kv.Layout has G
	// and the sizes), norms and rotates them as p says, writes the queries to q [T, H*KDim] and
	// stores keys and values at kv.Slots.
	RotaryStore(q Tensor, kv KV, qkv Tensor, p RotaryParams)
	// Attention: causal attention of q over the sequences' cached keys and values, including
	// those that this step stored. dst [T, H*VDim].
	Attention(dst, q Tensor, kv KV, rows Ragged, p AttentionParams)
	// GateMul: dst[t] = f(gate[t]) * x[t]. dst may be x.
	GateMul(dst, gate, x Tensor, f Activation)
	// SoftCap: x[t] = c * tanh(x[t] / c).
	SoftCap(x Tensor, c float32)
	// CausalConv is a depthwise convolution over the tokens of a sequence and silu after it:
	// dst[t,c] = silu(sum over j < W of w[c*W+j] * x[t-W+1+j,c]), W-1 being s.Layout.ConvColumns. What comes
	// before a run's first token are the columns of its state; its own last W-1 are left there.
	CausalConv(dst, x, w Tensor, s State)
	// GatedDelta is the gated delta rule (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464), token by
	// token over each value head h with a state S [KDim,VDim]. qkv[t] has p.KeyHeads query heads, as many key
	// heads, and the value heads; h uses query and key head h / (Heads/KeyHeads):
	//
	//	q = q / sqrt(sum(q^2) + eps) / sqrt(KDim); k = k / sqrt(sum(k^2) + eps)
	//	S = S * exp(-rate * softplus(a[t,h] + dtBias))
	//	S = S + k (sigmoid(b[t,h]) * (v - S^T k))^T
	//	dst[t,h] = S^T q
	//
	// The state is float32 and is rounded after each token, so that runs can be cut anywhere. If p.Chunked, the
	// device may take many tokens of a run together with matrix products (Yang et al. 2024, arXiv 2406.06484,
	// section 3), and rounds the state after them: the same values, but their last bits depend on where the run
	// begins and ends. They still depend on nothing outside the run.
	GatedDelta(dst, qkv, a, b Tensor, p DeltaParams, s State)
	// GatherRows: dst[i] = x[rows[i]].
	GatherRows(dst, x Tensor, rows Ints)
	// Drop says that the values of t are not read again before they are written: a device may leave out writing
	// them, and leaves anything there. It serves where it comes right after the last operator that reads t, or other Drops.
	Drop(t Tensor)
	// Sample draws one token from each row of logits [S, >= vocab]; ids from vocab on are
	// padding of the output layer and are never drawn. out has S entries. Waits for the device.
	Sample(out []Sampled, logits Tensor, vocab int, params []SampleParams)
}

// Rotary are the frequencies of a rotary embedding.
type Rotary struct {
	InvFreq []float32 // [Dim/2]
	Scale   float32   // of cos and sin, 1 unless the scaling type says otherwise
}

// RotaryParams are what RotaryStore does to heads before they are used and stored.
type RotaryParams struct {
	QNorm, KNorm Tensor // [KDim], or none: weights of an RMS norm of each query and key head
	VNorm        bool   // an RMS norm without weight of each value head
	// KeysAsValues: qkv has no value heads; the values are the keys as projected, neither normed by
	// KNorm nor rotated.
	KeysAsValues bool
	Eps          float32 // of the norms
	// CosSin [T, 2n] from CosSin rotates the first 2n values of a head, value i with value i+n.
	CosSin Tensor
}

// Activation is a function of one value.
type Activation uint8

// Activations.
const (
	SiLU     Activation = iota // x / (1 + exp(-x))
	GELUTanh                   // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
	Sigmoid                    // 1 / (1 + exp(-x))
)

func (f Activation) String() string {
	if f > Sigmoid {
		return fmt.Sprintf("Activation(%d)", uint8(f))
	}
	return [...]string{"silu", "gelu-tanh", "sigmoid"}[f]
}

// Ragged says which of a step's T tokens belong to which of its S sequences.
type Ragged struct {
	Starts   Ints // [S+1]: sequence s has tokens Starts[s] to Starts[s+1]-1
	Contexts Ints // [S]: tokens in s's cache after this step, so its last token's position + 1
}

// CacheLayout is the shape of one cache group of one model: how a block is cut. A block holds
// BlockTokens tokens for all Layers of the group; how it arranges them is the device's own.
//
// F8E4M3 and I8 hold codes, and a scale for each key and each value of each token and head: a value is
// code * scale. The scale is a bfloat16, the least one that is not below largest magnitude / CacheTop, so
// that codes never clip and no bits of the scale are lost to the product; a code is value / scale, both float32
// operations, rounded to nearest, to even between two. A head that holds a NaN or an infinity has the scale NaN
// and codes of 0: all of it is NaN. A scale of 0 has codes of 0. Nothing depends on other tokens, so that a block
// can be filled, cut and shared at any token.
type CacheLayout struct {
	DType       DType
	Layers      int
	Heads       int // key/value heads
	KDim, VDim  int
	BlockTokens int   // a multiple of 16
	BlockBytes  int64 // at least BlockTokens * TokenBytes()
	// A block's address is (id / BlocksPerPage) * PageBytes + (id % BlocksPerPage) * BlockBytes.
	BlocksPerPage int
	PageBytes     int64
}

// TokenBytes is what one token takes in a block, its scales included.
func (l CacheLayout) TokenBytes() int64 { return int64(l.Layers) * l.LayerBytes() }

// LayerBytes is the share of one layer in TokenBytes.
func (l CacheLayout) LayerBytes() int64 {
	return int64(l.Heads) * (int64(l.KDim+l.VDim)*int64(l.DType.Bytes()) + 2*int64(l.ScaleBytes()))
}

// ScaleBytes is the size of the scale of a key or a value, 0 where the type needs none.
func (l CacheLayout) ScaleBytes() int {
	if CacheTop(l.DType) == 0 {
		return 0
	}
	return BF16.Bytes()
}

// CacheTop is the largest code of a cache type with scales, 0 of the others.
func CacheTop(t DType) float32 {
	switch t {
	case F8E4M3:
		return 448
	case I8:
		return 127
	}
	return 0
}

// BlockOffset returns where block id starts in the arena of pages.
func (l CacheLayout) BlockOffset(id int32) int64 {
	per := int64(l.BlocksPerPage)
	return int64(id)/per*l.PageBytes + int64(id)%per*l.BlockBytes
}

// KV is one layer's cache, with its group's arrays for the step.
type KV struct {
	Pages  Buffer // the arena of pages
	Layout *CacheLayout
	Layer  int // within the group
	// Slots says where each of the T tokens is stored: block*BlockTokens + offset; -1 is nowhere.
	Slots Ints
	// Tables are the S block tables, Stride entries each; entry i holds positions
	// i*BlockTokens to (i+1)*BlockTokens-1.
	Tables Ints
	Stride int
}

// AttentionParams are constants of a layer.
type AttentionParams struct {
	Scale   float32 // of q.k
	SoftCap float32 // scores become c*tanh(score/c); 0: none
	Window  int     // a token sees this many positions counting itself; 0: all
}
