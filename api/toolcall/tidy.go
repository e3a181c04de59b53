package toolcall

import (
	"encoding/json/jsontext"
	"strings"
)

// tidy passes the JSON of a model's arguments on byte for byte, but for what JSON does not have and models write all the same: line
// breaks and unknown escapes in strings, a comma before a closing bracket, and Python's names of constants.
type tidy struct {
	quoted bool
	held   string // the beginning of an escape, of a word, or a comma and what white space follows it
}

// feed takes a byte and returns what is known now.
func (t *tidy) feed(c byte) string {
	if t.quoted {
		return t.inString(c)
	}
	isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	comma := strings.HasPrefix(t.held, ",")
	switch {
	case isLetter && !comma, comma && strings.IndexByte(layout, c) >= 0:
		t.held += string([]byte{c})
		return ""
	case comma && (c == '}' || c == ']'):
		t.held = ""
		return string([]byte{c})
	}
	out := t.finish()
	if isLetter || c == ',' {
		t.held = string([]byte{c})
		return out
	}
	t.quoted = c == '"'
	return out + string([]byte{c})
}

// inString is feed within a string.
func (t *tidy) inString(c byte) string {
	out := ""
	switch {
	case t.held == `\`:
		t.held = ""
		if strings.IndexByte(`"\/bfnrt`, c) >= 0 {
			return `\` + string([]byte{c})
		}
		if c == 'u' {
			t.held = `\u`
			return ""
		}
		out = `\\`
	case t.held != "":
		if strings.IndexByte("0123456789abcdef", c|0x20) >= 0 {
			if t.held += string([]byte{c}); len(t.held) < len(`\u0000`) {
				return ""
			}
			return t.finish()
		}
		out = `\` + t.finish()
	}
	switch {
	case c == '\\':
		t.held = `\`
		return out
	case c < ' ':
		return out + escape(c)
	}
	t.quoted = c != '"'
	return out + string([]byte{c})
}

// finish returns what is held.
func (t *tidy) finish() string {
	out := t.held
	t.held = ""
	if word, ok := pythonWords[out]; ok {
		return word
	}
	return out
}

var pythonWords = map[string]string{"None": "null", "True": "true", "False": "false"}

// fromPython is a list or a dict, as Python prints it, in JSON; false if text is none.
func fromPython(text string) (string, bool) {
	r := &pythonReader{text: text}
	var out strings.Builder
	ok := r.value(&out, 0)
	r.space()
	return out.String(), ok && r.text == ""
}

type pythonReader struct{ text string }

func (r *pythonReader) space() { r.text = strings.TrimLeft(r.text, layout) }

func (r *pythonReader) take(s string) bool {
	rest, ok := strings.CutPrefix(r.text, s)
	if ok {
		r.text = rest
	}
	return ok
}

// maxPythonDepth bounds the nesting of lists and dicts.
const maxPythonDepth = 64

func (r *pythonReader) value(out *strings.Builder, deep int) bool {
	if r.space(); r.text == "" || deep > maxPythonDepth {
		return false
	}
	switch r.text[0] {
	case '\'', '"':
		s, ok := r.string()
		out.WriteString(quote(s))
		return ok
	case '[', '(':
		end := map[bool]string{true: "]", false: ")"}[r.text[0] == '[']
		return r.items(out, "[", end, "]", func() bool { return r.value(out, deep+1) })
	case '{':
		return r.items(out, "{", "}", "}", func() bool {
			if r.space(); r.text == "" || r.text[0] != '\'' && r.text[0] != '"' {
				return false
			}
			key, ok := r.string()
			out.WriteString(quote(key) + ": ")
			r.space()
			return ok && r.take(":") && r.value(out, deep+1)
		})
	}
	n := strings.IndexAny(r.text, ",)]}:"+layout)
	if n < 0 {
		n = len(r.text)
	}
	word := r.text[:n]
	r.text = r.text[n:]
	if w, ok := pythonWords[word]; ok {
		word = w
	}
	out.WriteString(word)
	return jsontext.Value(word).IsValid()
}

func (r *pythonReader) items(out *strings.Builder, open, end, closing string, item func() bool) bool {
	r.text = r.text[1:]
	out.WriteString(open)
	for n := 0; ; n++ {
		if r.space(); r.take(end) {
			out.WriteString(closing)
			return true
		}
		if n > 0 {
			if !r.take(",") {
				return false
			}
			if r.space(); r.take(end) {
				out.WriteString(closing)
				return true
			}
			out.WriteString(", ")
		}
		if !item() {
			return false
		}
	}
}

// string reads a string in either quotes.
func (r *pythonReader) string() (string, bool) {
	q := r.text[0]
	var out strings.Builder
	for i := 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == q:
			r.text = r.text[i+1:]
			return out.String(), true
		case c == '\\' && i+1 < len(r.text):
			i++
			if at := strings.IndexByte("nrt", r.text[i]); at >= 0 {
				out.WriteByte("\n\r\t"[at])
			} else if strings.IndexByte(`\'"`, r.text[i]) >= 0 {
				out.WriteByte(r.text[i])
			} else {
				out.WriteString(r.text[i-1 : i+1])
			}
		default:
			out.WriteByte(c)
		}
	}
	return "", false
}
