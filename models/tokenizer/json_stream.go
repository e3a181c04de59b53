// Reading the outline of a tokenizer.json in one pass: a vocabulary is some ten megabytes, and
// a reflecting decoder would go over it several times.

package tokenizer

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"strings"
)

// readFile reads the outline. The components stay raw, but for the model.
func readFile(data []byte) (*file, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	small := make(map[string]json.RawMessage)
	f := new(file)
	err := eachField(d, func(name string) error {
		switch name {
		case "version", "truncation", "padding":
			return d.SkipValue()
		case "model":
			m, err := readFileModel(d)
			if err != nil {
				return fmt.Errorf("model: %w", err)
			}
			f.Model = m
			return nil
		}
		v, err := d.ReadValue()
		small[name] = json.RawMessage(v.Clone())
		return err
	})
	if err != nil {
		return nil, err
	}
	if f.Model == nil {
		return nil, fmt.Errorf("model: missing")
	}
	rest, err := json.Marshal(small)
	if err != nil {
		return nil, err
	}
	return f, strict(rest, f)
}

// readFileModel reads the model at d.
func readFileModel(d *jsontext.Decoder) (*fileModel, error) {
	small := make(map[string]json.RawMessage)
	m := new(fileModel)
	other := "" // a field of models of another kind
	err := eachField(d, func(name string) (err error) {
		switch name {
		case "vocab":
			if d.PeekKind() != '{' {
				other = name
				return d.SkipValue()
			}
			m.Vocab, err = readVocab(d)
			return err
		case "merges":
			if d.PeekKind() == 'n' {
				return d.SkipValue()
			}
			m.Merges, err = readMerges(d)
			return err
		}
		v, err := d.ReadValue()
		small[name] = json.RawMessage(v.Clone())
		return err
	})
	if err != nil {
		return nil, err
	}
	var kind struct{ Type *string }
	rest, err := json.Marshal(small)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(rest, &kind); err != nil {
		return nil, err
	}
	if kind.Type != nil && *kind.Type != "BPE" {
		return nil, fmt.Errorf("%s is not supported", *kind.Type)
	}
	if other != "" {
		return nil, fmt.Errorf("%s is no object", other)
	}
	if m.Vocab == nil {
		return nil, fmt.Errorf("vocab is missing")
	}
	return m, strict(rest, m)
}

// eachField calls read at the value of each field of the object at d.
func eachField(d *jsontext.Decoder, read func(name string) error) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func expect(d *jsontext.Decoder, kind jsontext.Kind) error {
	if k := d.PeekKind(); k != kind && k != 0 {
		return fmt.Errorf("at byte %d: %v where %v is expected", d.InputOffset(), k, kind)
	}
	_, err := d.ReadToken()
	return err
}

func readVocab(d *jsontext.Decoder) (map[string]int64, error) {
	vocab := make(map[string]int64)
	err := eachField(d, func(token string) error {
		id, err := d.ReadToken()
		if err != nil {
			return err
		}
		if id.Kind() != '0' {
			return fmt.Errorf("vocab: the id of %q is no number", token)
		}
		n, ok := parseID(id.String())
		if !ok {
			return fmt.Errorf("vocab: the id of %q is %s", token, id.String())
		}
		if old, ok := vocab[token]; ok && old != n {
			return fmt.Errorf("vocab: %q has two ids, %d and %d", token, old, n)
		}
		vocab[token] = n
		return nil
	})
	return vocab, err
}

// parseID reads an id: digits only, not absurdly large.
func parseID(s string) (int64, bool) {
	n := int64(0)
	for _, c := range s {
		if c < '0' || c > '9' || n >= maxTokens {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n < maxTokens
}

// readMerges reads pairs written as "a b" or as ["a", "b"].
func readMerges(d *jsontext.Decoder) ([][2]string, error) {
	if err := expect(d, '['); err != nil {
		return nil, err
	}
	var merges [][2]string
	for i := 0; d.PeekKind() != ']'; i++ {
		tok, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		switch tok.Kind() {
		case '"':
			line := tok.String()
			if i == 0 && strings.HasPrefix(line, "#version") {
				continue
			}
			a, b, ok := strings.Cut(line, " ")
			if !ok || a == "" || b == "" || strings.Contains(b, " ") {
				return nil, fmt.Errorf("merge %d: %q is not two tokens", i, line)
			}
			merges = append(merges, [2]string{a, b})
		case '[':
			var pair [2]string
			for k := range pair {
				tok, err := d.ReadToken()
				if err != nil {
					return nil, err
				}
				if tok.Kind() != '"' {
					return nil, fmt.Errorf("merge %d is not two tokens", i)
				}
				pair[k] = tok.String()
			}
			if end, err := d.ReadToken(); err != nil {
				return nil, err
			} else if end.Kind() != ']' {
				return nil, fmt.Errorf("merge %d is not two tokens", i)
			}
			merges = append(merges, pair)
		default:
			return nil, fmt.Errorf("merge %d is not two tokens", i)
		}
	}
	_, err := d.ReadToken()
	return merges, err
}
