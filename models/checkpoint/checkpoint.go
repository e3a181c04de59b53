// Package checkpoint opens a model as it lies on disk (a folder of safetensors, a GGUF file, or
// either embedded in the program) and hands out its tensors in the canonical form of
// kernels.Matrix, and its metadata as it is written there.
//
// It owns file formats: where a tensor lies, how it is named, how its quantised blocks are laid
// out (kernels/quant unpacks them). It does not own architectures: which tensors a model needs, of
// what shape, and what config.json means are read by the packages beside it.
//
// Files are mapped, never read whole: a Matrix reads rows straight from the mapping. Nothing of a
// file is believed: every length, offset, count and type is checked against the file's size when
// it is opened, and a file that shrinks later is an error of the read, not a fault.
//
// Invariant: every tensor of a checkpoint is used exactly once. Matrix, Vector, Alias and Skip mark what
// they use, a second use is an error, and Finish names what is left.
package checkpoint

import (
	"github.com/openinfer-go/openinfer/kernels"
)

// Format is the file format of a checkpoint.
type Format string

// File formats.
const (
	Safetensors Format = "safetensors"
	GGUF        Format = "gguf"
)

// Option changes how Matrix reads a tensor.
type Option func(*matrixOptions)

type matrixOptions struct {
	bias         bool
	optionalBias bool
	heads        int
}

// WithBias makes Matrix take module.bias, [n], too; without it is an error.
func WithBias() Option { return func(o *matrixOptions) { o.bias = true } }

// WithOptionalBias makes Matrix take module.bias, [n], when the checkpoint has one.
func WithOptionalBias() Option { return func(o *matrixOptions) { o.optionalBias = true } }

// Unpermute undoes the order that GGUF files of the llama architecture store the rows of attn_q
// and attn_k in: within each of the heads, rotated pairs are neighbours there, and half a head apart
// in Hugging Face's checkpoints. It changes the bias with the rows, and nothing in safetensors, so
// an architecture that is stored that way asks for it always.
func Unpermute(heads int) Option { return func(o *matrixOptions) { o.heads = heads } }

// Names translates Hugging Face names to those of a GGUF file. Global has whole module names
// ("model.norm": "output_norm"), Layer what follows "model.layers.N." ("self_attn.q_proj":
// "attn_q", which stands for blk.N.attn_q).
type Names struct {
	Global map[string]string
	Layer  map[string]string
}

// Vocabulary is the tokenizer that a GGUF file carries. Ids are -1 when the file has none.
type Vocabulary struct {
	Model  string // tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
	Pre    string // tokenizer.ggml.pre: which split before BPE
	Tokens []string
	Scores []float32 // as long as Tokens, or nil
	Types  []int32   // as long as Tokens, or nil: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
	Merges []string

	BOS, EOS, EOT, EOM, Unknown, Padding int32

	AddBOS, AddEOS, AddSpacePrefix *bool // nil when the file does not say
}

// SpecialTokens are the texts of special tokens that tokenizer_config.json and
// special_tokens_map.json name ("" when they do not), or those of a GGUF file's ids.
type SpecialTokens struct {
	BOS, EOS, Unknown, Padding string
	AddBOS, AddEOS             *bool // nil when the checkpoint does not say
	// Named has every entry ("bos_token", "eos_token", "image_token", ...) for chat templates.
	Named map[string]string
}

// Generation are a checkpoint's own sampling defaults; a nil field is one it does not state.
type Generation struct {
	DoSample          *bool
	Temperature       *float64
	TopP              *float64
	TopK              *int
	MinP              *float64
	RepetitionPenalty *float64
	MaxNewTokens      *int
}

var _ kernels.Matrix
