package toolcall

import (
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/openinfer-go/openinfer/engine/grammar"
)

const weather = `{"type":"object","properties":{"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":0,"maximum":20},"unit":{"enum":["c","f"]},
	"at":{"type":["array","null"],"items":{"type":"number"}},"sure":{"type":"boolean"}},"required":["city","unit"],"additionalProperties":false}`

// bytes is a vocabulary of bytes and the tokens that stand around calls.
var bytesVocabulary = func() *grammar.Vocabulary {
	tokens := make([]grammar.Token, 256, 300)
	for b := range tokens {
		tokens[b].Bytes = []byte{byte(b)}
	}
	tokens = append(tokens, grammar.Token{Bytes: []byte("<end>"), Control: true})
	for _, s := range []string{"<tool_call>", "</tool_call>", "<|tool_call>", "<tool_call|>", gemmaQuote, "[TOOL_CALLS]", "[ARGS]"} {
		tokens = append(tokens, grammar.Token{Bytes: []byte(s), Control: true})
	}
	return grammar.NewVocabulary(tokens, []int32{256})
}()

var bytesText = func() []string {
	out := make([]string, 256)
	for b := range out {
		out[b] = string([]byte{byte(b)})
	}
	return append(out, "", "<tool_call>", "</tool_call>", "<|tool_call>", "<tool_call|>", gemmaQuote, "[TOOL_CALLS]", "[ARGS]")
}()

// draw is a random answer that the grammar allows, short ones being likely; "" when it did not end.
func draw(t *testing.T, g *grammar.Grammar, r *rand.Rand) (string, bool) {
	t.Helper()
	s, text := g.Start(), ""
	for n := 0; n < 2000; n++ {
		if s.MayEnd() && (s.MustEnd() || r.IntN(3) == 0) {
			return text, true
		}
		mask := s.Mask()
		var allowed []int32
		for id := range bytesText {
			if mask[id/32]>>(id%32)&1 != 0 && id != 256 {
				allowed = append(allowed, int32(id))
			}
		}
		if len(allowed) == 0 {
			t.Fatalf("nothing is allowed after %q", text)
		}
		id := allowed[r.IntN(len(allowed))]
		near := n > 60 && r.IntN(4) > 0
		if b, ok := s.Shortest(); ok && near {
			id = int32(b)
		} else if control, ok := s.ShortestControl(); ok && near {
			id = control
		} else if id > 256 && r.IntN(3) == 0 {
			id = allowed[r.IntN(len(allowed))]
		} else if id < 32 || id > 126 { // mostly what can be read
			id = allowed[r.IntN(len(allowed))]
		}
		next, ok := s.Advance(id)
		if !ok {
			t.Fatalf("token %d is in the mask after %q and not accepted", id, text)
		}
		s, text = next, text+bytesText[id]
	}
	return text, false
}

// TestExpr: what the grammar of a format allows is read as calls of the tools, with arguments that their schemas allow.
func TestExpr(t *testing.T) {
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(weather))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("mem:weather", schema); err != nil {
		t.Fatal(err)
	}
	valid, err := c.Compile("mem:weather")
	if err != nil {
		t.Fatal(err)
	}
	offered := []Tool{{"weather", jsontext.Value(weather)}, {"now", nil}}
	for _, format := range Formats() {
		for _, several := range []bool{false, true} {
			for _, required := range []bool{false, true} {
				e, err := Expr(format, Rule{Tools: offered, Required: required, Several: several})
				if err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				g, err := grammar.Compile(t.Context(), e, bytesVocabulary)
				if err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				ended, called := 0, 0
				for seed := range uint64(25) {
					text, ok := draw(t, g, rand.New(rand.NewPCG(seed, 3)))
					if !ok {
						continue
					}
					ended++
					p := New(format, offered)
					var names, args []string
					content := ""
					for _, piece := range append(p.Push(text), p.Finish(false)...) {
						switch piece.Kind {
						case Begin:
							names, args = append(names, piece.Name), append(args, "")
						case Arguments:
							args[len(args)-1] += piece.Text
						case Content:
							content += piece.Text
						}
					}
					called += len(names)
					if required && (len(names) == 0 || strings.TrimSpace(content) != "") || !several && len(names) > 1 {
						t.Errorf("%s, required %v, several %v: %q is read as %q and %q", format, required, several, text, names, content)
					}
					for i, a := range args {
						v, err := jsonschema.UnmarshalJSON(strings.NewReader(a))
						if err != nil {
							t.Errorf("%s: %q: arguments %q: %v", format, text, a, err)
							continue
						}
						if names[i] != "weather" {
							if json.Unmarshal([]byte(a), &map[string]any{}) != nil {
								t.Errorf("%s: arguments %q", format, a)
							}
							continue
						}
						if err := valid.Validate(v); err != nil {
							t.Errorf("%s: %q: arguments %q: %v", format, text, a, err)
						}
					}
				}
				if ended < 10 || required && called < 10 {
					t.Errorf("%s, required %v, several %v: %d of 25 answers ended, with %d calls", format, required, several, ended, called)
				}
			}
		}
	}
}

// TestExprErrors: what a format cannot hold of a schema is refused by name.
func TestExprErrors(t *testing.T) {
	refused := func(format, schema, want string) {
		t.Helper()
		_, err := Expr(format, Rule{Tools: []Tool{{"f", jsontext.Value(schema)}}, Required: true})
		if err == nil || !strings.HasPrefix(err.Error(), "tool f: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s: %v, want an error of %q", format, schema, err, want)
		}
	}
	for _, format := range Formats() {
		refused(format, `{"type":"object","properties":{"a":{"type":"strin"}}}`, "#/properties/a/type")
		refused(format, `{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"type":"string","pattern":"a(?=b)"}}}`, "#/$defs/b/pattern")
		refused(format, `{"type":"object","properties":{"a":{"type":"string","unknown":1}}}`, "#/properties/a/unknown")
		refused(format, `{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}}`, "#/$defs/b")
	}
	refused("gemma4", `{"type":"object","properties":{"a":{"enum":["<|\"|>"]}}}`, "cannot be written")
	refused("qwen3_xml", `{"type":"object","properties":{"a":{"type":"string","enum":["a</parameter>"]}}}`, "cannot be written")
	refused("qwen3_xml", `{"type":"object","properties":{"a>b":{"type":"string"}}}`, `"a>b"`)
	refused("qwen3_xml", `{"type":"object","anyOf":[{"required":["a"]}]}`, "#/anyOf")
	refused("qwen3_xml", `{"type":"object","minProperties":1}`, "#/minProperties")
	if _, err := Expr("x", Rule{}); err == nil {
		t.Error("an unknown format")
	}
}

// TestXMLValues: what the grammar writes as text is read as text, and nothing else is.
func TestXMLValues(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"type":"string"}`, "5", `"5"`}, {`{"type":"string"}`, "null", `"null"`}, {`{"type":["string","null"]}`, "null", "null"}, {`{"type":["string","integer"]}`, "5", `"5"`},
		{`{}`, "[1]", `"[1]"`}, {`{"type":["integer","null"]}`, "null", "null"}, {`{"type":["integer","null"]}`, "7", "7"}, {`{"$ref":"#/$defs/n"}`, "3", "3"}, {`{"$ref":"#/$defs/s"}`, "a", `"a"`},
		{`{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}`, "3", "3"}, {`{"allOf":[{"$ref":"#/$defs/n"}]}`, "3", "3"}, {`{"items":{"$ref":"#/$defs/n"}}`, "[1, 2]", "[1, 2]"},
		{`{"type":"string","minLength":2}`, " a\n", `" a\n"`}, {`{"enum":["a",5]}`, "a", `"a"`}, {`{"enum":[5,6]}`, "5", "5"}, {`{"const":{"a":"x"}}`, `{"a":"x"}`, `{"a":"x"}`},
		{`{"type":"boolean"}`, "true", "true"}, {`{"type":"object","properties":{"k":{"$ref":"#/properties/p"}}}`, `{"k": {}}`, `{"k": {}}`},
	} {
		schema := jsontext.Value(`{"type":"object","properties":{"p":` + c.schema + `},"required":["p"],"$defs":{"n":{"type":"integer","maximum":9},"s":{"enum":["a","b"]}}}`)
		offered := []Tool{{"f", schema}}
		e, err := Expr("qwen3_xml", Rule{Tools: offered, Required: true})
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		g, err := grammar.Compile(t.Context(), e, bytesVocabulary)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		text := "<tool_call>\n<function=f>\n<parameter=p>\n" + c.value + "\n</parameter>\n</function>\n</tool_call>"
		s, ok := g.Start().AdvanceBytes([]byte(text))
		if !ok || !s.MayEnd() {
			t.Errorf("%s: %q is not allowed", c.schema, c.value)
		}
		p := New("qwen3_xml", offered)
		if got := answer(append(p.Push(text), p.Finish(false)...)); got != "\n> f {\"p\": "+c.want+"}" {
			t.Errorf("%s: %q is read as %q", c.schema, c.value, got)
		}
	}
}

// TestNoArguments: a tool that has none is called with none; one that may have any, with any.
func TestNoArguments(t *testing.T) {
	for format, text := range map[string][2]string{
		"hermes":    {"<tool_call>\n{\"name\": \"f\", \"arguments\": ", "}\n</tool_call>"},
		"gemma4":    {"<|tool_call>call:f", "<tool_call|>"},
		"qwen3_xml": {"<tool_call>\n<function=f>\n", "</function>\n</tool_call>"},
	} {
		none, some := "{}", `{"a": {"b": [1]}}`
		switch format {
		case "gemma4":
			some = `{a:{b:[1]}}`
		case "qwen3_xml":
			none, some = "", "<parameter=a>\nx\n</parameter>\n"
		}
		for _, c := range []struct {
			schema string
			any    bool
		}{{`{"type":"object","properties":{}}`, false}, {`{"type":"object"}`, true}, {``, true}, {`{"additionalProperties":false}`, false}} {
			tool := Tool{Name: "f"}
			if c.schema != "" {
				tool.Parameters = jsontext.Value(c.schema)
			}
			e, err := Expr(format, Rule{Tools: []Tool{tool}, Required: true})
			if err != nil {
				t.Fatal(err)
			}
			g, err := grammar.Compile(t.Context(), e, bytesVocabulary)
			if err != nil {
				t.Fatal(err)
			}
			for arguments, want := range map[string]bool{none: true, some: c.any} {
				s, ok := g.Start().AdvanceBytes([]byte(text[0] + arguments + text[1]))
				if got := ok && s.MayEnd(); got != want {
					t.Errorf("%s: %s allows %q: %v", format, c.schema, arguments, got)
				}
			}
		}
	}
}

// FuzzExpr: any schema is compiled or refused.
func FuzzExpr(f *testing.F) {
	for _, s := range []string{weather, `{}`, `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}}}`, `{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#/properties/a"}},"required":["a","z"]}`,
		`{"type":["object","null"],"additionalProperties":{"type":["string","null"],"maxLength":2}}`, `{"properties":{"a b":{"enum":["<|\"|>"]},"":true,"c>":false}}`, `{"patternProperties":{"^a":{}},"propertyNames":{"pattern":"a"}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if !jsontext.Value(schema).IsValid() {
			return
		}
		Types(jsontext.Value(schema), jsontext.Value(schema))
		for _, format := range Formats() {
			e, err := Expr(format, Rule{Tools: []Tool{{"f", jsontext.Value(schema)}}, Required: true})
			if err == nil {
				e.Key()
			}
			p := New(format, []Tool{{"f", jsontext.Value(schema)}})
			p.Push("<tool_call><function=f><parameter=a>1</parameter></function></tool_call>")
		}
	})
}

// TestTypesEnd: references that lead in circles, and ever more of them, are followed so far.
func TestTypesEnd(t *testing.T) {
	var all []string
	for range 40 {
		all = append(all, `{"$ref":"#/$defs/a"}`)
	}
	schema := jsontext.Value(`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[` + strings.Join(all, ",") + `,{"type":"string"}]}}}`)
	if got := Types(schema, schema); len(got) > 1 {
		t.Errorf("%q", got)
	}
	// each property refers to definitions, which come with each: that many are refused
	var props, defs []string
	for i := range 3000 {
		props = append(props, fmt.Sprintf(`"p%d":{"$ref":"#/$defs/d%d"}`, i, i))
		defs = append(defs, fmt.Sprintf(`"d%d":{"type":"integer","description":"%040d"}`, i, i))
	}
	_, err := Expr("qwen3_xml", Rule{Tools: []Tool{{"f", jsontext.Value(`{"properties":{` + strings.Join(props, ",") + `},"$defs":{` + strings.Join(defs, ",") + `}}`)}}, Required: true})
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("%v", err)
	}
}
