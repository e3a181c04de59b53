package tokenizer

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// JSON writes the vocabulary as a tokenizer.json that gives the same ids. It can be done for byte-level BPE
// (model gpt2); other models keep in a GGUF file less than a tokenizer.json says, and are an error.
func (v GGUFVocab) JSON() ([]byte, error) {
	t, err := FromGGUF(v)
	if err != nil {
		return nil, err
	}
	if v.Model != "gpt2" {
		return nil, fmt.Errorf("tokenizer.ggml.model: %q: only byte-level BPE (gpt2) can be written as tokenizer.json", v.Model)
	}
	name := v.Pre
	if name == "" {
		name = "default"
	}
	pre := preTokenizers[name]
	vocab, err := v.vocabJSON(t.added)
	if err != nil {
		return nil, err
	}
	merges := make([][2]string, len(v.Merges))
	for i, line := range v.Merges {
		k := strings.IndexByte(line[1:], ' ') + 1
		merges[i] = [2]string{line[:k], line[k+1:]}
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	steps := []any{}
	for _, p := range pre.splits {
		steps = append(steps, map[string]any{"type": "Split", "pattern": map[string]any{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	var normalizer any
	if pre.nfc {
		normalizer = map[string]any{"type": "NFC"}
	}
	added := []any{}
	for _, a := range t.added {
		added = append(added, map[string]any{
			"id": a.ID, "content": a.Content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": a.Special,
		})
	}
	return json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil,
		"added_tokens":   added,
		"normalizer":     normalizer,
		"pre_tokenizer":  map[string]any{"type": "Sequence", "pretokenizers": append(steps, byteLevel)},
		"post_processor": t.postProcessorJSON(byteLevel),
		"decoder":        byteLevel,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": pre.ignoreMerges, "vocab": vocab, "merges": merges,
		},
	}, json.Deterministic(true))
}

// vocabJSON is the object of tokens and ids. Added tokens are left out when they follow all others, as readers
// number them then; elsewhere they would be numbered otherwise if they were not in it.
func (v GGUFVocab) vocabJSON(added []AddedToken) (jsontext.Value, error) {
	isAdded := func(id int) bool {
		return slices.ContainsFunc(added, func(a AddedToken) bool { return a.ID == int32(id) })
	}
	kept := func(id int) bool { return v.Tokens[id] != "" && v.tokenType(id) != typeUnused }
	end := len(v.Tokens)
	for end > 0 && (!kept(end-1) || isAdded(end-1)) {
		end--
	}
	tail := true // the added tokens after end have no gaps among or before them
	for id := range v.Tokens {
		tail = tail && (kept(id) || id >= end+len(added))
	}
	var b bytes.Buffer
	e := jsontext.NewEncoder(&b)
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return nil, err
	}
	for id, token := range v.Tokens {
		if !kept(id) || tail && id >= end {
			continue
		}
		if err := errors.Join(e.WriteToken(jsontext.String(token)), e.WriteToken(jsontext.Int(int64(id)))); err != nil {
			return nil, fmt.Errorf("tokenizer.ggml.tokens: %d: %w", id, err)
		}
	}
	err := e.WriteToken(jsontext.EndObject)
	return b.Bytes(), err
}

func (t *Tokenizer) postProcessorJSON(none any) any {
	if len(t.prefix)+len(t.suffix) == 0 {
		return none
	}
	special := map[string]any{}
	sequence := func(name string, kind int) (list []any) {
		piece := func(ids []int32) {
			for _, id := range ids {
				token := t.tokens[id]
				special[token] = map[string]any{"id": token, "ids": []int32{id}, "tokens": []string{token}}
				list = append(list, map[string]any{"SpecialToken": map[string]any{"id": token, "type_id": kind}})
			}
		}
		piece(t.prefix)
		list = append(list, map[string]any{"Sequence": map[string]any{"id": name, "type_id": kind}})
		piece(t.suffix)
		return list
	}
	single, pair := sequence("A", 0), append(sequence("A", 0), sequence("B", 1)...)
	return map[string]any{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
}
