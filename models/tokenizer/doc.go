// Package tokenizer turns text into token ids and back.
//
// It reads the two forms in which a checkpoint brings its vocabulary: a tokenizer.json
// (FromJSON) and the tokenizer.ggml.* values of a GGUF file (FromGGUF). Both become the same
// pipeline, run by Encode:
//
//	text -> added tokens -> normaliser -> added tokens -> pre-tokenizer -> merges -> post-processor
//
// Added tokens are strings with an id of their own, such as <|im_end|>; they are found first,
// those marked "normalized" a second time in the normalised text. The pre-tokenizer cuts what
// is left into pieces, and merging (byte-pair encoding, by rank or by score) turns each piece
// into ids.
//
// A Tokenizer is immutable and safe for concurrent use. What a tokenizer.json asks for and this
// package does not do is an error at load that names the component; nothing is ignored except
// "truncation" and "padding", which are settings of one call and not of the vocabulary.
//
// Invariant: ids equal those of the Python tokenizers library, version 0.23, reading the same
// file, down to its Unicode version: see unicode.go. The exceptions are added tokens that are
// absent from the model's vocabulary (this package takes the file's id, the library numbers
// them anew) and a pattern that runs into patternTimeout.
//
// Chat templates, the choice of end tokens and the assembly of streamed bytes to characters are
// done elsewhere.
package tokenizer
