package grammar

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaMaker makes up schemas in which keywords meet that seldom do.
type schemaMaker struct {
	*rand.Rand
	left int // keywords
}

func pick[T any](r *schemaMaker, of ...T) T { return of[r.IntN(len(of))] }

func (r *schemaMaker) scalar() any {
	return pick[any](r, nil, true, false, 0, 1, 2, 2.5, -1, "", "a", "ab", "foo")
}

func (r *schemaMaker) constant() any {
	switch r.IntN(8) {
	case 0:
		return []any{r.scalar()}
	case 1:
		return map[string]any{"a": r.scalar()}
	}
	return r.scalar()
}

func (r *schemaMaker) schemas(least int) (all []any) {
	for range least + r.IntN(2) {
		all = append(all, r.schema())
	}
	return all
}

func (r *schemaMaker) members() map[string]any {
	m := map[string]any{}
	for range 1 + r.IntN(2) {
		m[pick(r, "a", "b", "foo")] = r.schema()
	}
	return m
}

func (r *schemaMaker) schema() any {
	switch {
	case r.left <= 0 || r.IntN(12) == 0:
		return pick[any](r, true, true, false, map[string]any{"type": "integer"}, map[string]any{"const": r.scalar()})
	case r.IntN(16) == 0:
		return map[string]any{"$ref": "#/$defs/d"}
	}
	s := map[string]any{}
	for range 1 + r.IntN(3) {
		r.left--
		switch r.IntN(36) {
		case 0, 1, 2:
			s["type"] = pick[any](r, "string", "integer", "number", "object", "array", "boolean", "null", []any{"string", "array"}, []any{"object", "integer"})
		case 3:
			s["const"] = r.constant()
		case 4:
			s["enum"] = []any{r.constant(), r.constant(), r.constant()}
		case 5:
			s["minimum"] = pick[any](r, 0, 1, 1.5, -2)
		case 6:
			s["exclusiveMaximum"] = pick[any](r, 0, 1, 2.5, 10)
		case 7:
			s["multipleOf"] = pick[any](r, 1, 2, 0.5, 0.01, 3, 1.5)
		case 8:
			s["minLength"] = r.IntN(3)
		case 9:
			s["maxLength"] = r.IntN(4)
		case 10:
			s["pattern"] = pick(r, "^a", "b$", "o", "^(foo|ab)$")
		case 11:
			s["minItems"] = r.IntN(3)
		case 12:
			s["maxItems"] = r.IntN(4)
		case 13:
			s["items"] = r.schema()
		case 14:
			s["prefixItems"] = r.schemas(1)
		case 15, 16:
			s["contains"] = r.schema()
			if r.IntN(2) == 0 {
				s["minContains"] = r.IntN(3)
			}
			if r.IntN(2) == 0 {
				s["maxContains"] = 1 + r.IntN(3)
			}
		case 17, 18:
			s["properties"] = r.members()
		case 19:
			s["required"] = []any{pick(r, "a", "b", "foo")}
		case 20:
			s["additionalProperties"] = r.schema()
		case 21:
			s["patternProperties"] = map[string]any{pick(r, "^a", "o", "b"): r.schema(), pick(r, "^f", "a$"): r.schema()}
		case 22:
			s["propertyNames"] = map[string]any{pick(r, "pattern", "not"): nil}
			if _, ok := s["propertyNames"].(map[string]any)["not"]; ok {
				s["propertyNames"] = map[string]any{"not": map[string]any{"const": "a"}}
			} else {
				s["propertyNames"] = map[string]any{"pattern": "^[abf]"}
			}
		case 23:
			s["minProperties"] = r.IntN(2)
		case 24:
			s["maxProperties"] = r.IntN(3)
		case 25:
			s["dependentRequired"] = map[string]any{"a": []any{pick(r, "b", "foo")}}
		case 26:
			s["dependentSchemas"] = map[string]any{pick(r, "a", "b"): r.schema()}
		case 27, 28:
			s["not"] = r.schema()
		case 29, 30:
			s["if"], s["then"], s["else"] = r.schema(), r.schema(), r.schema()
		case 31:
			s["anyOf"] = r.schemas(2)
		case 32, 33:
			s["oneOf"] = r.schemas(2)
		case 34:
			s["allOf"] = r.schemas(1)
		case 35:
			s[pick(r, "unevaluatedProperties", "unevaluatedItems")] = r.schema()
			s["allOf"] = r.schemas(1)
		}
	}
	return s
}

func (r *schemaMaker) instance(depth int) any {
	if depth < 3 {
		switch r.IntN(3) {
		case 0:
			list := []any{}
			for range r.IntN(4) {
				list = append(list, r.instance(depth+1))
			}
			return list
		case 1:
			m := map[string]any{}
			for range r.IntN(4) {
				m[pick(r, "a", "b", "foo", "ab", "x")] = r.instance(depth + 1)
			}
			return m
		}
	}
	return r.scalar()
}

// leavesOut reports whether Schema may leave something out: properties say that there are no others, what is required comes first, and what
// some member has to be, as the opposite of what all have to be is, comes last.
func leavesOut(raw []byte) bool {
	any := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(raw, []byte(`"`+w)) })
	}
	return any(`properties"`, "unevaluated", `required"`, "dependent") ||
		any("patternProperties", "additionalProperties", "propertyNames") && any(`not"`, `if"`, "oneOf", "maxContains")
}

// TestRandomSchemas: a schema that is compiled generates what a validator accepts, and accepts nothing that it does not; and where Schema leaves
// nothing out, all that it does.
func TestRandomSchemas(t *testing.T) {
	v := byteVocabulary("{\"", "\":", "\",", "\"a\":", "\"foo\"", "1,", "true", "null", "\"}")
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 300
	}
	compiled, generated, accepted, exact := 0, 0, 0, 0
	refused := map[string]int{}
	for seed := range seeds {
		r := &schemaMaker{rand.New(rand.NewPCG(seed, 7)), 12}
		d := r.schema()
		top := map[string]any{"$defs": map[string]any{"d": d}, "allOf": []any{r.schema()}}
		self, _ := json.Marshal(d)
		raw, err := json.Marshal(top)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Schema(raw)
		var g *Grammar
		if err == nil {
			g, err = Compile(context.Background(), e, v)
		}
		validator := validatorOf(jsonschema.Draft2020, raw)
		if validator == nil {
			t.Fatalf("the validator refuses %s", raw)
		}
		if err != nil {
			var why *Error
			if !errors.As(err, &why) {
				t.Fatal(err)
			}
			refused[why.Message]++
			if why.Where == "" && !bytes.Contains(self, []byte("$ref")) { // nothing satisfies it; what is not itself has no meaning
				for range 40 {
					data, _ := json.Marshal(r.instance(0))
					if validates(validator, data) == nil && !leavesOut(raw) {
						t.Errorf("seed %d: %s: %v, and %s does", seed, raw, err, data)
						break
					}
				}
			}
			continue
		}
		compiled++
		for round := range 12 {
			text, ok := generate(g, v, seed<<8+uint64(round))
			if !ok {
				t.Errorf("seed %d: %s: no end: %.200q", seed, raw, text)
				break
			}
			generated++
			if err := validates(validator, text); err != nil {
				t.Errorf("seed %d: generated %.200s for %s: %v", seed, text, raw, err)
				break
			}
		}
		for range 60 {
			data, err := json.Marshal(r.instance(0))
			if err != nil {
				t.Fatal(err)
			}
			data, _ = jsontext.AppendFormat(nil, data)
			switch valid, takes := validates(validator, data) == nil, accepts(g, string(data)); {
			case takes && !valid:
				t.Errorf("seed %d: accepts the invalid %s for %s", seed, data, raw)
			case takes:
				accepted++
			case valid && !leavesOut(raw):
				t.Errorf("seed %d: does not accept %s for %s", seed, data, raw)
			}
			if !leavesOut(raw) {
				exact++
			}
		}
	}
	t.Logf("%d of %d schemas compiled, %d generated, %d accepted, %d compared both ways; refused %v", compiled, seeds, generated, accepted, exact, refused)
	if compiled < int(seeds)/2 || accepted < compiled || exact < compiled {
		t.Errorf("%d of %d schemas compiled, %d instances accepted, %d compared both ways: too few to mean anything", compiled, seeds, accepted, exact)
	}
}

// TestFormats: what has a format, the validator says so, too.
func TestFormats(t *testing.T) {
	v := byteVocabulary("ab", "://", "/", "00")
	for name, text := range formats {
		if text == "" {
			continue
		}
		schema := []byte(`{"type":"string","format":"` + name + `"}`)
		e, err := Schema(schema)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Compile(context.Background(), e, v)
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		doc, _ := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
		if err := c.AddResource("schema.json", doc); err != nil {
			t.Fatal(err)
		}
		validator, err := c.Compile("schema.json")
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(100) {
			text, ok := generate(g, v, seed)
			if !ok {
				t.Errorf("%s: no end: %q", name, text)
			} else if err := validates(validator, text); err != nil {
				t.Errorf("%s: %s: %v", name, text, err)
			}
		}
	}
}

// repeated is the parts of a list, of which each has its number.
func repeated(n int, part string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.ReplaceAll(part, "#", strconv.Itoa(i))
	}
	return strings.Join(all, ",")
}

// TestManyBranches: what tells cases apart does not multiply; what does is refused.
func TestManyBranches(t *testing.T) {
	v := byteVocabulary("{\"", "\":")
	cases := `"allOf":[` + repeated(30, `{"if":{"properties":{"kind":{"const":"k#"}}},"then":{"properties":{"p#":{"type":"string"}},"required":["p#"]}}`) + `]`
	for _, c := range []struct {
		what, schema, refused string
		yes, no               []string
	}{
		{"cases of a required member", `{"type":"object","properties":{"kind":{"enum":[` + repeated(30, `"k#"`) + `]}},"required":["kind"],` + cases + `}`, "",
			[]string{`{"kind":"k7","p7":""}`}, []string{`{}`, `{"kind":"k7"}`, `{"kind":"k7","p8":""}`, `{"kind":"x"}`}},
		{"cases of a member that need not be", `{"type":"object","properties":{"kind":{"type":"string"}},` + cases + `}`, "",
			[]string{`{"kind":"k29","p29":"x"}`, `{"kind":"other"}`}, []string{`{}`, `{"kind":"k29"}`}},
		{"branches with members of their own", `{"oneOf":[` + repeated(100, `{"type":"object","properties":{"a#":{"type":"string"},"b":{"type":"integer"}},"required":["a#"]}`) + `]}`, "",
			[]string{`{"a99":"","b":1}`}, []string{`{"a98":"","a99":""}`, `{"b":1}`}},
		{"a set of many", `{"type":"array","uniqueItems":true,"minItems":1,"items":{"enum":[` + repeated(300, `"x#"`) + `]}}`, "", []string{`["x3","x7","x299"]`}, []string{`["x3","x3"]`, `[]`}},
		{"a set of few", `{"type":"array","uniqueItems":true,"items":{"enum":["a","b",1,1.0,null]}}`, "", []string{`["b",null,"a",1]`, `[]`}, []string{`["b","b"]`, `[1,1]`}},
		{"multiples", `{"allOf":[{"multipleOf":0.5},{"multipleOf":3},{"minimum":-4}]}`, "", []string{`-3`, `0`, `9`}, []string{`1.5`, `4`, `-6`}},
		{"members that exclude each other", `{"type":"object","allOf":[` + repeated(100, `{"not":{"required":["a#","b#"]}}`) + `]}`, "multipl", nil, nil},
		{"counts that multiply", `{"type":"array","contains":{"type":"integer"},"minContains":200,"maxContains":300,"maxItems":400}`, "maxContains", nil, nil},
	} {
		e, err := Schema([]byte(c.schema))
		var g *Grammar
		if err == nil {
			g, err = Compile(context.Background(), e, v)
		}
		if c.yes == nil {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		for _, text := range c.yes {
			if !accepts(g, text) {
				t.Errorf("%s: does not accept %s", c.what, text)
			}
		}
		for _, text := range c.no {
			if accepts(g, text) {
				t.Errorf("%s: accepts %s", c.what, text)
			}
		}
	}
}
