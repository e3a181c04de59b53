package toolcall

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strings"
)

// member is one of an object's, in order.
type member struct {
	name  string
	value jsontext.Value
}

// members are those of a JSON object; nil for anything else.
func members(raw jsontext.Value) (out []member) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if dec.PeekKind() != '{' {
		return nil
	}
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = dec.ReadToken(); err != nil {
			return nil
		}
		m := member{name: name.String()}
		if m.value, err = dec.ReadValue(); err != nil {
			return nil
		}
		m.value = m.value.Clone()
		out = append(out, m)
	}
	return out
}

func written(all []member) jsontext.Value {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range all {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(quote(m.name) + ": ")
		out.Write(m.value)
	}
	out.WriteByte('}')
	return out.Bytes()
}

// objects is a tool's schema, of objects only: arguments are nothing else.
func objects(t Tool) jsontext.Value {
	if t.Parameters == nil {
		return jsontext.Value(`{"type":"object"}`)
	}
	all := slices.DeleteFunc(members(t.Parameters), func(m member) bool { return m.name == "type" })
	return written(append([]member{{"type", jsontext.Value(`"object"`)}}, all...))
}

var anything = jsontext.Value("true")

// followed is a schema that is nothing but a reference with what it refers to in its place.
func followed(root jsontext.Value) jsontext.Value {
	for range maxTypeDepth {
		var ref string
		all := members(root)
		i := slices.IndexFunc(all, func(m member) bool { return m.name == "$ref" })
		if i < 0 || json.Unmarshal(all[i].value, &ref) != nil {
			break
		}
		to := members(newDocument(root).resolve(ref))
		all = slices.Delete(all, i, i+1)
		if to == nil || slices.ContainsFunc(all, func(m member) bool {
			return m.name == "properties" || m.name == "required" || m.name == "additionalProperties"
		}) {
			break
		}
		to = slices.DeleteFunc(to, func(m member) bool { return slices.ContainsFunc(all, func(o member) bool { return o.name == m.name }) })
		root = written(append(all, to...))
	}
	return root
}

// wholeSchema is where the whole schema of a tool stands in one that is made of a part of it.
const wholeSchema = "#/$defs/tool"

// maxParts bounds the schemas that are made of the parts of one, in bytes: each part that refers to others comes with all of them.
const maxParts = 16 << 20

// parts makes schemas of parts of a whole one.
type parts struct {
	defs jsontext.Value // that the references of parts lead to
	left int
}

func newParts(whole jsontext.Value) *parts {
	inner := slices.DeleteFunc(members(whole), func(m member) bool { return m.name == "$id" })
	return &parts{written([]member{{"tool", moved(written(inner), false)}}), maxParts}
}

// schema is a part, of these types, if there are any.
func (w *parts) schema(schema jsontext.Value, types ...string) (jsontext.Value, error) {
	all := members(moved(schema, false))
	if all == nil && schema.Kind() == 'f' {
		return schema, nil
	}
	set := func(name string, value jsontext.Value) {
		all = append(slices.DeleteFunc(all, func(m member) bool { return m.name == name }), member{name, value})
	}
	if len(types) > 0 {
		b, _ := json.Marshal(types) // strings can be written
		set("type", b)
	}
	if out := written(all); !bytes.Contains(out, []byte(`"$ref"`)) && !bytes.Contains(out, []byte(`"$dynamicRef"`)) {
		return out, nil
	}
	if w.left -= len(w.defs); w.left < 0 {
		return nil, fmt.Errorf("the schema is too large for this model's format of calls: its parts that refer to others have more than %d bytes with these", maxParts)
	}
	set("$defs", w.defs)
	return written(all), nil
}

// moved is a schema whose references lead to where part puts it. named: it is not one but holds some by name.
func moved(raw jsontext.Value, named bool) jsontext.Value {
	switch raw.Kind() {
	case '[':
		var list []jsontext.Value
		if json.Unmarshal(raw, &list) != nil {
			return raw
		}
		for i := range list {
			list[i] = moved(list[i], false)
		}
		b, _ := json.Marshal(list)
		return b
	case '{':
		all := members(raw)
		for i, m := range all {
			switch {
			case named:
				all[i].value = moved(m.value, false)
			case m.name == "$ref" && m.value.Kind() == '"':
				var ref string
				if json.Unmarshal(m.value, &ref) == nil && (ref == "#" || strings.HasPrefix(ref, "#/")) {
					all[i].value = jsontext.Value(quote(wholeSchema + ref[1:]))
				}
			case slices.Contains([]string{"const", "enum", "default", "example", "examples"}, m.name): // values, not schemas
			default:
				all[i].value = moved(m.value, slices.Contains([]string{"properties", "patternProperties", "$defs", "definitions"}, m.name))
			}
		}
		return written(all)
	}
	return raw
}

// property is one of a tool's parameters.
type property struct {
	name     string
	required bool
	types    []string // that its schema allows; none when it does not say
	schema   jsontext.Value
}

// properties are those of a tool's schema that has been followed, in its order, and what others may be: nil where there are no others. An error names
// what else the schema asks for, which a format that writes parameters one by one cannot hold.
func properties(root jsontext.Value) (all []property, more *property, err error) {
	doc := newDocument(root)
	var required []string
	var props, others jsontext.Value
	for _, m := range members(root) {
		switch m.name {
		case "properties":
			props = m.value
		case "required":
			if err := json.Unmarshal(m.value, &required); err != nil {
				return nil, nil, fmt.Errorf("#/required: want an array of names")
			}
		case "additionalProperties":
			others = m.value
		case "type", "$defs", "definitions", "title", "description", "default", "examples", "example", "$schema", "$id", "$comment", "strict", "name", "deprecated":
		default:
			if !strings.HasPrefix(m.name, "x-") {
				return nil, nil, fmt.Errorf("#/%s: is not supported for the parameters as a whole in this model's format of calls, only properties, required and additionalProperties are", m.name)
			}
		}
	}
	for _, m := range members(props) {
		all = append(all, property{m.name, slices.Contains(required, m.name), doc.types(m.value), m.value})
	}
	for _, name := range required {
		if !slices.ContainsFunc(all, func(p property) bool { return p.name == name }) {
			all = append(all, property{name, true, nil, anything})
		}
	}
	switch {
	case props != nil || others.Kind() == 'f': // beside those that have a name there are no others, as in JSON
	case others.Kind() == '{':
		more = &property{types: doc.types(others), schema: others}
	default:
		more = &property{schema: anything}
	}
	return all, more, nil
}
