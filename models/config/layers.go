package config

import (
	"maps"
	"slices"
)

// Keys are the keys that have a value, sorted: of an object whose keys are layers, say.
func (r *Reader) Keys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.keys)), func(key string) bool { return !r.Has(key) })
}

// EachSize reads a whole number from 1 to Limit for each of n layers, or one that all of them have.
func (m *Metadata) EachSize(name string, n int) []int {
	list := read(m, name, func(key string) ([]int, error) { return m.m.EachInt(key, n) })
	for i, v := range list {
		if v < 1 || v > Limit {
			m.Fail(name, "%d, of layer %d, is not within 1 and %d", v, i, Limit)
			return nil
		}
	}
	return list
}

// EachBool reads a truth value for each of n layers.
func (m *Metadata) EachBool(name string, n int) []bool {
	list := read(m, name, m.m.Bools)
	if m.err == nil && len(list) != n {
		m.Fail(name, "has %d entries, not %d", len(list), n)
		return nil
	}
	return list
}

// Vocab reads the rows of the output layer, or counts the tokenizer's tokens.
func (m *Metadata) Vocab() int {
	if m.Has("vocab_size") {
		return m.Size("vocab_size")
	}
	return m.tokens()
}
