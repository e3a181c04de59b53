package load

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"strconv"
)

// event is what matters of one JSON object of a stream. It is read in one pass that keeps nothing else: two thousand
// streams leave a few microseconds a token.
type event struct {
	choices bool   // there is a choice
	output  bool   // it has text, reasoning or a call
	finish  string // finish_reason
	text    []byte // of the content, appended if keep

	usage                      bool
	prompt, completion, cached int

	err []byte // the value of "error", as it stands; nil if there is none

	keep bool
}

var errNotJSON = errors.New("an event of the stream is not a JSON object")

// parse reads data into e, whose keep and text stay. It takes any JSON and some that is none.
func (e *event) parse(data []byte) error {
	*e = event{keep: e.keep, text: e.text}
	p := parser{b: data}
	ok := p.object(func(key []byte) bool {
		switch string(key) {
		case "choices":
			return p.array(func() bool { return e.choice(&p) })
		case "usage":
			return e.readUsage(&p)
		case "error":
			from := p.i
			if !p.skip() {
				return false
			}
			if raw := p.b[from:p.i]; string(raw) != "null" {
				e.err = raw
			}
			return true
		}
		return p.skip()
	})
	if p.space(); !ok || p.i != len(data) {
		return errNotJSON
	}
	return nil
}

func (e *event) choice(p *parser) bool {
	e.choices = true
	return p.object(func(key []byte) bool {
		switch string(key) {
		case "text":
			return e.string(p, true)
		case "delta", "message":
			return p.object(func(key []byte) bool {
				switch string(key) {
				case "content":
					return e.string(p, true)
				case "reasoning_content", "reasoning":
					return e.string(p, false)
				case "tool_calls":
					from := p.i
					ok := p.skip()
					e.output = e.output || ok && p.b[from] == '[' && !bytes.Equal(p.b[from:p.i], []byte("[]"))
					return ok
				}
				return p.skip()
			})
		case "finish_reason":
			if p.peek() != '"' {
				return p.skip()
			}
			s, ok := p.string()
			e.finish = string(s)
			return ok
		}
		return p.skip()
	})
}

// string takes a text, or something else in its place.
func (e *event) string(p *parser, content bool) bool {
	if p.peek() != '"' {
		return p.skip()
	}
	from := p.i
	s, ok := p.string()
	if !ok || len(s) == 0 {
		return ok
	}
	e.output = true
	if content && e.keep {
		if bytes.IndexByte(s, '\\') < 0 {
			e.text = append(e.text, s...)
		} else {
			e.text, _ = jsontext.AppendUnquote(e.text, p.b[from:p.i])
		}
	}
	return true
}

func (e *event) readUsage(p *parser) bool {
	if p.peek() != '{' {
		return p.skip()
	}
	e.usage = true
	return p.object(func(key []byte) bool {
		switch string(key) {
		case "prompt_tokens":
			return p.int(&e.prompt)
		case "completion_tokens":
			return p.int(&e.completion)
		case "prompt_tokens_details":
			return p.object(func(key []byte) bool {
				if string(key) == "cached_tokens" {
					return p.int(&e.cached)
				}
				return p.skip()
			})
		}
		return p.skip()
	})
}

// parser walks over JSON. Its methods return false where they do not understand it.
type parser struct {
	b     []byte
	i     int
	depth int
}

const maxDepth = 100

func (p *parser) space() {
	for p.i < len(p.b) && (p.b[p.i] == ' ' || p.b[p.i] == '\n' || p.b[p.i] == '\t' || p.b[p.i] == '\r') {
		p.i++
	}
}

// peek is the next byte that is not space; 0 at the end.
func (p *parser) peek() byte {
	if p.space(); p.i == len(p.b) {
		return 0
	}
	return p.b[p.i]
}

func (p *parser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.i++
	return true
}

// object calls member behind each key; member reads the value. Something that is no object is skipped.
func (p *parser) object(member func(key []byte) bool) bool {
	if p.peek() != '{' {
		return p.skip()
	}
	if p.depth++; p.depth > maxDepth {
		return false
	}
	defer func() { p.depth-- }()
	p.i++
	if p.take('}') {
		return true
	}
	for {
		p.space()
		from := p.i
		key, ok := p.string()
		if !ok {
			return false
		}
		if bytes.IndexByte(key, '\\') >= 0 {
			key, _ = jsontext.AppendUnquote(nil, p.b[from:p.i])
		}
		if !p.take(':') {
			return false
		}
		p.space()
		if !member(key) {
			return false
		}
		if p.take('}') {
			return true
		}
		if !p.take(',') {
			return false
		}
	}
}

// array calls element at each element, which it reads. Something that is no array is skipped.
func (p *parser) array(element func() bool) bool {
	if p.peek() != '[' {
		return p.skip()
	}
	if p.depth++; p.depth > maxDepth {
		return false
	}
	defer func() { p.depth-- }()
	p.i++
	if p.take(']') {
		return true
	}
	for {
		p.space()
		if !element() {
			return false
		}
		if p.take(']') {
			return true
		}
		if !p.take(',') {
			return false
		}
	}
}

// string reads a string and returns what is between the quotes, escapes as they stand.
func (p *parser) string() ([]byte, bool) {
	if !p.take('"') {
		return nil, false
	}
	from := p.i
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case '"':
			p.i++
			return p.b[from : p.i-1], true
		case '\\':
			p.i++
		}
		p.i++
	}
	return nil, false
}

// skip passes over any value.
func (p *parser) skip() bool {
	switch p.peek() {
	case 0:
		return false
	case '"':
		_, ok := p.string()
		return ok
	case '{':
		return p.object(func([]byte) bool { return p.skip() })
	case '[':
		return p.array(p.skip)
	}
	from := p.i
	for p.i < len(p.b) && !isDelimiter(p.b[p.i]) {
		p.i++
	}
	return p.i > from
}

func isDelimiter(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ':' || c == '"' || c == '{' || c == '[' || c <= ' '
}

// int reads a number; null and others leave to as it is.
func (p *parser) int(to *int) bool {
	p.space()
	from := p.i
	if !p.skip() {
		return false
	}
	if n, err := strconv.Atoi(string(p.b[from:p.i])); err == nil {
		*to = n
	}
	return true
}
