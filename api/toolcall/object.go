package toolcall

import (
	"encoding/json/jsontext"
	"slices"
	"strings"
)

// object reads {"name": ..., "arguments": {...}} byte by byte. It is a call as soon as both are there; "parameters" is another name of
// arguments, and other members are passed over. Arguments may also be the text of an object, or missing.
type object struct {
	closer string // what ends a call whose JSON is broken; "": the answer's end
	next   state  // behind the object
	named  bool   // without arguments it is a call only if the request has such a tool: the answer may just be JSON
	known  bool   // it is one only if the request has such a tool: it stands in text, which may have other objects

	phase  phase
	key    string
	value  value
	text   strings.Builder // of a key, a name, or arguments that are no object
	name   string
	args   strings.Builder // before the name
	tidy   tidy            // what the model wrote of them
	inner  bool            // within a member "function" that has the others
	open   bool            // arguments have begun, as an object
	whole  bool            // and ended
	other  string          // arguments that are no object
	called bool
}

type phase uint8

const (
	atObject phase = iota
	atKeyOrEnd
	inKey
	atColon
	atValue
	inValue
	atComma
	atKey
)

// step is the object's state.
func (o *object) step(p *Parser) bool {
	for i := 0; i < len(p.buf); i++ {
		switch o.feed(p, p.buf[i]) {
		case again:
			i--
		case bad:
			p.keep(o, i)
			return o.broken(p)
		case ended:
			p.keep(o, i+1)
			return o.done(p)
		}
	}
	p.keep(o, len(p.buf))
	if !p.final {
		return false
	}
	if o.called { // what is there is all there is
		p.state = content
		return true
	}
	p.reject(content)
	return true
}

// keep consumes n bytes, which belong to a call that may turn out not to be one.
func (p *Parser) keep(o *object, n int) {
	if s := p.take(n); !o.called {
		p.raw.WriteString(s)
	}
}

type fed uint8

const (
	more fed = iota
	again
	ended
	bad
)

func (o *object) feed(p *Parser, c byte) fed {
	space := strings.IndexByte(layout, c) >= 0
	switch o.phase {
	case inKey:
		o.text.WriteByte(c)
		if o.value.feed(c) == ended {
			if o.key = o.string(); o.key == "parameters" {
				o.key = "arguments"
			}
			if o.known && !slices.Contains(callKeys, o.key) {
				return bad
			}
			o.phase = atColon
		}
		return more
	case inValue:
		return o.inside(p, c)
	}
	if space {
		return more
	}
	switch {
	case o.phase == atObject && c == '{':
		o.phase = atKeyOrEnd
	case (o.phase == atKeyOrEnd || o.phase == atKey) && c == '"':
		o.value, o.phase = value{}, inKey
		o.value.feed(c)
		o.text.Reset()
		o.text.WriteByte(c)
	case (o.phase == atKeyOrEnd || o.phase == atComma) && c == '}' && o.inner:
		o.inner, o.phase = false, atComma
	case (o.phase == atKeyOrEnd || o.phase == atComma) && c == '}':
		return ended
	case o.phase == atColon && c == ':':
		o.phase = atValue
	case o.phase == atComma && c == ',':
		o.phase = atKey
	case o.phase == atValue && o.key == "function" && o.name == "" && c == '{':
		o.inner, o.phase = true, atKeyOrEnd
	case o.phase == atValue:
		if o.key == "function" && c == '"' {
			o.key = "name"
		}
		o.value, o.phase = value{}, inValue
		o.text.Reset()
		if o.key == "arguments" && c == '{' && !o.open {
			o.open = true
			o.call(p)
		}
		return o.inside(p, c)
	default:
		return bad
	}
	return more
}

// inside takes a byte of a member's value.
func (o *object) inside(p *Parser, c byte) fed {
	got := o.value.feed(c)
	if got == bad {
		return bad
	}
	if got != again {
		switch {
		case o.key == "arguments" && o.open && !o.whole && o.other == "":
			o.write(p, o.tidy.feed(c))
			o.whole = got == ended
		case o.key == "name", o.key == "arguments":
			o.text.WriteByte(c)
		}
	}
	if got == more {
		return more
	}
	switch o.phase = atComma; {
	case o.key == "name" && o.name == "":
		if o.name = o.string(); o.known && p.tool(o.name) == nil {
			return bad
		}
		o.call(p)
	case o.key == "arguments" && !o.open:
		if o.other = strings.TrimSpace(o.text.String()); strings.HasPrefix(o.other, `"`) {
			o.other = strings.TrimSpace(o.string())
		}
	}
	if got == again {
		return again
	}
	return more
}

// callKeys are the members that a call in text may have.
var callKeys = []string{"name", "arguments", "type", "id", "function"}

// write gives out some of the arguments.
func (o *object) write(p *Parser, s string) {
	if o.called {
		p.give(Arguments, s)
	} else {
		o.args.WriteString(s)
	}
}

// call gives out the call, if its name is known and its arguments have begun.
func (o *object) call(p *Parser) {
	if o.called || o.name == "" || !o.open {
		return
	}
	o.called = true
	p.begin(o.name)
	p.give(Arguments, o.args.String())
}

// string is the text of the JSON string in o.text, "" if it is none.
func (o *object) string() string {
	b, err := jsontext.AppendUnquote(nil, o.text.String())
	if err != nil {
		return ""
	}
	return string(b)
}

// done ends the object.
func (o *object) done(p *Parser) bool {
	switch {
	case o.called:
	case o.name != "" && (o.other != "" || !o.named || p.tool(o.name) != nil):
		p.begin(o.name)
		if o.other == "" || o.other == "null" {
			o.other = "{}"
		}
		p.give(Arguments, o.other)
	default:
		p.reject(content)
		return true
	}
	p.state = o.next
	return true
}

// broken goes on where the JSON is wrong: arguments are given out as they are written, to the end of the call.
func (o *object) broken(p *Parser) bool {
	switch {
	case !o.called && o.phase == inKey && !p.cut:
		p.state = p.over()
	case !o.called:
		p.reject(content)
	case o.whole:
		p.state = o.next
	default:
		p.give(Arguments, o.tidy.finish())
		p.state = o.spill
	}
	return true
}

func (o *object) spill(p *Parser) bool {
	if o.closer != "" {
		if i := strings.Index(p.buf, o.closer); i >= 0 {
			p.give(Arguments, strings.TrimRight(p.take(i), layout))
			p.take(len(o.closer))
			p.state = content
			return true
		}
	}
	held := begun(p.buf, o.closer)
	if p.final && !p.cut {
		held = 0
	}
	free := p.buf[:len(p.buf)-held]
	if o.closer != "" && !p.final {
		free = strings.TrimRight(free, layout)
	}
	p.give(Arguments, p.take(len(free)))
	if p.final {
		p.buf, p.state = "", content
	}
	return p.final
}

// value finds the end of a JSON value. It does not check more of it than brackets and quotes.
type value struct {
	begun, scalar   bool
	quoted, escaped bool
	open            []byte
}

// feed takes the next byte; again: it does not belong to the value, which ended before.
func (v *value) feed(c byte) fed {
	switch {
	case !v.begun:
		v.begun = true
		switch {
		case c == '"':
			v.quoted = true
		case c == '{' || c == '[':
			v.open = append(v.open, c)
		case c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			v.scalar = true
		default:
			return bad
		}
		return more
	case v.scalar:
		if strings.IndexByte(",}]"+layout, c) >= 0 {
			return again
		}
		return more
	case v.quoted:
		switch {
		case v.escaped:
			v.escaped = false
		case c == '\\':
			v.escaped = true
		case c == '"':
			v.quoted = false
			if len(v.open) == 0 {
				return ended
			}
		}
		return more
	}
	switch c {
	case '"':
		v.quoted = true
	case '{', '[':
		v.open = append(v.open, c)
	case '}', ']':
		if last := len(v.open) - 1; v.open[last] != c-2 { // in ASCII, } is two behind {, and ] behind [
			return bad
		} else if v.open = v.open[:last]; last == 0 {
			return ended
		}
	}
	return more
}

// escape is a control character as JSON strings write it.
func escape(c byte) string {
	b, _ := jsontext.AppendQuote(nil, string([]byte{c})) // ASCII is valid
	return string(b[1 : len(b)-1])
}

// escaped is text as it stands within a JSON string, of bytes that need not be whole characters.
func escaped(s string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c == '"' || c == '\\' {
			out.WriteString(escape(c))
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

func quote(s string) string {
	b, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\ufffd")) // which makes it valid
	return string(b)
}
