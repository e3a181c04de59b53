package toolcall

import (
	"encoding/json/jsontext"
	"regexp"
	"strings"
)

const (
	callEnd   = "</tool_call>"
	pythonTag = "<|python_tag|>"
	phiBegin  = "<|tool_call|>"
	phiEnd    = "<|/tool_call|>"
	argsMark  = "[ARGS]"
	idMark    = "[CALL_ID]"
	nameLimit = 256 // bytes of a tool's name, so that a forgotten end does not hold the answer back
)

// hermes reads objects, or a list of them, up to the end of the call.
func hermes(*Parser, string) state {
	return func(p *Parser) bool {
		p.space()
		function, known := p.follows(functionBegin)
		switch {
		case p.buf == "" && !p.final || !known:
			return false
		case strings.HasPrefix(p.buf, "["):
			p.raw.WriteString(p.take(1))
			p.state = list(callEnd, false)
		case function: // as models that were trained on both formats do
			p.raw.WriteString(p.take(len(functionBegin)))
			p.state = xmlName
		default:
			p.state = (&object{closer: callEnd, next: hermesNext}).step
		}
		return true
	}
}

func hermesNext(p *Parser) bool {
	p.space()
	if p.buf == "" && !p.final {
		return false
	}
	if !p.brackets(callEnd) {
		return false
	}
	if strings.HasPrefix(p.buf, "{") {
		p.raw.Reset()
		p.state = hermes(p, "")
	} else {
		p.state = tail
	}
	return true
}

// llamaStart is at the beginning of an answer, which may be a call as a whole.
func llamaStart(p *Parser) bool {
	p.space()
	switch {
	case strings.HasPrefix(p.buf, "{"):
		p.state = llamaObject()
	case strings.HasPrefix(p.buf, "["):
		p.raw.WriteString(p.take(1))
		p.state = list("", true)
	case p.buf == "" && !p.final:
		return false
	default:
		p.buf = p.raw.String() + p.buf
		p.raw.Reset()
		p.state = content
	}
	return true
}

func llamaObject() state { return (&object{next: llamaNext, named: true}).step }

func llamaNext(p *Parser) bool {
	p.space()
	if p.buf == "" && !p.final || !p.brackets("") {
		return false
	}
	p.raw.Reset()
	switch {
	case strings.HasPrefix(p.buf, ";"), strings.HasPrefix(p.buf, ","):
		p.raw.WriteString(p.take(1))
		p.state = llamaMore
	default:
		p.state = llamaMore
	}
	return true
}

// llamaMore wants another object, behind a separator or not.
func llamaMore(p *Parser) bool {
	p.space()
	switch {
	case p.buf == "" && !p.final:
		return false
	case strings.HasPrefix(p.buf, "{"):
		p.state = llamaObject()
	case p.buf == "": // a separator too many
		p.raw.Reset()
		p.state = content
	default:
		p.buf = strings.TrimLeft(p.raw.String(), layout) + p.buf
		p.raw.Reset()
		p.state = content
	}
	return true
}

// llama is behind the tag of code, where calls are written as JSON or as those of built-in tools, or at an object within text.
func llama(_ *Parser, opener string) state {
	if opener == "{" {
		return (&object{next: llamaNext, named: true, known: true, phase: atKeyOrEnd}).step
	}
	return func(p *Parser) bool {
		p.space()
		switch {
		case strings.HasPrefix(p.buf, "{"):
			p.state = llamaObject()
		case p.buf == "" && !p.final:
			return false
		default:
			p.state = builtin
		}
		return true
	}
}

var (
	builtinCall = regexp.MustCompile(`^\s*([A-Za-z_]\w*)\.call\((.*)\)\s*$`)
	builtinArg  = regexp.MustCompile(`^\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*"|[^,"]*)\s*(?:,|$)`)
)

// builtin waits for the end of what follows the tag: name.call(key="value", ...). Other code is content.
func builtin(p *Parser) bool {
	if !p.final {
		return false
	}
	code := p.take(len(p.buf))
	p.raw.WriteString(code)
	if m := builtinCall.FindStringSubmatch(code); m != nil {
		if args, ok := builtinArguments(m[2]); ok {
			p.begin(m[1])
			p.give(Arguments, args)
			p.state = content
			return true
		}
	}
	p.reject(content)
	return true
}

func builtinArguments(list string) (string, bool) {
	var out []string
	for strings.TrimSpace(list) != "" {
		m := builtinArg.FindStringSubmatch(list)
		if m == nil {
			return "", false
		}
		v := strings.TrimSpace(m[2])
		if !jsontext.Value(v).IsValid() {
			v = quote(strings.Trim(v, `"`))
		}
		out = append(out, quote(m[1])+": "+v)
		list = list[len(m[0]):]
	}
	return "{" + strings.Join(out, ", ") + "}", true
}

// phi reads a list of objects.
func phi(p *Parser, opener string) state {
	if opener == phiBegin {
		return func(p *Parser) bool {
			p.space()
			switch {
			case p.buf == "" && !p.final:
				return false
			case strings.HasPrefix(p.buf, "["):
				p.raw.WriteString(p.take(1))
			}
			p.state = list(phiEnd, false)
			return true
		}
	}
	return list("", false)
}

// list reads objects, and then what may end the call. known: they are calls of tools that are offered.
func list(closer string, known bool) state {
	var item state
	next := func(p *Parser) bool {
		p.space()
		switch {
		case p.buf == "" && !p.final:
			return false
		case strings.HasPrefix(p.buf, ","):
			p.take(1)
			p.raw.Reset()
			p.state = item
		case strings.HasPrefix(p.buf, "{"): // a comma was forgotten
			p.raw.Reset()
			p.state = item
		case strings.HasPrefix(p.buf, "]"):
			p.take(1)
			p.state = tail
		default:
			p.state = tail
		}
		return true
	}
	item = func(p *Parser) bool {
		p.space()
		switch {
		case p.buf == "" && !p.final:
			return false
		case strings.HasPrefix(p.buf, "]") && p.after: // a comma too many
			p.take(1)
			p.state = tail
		default:
			p.state = (&object{closer: closer, next: next, named: known, known: known}).step
		}
		return true
	}
	return item
}

// mistral reads a name and its arguments, or a list of objects.
func mistral(*Parser, string) state {
	return func(p *Parser) bool {
		p.space()
		args, known := p.follows(argsMark)
		id, knownID := p.follows(idMark)
		switch {
		case p.buf == "" && !p.final || !known || !knownID:
			return false
		case strings.HasPrefix(p.buf, "[") && !args && !id:
			p.raw.WriteString(p.take(1))
			p.state = list("", false)
		case strings.HasPrefix(p.buf, "{"):
			p.state = (&object{next: tail}).step
		default:
			p.state = mistralName
		}
		return true
	}
}

func mistralName(p *Parser) bool {
	i := strings.IndexAny(p.buf, "[{")
	if i < 0 || i > nameLimit {
		if p.final || len(p.buf) > nameLimit {
			p.raw.WriteString(p.take(len(p.buf)))
			p.reject(content)
			return true
		}
		return false
	}
	name := strings.Trim(p.buf[:i], layout)
	rest := p.buf[i:]
	if rest[0] == '[' {
		j := strings.Index(rest, argsMark)
		if j < 0 && !p.final && len(rest) <= nameLimit {
			return false
		}
		if j < 0 || j > 0 && !strings.HasPrefix(rest, idMark) {
			p.reject(content)
			return true
		}
		i += j + len(argsMark)
	}
	p.raw.WriteString(p.take(i))
	if name == "" || strings.ContainsAny(name, layout) {
		p.reject(content)
		return true
	}
	p.state = arguments(&object{name: name, next: tail})
	return true
}

// arguments reads those of a call whose name is known: a JSON object.
func arguments(o *object) state {
	o.phase, o.key = atValue, "arguments"
	return func(p *Parser) bool {
		if p.space(); p.buf == "" && !p.final {
			return false
		}
		if !strings.HasPrefix(p.buf, "{") {
			p.reject(content)
			return true
		}
		p.state = o.value1
		return true
	}
}

// value1 reads nothing but the arguments.
func (o *object) value1(p *Parser) bool {
	for i := 0; i < len(p.buf); i++ {
		got := o.feed(p, p.buf[i])
		if o.whole {
			p.take(i + 1)
			p.state = o.next
			return true
		}
		if got == bad {
			p.take(i)
			return o.broken(p)
		}
	}
	p.take(len(p.buf))
	if p.final {
		p.state = content
	}
	return p.final
}
