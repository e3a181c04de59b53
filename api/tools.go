package api

import (
	"context"
	"crypto/rand"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/api/reasoning"
	"github.com/openinfer-go/openinfer/api/toolcall"
	"github.com/openinfer-go/openinfer/engine"
)

// toolset is what a request says of tools. The zero value: none may be called.
type toolset struct {
	raw      jsontext.Value // for the chat template
	tools    []toolcall.Tool
	strict   []bool // by tool: its calls are held to its schema
	required bool   // some tool, or the only one that is left, must be called
	several  bool
	field    string // that asks for calls to be constrained, for errors
}

const (
	maxTools    = 1024
	maxToolName = 128
)

// readTools reads tools, tool_choice and parallel_tool_calls.
func readTools(o *object) toolset {
	s := toolset{several: o.bool("parallel_tool_calls", true)}
	at := map[string]int{}
	for i, t := range o.objects("tools") {
		switch kind := t.string("type"); {
		case i == maxTools:
			t.fail("", "more than %d tools", maxTools)
		case !t.has("type"):
			t.fail("type", "is missing")
		case kind != "function":
			t.fail("type", "%q tools are not supported, only function", shorten(kind, 40))
		}
		f := t.object("function")
		if f == nil {
			t.fail("function", "is missing")
			continue
		}
		name := f.string("name")
		f.string("description")
		tool := toolcall.Tool{Name: name, Parameters: f.take("parameters", "a JSON schema, which is an object", '{')}
		s.strict = append(s.strict, f.bool("strict", false))
		_, again := at[name]
		switch {
		case !f.has("name"):
			f.fail("name", "is missing")
		case len(name) > maxToolName || !toolName(name):
			f.fail("name", "%q is not 1 to %d letters, digits or characters of _-.:/", shorten(name, 60), maxToolName)
		case again:
			f.fail("name", "%q is the name of two tools", name)
		}
		t.inner(f)
		at[name] = len(s.tools)
		s.tools = append(s.tools, tool)
	}
	if len(s.tools) > 0 {
		s.raw = o.fields["tools"]
	}
	s.choose(o, at)
	if s.field == "" {
		for i, strict := range s.strict {
			if strict && s.field == "" {
				s.field = fmt.Sprintf("tools[%d].function.strict", i)
			}
		}
	}
	return s
}

// choose reads tool_choice.
func (s *toolset) choose(o *object, at map[string]int) {
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
		case "function":
			s.name(c, at)
		case "allowed_tools":
			s.allow(c, at, o.fields["tools"])
		default:
			c.fail("type", "%q is not one of function and allowed_tools", shorten(kind, 40))
		}
		o.inner(c)
	}
	if len(s.tools) == 0 {
		o.fail("tool_choice", "there are no tools")
	}
}

// namedTool is the index of the tool that the field function of t names.
func namedTool(t *object, at map[string]int) (int, bool) {
	f := t.object("function")
	if f == nil {
		t.fail("function", "is missing")
		return 0, false
	}
	name := f.string("name")
	i, ok := at[name]
	if !ok {
		f.fail("name", "%q is none of the request's tools", shorten(name, 60))
	}
	t.inner(f)
	return i, ok
}

// name lets only the tool be called that c names.
func (s *toolset) name(c *object, at map[string]int) {
	if i, ok := namedTool(c, at); ok {
		s.tools, s.strict = s.tools[i:i+1], s.strict[i:i+1]
	}
	s.required, s.several, s.field = true, false, "tool_choice"
}

// allow leaves out the tools that c does not allow; the model does not see them. all are the tools as they came.
func (s *toolset) allow(c *object, at map[string]int, all jsontext.Value) {
	a := c.object("allowed_tools")
	if a == nil {
		c.fail("allowed_tools", "is missing")
		return
	}
	allowed, none := make([]bool, len(s.tools)), true
	for _, t := range a.objects("tools") {
		none = false
		if i, ok := namedTool(t, at); ok {
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
	if c.err != nil || all == nil {
		return
	}
	old := *s
	s.tools, s.strict, s.raw = nil, nil, jsontext.Value("[")
	for i, v := range elements(all) {
		if i < len(allowed) && allowed[i] {
			if len(s.tools) > 0 {
				s.raw = append(s.raw, ',')
			}
			s.raw = append(s.raw, v...)
			s.tools, s.strict = append(s.tools, old.tools[i]), append(s.strict, old.strict[i])
		}
	}
	s.raw = append(s.raw, ']')
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
	rule := toolcall.Rule{Tools: make([]toolcall.Tool, len(t.tools)), Required: t.required, Several: t.several}
	copy(rule.Tools, t.tools)
	if !t.required { // what is not strict may have any arguments
		for i, strict := range t.strict {
			if !strict {
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
	begun   int
	one     bool // later calls are left out
	cut     bool // the last call came too late
}

func newCalls(s *toolset, format string) calls {
	if len(s.tools) == 0 {
		return calls{}
	}
	fresh := func() *toolcall.Parser { return toolcall.New(format, s.tools) }
	return calls{parser: fresh(), fresh: fresh, one: !s.several}
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
	read := func(found []toolcall.Piece) {
		for _, f := range found {
			switch {
			case f.Kind == toolcall.Content:
				add(piece{kind: contentPiece, text: f.Text})
			case f.Kind == toolcall.Begin:
				if c.cut = c.one && c.begun > 0; !c.cut {
					c.begun++
					add(piece{kind: callPiece, call: call{id: "call_" + strings.ToLower(rand.Text()), name: f.Name}})
				}
			case !c.cut:
				add(piece{kind: argumentsPiece, text: f.Text})
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
