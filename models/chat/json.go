package chat

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// JSON that reaches a template keeps what Python's json keeps: the order of keys, and whether a
// number is an integer.

// Object is a JSON object in the order of its text. Values are nil, bool, int64, float64, string,
// []any or Object.
type Object []Member

// Member is one key of an Object.
type Member struct {
	Key   string
	Value any
}

// Get returns the value of a key, and whether it is there.
func (o Object) Get(key string) (any, bool) {
	for _, m := range o {
		if m.Key == key {
			return m.Value, true
		}
	}
	return nil, false
}

// with returns a copy in which key has the value, in its place or at the end.
func (o Object) with(key string, value any) Object {
	out := append(make(Object, 0, len(o)+1), o...)
	for i := range out {
		if out[i].Key == key {
			out[i].Value = value
			return out
		}
	}
	return append(out, Member{key, value})
}

// without returns a copy that has no such key.
func (o Object) without(key string) Object {
	return slices.DeleteFunc(slices.Clone(o), func(m Member) bool { return m.Key == key })
}

// maxJSONDepth bounds the nesting of what clients send.
const maxJSONDepth = 100

// ParseJSON reads one JSON value with nothing after it. It refuses duplicate keys, invalid UTF-8,
// lone surrogates, nesting deeper than 100 and integers of more than 64 bits.
func ParseJSON(raw []byte) (any, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, fmt.Errorf("there is text after the JSON value")
	}
	return v, nil
}

// ParseObject reads a JSON object; nil and null give none.
func ParseObject(raw []byte) (Object, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := ParseJSON(raw)
	if err != nil || v == nil {
		return nil, err
	}
	o, ok := v.(Object)
	if !ok {
		return nil, fmt.Errorf("must be an object, not %s", jsonType(v))
	}
	return o, nil
}

func parseValue(d *jsontext.Decoder, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("JSON nests deeper than %d", maxJSONDepth)
	}
	tok, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return tok.Bool(), nil
	case '"':
		return tok.String(), nil
	case '0':
		return parseNumber(tok.String())
	case '[':
		items := []any{}
		for d.PeekKind() != ']' {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, v)
		}
		_, err := d.ReadToken()
		return items, err
	case '{':
		o := Object{}
		for d.PeekKind() != '}' {
			key, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			name := key.String()
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			o = append(o, Member{name, v})
		}
		_, err := d.ReadToken()
		return o, err
	}
	return nil, fmt.Errorf("unexpected %q", tok.Kind())
}

// lastValues leaves the last value of each key, in the place of its first, as Python's dict does.
func lastValues(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = lastValues(v[i])
		}
	case Object:
		at := make(map[string]int, len(v))
		out := v[:0]
		for _, m := range v {
			m.Value = lastValues(m.Value)
			if i, again := at[m.Key]; again {
				out[i].Value = m.Value
				continue
			}
			at[m.Key] = len(out)
			out = append(out, m)
		}
		return out
	}
	return v
}

func parseNumber(s string) (any, error) {
	if !strings.ContainsAny(s, ".eE") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("integer %.40s does not fit 64 bits", s)
		}
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, fmt.Errorf("number %.40s is out of range", s)
	}
	return f, nil
}

func jsonType(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}
