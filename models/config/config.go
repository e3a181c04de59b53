// Package config reads the values of a config.json or of a GGUF file's metadata one key at a time,
// so that what is wrong with a file is said in the file's own words.
//
// It knows types and ranges, and the sizes that all decoders of the llama build share; what else a
// key means is the architectures' affair. null is as good as absent, as the writers of config.json
// have it.
//
// Invariant: the first error is kept, names its key, and every value read after it is zero.
package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Limit bounds every size in a config, so that products of two do not overflow.
const Limit = 1 << 24

// Reader reads one JSON object.
type Reader struct {
	path string // before a key in errors: "" or "rope_scaling."
	keys map[string]json.RawMessage
	err  *error
}

// New reads the object raw, the bytes of config.json.
func New(raw []byte) *Reader {
	r := &Reader{err: new(error)}
	if err := json.Unmarshal(raw, &r.keys); err != nil {
		*r.err = fmt.Errorf("config.json: %w", err)
	}
	return r
}

// Err is the first error.
func (r *Reader) Err() error { return *r.err }

// Fail records an error about a key, unless there was one before.
func (r *Reader) Fail(key, format string, args ...any) {
	if *r.err == nil {
		*r.err = fmt.Errorf("config.json: %s%s: %s", r.path, key, fmt.Sprintf(format, args...))
	}
}

// Has says whether the key has a value.
func (r *Reader) Has(key string) bool {
	v, ok := r.keys[key]
	return ok && string(v) != "null"
}

// Is says whether the key's value is exactly this JSON text.
func (r *Reader) Is(key, text string) bool { return string(r.keys[key]) == text }

func (r *Reader) parse(key string, v any, what string) bool {
	if *r.err != nil {
		return false
	}
	if !r.Has(key) {
		r.Fail(key, "is missing")
		return false
	}
	if err := json.Unmarshal(r.keys[key], v); err != nil {
		text := string(r.keys[key])
		if len(text) > 60 {
			text = strings.ToValidUTF8(text[:60], "") + "..."
		}
		r.Fail(key, "%s is not %s", text, what)
		return false
	}
	return true
}

// Size reads a whole number from 1 to Limit.
func (r *Reader) Size(key string) int {
	var n int64
	if !r.parse(key, &n, "a whole number") {
		return 0
	}
	if n < 1 || n > Limit {
		r.Fail(key, "%d is not within 1 and %d", n, Limit)
		return 0
	}
	return int(n)
}

// SizeOr is Size, or def when the key has no value.
func (r *Reader) SizeOr(key string, def int) int {
	if !r.Has(key) {
		return def
	}
	return r.Size(key)
}

// Positive reads a number above 0 that float32 holds, too.
func (r *Reader) Positive(key string) float64 {
	var v float64
	if !r.parse(key, &v, "a number") {
		return 0
	}
	if !(v > 0) || v > math.MaxFloat32 || float32(v) == 0 {
		r.Fail(key, "%v is not a positive number", v)
		return 0
	}
	return v
}

// PositiveOr is Positive, or def when the key has no value.
func (r *Reader) PositiveOr(key string, def float64) float64 {
	if !r.Has(key) {
		return def
	}
	return r.Positive(key)
}

// NumberOr reads a number that float32 holds, too, or def when the key has no value.
func (r *Reader) NumberOr(key string, def float64) float64 {
	v := def
	if r.Has(key) && r.parse(key, &v, "a number") && math.Abs(v) > math.MaxFloat32 {
		r.Fail(key, "%v is too large", v)
	}
	if *r.err != nil {
		return 0
	}
	return v
}

// Positives reads a list of n numbers as Positive reads one.
func (r *Reader) Positives(key string, n int) []float64 {
	var list []float64
	if !r.parse(key, &list, "a list of numbers") {
		return nil
	}
	if len(list) != n {
		r.Fail(key, "%d numbers, not %d", len(list), n)
		return nil
	}
	for i, v := range list {
		if !(v > 0) || v > math.MaxFloat32 || float32(v) == 0 {
			r.Fail(key, "number %d, %v, is not positive", i, v)
			return nil
		}
	}
	return list
}

// BoolOr reads true or false, or def when the key has no value.
func (r *Reader) BoolOr(key string, def bool) bool {
	v := def
	if r.Has(key) {
		r.parse(key, &v, "true or false")
	}
	return v
}

// TextOr reads a text, or def when the key has no value.
func (r *Reader) TextOr(key, def string) string {
	v := def
	if r.Has(key) {
		r.parse(key, &v, "a text")
	}
	return v
}

// TextsOr reads a list of texts; nil when the key has no value.
func (r *Reader) TextsOr(key string) (v []string) {
	if r.Has(key) {
		r.parse(key, &v, "a list of texts")
	}
	return v
}

// Object returns a reader of the object that is the key's value; without one, of an empty object.
// Errors go to r.
func (r *Reader) Object(key string) *Reader {
	o := &Reader{path: r.path + key + ".", err: r.err}
	if r.Has(key) {
		r.parse(key, &o.keys, "an object")
	}
	return o
}
