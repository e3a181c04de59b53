package calls

import (
	"encoding/json/jsontext"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/openinfer-go/openinfer/api/toolcall"
	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// vocabulary is a real one, with the tokens of a format that stand-ins lack, and one that ends an answer.
type vocabulary struct {
	*grammar.Vocabulary
	text []string
	byte map[byte]int32 // tokens of one byte
	end  int32
	// short are tokens of few bytes, which a walk at random draws from as well: those of a grammar are seldom drawn otherwise.
	short []int32
}

func readVocabulary(t *testing.T, name string, marks ...string) *vocabulary {
	t.Helper()
	raw, err := os.ReadFile(testdata.Cache(t, "tokenizers", name, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	v := &vocabulary{byte: map[byte]int32{}}
	var tokens []grammar.Token
	add := func(b []byte, control bool) {
		id := int32(len(tokens))
		tokens = append(tokens, grammar.Token{Bytes: b, Control: control})
		v.text = append(v.text, string(b))
		if len(b) == 1 && !control {
			if _, have := v.byte[b[0]]; !have {
				v.byte[b[0]] = id
			}
		}
		if len(b) < 3 || control {
			v.short = append(v.short, id)
		}
	}
	for i := range tok.Size() {
		id := int32(i)
		text := string(tok.TokenBytes(id))
		add([]byte(text), tok.IsSpecial(id) || slices.Contains(marks, text))
		marks = slices.DeleteFunc(slices.Clone(marks), func(m string) bool { return m == text })
	}
	for _, m := range marks {
		add([]byte(m), true)
	}
	v.end = int32(len(tokens))
	add([]byte("<end>"), true)
	v.Vocabulary = grammar.NewVocabulary(tokens, []int32{v.end})
	return v
}

// answer is what random logits make of a grammar behind a text. The longer it is the more often it takes the shortest way to its end.
func (v *vocabulary) answer(t *testing.T, g *grammar.Grammar, text string, r *rand.Rand) string {
	t.Helper()
	s, ok := g.Start().AdvanceBytes([]byte(text))
	if !ok {
		t.Fatalf("%q is not allowed", text)
	}
	for n := 0; ; n++ {
		mask := s.Mask()
		if s.MayEnd() && (s.MustEnd() || r.IntN(3) == 0) {
			return text
		}
		if n == 4000 {
			t.Fatalf("no end after %q", text)
		}
		id := int32(-1)
		control, byControl := s.ShortestControl()
		b, byByte := s.Shortest()
		switch way := r.IntN(10 + n/4); {
		case byControl && way > 4:
			id = control
		case byByte && way > 4:
			var ok bool
			if id, ok = v.byte[b]; !ok {
				t.Fatalf("no token of the byte %q", b)
			}
		case way == 4:
			id = v.highest(mask, v.short, r)
		default:
			id = v.highest(mask, nil, r)
		}
		if id < 0 {
			id = v.highest(mask, nil, r)
		}
		next, ok := s.Advance(id)
		if !ok {
			t.Fatalf("token %d %q is not accepted after %q", id, v.text[id], text)
		}
		s, text = next, text+v.text[id]
	}
}

// highest is the token with the highest of random logits of those in the mask, of some or of all; -1: there is none. The end is not
// drawn.
func (v *vocabulary) highest(mask []uint32, some []int32, r *rand.Rand) int32 {
	seen, best := 0, int32(-1)
	take := func(id int32) {
		if seen++; id != v.end && r.IntN(seen) == 0 {
			best = id
		}
	}
	if some != nil {
		for _, id := range some {
			if mask[id/32]>>(id%32)&1 != 0 && id != v.end {
				take(id)
			}
		}
		return best
	}
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			if id := int32(i*32 + bits.TrailingZeros32(w)); id != v.end {
				take(id)
			}
		}
	}
	return best
}

// compiled is an independent validator of a schema.
func compiled(t *testing.T, schema string) *jsonschema.Schema {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("mem:schema", v); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// vocabularies are a tokenizer for each format and the tokens that stand around calls in it.
var vocabularies = map[string][]string{
	"hermes":         {"qwen3", "<tool_call>", "</tool_call>"},
	"qwen3_xml":      {"qwen3", "<tool_call>", "</tool_call>"},
	"llama3_json":    {"llama3_2", "<|python_tag|>"},
	"phi4_mini_json": {"gpt4o", "<|tool_call|>", "<|/tool_call|>"},
	"gemma4":         {"gemma3", "<|tool_call>", "<tool_call|>", `<|"|>`},
	"mistral":        {"deepseek_v3", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
}

// TestConstrainedCalls: 20 answers for each format and schema are calls of the tool, with arguments that its schema allows.
func TestConstrainedCalls(t *testing.T) {
	for format, from := range vocabularies {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			v := readVocabulary(t, from[0], from[1:]...)
			for what, schema := range schemas {
				tool := toolcall.Tool{Name: "the_tool", Parameters: jsontext.Value(schema)}
				rule := toolcall.Rule{Tools: []toolcall.Tool{{Name: "other", Parameters: jsontext.Value(`{"type":"object","properties":{}}`)}, tool}, Required: true, Several: true}
				e, err := toolcall.Expr(format, rule)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				g, err := grammar.Compile(t.Context(), e, v.Vocabulary)
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				valid := map[string]*jsonschema.Schema{tool.Name: compiled(t, schema), "other": compiled(t, `{"type":"object","additionalProperties":false}`)}
				calls := 0
				for seed := uint64(0); calls < 20; seed++ {
					text := v.answer(t, g, "", rand.New(rand.NewPCG(seed, 7)))
					names, arguments, content := read(toolcall.New(format, rule.Tools), text)
					if len(names) == 0 || strings.TrimSpace(content) != "" {
						t.Fatalf("%s: %q is read as %q beside %q", what, text, names, content)
					}
					for i, name := range names {
						against := valid[name]
						if against == nil {
							t.Fatalf("%s: %q calls %q", what, text, name)
						}
						value, err := jsonschema.UnmarshalJSON(strings.NewReader(arguments[i]))
						if err == nil {
							err = against.Validate(value)
						}
						if err != nil {
							t.Fatalf("%s: %q\nis a call of %s with %s: %v", what, text, name, arguments[i], err)
						}
						if name == tool.Name {
							calls++
						}
					}
				}
			}
		})
	}
}

// TestStrictCallsInText: where calls may be made and text may stand before them, calls are held to the schemas of the tools that are
// strict; the others may have any arguments.
func TestStrictCallsInText(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":3},"s":{"type":"string","pattern":"^[ab]{1,3}$"}},"required":["n","s"],"additionalProperties":false}`
	opener := map[string]string{"hermes": "<tool_call>", "qwen3_xml": "<tool_call>", "phi4_mini_json": "functools[", "gemma4": "<|tool_call>", "mistral": "[TOOL_CALLS]"}
	for format, begin := range opener {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			v := readVocabulary(t, vocabularies[format][0], vocabularies[format][1:]...)
			offered := []toolcall.Tool{{Name: "strict", Parameters: jsontext.Value(schema)}, {Name: "free"}}
			e, err := toolcall.Expr(format, toolcall.Rule{Tools: offered, Several: true})
			if err != nil {
				t.Fatal(err)
			}
			g, err := grammar.Compile(t.Context(), e, v.Vocabulary)
			if err != nil {
				t.Fatal(err)
			}
			valid, seen := compiled(t, schema), map[string]int{}
			for seed := range uint64(40) {
				text := v.answer(t, g, "Hm. "+begin, rand.New(rand.NewPCG(seed, 8)))
				names, arguments, content := read(toolcall.New(format, offered).Held(), text)
				if content != "Hm." || len(names) == 0 {
					t.Fatalf("%q is read as %q beside %q", text, names, content)
				}
				for i, name := range names {
					seen[name]++
					value, err := jsonschema.UnmarshalJSON(strings.NewReader(arguments[i]))
					if err == nil && name == "strict" {
						err = valid.Validate(value)
					}
					if err != nil {
						t.Fatalf("%q is a call of %s with %s: %v", text, name, arguments[i], err)
					}
				}
			}
			if seen["strict"] < 10 || seen["free"] < 5 || len(seen) != 2 {
				t.Errorf("calls by name: %v", seen)
			}
		})
	}
}

// read parses an answer.
func read(p *toolcall.Parser, text string) (names, arguments []string, content string) {
	for _, piece := range append(p.Push(text), p.Finish(false)...) {
		switch piece.Kind {
		case toolcall.Begin:
			names, arguments = append(names, piece.Name), append(arguments, "")
		case toolcall.Arguments:
			arguments[len(arguments)-1] += piece.Text
		case toolcall.Content:
			content += piece.Text
		}
	}
	return names, arguments, content
}
