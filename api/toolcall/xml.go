package toolcall

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"regexp"
	"slices"
	"strings"
)

const (
	functionBegin  = "<function="
	functionEnd    = "</function>"
	parameterBegin = "<parameter="
	parameterEnd   = "</parameter>"
)

var (
	xmlClosers = []string{callEnd, functionEnd, parameterEnd, "</function_invocation>"}
	// nextCall is where a call ends whose last parameter has no end, if it is found before one.
	nextCall = regexp.MustCompile(`\n?` + functionEnd + `\s*` + callEnd + `\s*<tool_call>\s*` + functionBegin)
	// noEnd is what may follow a parameter that has no end, at the end of an answer.
	noEnd = regexp.MustCompile(`\s*(` + functionEnd + `)?\s*(` + callEnd + `)?\s*$`)
)

// xmlCall is a call whose arguments are given out one by one: text as it comes, other values as each has come.
type xmlCall struct {
	tool  *Tool
	names []string
	param string
	types []string // of its schema
	seen  int      // bytes of a value in which its end is not
	json  jsonText
	text  bool // the value is text and nothing else
	lined bool // it began with a line of its own
	open  bool // its beginning was given out,
	tags  bool // up to where the first tag stands in it
	// doubtful is where a value may end, unless a better place comes: within a string of JSON, or within a line. -1 for nowhere.
	doubtful int
}

// jsonText knows where the strings of a list or an object are.
type jsonText struct {
	read             int // bytes
	string, escaping bool
}

// open reads as far as text goes, which it has read the beginning of, and reports whether a string is open at its end.
func (j *jsonText) open(text string) bool {
	for ; j.read < len(text); j.read++ {
		switch b := text[j.read]; {
		case j.escaping:
			j.escaping = false
		case b == '\\':
			j.escaping = j.string
		case b == '"':
			j.string = !j.string
		}
	}
	return j.string
}

func xml(p *Parser, opener string) state {
	if opener == functionBegin { // within text, which may speak of the format
		return func(p *Parser) bool { return p.xmlCall(true) }
	}
	return func(p *Parser) bool {
		p.space()
		function, known := p.follows(functionBegin)
		switch {
		case p.buf == "" && !p.final || !known:
			return false
		case function:
			p.raw.WriteString(p.take(len(functionBegin)))
			p.state = xmlName
		case strings.HasPrefix(p.buf, "{"): // as models that were trained on both formats do
			p.state = hermes(p, "")
		default:
			p.reject(content)
		}
		return true
	}
}

func xmlName(p *Parser) bool { return p.xmlCall(false) }

// xmlCall begins a call. known: it is one only if the request has such a tool.
func (p *Parser) xmlCall(known bool) bool {
	name, whole := p.tagName()
	if name == "" || known && p.tool(name) == nil {
		if whole {
			p.reject(content)
		}
		return whole
	}
	p.begin(name)
	p.state = (&xmlCall{tool: p.tool(name)}).body
	return true
}

// tagName reads up to the end of a tag. whole is false when more is needed; "" is no name.
func (p *Parser) tagName() (name string, whole bool) {
	i := strings.IndexAny(p.buf, ">\n")
	if i < 0 {
		return "", p.final || len(p.buf) > nameLimit
	}
	name = strings.Trim(p.buf[:i], layout+`"'`)
	if p.buf[i] != '>' || name == "" || i > nameLimit {
		return "", true
	}
	p.raw.WriteString(p.take(i + 1))
	return name, true
}

// body is between parameters.
func (c *xmlCall) body(p *Parser) bool {
	p.space()
	if p.buf == "" && !p.final {
		return false
	}
	parameter, known1 := p.follows(parameterBegin)
	end, known2 := p.follows(functionEnd)
	if !known1 || !known2 {
		return false
	}
	switch {
	case parameter:
		p.take(len(parameterBegin))
		p.state = c.name
		return true
	case p.buf == "" && p.cut:
		p.state = content
		return true
	case len(c.names) == 0 && strings.HasPrefix(p.buf, "{"): // JSON in place of parameters
		p.state = arguments(&object{called: true, next: tail, closer: functionEnd})
		return true
	case end:
		p.take(len(functionEnd))
	}
	if len(c.names) == 0 {
		p.give(Arguments, "{}")
	} else {
		p.give(Arguments, "}")
	}
	p.state = tail
	return true
}

func (c *xmlCall) name(p *Parser) bool {
	name, whole := p.tagName()
	switch {
	case name != "":
		c.param, c.seen, p.state = name, 0, c.value
		c.types, c.json, c.doubtful = c.allowed(), jsonText{}, -1
		c.text = !slices.Contains(c.names, name) && !slices.ContainsFunc(c.types, func(t string) bool { return t != "string" })
		c.lined, c.open, c.tags = false, false, false
	case whole: // there is no telling where its value ends
		if p.cut {
			p.buf = ""
		}
		p.state = content
	}
	return whole
}

// value waits for the end of a parameter: a closing tag with another tag of the call behind it, so that a value may hold one. One within a
// string of a list or an object counts only when no other comes, and so does one within a line.
func (c *xmlCall) value(p *Parser) bool {
	if c.text && !c.tags {
		c.stream(p)
	}
	for from := c.seen; ; {
		i := strings.Index(p.buf[from:], parameterEnd)
		if i < 0 {
			switch {
			case p.final && !p.cut && c.doubtful >= 0: // no better place came
				c.end(p, c.doubtful)
				return true
			case p.final && p.cut:
				p.take(len(p.buf))
				p.state = content
				return true
			case p.final: // the end was forgotten
				if n := c.forgotten(p.buf); n >= 0 {
					c.give(p, p.take(n))
				} else {
					c.give(p, p.take(noEnd.FindStringIndex(p.buf)[0]))
				}
				p.state = c.body
				return true
			}
			c.seen = max(c.seen, len(p.buf)-len(parameterEnd)+1)
			return false
		}
		i += from
		behind := strings.TrimLeft(p.buf[i+len(parameterEnd):], layout)
		is, maybe := behind == "" && p.final && !p.cut, behind == "" && !p.final
		for _, tag := range []string{parameterBegin, functionEnd, callEnd} {
			is = is || strings.HasPrefix(behind, tag)
			maybe = maybe || !p.final && strings.HasPrefix(tag, behind)
		}
		switch {
		case is && (c.within(p.buf[:i]) || c.inline(p.buf[:i], p.buf[i+len(parameterEnd):])):
			if c.doubtful < 0 {
				c.doubtful = i
			}
		case is:
			c.end(p, i)
			return true
		case maybe:
			c.seen = i
			return false
		}
		from = i + len(parameterEnd)
		c.seen = from
	}
}

// within reports whether a string is open at the end of text, in which tags are text: that of a list or an object, where the parameter is one.
func (c *xmlCall) within(text string) bool {
	if !slices.Contains(c.types, "object") && !slices.Contains(c.types, "array") || slices.Contains(c.types, "string") {
		return false
	}
	start := strings.TrimLeft(text, layout)
	return (strings.HasPrefix(start, "[") || strings.HasPrefix(start, "{")) && c.json.open(text)
}

// stream gives out the text of a value up to what may be a tag. White space before one may be layout.
func (c *xmlCall) stream(p *Parser) {
	if p.buf == "" {
		return
	}
	if !c.open {
		if c.open = true; p.buf[0] == '\n' {
			c.lined = true
			p.take(1)
		}
		c.begin(p)
		p.give(Arguments, `"`)
	}
	n := len(p.buf)
	for _, tag := range []string{parameterEnd, parameterBegin, functionEnd, callEnd} {
		if i := strings.Index(p.buf, tag); i >= 0 {
			c.tags = true
			n = min(n, i)
		}
		n = min(n, len(p.buf)-begun(p.buf, tag))
	}
	safe := p.take(len(strings.TrimRight(p.buf[:n], layout)))
	p.give(Arguments, escaped(safe))
	c.seen = max(0, c.seen-len(safe))
}

// inline reports whether a closing tag stands within a line of a value that began with a line of its own, as values that span lines do.
func (c *xmlCall) inline(value, behind string) bool {
	return (c.lined || !c.text && strings.HasPrefix(value, "\n")) && !strings.HasSuffix(value, "\n") && strings.HasPrefix(behind, "<")
}

// end ends a value after n bytes.
func (c *xmlCall) end(p *Parser, n int) {
	p.state = c.body
	if early := c.forgotten(p.buf[:n]); early >= 0 {
		c.give(p, p.take(early))
		return
	}
	c.give(p, p.take(n))
	p.take(len(parameterEnd))
}

// forgotten is where a value ends whose closing tag was forgotten: before another parameter of the tool, or another call. -1: it was not.
func (c *xmlCall) forgotten(value string) int {
	at := -1
	if m := nextCall.FindStringIndex(value); m != nil {
		at = m[0]
		value = value[:at]
	}
	if c.tool == nil {
		return at
	}
	var schema struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	if json.Unmarshal(c.tool.Parameters, &schema) != nil {
		return at
	}
	const begin = "\n" + parameterBegin
	for from := 0; ; {
		i := strings.Index(value[from:], begin)
		if i < 0 {
			return at
		}
		i += from
		name, _, ok := strings.Cut(value[i+len(begin):], ">")
		if _, is := schema.Properties[name]; ok && is && name != c.param && !slices.Contains(c.names, name) {
			return i
		}
		from = i + len(begin)
	}
}

// give gives out a parameter. Of two of a name the first one counts.
func (c *xmlCall) give(p *Parser, text string) {
	if c.open {
		p.give(Arguments, escaped(strings.TrimSuffix(text, "\n"))+`"`)
		return
	}
	if slices.Contains(c.names, c.param) {
		return
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n")
	if strings.Trim(text, layout) == "" && len(c.types) > 0 && !slices.Contains(c.types, "string") {
		if text = "null"; !slices.Contains(c.types, "null") { // nothing is no value of these types: it was left out
			return
		}
	}
	c.begin(p)
	p.give(Arguments, typed(text, c.types))
}

// begin gives out what stands before a value.
func (c *xmlCall) begin(p *Parser) {
	sep := ", "
	if len(c.names) == 0 {
		sep = "{"
	}
	c.names = append(c.names, c.param)
	p.give(Arguments, sep+quote(c.param)+": ")
}

// allowed are the types that the parameter's schema allows; none when it does not say.
func (c *xmlCall) allowed() []string {
	if c.tool == nil {
		return nil
	}
	root := followed(c.tool.Parameters)
	var schema struct {
		Properties map[string]jsontext.Value `json:"properties"`
		More       jsontext.Value            `json:"additionalProperties"`
	}
	if json.Unmarshal(root, &schema) != nil {
		return nil
	}
	if s, ok := schema.Properties[c.param]; ok {
		return Types(root, s)
	}
	return Types(root, schema.More)
}

// typed is a value as JSON: what its schema allows other than text, if it reads as that, else text.
func typed(text string, types []string) string {
	v := jsontext.Value(strings.Trim(text, layout))
	switch string(v) {
	case "None":
		v = jsontext.Value("null")
	case "True", "False", "TRUE", "FALSE":
		v = jsontext.Value(strings.ToLower(string(v)))
	}
	if len(types) == 0 {
		return quote(text)
	}
	if !v.IsValid() && !slices.Contains(types, "string") && (slices.Contains(types, "array") || slices.Contains(types, "object")) {
		var t tidy
		var out strings.Builder
		for _, c := range []byte(v) {
			out.WriteString(t.feed(c))
		}
		if v = jsontext.Value(out.String() + t.finish()); !v.IsValid() {
			s, _ := fromPython(strings.Trim(text, layout))
			v = jsontext.Value(s)
		}
	}
	if !v.IsValid() {
		return quote(text)
	}
	kind := kinds[v.Kind()]
	is := slices.Contains(types, kind) || kind == "number" && slices.Contains(types, "integer")
	if !is || kind == "string" || kind != "null" && slices.Contains(types, "string") {
		return quote(text)
	}
	return string(v)
}
