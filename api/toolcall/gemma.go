package toolcall

import (
	"encoding/json/jsontext"
	"strings"
)

const (
	gemmaEnd   = "<tool_call|>"
	gemmaQuote = `<|"|>`
)

// gemmaCall turns {key:<|"|>text<|"|>,n:1,list:[...]} into JSON as it comes. Keys and numbers stand bare.
type gemmaCall struct {
	open   []byte // brackets
	key    bool   // a key is next
	comma  bool   // one is due before the next thing
	empty  bool   // a key has no value yet
	round  bool   // the arguments stand in parentheses, with = behind their names
	quoted bool   // inside a string
	ascii  byte   // the ordinary quote that it began with; 0: it is Gemma's own
	slash  bool
	word   string // what stands bare
}

func gemma(*Parser, string) state {
	return func(p *Parser) bool {
		p.space()
		i := strings.IndexAny(p.buf, "{(")
		if i < 0 && !p.final && len(p.buf) <= nameLimit {
			return false
		}
		head := p.buf
		if i >= 0 {
			head = p.buf[:i]
		}
		name, ok := strings.CutPrefix(head, "call:")
		if name = strings.Trim(name, layout); i < 0 || !ok || name == "" || len(name) > nameLimit || strings.ContainsAny(name, layout+"<>") {
			p.reject(content)
			return true
		}
		round := p.take(i + 1)[i] == '('
		p.begin(name)
		p.give(Arguments, "{")
		p.state = (&gemmaCall{open: []byte{'{'}, key: true, round: round}).step
		return true
	}
}

func (g *gemmaCall) step(p *Parser) bool {
	for len(g.open) > 0 && p.buf != "" {
		if g.quoted {
			if !g.text(p) {
				break
			}
			continue
		}
		mark, known := p.follows(gemmaQuote)
		if !known {
			return false
		}
		if end, sure := p.follows(gemmaEnd); !sure {
			return false
		} else if end { // brackets were left open
			g.flush(p)
			g.close(p)
			break
		}
		if p.buf == "" { // it was a piece of markup
			break
		}
		if mark && g.word == "" {
			p.take(len(gemmaQuote))
			g.before(p)
			g.quoted, g.ascii = true, 0
			p.give(Arguments, `"`)
			continue
		}
		g.byte(p, p.take(1)[0])
	}
	if len(g.open) == 0 {
		p.state = gemmaNext
		return true
	}
	if p.final {
		p.state = content
	}
	return p.final
}

// text takes what there is of a string, false when more is needed.
func (g *gemmaCall) text(p *Parser) bool {
	if g.ascii != 0 {
		c := p.take(1)[0]
		slash := g.slash
		g.slash = false
		switch {
		case c == '\\' && !slash:
			g.slash = true
			return true
		case c == g.ascii && !slash:
			g.quoted = false
			c = '"'
		case c == '\'' && slash:
		case slash && strings.IndexByte(`"\/bfnrtu`, c) >= 0:
			p.give(Arguments, `\`)
		case slash:
			p.give(Arguments, `\\`)
		}
		if g.quoted && (c < ' ' || c == '"' && !slash) {
			p.give(Arguments, escape(c))
			return true
		}
		p.give(Arguments, string([]byte{c}))
		if !g.quoted {
			g.after()
		}
		return true
	}
	i := strings.Index(p.buf, gemmaQuote)
	n := i
	if i < 0 {
		n = len(p.buf)
		if !p.final || p.cut {
			n -= begun(p.buf, gemmaQuote)
		}
	}
	for _, c := range []byte(p.take(n)) {
		if c < ' ' || c == '"' || c == '\\' {
			p.give(Arguments, escape(c))
		} else {
			p.give(Arguments, string([]byte{c}))
		}
	}
	if i < 0 {
		if p.final {
			p.buf = ""
		}
		return p.final
	}
	p.take(len(gemmaQuote))
	p.give(Arguments, `"`)
	g.quoted = false
	g.after()
	return true
}

// byte takes one outside strings.
func (g *gemmaCall) byte(p *Parser, c byte) {
	if g.round && len(g.open) == 1 {
		switch {
		case c == ')':
			c = '}'
		case c == '=' && g.key:
			c = ':'
		}
	}
	switch {
	case c == ':' && g.key:
		if g.word = strings.Trim(g.word, layout); g.word != "" {
			g.before(p)
			p.give(Arguments, quote(g.word))
			g.word = ""
		}
		p.give(Arguments, ": ")
		g.key, g.empty = false, true
	case c == ',':
		g.flush(p)
		g.comma, g.key = true, g.open[len(g.open)-1] == '{'
	case (c == '{' || c == '[') && strings.Trim(g.word, layout) == "":
		g.before(p)
		g.word = ""
		p.give(Arguments, string([]byte{c}))
		g.open, g.key, g.empty = append(g.open, c), c == '{', false
	case c == '}' || c == ']':
		g.flush(p)
		if last := len(g.open) - 1; g.open[last] == c-2 {
			p.give(Arguments, string([]byte{c}))
			g.open = g.open[:last]
		} else { // the other one is missing
			p.give(Arguments, string([]byte{g.open[last] + 2}))
			g.open = g.open[:last]
			if last > 0 {
				g.byte(p, c)
				return
			}
		}
		g.after()
	case (c == '"' || c == '\'') && strings.Trim(g.word, layout) == "":
		g.before(p)
		g.word, g.quoted, g.ascii, g.slash = "", true, c, false
		p.give(Arguments, `"`)
	default:
		g.word += string([]byte{c})
	}
}

// before writes the comma that is due.
func (g *gemmaCall) before(p *Parser) {
	if g.comma {
		p.give(Arguments, ", ")
		g.comma = false
	}
}

// after notes that a value, or a key in quotes, has ended.
func (g *gemmaCall) after() { g.empty = g.empty && g.key }

// flush writes a value that stands bare: a number, a word of JSON's or Python's, else it is text.
func (g *gemmaCall) flush(p *Parser) {
	word := strings.Trim(g.word, layout)
	g.word = ""
	switch {
	case word == "" && !g.empty:
		return
	case word == "" || word == "None":
		word = "null"
	case word == "True" || word == "False":
		word = strings.ToLower(word)
	case !jsontext.Value(word).IsValid():
		word = quote(word)
	}
	if g.key { // a key without a value
		g.before(p)
		p.give(Arguments, quote(strings.Trim(word, `"`))+": null")
		return
	}
	g.before(p)
	p.give(Arguments, word)
	g.empty = false
}

// close writes the brackets that were left open.
func (g *gemmaCall) close(p *Parser) {
	for i := len(g.open) - 1; i >= 0; i-- {
		p.give(Arguments, string([]byte{g.open[i] + 2}))
	}
	g.open = nil
}

func gemmaNext(p *Parser) bool {
	p.space()
	if p.buf == "" && !p.final {
		return false
	}
	again, known := p.follows("call:")
	if !known {
		return false
	}
	p.raw.Reset()
	if p.state = tail; again { // without a tag of its own
		p.state = gemma(p, "")
	}
	return true
}
