package api

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// maxDepth bounds the nesting of a request: templates walk what clients send, and recursion over
// it must end.
const maxDepth = 100

// object is a JSON object of a request whose fields are read one by one. The first thing that is
// wrong is kept in err, and every later read gives its zero value, so a reader of many fields
// checks once. Fields that are null are left out: they mean their default.
type object struct {
	path   string // prefix of field names in errors
	fields map[string]jsontext.Value
	err    *apiError
}

// parseObject reads a whole body. Its errors say where in the body they are.
func parseObject(body []byte) (*object, error) {
	if at := tooDeep(body); at >= 0 {
		return nil, badJSON("at byte %d: nested more than %d deep", at, maxDepth)
	}
	return readObject(body, "")
}

// readObject reads one object of valid depth; path is what its field names begin with.
func readObject(raw []byte, path string) (*object, error) {
	o := &object{path: path, fields: map[string]jsontext.Value{}}
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if k := dec.PeekKind(); k != '{' {
		if _, err := dec.ReadToken(); err != nil {
			return nil, syntaxError(err)
		}
		if path != "" {
			return nil, invalid(strings.TrimSuffix(path, "."), "want an object, not %s", kindName(k))
		}
		return nil, badJSON("want an object, not %s", kindName(k))
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, syntaxError(err)
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, syntaxError(err)
		}
		if value.Kind() != 'n' {
			o.fields[key] = value.Clone()
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, badJSON("at byte %d: text after the object", dec.InputOffset())
	}
	return o, nil
}

func badJSON(format string, args ...any) *apiError {
	e := invalid("body", format, args...)
	e.param, e.code = "", "invalid_json"
	return e
}

// syntaxError says what is wrong with a JSON text and where.
func syntaxError(err error) error {
	var at *jsontext.SyntacticError
	if !errors.As(err, &at) {
		return badJSON("the JSON text ends too early")
	}
	where := "at byte " + strconv.FormatInt(at.ByteOffset, 10)
	if at.JSONPointer != "" {
		// a pointer is built from names of the body, which may be as long as the body
		where += " in " + strings.ToValidUTF8(shorten(string(at.JSONPointer), 100), "")
	}
	e := badJSON("%s: %s", where, strings.ToValidUTF8(shorten(at.Err.Error(), 200), ""))
	if field, _, _ := strings.Cut(strings.TrimPrefix(string(at.JSONPointer), "/"), "/"); field != "" && len(field) <= 64 {
		e.param = strings.ToValidUTF8(field, "")
	}
	return e
}

// tooDeep returns where a JSON text nests deeper than maxDepth, -1 if nowhere. It needs no valid
// text, since brackets of an invalid one are never followed further than the parser gets.
func tooDeep(body []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > maxDepth {
				return i
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return -1
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "what is there"
}

// shorten cuts s for a message.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// fail keeps the first error.
func (o *object) fail(name, format string, args ...any) {
	if o.err == nil {
		o.err = invalid(o.path+name, format, args...)
	}
}

// failure is err as an error.
func (o *object) failure() error {
	if o.err == nil {
		return nil
	}
	return o.err
}

// take returns a field that must be of one of the given kinds, nil if it is not there.
func (o *object) take(name, want string, kinds ...jsontext.Kind) jsontext.Value {
	v := o.fields[name]
	if v == nil || o.err != nil {
		return nil
	}
	for _, k := range kinds {
		if v.Kind() == k {
			return v
		}
	}
	o.fail(name, "want %s, not %s", want, kindName(v.Kind()))
	return nil
}

func (o *object) has(name string) bool { return o.fields[name] != nil }

func (o *object) string(name string) string { return text(o.take(name, "a string", '"')) }

// text is the text of a JSON string that has been parsed.
func text(v jsontext.Value) string {
	if v == nil {
		return ""
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil { // the parser has read this string
		panic("api: " + err.Error())
	}
	return string(b)
}

func (o *object) bool(name string, byDefault bool) bool {
	switch o.take(name, "a boolean", 't', 'f').Kind() {
	case 't':
		return true
	case 'f':
		return false
	}
	return byDefault
}

// integer reads a whole number in [low, high]; nil when it is not there.
func (o *object) integer(name string, low, high int64) *int64 {
	v := o.take(name, "a whole number", '0')
	if v == nil {
		return nil
	}
	n, ok := whole(v)
	switch {
	case !ok:
		o.fail(name, "%s is not a whole number (or too large for one)", shorten(string(v), 40))
	case n < low && high >= math.MaxInt32: // a bound of the machine, which nobody needs to know
		o.fail(name, "%d is less than %d", n, low)
	case n > high && high >= math.MaxInt32:
		o.fail(name, "%d is too large", n)
	case n < low || n > high:
		o.fail(name, "%d is not in [%d, %d]", n, low, high)
	default:
		return &n
	}
	return nil
}

// whole reads a number without a fraction, also one written 16.0 or 1e3.
func whole(v jsontext.Value) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// number reads a number in [low, high], or in (low, high] when open; byDefault when it is not there.
func (o *object) number(name string, low, high float64, open bool, byDefault float32) float32 {
	v := o.take(name, "a number", '0')
	if v == nil {
		return byDefault
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f < low || f > high || open && float32(f) <= float32(low) {
		bracket := "["
		if open {
			bracket = "("
		}
		o.fail(name, "%s is not in %s%.10g, %.10g]", shorten(string(v), 40), bracket, low, high)
		return byDefault
	}
	return float32(f)
}

// object reads a nested object; nil when it is not there.
func (o *object) object(name string) *object {
	v := o.take(name, "an object", '{')
	if v == nil {
		return nil
	}
	inner, err := readObject(v, o.path+name+".")
	if err != nil {
		o.err = asError(err)
		return nil
	}
	return inner
}

// elements ranges over an array that has been parsed. An element is good until the next one.
func elements(v jsontext.Value) iter.Seq2[int, jsontext.Value] {
	return func(yield func(int, jsontext.Value) bool) {
		dec := jsontext.NewDecoder(bytes.NewReader(v))
		if _, err := dec.ReadToken(); err != nil {
			panic("api: " + err.Error())
		}
		for i := 0; dec.PeekKind() != ']'; i++ {
			e, err := dec.ReadValue()
			if err != nil {
				panic("api: " + err.Error())
			}
			if !yield(i, e) {
				return
			}
		}
	}
}

// tokenIDs reads an array of token ids of a vocabulary; name is what errors call the array.
func (o *object) tokenIDs(name string, array jsontext.Value, vocab int) []int32 {
	var out []int32
	for i, v := range elements(array) {
		n, ok := int64(0), false
		if v.Kind() == '0' {
			n, ok = whole(v)
		}
		if !ok {
			o.fail(name+"["+strconv.Itoa(i)+"]", "want a token id, not %s", shorten(string(v), 40))
			return nil
		}
		if n < 0 || n >= int64(vocab) {
			o.fail(name+"["+strconv.Itoa(i)+"]", "token id %d is not in the vocabulary, [0, %d)", n, vocab)
			return nil
		}
		out = append(out, int32(n))
	}
	return out
}

var errNoBody = &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", code: "invalid_json",
	message: "body: want a JSON object, the body is empty"}
