// Package toolcall reads the calls of tools out of an answer as it comes.
//
// A Parser is a state machine over text. It knows nothing of tokens, models and HTTP: which format a model writes is said to
// it (engine.ToolFormat finds it), and reasoning has been parted from the text before (package reasoning).
//
// A call is given out as soon as it is known to be one, and its arguments as they come: those that the model writes as JSON
// byte for byte (but for what tidy mends), others as the JSON that they mean. What turns out not to be a call is content, markup
// included, unless the answer was cut off in it. White space around calls is layout and goes, and so do closing tags too many.
//
// Invariant: how the text is cut does not show: the joined pieces of any cut are those of the uncut text.
package toolcall

import (
	"encoding/json/jsontext"
	"strings"
)

// Kind is what a Piece is.
type Kind uint8

const (
	Content   Kind = iota // text of the answer
	Begin                 // a call of the tool Name begins
	Arguments             // more of the arguments of the call that began last: the text of a JSON object
)

// Piece is what an answer grows by.
type Piece struct {
	Kind Kind
	Name string // of a Begin
	Text string // of the others, not empty
}

// Tool is a tool that the request offers.
type Tool struct {
	Name string
	// Parameters is the JSON schema of its arguments, which are an object; nil when they may be any. Formats that write
	// values without a type (XML) go by it.
	Parameters jsontext.Value
}

// Formats are the names of the formats, which are those of vLLM's parsers.
//
//	hermes          <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes, Qwen2.5, Qwen3, SmolLM3)
//	qwen3_xml       <tool_call><function=NAME><parameter=P>value</parameter></function></tool_call> (Qwen3-Coder, Qwen3.5)
//	llama3_json     {"name": ..., "parameters": {...}}, several behind ; or in a list, also behind <|python_tag|>; within text
//	                only of tools that are offered
//	phi4_mini_json  functools[{"name": ..., "arguments": {...}}, ...], also between <|tool_call|> and <|/tool_call|>
//	gemma4          <|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|>
//	mistral         [TOOL_CALLS]NAME[ARGS]{...}, or [TOOL_CALLS][{"name": ..., "arguments": {...}}]
func Formats() []string {
	return []string{"hermes", "qwen3_xml", "llama3_json", "phi4_mini_json", "gemma4", "mistral"}
}

// layout is the white space that may stand around calls.
const layout = " \t\r\n"

// Parser reads one answer.
type Parser struct {
	tools   []Tool
	openers []string // what begins calls in content
	closers []string // what may be left over behind a call
	open    func(*Parser, string) state

	state state
	buf   string // not consumed yet
	raw   strings.Builder
	// raw is the text since the opener of a call that is not known to be one yet.
	called bool // some call has begun
	after  bool // nothing but white space has come since a call
	final  bool
	cut    bool
	out    []Piece
	kind   Kind            // of the piece that is being made,
	last   strings.Builder // and its text
}

// state consumes what it can of buf and sets the next state. It reports whether to go on: false when more text is needed.
type state func(*Parser) bool

// New begins an answer in one of Formats; nil for any other name.
func New(format string, tools []Tool) *Parser {
	p := &Parser{tools: tools, state: content}
	switch format {
	case "hermes":
		p.openers, p.open, p.closers = []string{"<tool_call>"}, hermes, xmlClosers
	case "qwen3_xml":
		p.openers, p.open, p.closers = []string{"<tool_call>", functionBegin}, xml, xmlClosers
	case "llama3_json":
		p.openers, p.open, p.state = []string{pythonTag, "{"}, llama, llamaStart
	case "phi4_mini_json":
		p.openers, p.open, p.closers = []string{"functools[", "functools [", phiBegin}, phi, []string{phiEnd}
	case "gemma4":
		p.openers, p.open, p.closers = []string{"<|tool_call>"}, gemma, []string{gemmaEnd, "<|tool_response>"}
	case "mistral":
		p.openers, p.open, p.closers = []string{"[TOOL_CALLS]"}, mistral, []string{"[/TOOL_CALLS]"}
	default:
		return nil
	}
	return p
}

// Held tells the parser that a grammar of Expr holds the answer: calls begin as it writes them and in no other way, so that none
// gets by it.
func (p *Parser) Held() *Parser {
	if p.openers = p.openers[:1]; p.openers[0] == pythonTag {
		p.openers = nil
	}
	return p
}

// Push takes more of the answer and returns what is final now.
func (p *Parser) Push(text string) []Piece {
	p.buf += text
	return p.run()
}

// Finish ends the answer and returns the rest. cut: it ended at a limit, so that what was begun has no end.
func (p *Parser) Finish(cut bool) []Piece {
	p.final, p.cut = true, cut
	return p.run()
}

// Called reports whether a call has begun.
func (p *Parser) Called() bool { return p.called }

func (p *Parser) run() []Piece {
	p.out = nil
	for p.state(p) {
	}
	p.flush()
	return p.out
}

// give adds to the last piece, or a new one where the kind differs.
func (p *Parser) give(kind Kind, text string) {
	if text == "" {
		return
	}
	if kind != p.kind {
		p.flush()
	}
	p.kind = kind
	p.last.WriteString(text)
}

// flush ends the piece that give adds to.
func (p *Parser) flush() {
	if p.last.Len() > 0 {
		p.out = append(p.out, Piece{Kind: p.kind, Text: p.last.String()})
		p.last.Reset()
	}
}

// begin gives out a call.
func (p *Parser) begin(name string) {
	p.flush()
	p.out = append(p.out, Piece{Kind: Begin, Name: name})
	p.called, p.after = true, true
	p.raw.Reset()
}

// tool reports whether the request offers a tool of that name.
func (p *Parser) tool(name string) *Tool {
	for i := range p.tools {
		if p.tools[i].Name == name {
			return &p.tools[i]
		}
	}
	return nil
}

// take consumes n bytes of buf and returns them.
func (p *Parser) take(n int) string {
	s := p.buf[:n]
	p.buf = p.buf[n:]
	return s
}

// space consumes white space into raw.
func (p *Parser) space() {
	rest := strings.TrimLeft(p.buf, layout)
	p.raw.WriteString(p.take(len(p.buf) - len(rest)))
}

// follows reports whether buf begins with s; known is false when it is too short to say.
func (p *Parser) follows(s string) (yes, known bool) {
	if len(p.buf) >= len(s) {
		return strings.HasPrefix(p.buf, s), true
	}
	if !p.final && strings.HasPrefix(s, p.buf) {
		return false, false
	}
	if p.cut && strings.HasPrefix(s, p.buf) {
		p.buf = "" // a piece of markup
	}
	return false, true
}

// content looks for the next opener.
func content(p *Parser) bool {
	at, opener := -1, ""
	for _, o := range p.openers {
		if i := strings.Index(p.buf, o); i >= 0 && (at < 0 || i < at) {
			at, opener = i, o
		}
	}
	if at >= 0 {
		before := p.take(at)
		kept := strings.TrimRight(before, layout)
		p.text(kept)
		p.raw.Reset()
		p.raw.WriteString(before[len(kept):] + p.take(len(opener)))
		p.state = p.open(p, opener)
		return true
	}
	held := 0
	for _, o := range p.openers {
		held = max(held, begun(p.buf, o))
	}
	if p.final {
		if p.cut && held > 1 { // a piece of markup; a single character may be a sign of comparison
			p.buf = p.buf[:len(p.buf)-held]
		}
		p.text(p.buf)
		p.buf = ""
		return false
	}
	// White space before what may be an opener may be layout.
	free := strings.TrimRight(p.buf[:len(p.buf)-held], layout)
	p.text(p.take(len(free)))
	return false
}

// tail is behind a call: what is left over of its markup goes.
func tail(p *Parser) bool {
	p.space()
	if p.buf == "" && !p.final {
		return false
	}
	for _, closer := range p.closers {
		yes, known := p.follows(closer)
		if !known {
			return false
		}
		if yes {
			p.take(len(closer))
			return true
		}
	}
	p.state = content
	return true
}

// brackets consumes closing brackets too many before closer, or at the end of the answer. known is false when more is needed to say
// which they are.
func (p *Parser) brackets(closer string) (known bool) {
	if !strings.HasPrefix(p.buf, "}") && !strings.HasPrefix(p.buf, "]") {
		return true
	}
	rest := strings.TrimLeft(p.buf, "}]"+layout)
	switch {
	case rest == "" && !p.final, rest != "" && len(rest) < len(closer) && !p.final && strings.HasPrefix(closer, rest):
		return false
	case p.cut && strings.HasPrefix(closer, rest):
		p.buf = ""
	case rest == "", closer != "" && strings.HasPrefix(rest, closer):
		p.take(len(p.buf) - len(rest))
	}
	return true
}

// over passes over an object in text, of which raw is the beginning: what is in it is no call.
func (p *Parser) over() state {
	var v value
	for _, c := range []byte(strings.TrimLeft(p.raw.String(), layout)) {
		v.feed(c)
	}
	p.text(p.raw.String())
	p.raw.Reset()
	return func(p *Parser) bool {
		for i := range len(p.buf) {
			if v.feed(p.buf[i]) != more {
				p.text(p.take(i + 1))
				p.state = content
				return true
			}
		}
		p.text(p.take(len(p.buf)))
		if p.final {
			p.state = content
		}
		return p.final
	}
}

// text gives out content, without the white space behind a call.
func (p *Parser) text(s string) {
	if p.after {
		if s = strings.TrimLeft(s, layout); s == "" {
			return
		}
		p.after = false
	}
	p.give(Content, s)
}

// begun is the length of the longest end of text that begins mark and is not all of it.
func begun(text, mark string) int {
	for n := min(len(text), len(mark)-1); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}

// reject makes content of what looked like a call, and goes on behind it.
func (p *Parser) reject(next state) {
	if p.cut { // what is left belongs to it
		p.buf = ""
	} else {
		p.text(p.raw.String())
	}
	p.raw.Reset()
	p.state = next
}
