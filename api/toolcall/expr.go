package toolcall

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/engine/grammar"
)

// Rule says what calls an answer may have.
type Rule struct {
	Tools []Tool
	// Required: the answer is calls, one at least. Else it is text, with calls or without.
	Required bool
	// Several calls may follow one another.
	Several bool
}

// Expr is the answers in a format that keep a rule, their calls' arguments being what the tools' schemas allow. An error says
// which tool's schema cannot be compiled, or that the format cannot be written so.
func Expr(format string, r Rule) (grammar.Expr, error) {
	call, sep, opener := grammar.Expr{}, grammar.Literal("\n"), ""
	var calls []grammar.Expr
	for _, t := range r.Tools {
		e, err := callExpr(format, t)
		if err != nil {
			return grammar.Expr{}, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		calls = append(calls, e)
	}
	call = grammar.Alt(calls...)
	begin, end := grammar.Expr{}, grammar.Expr{}
	switch format {
	case "hermes", "qwen3_xml":
		opener = "<tool_call>"
	case "llama3_json":
		sep = grammar.Literal("; ")
	case "phi4_mini_json":
		opener, sep = "functools[", grammar.Literal(", ")
		begin, end = grammar.Literal(opener), grammar.Literal("]")
	case "gemma4":
		opener, sep = "<|tool_call>", grammar.Expr{}
	case "mistral":
		opener, sep = "[TOOL_CALLS]", grammar.Expr{}
	default:
		return grammar.Expr{}, fmt.Errorf("the format %q is not known", format)
	}
	block := call
	if r.Several {
		block = grammar.Seq(call, grammar.Repeat(grammar.Seq(sep, call), 0, -1))
	}
	block = grammar.Seq(begin, block, end)
	switch {
	case r.Required:
		return block, nil
	case format == "llama3_json": // text that begins like a call is one
		text := grammar.Seq(notBrace, anyText)
		return grammar.Alt(grammar.Expr{}, text, block), nil
	}
	return grammar.Seq(grammar.Until(opener), grammar.Repeat(block, 0, 1)), nil
}

var (
	notBrace = must(grammar.Regex(`\s*[^\s{]`))
	anyText  = must(grammar.Regex(`[\s\S]*`))
	bareName = must(grammar.Regex(`[A-Za-z0-9_.-]{1,64}`))
)

func must(e grammar.Expr, err error) grammar.Expr {
	if err != nil {
		panic("toolcall: " + err.Error())
	}
	return e
}

// callExpr is one call of a tool.
func callExpr(format string, t Tool) (grammar.Expr, error) {
	name := quote(t.Name)
	call := func(begin string, n grammar.Notation, end string) (grammar.Expr, error) {
		args, err := grammar.SchemaIn(n, objects(t))
		return grammar.Seq(grammar.Literal(begin), args, grammar.Literal(end)), err
	}
	inJSON := grammar.Notation{Escapes: true}
	switch format {
	case "hermes":
		return call("<tool_call>\n{\"name\": "+name+", \"arguments\": ", inJSON, "}\n</tool_call>")
	case "llama3_json":
		return call(`{"name": `+name+`, "parameters": `, inJSON, "}")
	case "phi4_mini_json":
		return call(`{"name": `+name+`, "arguments": `, inJSON, "}")
	case "gemma4":
		return call("<|tool_call>call:"+t.Name, grammar.Notation{Quote: gemmaQuote, BareKeys: true}, gemmaEnd)
	case "mistral":
		return call("[TOOL_CALLS]"+t.Name+"[ARGS]", inJSON, "")
	}
	return xmlExpr(t)
}

// xmlExpr has the parameters in the schema's order, those that are not required or not.
func xmlExpr(t Tool) (grammar.Expr, error) {
	root := followed(objects(t))
	all, more, err := properties(root)
	if err != nil {
		return grammar.Expr{}, err
	}
	made := newParts(root)
	parts := []grammar.Expr{grammar.Literal("<tool_call>\n" + functionBegin + t.Name + ">\n")}
	for _, p := range all {
		if strings.ContainsAny(p.name, "<>\n") || p.name != strings.Trim(p.name, layout+`"'`) || p.name == "" {
			return grammar.Expr{}, fmt.Errorf("the parameter %q has a name that this model's format of calls cannot write", p.name)
		}
		e, err := xmlParameter(grammar.Literal(p.name), &p, made)
		if err != nil {
			return grammar.Expr{}, err
		}
		if !p.required {
			e = grammar.Repeat(e, 0, 1)
		}
		parts = append(parts, e)
	}
	if more != nil {
		e, err := xmlParameter(bareName, more, made)
		if err != nil {
			return grammar.Expr{}, err
		}
		parts = append(parts, grammar.Repeat(e, 0, -1))
	}
	return grammar.Seq(append(parts, grammar.Literal(functionEnd+"\n"+callEnd))...), nil
}

// xmlParameter is a parameter: text as it is, if its schema allows text, since it is read so; else JSON. No value has the end
// of one in it.
func xmlParameter(name grammar.Expr, p *property, made *parts) (grammar.Expr, error) {
	n := grammar.Notation{Stop: parameterEnd}
	var types []string
	switch {
	case len(p.types) > 0 && !slices.Contains(p.types, "string"):
		n.Escapes = true
	case slices.Contains(p.types, "null"):
		types = []string{"string", "null"}
	default:
		types = []string{"string"}
	}
	schema, err := made.schema(p.schema, types...)
	if err != nil {
		return grammar.Expr{}, err
	}
	value, err := grammar.SchemaIn(n, schema)
	if err != nil {
		var e *grammar.Error
		if errors.As(err, &e) {
			where := "#/properties/" + p.name + strings.TrimPrefix(e.Where, "#")
			if rest, ok := strings.CutPrefix(e.Where, wholeSchema); ok {
				where = "#" + rest
			}
			err = &grammar.Error{Where: where, Message: strings.ReplaceAll(e.Message, wholeSchema, "#")}
		}
		return grammar.Expr{}, err
	}
	return grammar.Seq(grammar.Literal(parameterBegin), name, grammar.Literal(">\n"), value, grammar.Literal("\n"+parameterEnd+"\n")), nil
}
