package registry

import (
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// Tokenizer makes the tokenizer of a checkpoint: of tokenizer.json, or of the vocabulary of a GGUF file.
func Tokenizer(c *checkpoint.Checkpoint) (*tokenizer.Tokenizer, error) {
	if data := c.TokenizerJSON(); data != nil {
		return tokenizer.FromJSON(data)
	}
	v, err := c.Vocabulary()
	if err != nil {
		return nil, err
	}
	return tokenizer.FromGGUF(GGUFVocab(v))
}

// GGUFVocab is a file's vocabulary as package tokenizer takes it.
func GGUFVocab(v *checkpoint.Vocabulary) tokenizer.GGUFVocab {
	return tokenizer.GGUFVocab{
		Model: v.Model, Pre: v.Pre, Tokens: v.Tokens, Scores: v.Scores, Types: v.Types, Merges: v.Merges,
		BOS: v.BOS, EOS: v.EOS, UNK: v.Unknown, PAD: v.Padding, EOT: v.EOT, EOM: v.EOM,
		AddBOS: v.AddBOS, AddEOS: v.AddEOS, AddSpacePrefix: v.AddSpacePrefix,
	}
}
