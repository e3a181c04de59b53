package config

import (
	"maps"
	"slices"
)

// Keys are the keys that have a value, sorted.
func (r *Reader) Keys() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.keys)), func(key string) bool { return !r.Has(key) })
}
