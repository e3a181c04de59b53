package toolcall

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/url"
	"slices"
	"strings"
)

// What a schema says of types, for formats that write values without one (XML) and for what is no schema of arguments.

// Bounds of how far references and alternatives are followed.
const (
	maxTypeDepth   = 16
	maxTypeSchemas = 1000
)

// Types are the types that a schema allows, by their JSON Schema names; none when it does not say. root is what its
// references lead into.
func Types(root, schema jsontext.Value) []string { return newDocument(root).types(schema) }

// document is a schema whose parts are looked up, its objects read once.
type document struct {
	root    jsontext.Value
	objects map[string]map[string]jsontext.Value // by JSON pointer
}

func newDocument(root jsontext.Value) *document {
	return &document{root, map[string]map[string]jsontext.Value{}}
}

func (d *document) types(schema jsontext.Value) []string {
	left := maxTypeSchemas
	types := d.schemaTypes(schema, maxTypeDepth, &left)
	slices.Sort(types)
	return slices.Compact(types)
}

func (d *document) schemaTypes(raw jsontext.Value, deep int, left *int) (types []string) {
	var s struct {
		Ref        any              `json:"$ref"`
		Type       any              `json:"type"`
		AnyOf      []jsontext.Value `json:"anyOf"`
		OneOf      []jsontext.Value `json:"oneOf"`
		AllOf      []jsontext.Value `json:"allOf"`
		Enum       []jsontext.Value `json:"enum"`
		Const      jsontext.Value   `json:"const"`
		Properties jsontext.Value   `json:"properties"`
		Items      jsontext.Value   `json:"items"`
		Prefix     jsontext.Value   `json:"prefixItems"`
	}
	if *left--; raw == nil || deep == 0 || *left < 0 || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	switch t := s.Type.(type) {
	case string:
		types = append(types, t)
	case []any:
		for _, e := range t {
			if name, ok := e.(string); ok {
				types = append(types, name)
			}
		}
	}
	if types != nil {
		return types
	}
	values := s.Enum
	if s.Const != nil {
		values = append(values, s.Const)
	}
	for _, v := range values {
		types = append(types, kinds[v.Kind()])
	}
	if types != nil {
		return types
	}
	for _, list := range [][]jsontext.Value{s.AnyOf, s.OneOf} {
		for _, e := range list {
			types = append(types, d.schemaTypes(e, deep-1, left)...)
		}
	}
	if types != nil {
		return types
	}
	if ref, ok := s.Ref.(string); ok {
		if types = d.schemaTypes(d.resolve(ref), deep-1, left); types != nil {
			return types
		}
	}
	for _, e := range s.AllOf {
		if types = d.schemaTypes(e, deep-1, left); types != nil {
			return types
		}
	}
	switch {
	case s.Properties != nil:
		return []string{"object"}
	case s.Items != nil, s.Prefix != nil:
		return []string{"array"}
	}
	return nil
}

// resolve is what a reference leads to: a JSON pointer. nil when there is nothing.
func (d *document) resolve(ref string) jsontext.Value {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	v, at := d.root, ""
	for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "" {
			break
		}
		inner, ok := d.objects[at]
		if !ok {
			if json.Unmarshal(v, &inner) != nil {
				return nil
			}
			d.objects[at] = inner
		}
		at += "/" + step
		if u, err := url.PathUnescape(step); err == nil {
			step = u
		}
		if v = inner[strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")]; v == nil {
			return nil
		}
	}
	return v
}

var kinds = map[jsontext.Kind]string{'"': "string", '0': "number", 't': "boolean", 'f': "boolean", 'n': "null", '{': "object", '[': "array"}
