package checkpoint

import (
	"errors"
	"io/fs"

	"github.com/openinfer-go/openinfer/kernels"
)

var errTODO = errors.New("not yet")

// Checkpoint is an open checkpoint. Its methods may be called from several goroutines, and the
// Read of its matrices too, until Close.
type Checkpoint struct{}

// Open opens a folder with *.safetensors and config.json, a folder with one GGUF model, a .gguf
// file, or the first part of a split one (NAME-00001-of-0000N.gguf). It reads metadata and checks
// where tensors lie; weights stay in the file, which is mapped until Close.
func Open(path string) (*Checkpoint, error) { return nil, errTODO }

// OpenFS opens what Open does from a file system such as embed.FS, which copies files into memory.
func OpenFS(fsys fs.FS, dir string) (*Checkpoint, error) { return nil, errTODO }

// OpenFiles opens a checkpoint that is in memory: the files of a folder by their names there. The bytes
// are used where they are, not copied, and may not change. name stands for the path in errors.
func OpenFiles(name string, files map[string][]byte) (*Checkpoint, error) { return nil, errTODO }

// Close unmaps the files: no matrix may be read any more.
func (c *Checkpoint) Close() error { return nil }

// Path is what the checkpoint was opened with.
func (c *Checkpoint) Path() string { return "" }

// Format says what kind of files these are.
func (c *Checkpoint) Format() Format { return "" }

// Architecture is model_type of config.json ("llama", "qwen3"), or general.architecture of a GGUF file.
func (c *Checkpoint) Architecture() string { return "" }

// ConfigJSON is config.json as it is, nil for GGUF.
func (c *Checkpoint) ConfigJSON() []byte { return nil }

// GGUF gives the metadata of a GGUF file, nil for safetensors.
func (c *Checkpoint) GGUF() *Metadata { return nil }

// SetNames replaces the table that translates module names for a GGUF file. The one at first is that
// of the llama family (llama, qwen2, qwen3).
func (c *Checkpoint) SetNames(n Names) {}

// Has says whether the checkpoint has the tensor ("model.norm.weight") or the module ("lm_head",
// which has a weight in any form).
func (c *Checkpoint) Has(name string) bool { return false }

// Matrix returns the weight of a linear layer or an embedding, [n, k], by the name of its module
// ("model.layers.0.self_attn.q_proj"), float or quantised as it is stored, and marks its tensors
// used. Names of a GGUF file are accepted too. Errors name the tensor: one missing, of another
// shape, of a type that cannot be a weight, or used before.
func (c *Checkpoint) Matrix(module string, n, k int, opts ...Option) (kernels.Matrix, error) {
	return kernels.Matrix{}, errTODO
}

// Vector reads a float tensor of n values ("model.norm.weight"; "rope_freqs.weight" of a GGUF
// file) and marks it used.
func (c *Checkpoint) Vector(name string, n int) ([]float32, error) { return nil, errTODO }

// Alias accepts a tensor that repeats another one: when name is there, it must have the type,
// shape and bytes of the tensor of, and is marked used. A tied model says so of lm_head.weight.
func (c *Checkpoint) Alias(name, of string) error { return nil }

// Skip marks the tensors whose names start with prefix as left unused on purpose, and returns how many they are.
func (c *Checkpoint) Skip(prefix string) int { return 0 }

// Finish says that the model is complete: a tensor that was not used is an error. Tensors that
// follow from the config (rotary_emb.inv_freq, masked_bias and the like, which old exporters wrote
// as buffers) may be left.
func (c *Checkpoint) Finish() error { return nil }

// TokenizerJSON is tokenizer.json as it is, nil when there is none.
func (c *Checkpoint) TokenizerJSON() []byte { return nil }

// Vocabulary is the tokenizer of a GGUF file; an error when it has none or is safetensors.
func (c *Checkpoint) Vocabulary() (*Vocabulary, error) { return nil, errTODO }

// ChatTemplate is the source of the chat template: chat_template.jinja, else that of
// tokenizer_config.json (of a list, the one named default) or chat_template.json, else
// tokenizer.chat_template of a GGUF file.
func (c *Checkpoint) ChatTemplate() (string, bool) { return "", false }

// SpecialTokens are the special tokens' texts.
func (c *Checkpoint) SpecialTokens() SpecialTokens { return SpecialTokens{} }

// EOS are the ids that end an answer: the union of config.json, its text_config and
// generation_config.json, or the eos, eot and eom ids of a GGUF file, each once, in order. The
// id of SpecialTokens().EOS belongs to it too, which the tokenizer knows.
func (c *Checkpoint) EOS() []int32 { return nil }

// Generation are the sampling defaults: generation_config.json, or general.sampling.* of GGUF.
func (c *Checkpoint) Generation() Generation { return Generation{} }

// ModelMaxLength is model_max_length of tokenizer_config.json or ARCH.context_length of a GGUF
// file, 0 when there is none or it means "no limit".
func (c *Checkpoint) ModelMaxLength() int { return 0 }
