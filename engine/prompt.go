package engine

import (
	"fmt"
	"strings"

	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// Tokenize turns text into token ids; control tokens written in text are honoured. addSpecial adds
// what the tokenizer adds around a text (begin of text).
func (e *Engine) Tokenize(model, text string, addSpecial bool) ([]int32, error) {
	m, err := e.ready(model)
	if err != nil {
		return nil, err
	}
	return m.tok.Encode(text, tokenizer.Options{AddSpecial: addSpecial}), nil
}

// Detokenize turns ids into text, special tokens included. Invalid UTF-8 becomes U+FFFD.
func (e *Engine) Detokenize(model string, ids []int32) (string, error) {
	m, err := e.ready(model)
	if err != nil {
		return "", err
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.info.Vocab {
			return "", &InvalidError{"tokens", fmt.Sprintf("tokens[%d]: id %d is not in the vocabulary of %s, [0, %d)", i, id, model, m.info.Vocab)}
		}
	}
	return m.tok.Decode(ids, false), nil
}

// TokenText returns what a token stands for: as text, in which parts of characters are U+FFFD, and
// its exact bytes, which must not be modified.
func (e *Engine) TokenText(model string, id int32) (string, []byte, error) {
	m, err := e.ready(model)
	if err != nil {
		return "", nil, err
	}
	if id < 0 || int(id) >= m.info.Vocab {
		return "", nil, &InvalidError{"tokens", fmt.Sprintf("id %d is not in the vocabulary of %s, [0, %d)", id, model, m.info.Vocab)}
	}
	b := m.tok.TokenBytes(id)
	return strings.ToValidUTF8(string(b), "\uFFFD"), b, nil
}

func (e *Engine) RenderChat(model string, p ChatPrompt) (text string, ids []int32, err error) {
	return "", nil, ErrInvalid
}
