package engine

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// typicalSchemas are of the kinds that applications send; each has an end that a small model comes to within some dozens of tokens.
var typicalSchemas = []string{
	`{"type":"boolean"}`,
	`{"type":"null"}`,
	`{"type":"integer"}`,
	`{"type":"integer","minimum":1,"maximum":10}`,
	`{"type":"number","exclusiveMinimum":0,"maximum":1}`,
	`{"type":"integer","multipleOf":5,"minimum":0,"maximum":100}`,
	`{"enum":["positive","negative","neutral"]}`,
	`{"const":{"ok":true}}`,
	`{"type":"string","maxLength":16}`,
	`{"type":"string","minLength":3,"maxLength":12,"pattern":"^[a-z]+$"}`,
	`{"type":"string","pattern":"^[A-Z]{3}-[0-9]{3}$"}`,
	`{"type":"string","format":"date"}`,
	`{"type":"string","format":"time"}`,
	`{"type":"string","format":"date-time"}`,
	`{"type":"string","format":"uuid"}`,
	`{"type":"string","format":"ipv4"}`,
	`{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":4}`,
	`{"type":"array","items":{"enum":["a","b","c"]},"maxItems":3}`,
	`{"type":"array","prefixItems":[{"type":"integer","minimum":0,"maximum":9},{"type":"boolean"}],"items":false,"minItems":2}`,
	`{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":120}},"required":["name","age"],"additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false}`,
	`{"type":"object","properties":{"city":{"enum":["Paris","Rome","Oslo"]},"unit":{"enum":["c","f"]}},"required":["city"],"additionalProperties":false}`,
	`{"type":"object","additionalProperties":{"type":"integer","minimum":0,"maximum":9},"minProperties":1,"maxProperties":2,"propertyNames":{"pattern":"^[a-z]{1,4}$"}}`,
	`{"anyOf":[{"type":"boolean"},{"type":"null"},{"type":"integer","minimum":0,"maximum":99}]}`,
	`{"anyOf":[{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"integer","minimum":1,"maximum":9}},"required":["kind","r"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"dot"}},"required":["kind"],"additionalProperties":false}]}`,
	`{"$ref":"#/$defs/p","$defs":{"p":{"type":"object","properties":{"x":{"type":"integer","minimum":-9,"maximum":9},"y":{"type":"integer","minimum":-9,"maximum":9}},"required":["x","y"],"additionalProperties":false}}}`,
	`{"type":["string","null"],"maxLength":8}`,
	`{"allOf":[{"type":"integer","minimum":10},{"maximum":20}]}`,
	`{"type":"object","properties":{"steps":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":3}},"required":["n"],"additionalProperties":false},"minItems":1,"maxItems":2}},"required":["steps"],"additionalProperties":false}`,
	`{"type":"object","properties":{"is_spam":{"type":"boolean"},"reason":{"type":"string","maxLength":20}},"required":["is_spam","reason"],"additionalProperties":false}`,
}

// What a real model answers within a schema, a validator that knows nothing of grammars accepts.
func TestSmolLM2AnswersWithinSchemas(t *testing.T) {
	if testing.Short() {
		t.Skip("a 135M model")
	}
	path := testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")
	e, err := Open(t.Context(), Options{Device: "cpu", Models: []ModelSpec{{Name: "smol", Path: path, MaxModelLen: 512}}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ids, err := e.Tokenize("smol", "As JSON:", true)
	if err != nil {
		t.Fatal(err)
	}
	begin, tokens, valid := time.Now(), 0, 0
	type answer struct {
		schema int
		text   string
		last   Event
	}
	answers := make(chan answer)
	for i, s := range typicalSchemas {
		go func() {
			a := answer{schema: i}
			defer func() { answers <- a }()
			expr, err := grammar.Schema([]byte(s))
			if err != nil {
				a.last.Err = err
				return
			}
			g, err := e.CompileGrammar(t.Context(), "smol", expr)
			if err != nil {
				a.last.Err = err
				return
			}
			seed := int64(i)
			events, err := e.Generate(t.Context(), Request{Model: "smol", Prompt: ids, Grammar: g, MaxTokens: 150, Sampling: SamplingParams{Temperature: 0.7, Seed: &seed}})
			if err != nil {
				a.last.Err = err
				return
			}
			for a.last = range events {
				a.text += a.last.Text
			}
		}()
	}
	for range typicalSchemas {
		a := <-answers
		schema := typicalSchemas[a.schema]
		if a.last.Err != nil || a.last.Finish != FinishStop {
			t.Errorf("%s: %q: finish %v: %v", schema, a.text, a.last.Finish, a.last.Err)
			continue
		}
		tokens += a.last.Usage.Completion
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("schema.json", doc); err != nil {
			t.Fatal(err)
		}
		validator, err := c.Compile("schema.json")
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(a.text))
		if err == nil {
			err = validator.Validate(value)
		}
		if err != nil {
			t.Errorf("%s: %q: %v", schema, a.text, err)
			continue
		}
		valid++
		t.Logf("%s", a.text)
	}
	t.Logf("%d of %d schemas: complete and valid, %d tokens in %v", valid, len(typicalSchemas), tokens, time.Since(begin).Round(time.Millisecond))
}
