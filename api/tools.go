package api

import (
	"context"
	"crypto/rand"
	"encoding/json/jsontext"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/api/reasoning"
	"github.com/openinfer-go/openinfer/api/toolcall"
	"github.com/openinfer-go/openinfer/engine"
)

// toolset is what a request says of tools. The zero value: none may be called.
type toolset struct {
	tools    []tool
	required bool // some tool, or the only one that is left, must be called
	several  bool
	field    string         // that asks for calls to be constrained, for errors
	shown    jsontext.Value // the tools that the chat template gets
}

// tool is one that may be called.
type tool struct {
	toolcall.Tool
	raw    jsontext.Value // for the chat template
	custom bool           // of type custom: its one argument, input, is text
	held   string         // the field that says that its calls are held to its schema; "": nothing does
}

const (
	maxTools    = 1024
	maxToolName = 128
)

// readTools reads tools, tool_choice and parallel_tool_calls.
func readTools(o *object) toolset {
	s := toolset{several: o.bool("parallel_tool_calls", true)}
	var raws []jsontext.Value
	if v := o.take("tools", "an array", '['); v != nil {
		for _, raw := range elements(v) {
			raws = append(raws, raw.Clone())
		}
	}
	at := map[string]int{}
	for i, t := range o.objects("tools") {
		if i == maxTools {
			t.fail("", "more than %d tools", maxTools)
		}
		one := readTool(t, raws[i])
		if _, again := at[one.Name]; again {
			t.fail(t.string("type")+".name", "%q is the name of two tools", one.Name)
		}
		at[one.Name] = len(s.tools)
		s.tools = append(s.tools, one)
	}
	only := s.choose(o, at)
	for _, t := range s.tools {
		s.shown = append(append(s.shown, ','), t.raw...)
	}
	if s.shown != nil {
		s.shown[0] = '['
		s.shown = append(s.shown, ']')
	}
	if only >= 0 {
		s.tools = s.tools[only : only+1]
	}
	for _, t := range s.tools {
		if s.field == "" {
			s.field = t.held
		}
	}
	return s
}

// readTool reads one tool.
func readTool(t *object, rawTool jsontext.Value) (out tool) {
	kind := t.string("type")
	switch {
	case !t.has("type"):
		t.fail("type", "is missing")
	case kind != "function" && kind != "custom":
		t.fail("type", "%q tools are not supported, only function and custom", shorten(kind, 40))
	}
	if t.err != nil {
		return out
	}
	f := t.object(kind)
	if f == nil {
		t.fail(kind, "is missing")
		return out
	}
	out.Name = f.string("name")
	switch {
	case !f.has("name"):
		f.fail("name", "is missing")
	case len(out.Name) > maxToolName || !toolName(out.Name):
		f.fail("name", "%q is not 1 to %d letters, digits or characters of _-.:/", shorten(out.Name, 60), maxToolName)
	}
	f.string("description")
	if kind == "custom" {
		out.readCustom(f)
	} else {
		out.Parameters = readParameters(f)
		if f.bool("strict", false) {
			out.held = f.path + "strict"
		}
		out.raw = withoutNulls(rawTool)
	}
	t.inner(f)
	return out
}

// withoutNulls is a function's tool without the members that are null, which templates would print.
func withoutNulls(v jsontext.Value) jsontext.Value {
	isNull := func(p pair) bool { m, ok := p.value.(jsontext.Value); return ok && m.Kind() == 'n' }
	t := members(v)
	at := slices.IndexFunc(t, func(p pair) bool { return p.key == "function" })
	if at < 0 {
		return v
	}
	f := members(t[at].value.(jsontext.Value))
	if !slices.ContainsFunc(t, isNull) && !slices.ContainsFunc(f, isNull) {
		return v
	}
	t[at].value = slices.DeleteFunc(f, isNull)
	return raw(slices.DeleteFunc(t, isNull))
}

// noArguments is the schema of a function without one.
var noArguments = jsontext.Value(`{"type":"object","properties":{}}`)

// readParameters reads a function's schema, which is of an object.
func readParameters(f *object) jsontext.Value {
	const field = "parameters"
	schema := f.take(field, "a JSON schema of an object", '{')
	p := f.object(field)
	if p == nil {
		return noArguments
	}
	if types := toolcall.Types(schema, schema); types != nil && !slices.Contains(types, "object") {
		f.fail(field, "is a schema of type %s: arguments are an object", shorten(strings.Join(types, " or "), 60))
	}
	p.take("properties", "an object of schemas", '{')
	p.take("required", "an array of names", '[')
	f.inner(p)
	if len(p.fields) == 0 {
		return noArguments
	}
	return schema
}

// choose reads tool_choice. It returns the index of the only tool that may be called; -1: there is no such.
func (s *toolset) choose(o *object, at map[string]int) (only int) {
	only = -1
	v := o.take("tool_choice", "none, auto, required or an object", '"', '{')
	if v == nil {
		return
	}
	if v.Kind() == '"' {
		switch choice := text(v); choice {
		case "auto":
			return
		case "none":
			*s = toolset{}
			return
		case "required":
			s.required, s.field = true, "tool_choice"
		default:
			o.fail("tool_choice", "%q is not one of none, auto and required", shorten(choice, 40))
		}
	} else {
		c := o.object("tool_choice")
		switch kind := c.string("type"); kind {
		case "function", "custom":
			s.required, s.several, s.field = true, false, "tool_choice"
			if i, ok := s.namedTool(c, at); ok {
				only = i
			}
		case "allowed_tools":
			s.allow(c, at)
		default:
			c.fail("type", "%q is not one of function, custom and allowed_tools", shorten(kind, 40))
		}
		o.inner(c)
	}
	if len(s.tools) == 0 {
		o.fail("tool_choice", "there are no tools")
	}
	return only
}

// namedTool is the index of the tool that t names, in the field of its type.
func (s *toolset) namedTool(t *object, at map[string]int) (int, bool) {
	kind := "function"
	if t.string("type") == "custom" {
		kind = "custom"
	}
	f := t.object(kind)
	if f == nil {
		t.fail(kind, "is missing")
		return 0, false
	}
	name := f.string("name")
	i, ok := at[name]
	switch {
	case !ok:
		f.fail("name", "%q is none of the request's tools", shorten(name, 60))
	case s.tools[i].custom != (kind == "custom"):
		f.fail("name", "%q is a tool of another type", name)
	}
	t.inner(f)
	return i, ok
}

// allow leaves out the tools that c does not allow; the model does not see them.
func (s *toolset) allow(c *object, at map[string]int) {
	a := c.object("allowed_tools")
	if a == nil {
		c.fail("allowed_tools", "is missing")
		return
	}
	allowed, none := make([]bool, len(s.tools)), true
	for _, t := range a.objects("tools") {
		none = false
		if i, ok := s.namedTool(t, at); ok {
			allowed[i] = true
		}
	}
	if none {
		a.fail("tools", "is empty or missing")
	}
	switch mode := a.string("mode"); mode {
	case "auto":
	case "required":
		s.required, s.field = true, "tool_choice"
	default:
		a.fail("mode", "%q is not one of auto and required", shorten(mode, 40))
	}
	c.inner(a)
	var kept []tool
	for i, t := range s.tools {
		if allowed[i] {
			kept = append(kept, t)
		}
	}
	s.tools = kept
}

// toolName reports whether a name can be written in every format.
func toolName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.:/", r))
	})
}

// readCalls says how answers are read, and refuses tools of a model that has no way to call them.
func (g *generation) readCalls(s toolset) error {
	if len(s.tools) == 0 {
		return nil
	}
	g.tools = s
	if g.model.Tools.Parser == "" {
		return invalid("tools", "the chat template of %s has no tools in a format that is known; --tool-call-parser names one", g.model.Name)
	}
	return nil
}

// constrain makes the grammar of the calls that the request asks for, if it asks for them in a given form. An answer that is
// constrained otherwise as well would have two.
func (g *generation) constrain(ctx context.Context, s structured) error {
	t := &g.tools
	if t.field == "" || len(t.tools) == 0 {
		return g.compile(ctx, s)
	}
	if s.field != "" && t.required {
		return invalid(s.field, "excludes %s: an answer can have one form", t.field)
	}
	if s.field != "" {
		return g.compile(ctx, s)
	}
	rule := toolcall.Rule{Tools: t.offered(), Required: t.required, Several: t.several}
	if !t.required { // what nothing holds may have any arguments
		for i := range rule.Tools {
			if t.tools[i].held == "" {
				rule.Tools[i].Parameters = nil
			}
		}
	}
	expr, err := toolcall.Expr(g.model.Tools.Parser, rule)
	if err != nil {
		return invalid(t.field, "%s", strings.ToValidUTF8(shorten(err.Error(), 600), "")) // which names the tool
	}
	return g.compile(ctx, structured{t.field, expr})
}

// calls reads the calls of one answer.
type calls struct {
	parser *toolcall.Parser // nil: there are none, all is content
	fresh  func() *toolcall.Parser
	// thought is the reasoning that has not ended: models forget to end it before they call.
	thought strings.Builder
	custom  func(name string) bool
	input   *customInput // of the custom tool that is being called; nil: it is a function
	begun   int
	one     bool // later calls are left out
	cut     bool // the last call came too late
}

// offered are the tools as calls are read and constrained by.
func (s *toolset) offered() []toolcall.Tool {
	out := make([]toolcall.Tool, len(s.tools))
	for i, t := range s.tools {
		out[i] = t.Tool
	}
	return out
}

// custom reports whether a name is that of a custom tool.
func (s *toolset) custom(name string) bool {
	return slices.ContainsFunc(s.tools, func(t tool) bool { return t.custom && t.Name == name })
}

func newCalls(s *toolset, format string) calls {
	if len(s.tools) == 0 {
		return calls{}
	}
	offered := s.offered()
	fresh := func() *toolcall.Parser {
		if s.field != "" {
			return toolcall.New(format, offered).Held()
		}
		return toolcall.New(format, offered)
	}
	return calls{parser: fresh(), fresh: fresh, custom: s.custom, one: !s.several}
}

// pieces are what an event adds to an answer: its parts, in which calls are told from content. An answer that ends inside
// reasoning, by itself, has the calls that stand there as well.
func (c *calls) pieces(parts []reasoning.Part, inside bool, finish engine.FinishReason) []piece {
	var out []piece
	add := func(p piece) {
		if n := len(out); n > 0 && out[n-1].kind == p.kind && p.kind != callPiece {
			out[n-1].text += p.text
			return
		}
		out = append(out, p)
	}
	arguments := func(text string) {
		if text != "" {
			add(piece{kind: argumentsPiece, text: text})
		}
	}
	read := func(found []toolcall.Piece) {
		for _, f := range found {
			switch {
			case f.Kind == toolcall.Content:
				add(piece{kind: contentPiece, text: f.Text})
			case f.Kind == toolcall.Begin:
				if c.cut = c.one && c.begun > 0; !c.cut {
					c.begun++
					custom := c.custom(f.Name)
					if c.input = nil; custom {
						c.input = &customInput{}
					}
					add(piece{kind: callPiece, call: call{id: "call_" + strings.ToLower(rand.Text()), name: f.Name, custom: custom}})
				}
			case c.cut:
			case c.input != nil:
				arguments(c.input.push(f.Text))
			default:
				arguments(f.Text)
			}
		}
	}
	for _, p := range parts {
		switch {
		case p.Reasoning:
			add(piece{kind: reasoningPiece, text: p.Text})
			if c.parser != nil {
				c.thought.WriteString(p.Text)
			}
		case c.parser != nil:
			c.thought.Reset()
			read(c.parser.Push(p.Text))
		default:
			add(piece{kind: contentPiece, text: p.Text})
		}
	}
	if c.parser != nil && finish != engine.FinishNone {
		read(c.parser.Finish(finish == engine.FinishLength))
		if inside && finish == engine.FinishStop {
			p := c.fresh()
			found := append(p.Push(c.thought.String()), p.Finish(false)...)
			read(slices.DeleteFunc(found, func(f toolcall.Piece) bool { return f.Kind == toolcall.Content }))
		}
	}
	return out
}
