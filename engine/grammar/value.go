package grammar

import (
	"bytes"
	"encoding/json/jsontext"
	"io"
	"math/big"
	"slices"
	"strconv"
)

// value is a JSON value whose members keep their order.
type value struct {
	kind    jsontext.Kind
	text    string // of a string, decoded; of a number, as written
	items   []*value
	names   []string       // of an object's members, whose values are items
	pointer string         // where it stands
	index   map[string]int // of names, once looked for in many

	// Of schemas that nobody wrote:
	made   bool
	not    *value  // it is the complement of this one
	demand *demand // what no keyword says
}

const (
	maxSchemaBytes = 8 << 20
	maxSchemaDeep  = 500
)

func parseValue(raw []byte) (*value, error) {
	if len(raw) > maxSchemaBytes {
		return nil, &Error{"", "the schema has more than " + strconv.Itoa(maxSchemaBytes) + " bytes"}
	}
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	v, err := readValue(dec, "#", 0)
	if err == nil {
		if _, end := dec.ReadToken(); end != io.EOF {
			err = &Error{"", "text after the schema"}
		}
	}
	return v, err
}

func readValue(dec *jsontext.Decoder, pointer string, deep int) (*value, error) {
	if deep > maxSchemaDeep {
		return nil, &Error{shortened(pointer), "nested more than " + strconv.Itoa(maxSchemaDeep) + " deep"}
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, &Error{shortened(pointer), "not valid JSON: " + err.Error()}
	}
	v := &value{kind: tok.Kind(), pointer: pointer}
	switch v.kind {
	case '"', '0':
		v.text = tok.String()
	case '[':
		for i := 0; dec.PeekKind() != ']'; i++ {
			e, err := readValue(dec, pointer+"/"+strconv.Itoa(i), deep+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, e)
		}
		_, err = dec.ReadToken()
	case '{':
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, &Error{shortened(pointer), "not valid JSON: " + err.Error()}
			}
			text := name.String()
			e, err := readValue(dec, pointer+"/"+escapePointer(text), deep+1)
			if err != nil {
				return nil, err
			}
			v.names, v.items = append(v.names, text), append(v.items, e)
		}
		_, err = dec.ReadToken()
	}
	if err != nil {
		return nil, &Error{shortened(pointer), "not valid JSON: " + err.Error()}
	}
	return v, nil
}

func escapePointer(s string) string {
	s = string(bytes.ReplaceAll([]byte(s), []byte("~"), []byte("~0")))
	return string(bytes.ReplaceAll([]byte(s), []byte("/"), []byte("~1")))
}

func shortened(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// member returns a member of an object, nil if it has none of that name.
func (v *value) member(name string) *value {
	if v.kind != '{' {
		return nil
	}
	i := -1
	if len(v.names) <= 16 {
		i = slices.Index(v.names, name)
	} else {
		if v.index == nil {
			v.index = make(map[string]int, len(v.names))
			for i, n := range v.names {
				v.index[n] = i
			}
		}
		if at, ok := v.index[name]; ok {
			i = at
		}
	}
	if i < 0 {
		return nil
	}
	return v.items[i]
}

// number is a decimal number.
func (v *value) number() *big.Rat {
	if len(v.text) > 400 {
		return nil
	}
	if f, err := strconv.ParseFloat(v.text, 64); err != nil || f != 0 && (f > 1e60 || f < -1e60 || f < 1e-60 && f > -1e-60) {
		return nil
	}
	r, ok := new(big.Rat).SetString(v.text)
	if !ok {
		return nil
	}
	return r
}

// equal compares as JSON Schema does: numbers by value, objects without order.
func (v *value) equal(w *value) bool {
	if v.kind != w.kind {
		return false
	}
	switch v.kind {
	case '"':
		return v.text == w.text
	case '0':
		a, b := v.number(), w.number()
		return v.text == w.text || a != nil && b != nil && a.Cmp(b) == 0
	case '[':
		return slices.EqualFunc(v.items, w.items, (*value).equal)
	case '{':
		if len(v.names) != len(w.names) {
			return false
		}
		for i, name := range v.names {
			if o := w.member(name); o == nil || !v.items[i].equal(o) {
				return false
			}
		}
	}
	return true
}

// quoted is a string as this package writes it: escapes where JSON demands them, the short ones where there are.
func quoted(s string) string { return `"` + escaped(s) + `"` }

func escaped(s string) string {
	var out []byte
	for _, r := range s {
		switch {
		case r == '"', r == '\\':
			out = append(out, '\\', byte(r))
		case r < 0x20:
			out = append(out, controlEscape(r)...)
		default:
			out = append(out, string(r)...)
		}
	}
	return string(out)
}

func controlEscape(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	}
	const hex = "0123456789abcdef"
	return `\u00` + string([]byte{hex[r>>4], hex[r&15]})
}
