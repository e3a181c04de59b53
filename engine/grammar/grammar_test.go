package grammar

import (
	"context"
	"strings"
	"testing"
)

// byteVocabulary has every byte, some longer tokens, a control token and an end token, the last.
func byteVocabulary(more ...string) *Vocabulary {
	var tokens []Token
	for b := range 256 {
		tokens = append(tokens, Token{Bytes: []byte{byte(b)}})
	}
	for _, s := range more {
		tokens = append(tokens, Token{Bytes: []byte(s)})
	}
	tokens = append(tokens, Token{Bytes: []byte("<tool>"), Control: true}, Token{Bytes: []byte("</s>"), Control: true})
	return NewVocabulary(tokens, []int32{int32(len(tokens) - 1)})
}

func compiled(t testing.TB, e Expr, v *Vocabulary) *Grammar {
	t.Helper()
	g, err := Compile(context.Background(), e, v)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func accepts(g *Grammar, text string) bool {
	s, ok := g.Start().AdvanceBytes([]byte(text))
	return ok && s.MayEnd()
}

func must(t testing.TB) func(e Expr, err error) Expr {
	return func(e Expr, err error) Expr {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

func TestExpressions(t *testing.T) {
	v := byteVocabulary()
	ok := must(t)
	for _, c := range []struct {
		name     string
		e        Expr
		yes, not []string
	}{
		{"literal", Literal("ab"), []string{"ab"}, []string{"", "a", "abc"}},
		{"repeat", Repeat(Literal("ab"), 1, 2), []string{"ab", "abab"}, []string{"", "aba", "ababab"}},
		{"until", Seq(Until("</t>"), Literal("</t>")), []string{"</t>", "x</t>", "<</t>", "</</t>", "a</b></t>"}, []string{"", "</t></t>", "x</t>y"}},
		{"alt", Alt(Literal("a"), Seq(Literal("a"), Literal("b"))), []string{"a", "ab"}, []string{"b"}},
		{"regex", ok(Regex(`^(a|[^b-d\d])+\.x{2,3}?$`)), []string{"a.xx", "zé😀.xxx"}, []string{"b.xx", "1.xx", "a.x", "a.xxxx"}},
		{"regex classes", ok(Regex(`\w+\s\p{Lu}\u00e9\x41`)), []string{"ab1 ÄéA"}, []string{"ab1 äéA"}},
		{"ebnf", ok(EBNF("# sums\nroot ::= sum\nsum ::= term (\" + \" term)*\nterm ::= [0-9]+ |\n  \"(\" sum \")\"\n")), []string{"1 + (2 + 33)", "((4))"}, []string{"1 +", "(1", "1 + 2)"}},
		{"json", JSON(), []string{`{"a":[1,2.5e3,{"b":null}],"c":"\u00e9\n"}`, `[]`, "-0.5", "{\n  \"a\": 1\n}"}, []string{`{a:1}`, "01", "\"a\nb\"", "{\n\n}", "1  "}},
	} {
		g := compiled(t, c.e, v)
		for _, s := range c.yes {
			if !accepts(g, s) {
				t.Errorf("%s: %q is refused", c.name, s)
			}
		}
		for _, s := range c.not {
			if accepts(g, s) {
				t.Errorf("%s: %q is accepted", c.name, s)
			}
		}
	}
}

// A mask has exactly the tokens that Advance takes, wherever an answer stands.
func TestMaskIsWhatAdvances(t *testing.T) {
	v := byteVocabulary("{\"", "\":", "\": ", "\",", "\"}", "ab", "abc", "}}", "],", "]}", "1,", "12", ", ", "\n  ", "é", "true", "\"a\"", "\\u", "nul", "\"]}",
		"東", "東京", "\xe6", "\xe6\x9d", "\xb1京", "\x80", "é\xc3", "\xf0\x9f\x98", "😀😀😀", "ab\xc0", "\xed\xa0", "éa\"", "abcabcabcabc", "ab東\\", "\xe6\x9dx")
	ok := must(t)
	for _, e := range []Expr{
		JSON(), ok(Schema([]byte(`{"type":"object","properties":{"a":{"type":"string","maxLength":3},"b":{"$ref":"#"},"c":{"type":"array","items":{"type":"integer"}}}}`))),
		ok(Regex(`(abc|ab|é)*1?2`)), ok(Regex(`.{0,7}`)), ok(Regex(`[a-zé-東]+1`)), Until("東b"), Repeat(Expr{&node{op: opAny}}, 2, 5),
		ok(Schema([]byte(`{"type":"string","minLength":2,"maxLength":9}`))), Seq(Until("<tool>"), Literal("<tool>"), JSON(), Literal("</tool>")),
	} {
		g := compiled(t, e, v)
		seed := uint64(1)
		for range 30 {
			s := g.Start()
			for range 40 {
				mask := s.Mask()
				var can []int32
				for id := range int32(v.size) {
					_, takes := s.Advance(id)
					if said := mask[id/32]>>(id%32)&1 != 0; said != takes {
						t.Fatalf("token %d %q: the mask says %v, Advance %v", id, v.tokens[id], said, takes)
					}
					if text := v.tokens[id]; len(text) > 0 {
						if _, reads := s.AdvanceBytes(text); reads != takes {
							t.Fatalf("token %d %q: the mask says %v, its bytes %v", id, text, takes, reads)
						}
					}
					if takes {
						can = append(can, id)
					}
				}
				if len(can) == 0 {
					t.Fatal("an empty mask")
				}
				seed = mix(seed + 12345)
				s, _ = s.Advance(can[seed%uint64(len(can))])
			}
		}
	}
}

func TestControlTokensSpellLiteralsOnly(t *testing.T) {
	v := byteVocabulary()
	tool := int32(v.size - 2)
	if _, ok := compiled(t, Seq(Literal("x<tool>y")), v).Start().Advance(tool); ok {
		t.Error("a control token in the wrong place")
	}
	s, _ := compiled(t, Literal("x<tool>y"), v).Start().AdvanceBytes([]byte("x"))
	s, ok := s.Advance(tool)
	if !ok || string(s.Forced()) != "y" {
		t.Error("a literal is not spelt by its control token")
	}
	for _, e := range []Expr{Until("zzz"), JSON(), Choice([]string{"<tool>"})} {
		if _, ok := compiled(t, e, v).Start().Advance(tool); ok {
			t.Error("free text is spelt by a control token")
		}
	}
}

func TestRefusals(t *testing.T) {
	v := byteVocabulary()
	for _, c := range []struct{ kind, text, want string }{
		{"schema", `{"type":"strin"}`, "strin"}, {"schema", `{"type":"string","pattern":"^(open"}`, "#/pattern"},
		{"schema", `{"$ref":"#"}`, "without end"}, {"schema", `{"properties":{"a":{"not":{"uniqueItems":true}}}}`, "#/properties/a/not/uniqueItems"},
		{"schema", `{"type":"array","uniqueItems":true,"items":{"type":"string"}}`, "#/uniqueItems"}, {"schema", `{"type":"string","format":"nonsense"}`, "nonsense"},
		{"schema", `{"$ref":"http://x/y"}`, "#/$ref"}, {"schema", `{"$ref":"#/$defs/no"}`, "not in this schema"}, {"schema", `{`, "JSON"},
		{"schema", `{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}},"additionalProperties":false}`, "nothing can"},
		{"schema", `false`, "nothing can"}, {"schema", `5`, "want a schema"}, {"schema", `{"oneOf":[{"format":"date"},{"type":"string"}]}`, "oneOf"},
		{"schema", `{"type":"string","minLength":1000000}`, "minLength"}, {"schema", strings.Repeat(`{"items":`, 2000) + `{}` + strings.Repeat(`}`, 2000), "deep"},
		{"schema", `{"pattern":"(a{1000}){1000}"}`, "large"}, {"schema", `{"pattern":"(.*a.{30})"}`, ""}, {"regex", `(?=a)`, "look-around"}, {"regex", `a**`, "quantifier"},
		{"regex", `(a|b`, ")"}, {"regex", `[b-a]`, "range"}, {"regex", `a{9,2}`, "{n,m}"}, {"regex", `\1`, `\1`}, {"regex", `(.*a.{25})`, "l"},
		{"ebnf", `root ::= root "a" | "b"`, "begins with itself"}, {"ebnf", `root ::= x`, "x"}, {"ebnf", `start: "a"`, "GBNF"}, {"ebnf", `root ::= "a`, "line 1"},
		{"ebnf", `a ::= "a"`, "root"}, {"regex", "((((a{50}){50}){50}){50})", "large"},
	} {
		var e Expr
		var err error
		switch c.kind {
		case "schema":
			e, err = Schema([]byte(c.text))
		case "regex":
			e, err = Regex(c.text)
		default:
			e, err = EBNF(c.text)
		}
		if err == nil {
			_, err = Compile(context.Background(), e, v)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %.80s: %v, want %q", c.kind, c.text, err, c.want)
		}
	}
}
