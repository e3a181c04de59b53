package api

import (
	"encoding/json/jsontext"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/engine/grammar"
)

// Tools of type custom take text instead of a JSON object. No chat template knows them: a model is shown a function with one
// string, input, whose text is what the client gets, as it comes.

// readCustom reads the tool of a custom field.
func (t *tool) readCustom(f *object) {
	t.custom = true
	input := pairs{{"type", "string"}}
	describe := "the tool's input, as text"
	if format := f.object("format"); format != nil {
		switch kind := format.string("type"); kind {
		case "text":
		case "grammar":
			if g := format.object("grammar"); g != nil {
				definition := g.needed("definition")
				switch syntax := g.needed("syntax"); {
				case g.err != nil:
				case syntax == "regex":
					if _, err := grammar.Regex(definition); err != nil {
						g.fail("definition", "%s", strings.ToValidUTF8(shorten(err.Error(), 600), ""))
					}
					describe += " that matches this regular expression as a whole: " + definition
					input = append(input, pair{"pattern", "^(?:" + withoutAnchors(definition) + ")$"})
					t.held = g.path + "definition"
				case syntax == "lark":
					g.fail("syntax", "lark grammars are not supported, only regex")
				default:
					g.fail("syntax", "%q is not regex", shorten(syntax, 40))
				}
				format.inner(g)
			} else {
				format.fail("grammar", "is missing")
			}
		case "":
			format.fail("type", "is missing")
		default:
			format.fail("type", "%q is not one of text and grammar", shorten(kind, 40))
		}
		f.inner(format)
	}
	object := func(input pairs) jsontext.Value {
		return raw(pairs{{"type", "object"}, {"properties", pairs{{"input", input}}}, {"required", []string{"input"}}, {"additionalProperties", false}})
	}
	t.Parameters = object(input)
	shown := pairs{{"name", t.Name}}
	if v := f.fields["description"]; v != nil {
		shown = append(shown, pair{"description", v})
	}
	shown = append(shown, pair{"parameters", object(pairs{{"type", "string"}, {"description", describe}})})
	t.raw = raw(pairs{{"type", "function"}, {"function", shown}})
}

// withoutAnchors is a regular expression that has been read, in which anchors stand at ends only, without them.
func withoutAnchors(s string) string {
	var out strings.Builder
	class := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			out.WriteString(s[i : i+2])
			i++
			continue
		case class && c == ']', !class && c == '[':
			class = !class
		case !class && (c == '^' || c == '$'):
			continue
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// customCall is what a call of a custom tool is made into for a template.
func customCall(name, input string) pairs {
	return pairs{{"name", name}, {"arguments", string(raw(pairs{{"input", input}}))}}
}

// customInput reads the text out of a custom tool's arguments, {"input": "..."}, as they come. What is no such object is handed on as
// it is.
type customInput struct {
	head  string // up to where the text begins
	state inputState
	held  string // the beginning of an escape
}

type inputState uint8

const (
	beforeInput inputState = iota
	inInput
	behindInput
	noInput // arguments of another form
)

// inputHead are the tokens before the text; white space may stand between them.
var inputHead = []string{"{", `"input"`, ":", `"`}

// push takes more of the arguments and returns more of the text.
func (r *customInput) push(text string) string {
	if r.state == beforeInput {
		r.head += text
		rest, whole, ok := cutTokens(r.head, inputHead)
		switch {
		case !ok:
			r.state = noInput
			return r.head
		case !whole:
			return ""
		}
		r.state, text = inInput, rest
	}
	switch r.state {
	case inInput:
		return r.decode(text)
	case noInput:
		return text
	}
	return ""
}

// cutTokens cuts the tokens off text. whole is false when more is needed; ok when something else stands there.
func cutTokens(text string, tokens []string) (rest string, whole, ok bool) {
	for _, t := range tokens {
		text = strings.TrimLeft(text, " \t\r\n")
		n := min(len(text), len(t))
		if text[:n] != t[:n] {
			return "", false, t == inputHead[1] && strings.TrimRight(text, " \t\r\n") == "}"
		}
		if n < len(t) {
			return "", false, true
		}
		text = text[n:]
	}
	return text, true, true
}

// decode decodes the text of a JSON string up to its end.
func (r *customInput) decode(text string) string {
	text = r.held + text
	r.held = ""
	var out strings.Builder
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case '"':
			r.state = behindInput
			return out.String()
		case '\\':
			n, decoded := unescape(text[i:])
			if n == 0 {
				r.held = text[i:]
				return out.String()
			}
			out.WriteRune(decoded)
			i += n
		default:
			out.WriteByte(c)
			i++
		}
	}
	return out.String()
}

// unescape reads the escape that text begins with; n 0: it is not whole.
func unescape(text string) (n int, r rune) {
	if len(text) < 2 {
		return 0, 0
	}
	if i := strings.IndexByte(`bfnrt`, text[1]); i >= 0 {
		return 2, rune("\b\f\n\r\t"[i])
	}
	if text[1] != 'u' {
		return 2, rune(text[1])
	}
	hex := func(s string) (r rune, n int) { // as far as it is one
		for n < 4 && n < len(s) {
			d := strings.IndexByte("0123456789abcdef", s[n]|0x20)
			if d < 0 {
				break
			}
			r, n = r<<4|rune(d), n+1
		}
		return r, n
	}
	r, digits := hex(text[2:])
	switch {
	case digits < 4 && len(text) == 2+digits:
		return 0, 0
	case digits < 4:
		return 2 + digits, utf8.RuneError
	case !utf16.IsSurrogate(r):
		return 6, r
	}
	rest := text[6:]
	if rest == "" || rest == `\` {
		return 0, 0
	}
	if !strings.HasPrefix(rest, `\u`) {
		return 6, utf8.RuneError
	}
	low, digits := hex(rest[2:])
	if digits < 4 && len(rest) == 2+digits {
		return 0, 0
	}
	if both := utf16.DecodeRune(r, low); digits == 4 && both != utf8.RuneError {
		return 12, both
	}
	return 6, utf8.RuneError
}
