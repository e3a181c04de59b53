package api

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/engine"
)

// minLogprob stands for what JSON cannot say: minus infinity.
const minLogprob = -9999

func logprob(v float32) float32 {
	if v >= minLogprob { // false for NaN, too
		return v
	}
	return minLogprob
}

// pairs is a JSON object in order, null when nil. Of equal keys only the first is written.
type pairs []pair

type pair struct {
	key   string
	value any
}

func (p pairs) MarshalJSONTo(enc *jsontext.Encoder) error {
	if p == nil {
		return enc.WriteToken(jsontext.Null)
	}
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	seen := make(map[string]bool, len(p))
	for _, kv := range p {
		if seen[kv.key] {
			continue
		}
		seen[kv.key] = true
		if err := enc.WriteToken(jsontext.String(kv.key)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, kv.value); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

// speller writes tokens of one model as text.
type speller struct {
	gen   Generator
	model string
	asIDs bool
}

// spell returns a token as text and the bytes it stands for. A part of a character shows as
// U+FFFD, or with escape as bytes:\xNN, which is unlike any other token's text.
func (s speller) spell(id int32, escape bool) (string, []byte) {
	text, raw, err := s.gen.TokenText(s.model, id)
	if err != nil { // an id the tokenizer has no entry for, as padded rows of an output layer have
		text, raw = "", nil
	}
	switch {
	case s.asIDs:
		text = "token_id:" + strconv.Itoa(int(id))
	case escape && !utf8.Valid(raw):
		var b strings.Builder
		b.WriteString("bytes:")
		for _, c := range raw {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
		text = b.String()
	}
	return strings.ToValidUTF8(text, "\ufffd"), raw
}

// chatLogprobs is the logprobs object of a chat choice.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
	Refusal *string       `json:"refusal"`
}

type chatLogprob struct {
	Token   string        `json:"token"`
	Logprob float32       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []chatLogprob `json:"top_logprobs,omitzero"`
}

func (s speller) chatEntry(id int32, lp float32) chatLogprob {
	text, raw := s.spell(id, false)
	ints := make([]int, len(raw))
	for i, b := range raw {
		ints[i] = int(b)
	}
	return chatLogprob{Token: text, Logprob: logprob(lp), Bytes: ints}
}

func (s speller) chat(tokens []engine.Token, top int) *chatLogprobs {
	out := &chatLogprobs{Content: make([]chatLogprob, len(tokens))}
	for i, t := range tokens {
		e := s.chatEntry(t.ID, t.Logprob)
		e.Top = make([]chatLogprob, 0, top)
		for _, alt := range t.Top[:min(top, len(t.Top))] {
			e.Top = append(e.Top, s.chatEntry(alt.ID, alt.Logprob))
		}
		out.Content[i] = e
	}
	return out
}

// legacyLogprobs are the parallel lists of completions.
type legacyLogprobs struct {
	Tokens     []string   `json:"tokens"`
	Logprobs   []*float32 `json:"token_logprobs"`
	Top        []pairs    `json:"top_logprobs"`
	TextOffset []int      `json:"text_offset"`
}

// legacy adds tokens to the lists of one choice. at follows the choice's text: the tokens are
// those of the text that was last given to it.
func (s speller) legacy(out *legacyLogprobs, tokens []engine.Token, top int, at *textCursor) {
	for _, t := range tokens {
		text, raw := s.spell(t.ID, true)
		out.Tokens = append(out.Tokens, text)
		out.TextOffset = append(out.TextOffset, at.offset())
		at.pass(raw)
		if !t.HasLogprob {
			out.Logprobs = append(out.Logprobs, nil)
			out.Top = append(out.Top, nil)
			continue
		}
		lp := logprob(t.Logprob)
		out.Logprobs = append(out.Logprobs, &lp)
		likely := pairs{{text, lp}}
		for _, alt := range t.Top[:min(top, len(t.Top))] {
			text, _ := s.spell(alt.ID, true)
			likely = append(likely, pair{text, logprob(alt.Logprob)})
		}
		out.Top = append(out.Top, likely)
	}
}

// promptEntry is what vLLM says of one token at one place of the prompt.
type promptEntry struct {
	Logprob float32 `json:"logprob"`
	Rank    int32   `json:"rank"`
	Decoded string  `json:"decoded_token"`
}

// prompt is vLLM's prompt_logprobs: for each token the token itself and the most likely ones by
// id, null for the first.
func (s speller) prompt(tokens []engine.Token, top int) []pairs {
	out := make([]pairs, len(tokens))
	for i, t := range tokens {
		if !t.HasLogprob {
			continue
		}
		add := func(id int32, lp float32, rank int32) {
			text, _ := s.spell(id, false)
			out[i] = append(out[i], pair{strconv.Itoa(int(id)), promptEntry{logprob(lp), rank, text}})
		}
		add(t.ID, t.Logprob, t.Rank)
		for _, alt := range t.Top[:min(top, len(t.Top))] {
			add(alt.ID, alt.Logprob, alt.Rank)
		}
	}
	return out
}

// textCursor finds where tokens begin in a text that comes in pieces. Tokens that do not show in
// the text (control tokens, what a stop string cut off) take no room in it.
type textCursor struct {
	chars int    // in the pieces that are over
	piece string // what the tokens at hand are part of
	pos   int    // bytes of piece that were passed
}

// next begins a piece.
func (c *textCursor) next(piece string) {
	c.chars += utf8.RuneCountInString(c.piece)
	c.piece, c.pos = piece, 0
}

// offset is the number of the character at which the next token begins, or which it continues.
func (c *textCursor) offset() int {
	start := c.pos
	for start > 0 && start < len(c.piece) && !utf8.RuneStart(c.piece[start]) {
		start--
	}
	return c.chars + utf8.RuneCountInString(c.piece[:start])
}

// pass moves over a token of the given bytes if they come next in the text.
func (c *textCursor) pass(raw []byte) {
	rest := c.piece[c.pos:]
	for _, form := range []string{
		string(raw),
		strings.ToValidUTF8(string(raw), "\ufffd"),
		strings.TrimPrefix(string(raw), " "), // the space that some tokenizers drop in front
	} {
		if form != "" && strings.HasPrefix(rest, form) {
			c.pos += len(form)
			return
		}
	}
	if form := string(raw); strings.HasPrefix(form, rest) { // cut by a stop string
		c.pos = len(c.piece)
	}
}
