package toolcall

import (
	"encoding/json"
	"encoding/json/jsontext"
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
		if b, ok := s.Shortest(); ok && n > 60 && r.IntN(4) > 0 {
			id = int32(b)
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
						if names[i] != "weather" || format == "gemma4" { // whose grammar knows types only
							if json.Unmarshal([]byte(a), &map[string]any{}) != nil {
								t.Errorf("%s: arguments %q", format, a)
							}
							continue
						}
						if m, ok := v.(map[string]any); ok && format == "qwen3_xml" { // lengths of text are not looked at
							m["city"] = ""
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

func TestExprErrors(t *testing.T) {
	for _, format := range Formats() {
		_, err := Expr(format, Rule{Tools: []Tool{{"f", jsontext.Value(`{"type":"object","properties":{"a":{"type":"strin"}}}`)}}, Required: true})
		if format == "gemma4" {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "tool f") {
			t.Errorf("%s: %v", format, err)
		}
	}
	if _, err := Expr("x", Rule{}); err == nil {
		t.Error("an unknown format")
	}
}
