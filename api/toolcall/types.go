package toolcall

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/url"
	"slices"
	"strings"
)

// What a schema says of types, for formats that write values without one (XML) and for what is no schema of arguments.

// maxTypeDepth bounds how far references and alternatives are followed.
const maxTypeDepth = 16

// Types are the types that a schema allows, by their JSON Schema names; none when it does not say. root is what its
// references lead into.
func Types(root, schema jsontext.Value) []string {
	types := schemaTypes(root, schema, maxTypeDepth)
	slices.Sort(types)
	return slices.Compact(types)
}

func schemaTypes(root, raw jsontext.Value, deep int) (types []string) {
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
	if raw == nil || deep == 0 || json.Unmarshal(raw, &s) != nil {
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
			types = append(types, schemaTypes(root, e, deep-1)...)
		}
	}
	if types != nil {
		return types
	}
	if ref, ok := s.Ref.(string); ok {
		if types = schemaTypes(root, resolve(root, ref), deep-1); types != nil {
			return types
		}
	}
	for _, e := range s.AllOf {
		if types = schemaTypes(root, e, deep-1); types != nil {
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

// resolve is what a reference leads to: a JSON pointer into root. nil when there is nothing.
func resolve(root jsontext.Value, ref string) jsontext.Value {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	v := root
	for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "" {
			break
		}
		if u, err := url.PathUnescape(step); err == nil {
			step = u
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		var inner map[string]jsontext.Value
		if json.Unmarshal(v, &inner) != nil || inner[step] == nil {
			return nil
		}
		v = inner[step]
	}
	return v
}

var kinds = map[jsontext.Kind]string{'"': "string", '0': "number", 't': "boolean", 'f': "boolean", 'n': "null", '{': "object", '[': "array"}
