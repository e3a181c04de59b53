package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Metadata are the key-value pairs of a GGUF file. Getters convert between widths of integers and
// of floats when the value fits; an absent key, another kind or a value that does not fit is an
// error that names the key.
type Metadata struct {
	path string
	file *file
	// reading runs what reads an array's bytes, guarded against Close and against a file that was cut.
	reading func(read func() error, files ...*file) error

	keys  []string
	pairs map[string]value
}

// kind is GGUF's number of a value's type.
type kind uint32

const (
	kindU8 kind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

var kindNames = [...]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "text", "array", "uint64", "int64", "float64"}
var kindBytes = [...]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

func (k kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("type %d", uint32(k))
}

// value is one value. A scalar's bytes are a copy; an array stays in the file, where the reader has
// walked over it once, and is read when it is asked for.
type value struct {
	kind  kind
	elem  kind // of an array
	count int  // of an array
	raw   []byte
}

// maxNesting bounds arrays of arrays.
const maxNesting = 4

func (r *ggufReader) value() value {
	v := value{kind: kind(r.u32())}
	switch {
	case v.kind == kindString:
		v.raw = []byte(r.string(maxText))
	case v.kind == kindArray:
		v.elem, v.count, v.raw = r.array(maxNesting)
	case r.err == nil && int(v.kind) >= len(kindNames):
		r.err = fmt.Errorf("%v is unknown", v.kind)
	default:
		if b := r.bytes(uint64(kindBytes[v.kind])); b != nil {
			v.raw = append(v.raw, b...)
		}
	}
	return v
}

// array walks over an array and returns the bytes of its elements.
func (r *ggufReader) array(depth int) (elem kind, count int, raw []byte) {
	elem = kind(r.u32())
	n := r.u64()
	if r.err != nil {
		return 0, 0, nil
	}
	start := r.off
	switch {
	case int(elem) >= len(kindNames):
		r.err = fmt.Errorf("array of %v", elem)
	case elem == kindString:
		for i := uint64(0); i < n && r.err == nil; i++ {
			r.bytes(r.u64())
		}
	case elem == kindArray:
		if depth == 0 {
			r.err = fmt.Errorf("arrays are nested more than %d deep", maxNesting)
		}
		for i := uint64(0); i < n && r.err == nil; i++ {
			r.array(depth - 1)
		}
	default:
		size := uint64(kindBytes[elem])
		if n > uint64(len(r.b)-r.off)/size {
			r.err = fmt.Errorf("array of %d %v at %d reaches beyond its end at %d", n, elem, r.off, len(r.b))
		}
		r.bytes(n * size)
	}
	if r.err != nil {
		return 0, 0, nil
	}
	return elem, int(n), r.b[start:r.off]
}

// Has says whether the key is there.
func (m *Metadata) Has(key string) bool { _, ok := m.pairs[key]; return ok }

// Keys are all keys, in the file's order.
func (m *Metadata) Keys() []string { return m.keys }

func (m *Metadata) errorf(key, format string, args ...any) error {
	return fmt.Errorf("%s: metadata %s: %w", m.path, key, fmt.Errorf(format, args...))
}

func (m *Metadata) find(key string) (value, error) {
	v, ok := m.pairs[key]
	if !ok {
		return v, m.errorf(key, "is missing")
	}
	return v, nil
}

// integer reads an integer of any width from raw.
func (k kind) integer(raw []byte) (int, bool) {
	switch k {
	case kindU8:
		return int(raw[0]), true
	case kindI8:
		return int(int8(raw[0])), true
	case kindU16:
		return int(binary.LittleEndian.Uint16(raw)), true
	case kindI16:
		return int(int16(binary.LittleEndian.Uint16(raw))), true
	case kindU32:
		return int(binary.LittleEndian.Uint32(raw)), true
	case kindI32:
		return int(int32(binary.LittleEndian.Uint32(raw))), true
	case kindU64, kindI64:
		n := int64(binary.LittleEndian.Uint64(raw))
		return int(n), k == kindI64 || n >= 0
	}
	return 0, false
}

func (k kind) float(raw []byte) (float64, bool) {
	switch k {
	case kindF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case kindF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw)), true
	}
	n, ok := k.integer(raw)
	return float64(n), ok
}

// Int returns an integer of any width.
func (m *Metadata) Int(key string) (int, error) {
	v, err := m.find(key)
	if err != nil {
		return 0, err
	}
	n, ok := v.kind.integer(v.raw)
	if !ok {
		return 0, m.errorf(key, "is %v, not an integer below 2^63", v.kind)
	}
	return n, nil
}

// Float returns a float or an integer.
func (m *Metadata) Float(key string) (float64, error) {
	v, err := m.find(key)
	if err != nil {
		return 0, err
	}
	f, ok := v.kind.float(v.raw)
	if !ok {
		return 0, m.errorf(key, "is %v, not a number", v.kind)
	}
	return f, nil
}

// Bool returns a truth value.
func (m *Metadata) Bool(key string) (bool, error) {
	v, err := m.find(key)
	if err != nil {
		return false, err
	}
	if v.kind != kindBool {
		return false, m.errorf(key, "is %v, not a truth value", v.kind)
	}
	return v.raw[0] != 0, nil
}

// String returns a text.
func (m *Metadata) String(key string) (string, error) {
	v, err := m.find(key)
	if err != nil {
		return "", err
	}
	if v.kind != kindString {
		return "", m.errorf(key, "is %v, not a text", v.kind)
	}
	return string(v.raw), nil
}

// IntOr is Int, and def when the key is absent.
func (m *Metadata) IntOr(key string, def int) (int, error) { return or(m, key, def, m.Int) }

// FloatOr is Float, and def when the key is absent.
func (m *Metadata) FloatOr(key string, def float64) (float64, error) { return or(m, key, def, m.Float) }

// StringOr is String, and def when the key is absent.
func (m *Metadata) StringOr(key, def string) (string, error) { return or(m, key, def, m.String) }

// BoolOr is Bool, and def when the key is absent.
func (m *Metadata) BoolOr(key string, def bool) (bool, error) { return or(m, key, def, m.Bool) }

func or[T any](m *Metadata, key string, def T, get func(string) (T, error)) (T, error) {
	if !m.Has(key) {
		return def, nil
	}
	return get(key)
}

// Ints returns an array of integers of any width.
func (m *Metadata) Ints(key string) ([]int, error) {
	return numbers(m, key, func(k kind, raw []byte) (int, bool) { return k.integer(raw) })
}

// Floats returns an array of numbers.
func (m *Metadata) Floats(key string) ([]float32, error) {
	return numbers(m, key, func(k kind, raw []byte) (float32, bool) {
		f, ok := k.float(raw)
		return float32(f), ok
	})
}

func numbers[T any](m *Metadata, key string, convert func(kind, []byte) (T, bool)) ([]T, error) {
	v, err := m.find(key)
	if err != nil {
		return nil, err
	}
	if v.kind != kindArray || kindBytes[v.elem] == 0 || v.elem == kindBool {
		return nil, m.errorf(key, "is %v, not an array of numbers", v)
	}
	list := make([]T, v.count)
	err = m.reading(func() error {
		for i, size := 0, kindBytes[v.elem]; i < v.count; i++ {
			var ok bool
			if list[i], ok = convert(v.elem, v.raw[i*size:(i+1)*size]); !ok {
				return m.errorf(key, "entry %d is %v, not a number that fits", i, v.elem)
			}
		}
		return nil
	}, m.file)
	return list, err
}

// Strings returns an array of texts.
func (m *Metadata) Strings(key string) ([]string, error) {
	v, err := m.find(key)
	if err != nil {
		return nil, err
	}
	if v.kind != kindArray || v.elem != kindString {
		return nil, m.errorf(key, "is %v, not an array of texts", v)
	}
	list := make([]string, v.count)
	err = m.reading(func() error {
		r := ggufReader{b: v.raw}
		for i := range list {
			list[i] = r.string(maxText)
		}
		if r.err != nil {
			return m.errorf(key, "%w", r.err)
		}
		return nil
	}, m.file)
	return list, err
}

func (v value) String() string {
	if v.kind == kindArray {
		return fmt.Sprintf("array of %d %v", v.count, v.elem)
	}
	return v.kind.String()
}
