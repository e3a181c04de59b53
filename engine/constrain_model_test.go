package engine

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

// asked is a schema that a model is to answer within.
type asked struct {
	name, schema string
	expr         grammar.Expr
	draft        *jsonschema.Draft
}

// suiteSchemas are n of the public test suite's schemas that are supported, evenly over its groups by name. Those that are answered by any value are left
// out: there is nothing to see in an answer.
func suiteSchemas(t *testing.T, n int) []asked {
	var all []asked
	for dir, draft := range map[string]*jsonschema.Draft{"draft7": jsonschema.Draft7, "draft2020-12": jsonschema.Draft2020} {
		files, err := filepath.Glob(filepath.Join(testdata.Cache(t, "jsonschema"), dir, "*.json"))
		if err != nil || len(files) < 20 {
			t.Fatalf("%s: %d files", dir, len(files))
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var groups []struct {
				Description string
				Schema      json.RawMessage
				Tests       []struct{ Valid bool }
			}
			if err := json.Unmarshal(raw, &groups); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				if expr, err := grammar.Schema(g.Schema); err == nil && slices.ContainsFunc(g.Tests, func(c struct{ Valid bool }) bool { return !c.Valid }) {
					all = append(all, asked{dir + "/" + filepath.Base(file) + ": " + g.Description, string(g.Schema), expr, draft})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b asked) int { return strings.Compare(a.name, b.name) })
	if len(all) < n {
		t.Fatalf("%d schemas", len(all))
	}
	some := make([]asked, n)
	for i := range some {
		some[i] = all[i*len(all)/n]
	}
	return some
}

// What a real model answers within a schema, a validator that knows nothing of grammars accepts: within those that applications send, and those of
// the public test suite, of which many have no end that the model is led to within its tokens.
func TestSmolLM2AnswersWithinSchemas(t *testing.T) {
	if testing.Short() {
		t.Skip("a 135M model")
	}
	var typical []asked
	for _, s := range typicalSchemas {
		expr, err := grammar.Schema([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		typical = append(typical, asked{"typical", s, expr, jsonschema.Draft2020})
	}
	path := testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")
	e, err := Open(t.Context(), Options{Device: "cpu", Models: []ModelSpec{{Name: "smol", Path: path, MaxModelLen: 512}}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, c := range []struct {
		what     string
		schemas  []asked
		tokens   int
		complete int // at least
	}{{"typical", typical, 150, len(typical)}, {"the suite's", suiteSchemas(t, 60), 60, 30}} {
		begin := time.Now()
		complete, tokens := answersWithin(t, e, c.schemas, c.tokens)
		t.Logf("%s: %d of %d answers complete and valid, %d tokens in %v", c.what, complete, len(c.schemas), tokens, time.Since(begin).Round(time.Millisecond))
		if complete < c.complete {
			t.Errorf("%s: %d answers are complete, want %d", c.what, complete, c.complete)
		}
	}
}

// answersWithin asks for an answer within each schema, all at once, and reports how many have an end; these are valid.
func answersWithin(t *testing.T, e *Engine, schemas []asked, limit int) (complete, tokens int) {
	ids, err := e.Tokenize("smol", "As JSON:", true)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		asked
		text string
		last Event
	}
	answers := make(chan answer)
	for i, s := range schemas {
		go func() {
			a := answer{asked: s}
			defer func() { answers <- a }()
			g, err := e.CompileGrammar(t.Context(), "smol", s.expr)
			if err != nil {
				a.last.Err = err
				return
			}
			seed := int64(i)
			events, err := e.Generate(t.Context(), Request{Model: "smol", Prompt: ids, Grammar: g, MaxTokens: limit, Sampling: SamplingParams{Temperature: 0.7, Seed: &seed}})
			if err != nil {
				a.last.Err = err
				return
			}
			for a.last = range events {
				a.text += a.last.Text
			}
		}()
	}
	for range schemas {
		a := <-answers
		tokens += a.last.Usage.Completion
		switch {
		case a.last.Err != nil && strings.Contains(a.last.Err.Error(), "nothing can satisfy"):
			continue
		case a.last.Err != nil || a.last.Finish != FinishStop && a.last.Finish != FinishLength:
			t.Errorf("%s: %s: %q: finish %v: %v", a.name, a.schema, a.text, a.last.Finish, a.last.Err)
			continue
		case a.last.Finish == FinishLength:
			continue
		}
		complete++
		if err := a.check(a.text); err != nil {
			t.Errorf("%s: %s: %q: %v", a.name, a.schema, a.text, err)
			continue
		}
		t.Logf("%s: %s", a.name, a.text)
	}
	return complete, tokens
}

// check validates an answer.
func (a asked) check(text string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(a.schema))
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(a.draft)
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		return err
	}
	validator, err := c.Compile("schema.json")
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return validator.Validate(value)
}
