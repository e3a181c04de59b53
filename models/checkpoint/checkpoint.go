// Package checkpoint opens a model as it lies on disk (a folder of safetensors, a GGUF file, or
// either embedded in the program) and hands out its tensors in the canonical form of
// kernels.Matrix, and its metadata as it is written there.
//
// It owns file formats: where a tensor lies, how it is named, how its quantised blocks are laid
// out (kernels/quant unpacks them). It does not own architectures: which tensors a model needs, of
// what shape, and what config.json means are read by the packages beside it.
//
// A file a format: gguf.go; compressedtensors.go and ctweight.go; gptq.go; awq.go; autoround.go, which
// has the layouts of the last two; configonly.go is a config.json without weights; modules.go is what these three say of modules, order.go activation order. Where
// config.json and tensors contradict each other the checkpoint is refused, or, where the weights are not in doubt, a
// warning says so (Warnings).
//
// Files are mapped, never read whole: a Matrix reads rows straight from the mapping. Nothing of a
// file is believed: every length, offset, count and type is checked against the file's size when
// it is opened, and a file that shrinks later is an error of the read, not a fault.
//
// Invariant: every tensor of a checkpoint is used exactly once. Matrix, Vector, Alias and Skip mark what
// they use, a second use is an error, and Finish names what is left.
package checkpoint

// Format is the file format of a checkpoint.
type Format string

// File formats.
const (
	Safetensors Format = "safetensors"
	GGUF        Format = "gguf"
	ConfigOnly  Format = "config" // no weights: see OpenConfig
)
