package toolcall

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
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

// anyObject is the schema of a tool without one.
var anyObject = jsontext.Value(`{"type":"object"}`)

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
	number   = must(grammar.Regex(`-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?`))
	bareName = must(grammar.Regex(`[A-Za-z0-9_.-]{1,64}`))
	whole    = must(grammar.Regex(`-?(0|[1-9][0-9]{0,17})`))
)

func must(e grammar.Expr, err error) grammar.Expr {
	if err != nil {
		panic("toolcall: " + err.Error())
	}
	return e
}

// callExpr is one call of a tool.
func callExpr(format string, t Tool) (grammar.Expr, error) {
	schema := t.Parameters
	if schema == nil {
		schema = anyObject
	}
	switch format {
	case "qwen3_xml":
		return xmlExpr(t)
	case "gemma4":
		return gemmaExpr(t)
	}
	args, err := grammar.Schema(schema)
	if err != nil {
		return grammar.Expr{}, err
	}
	name := quote(t.Name)
	switch format {
	case "hermes":
		return grammar.Seq(grammar.Literal("<tool_call>\n{\"name\": "+name+", \"arguments\": "), args, grammar.Literal("}\n</tool_call>")), nil
	case "llama3_json":
		return grammar.Seq(grammar.Literal(`{"name": `+name+`, "parameters": `), args, grammar.Literal("}")), nil
	case "phi4_mini_json":
		return grammar.Seq(grammar.Literal(`{"name": `+name+`, "arguments": `), args, grammar.Literal("}")), nil
	}
	return grammar.Seq(grammar.Literal("[TOOL_CALLS]"+t.Name+"[ARGS]"), args), nil
}

// property is one of a tool's parameters.
type property struct {
	name     string
	schema   jsontext.Value
	types    []string
	required bool
}

// properties are those of a schema, in its order, each with the definitions that it may refer to.
func properties(t Tool) ([]property, error) {
	if t.Parameters == nil {
		return nil, nil
	}
	var schema struct {
		Properties  jsontext.Value `json:"properties"`
		Required    []string       `json:"required"`
		Defs        jsontext.Value `json:"$defs"`
		Definitions jsontext.Value `json:"definitions"`
	}
	if err := json.Unmarshal(t.Parameters, &schema); err != nil {
		return nil, err
	}
	if schema.Properties == nil {
		return nil, nil
	}
	var out []property
	dec := jsontext.NewDecoder(strings.NewReader(string(schema.Properties)))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, fmt.Errorf("properties: want an object")
	}
	for dec.PeekKind() != '}' {
		key, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		p := property{name: key.String()}
		if p.schema, err = dec.ReadValue(); err != nil {
			return nil, err
		}
		p.schema = p.schema.Clone()
		p.types = Types(t.Parameters, p.schema)
		for _, r := range schema.Required {
			p.required = p.required || r == p.name
		}
		if body, ok := strings.CutPrefix(string(p.schema), "{"); ok && strings.TrimSpace(body) != "}" && strings.Contains(body, `"$ref"`) {
			for name, defs := range map[string]jsontext.Value{"$defs": schema.Defs, "definitions": schema.Definitions} {
				if defs != nil {
					body = quote(name) + ": " + string(defs) + ", " + body
				}
			}
			p.schema = jsontext.Value("{" + body)
		}
		out = append(out, p)
	}
	return out, nil
}

// text reports whether the property is text and nothing else, and then its possible values if they are listed.
func (p *property) text() (is bool, values []string) {
	var s struct {
		Enum  []jsontext.Value `json:"enum"`
		Const jsontext.Value   `json:"const"`
	}
	is = !slices.ContainsFunc(p.types, func(t string) bool { return t != "string" })
	if !is || json.Unmarshal(p.schema, &s) != nil {
		return is, nil
	}
	if s.Const != nil {
		s.Enum = append(s.Enum, s.Const)
	}
	for _, v := range s.Enum {
		if b, err := jsontext.AppendUnquote(nil, v); err == nil {
			values = append(values, string(b))
		}
	}
	return is, values
}

// xmlExpr has the parameters in the schema's order, those that are not required or not.
func xmlExpr(t Tool) (grammar.Expr, error) {
	all, err := properties(t)
	if err != nil {
		return grammar.Expr{}, err
	}
	parts := []grammar.Expr{grammar.Literal("<tool_call>\n" + functionBegin + t.Name + ">\n")}
	if t.Parameters == nil {
		any := grammar.Seq(grammar.Literal(parameterBegin), bareName, grammar.Literal(">\n"), grammar.Until("\n"+parameterEnd), grammar.Literal("\n"+parameterEnd+"\n"))
		parts = append(parts, grammar.Repeat(any, 0, -1))
	}
	for _, p := range all {
		const end = "\n" + parameterEnd
		var value grammar.Expr
		switch is, values := p.text(); {
		case is && values != nil:
			value = grammar.Choice(values)
		case is:
			value = grammar.Until(end)
		default:
			if value, err = grammar.Schema(p.schema); err != nil {
				return grammar.Expr{}, fmt.Errorf("%s: %w", p.name, err)
			}
		}
		parts = append(parts, optional(p.required, grammar.Seq(grammar.Literal(parameterBegin+p.name+">\n"), value, grammar.Literal(end+"\n"))))
	}
	return grammar.Seq(append(parts, grammar.Literal(functionEnd+"\n"+callEnd))...), nil
}

func optional(required bool, e grammar.Expr) grammar.Expr {
	if required {
		return e
	}
	return grammar.Repeat(e, 0, 1)
}

// gemmaExpr has the parameters in the schema's order. Values have the types that the schema allows; what it says of numbers,
// lengths and what is inside lists and objects is not looked at.
func gemmaExpr(t Tool) (grammar.Expr, error) {
	all, err := properties(t)
	if err != nil {
		return grammar.Expr{}, err
	}
	if t.Parameters == nil {
		item := grammar.Seq(bareName, grammar.Literal(":"), grammar.Alt(gemmaType("string", 0), number, grammar.Choice([]string{"true", "false", "null"}), gemmaType("array", 2), gemmaType("object", 2)))
		members := grammar.Repeat(grammar.Seq(item, grammar.Repeat(grammar.Seq(grammar.Literal(","), item), 0, -1)), 0, 1)
		return grammar.Seq(grammar.Literal("<|tool_call>call:"+t.Name+"{"), members, grammar.Literal("}"+gemmaEnd)), nil
	}
	// first: with nothing before it; later: behind a comma.
	first, later := grammar.Expr{}, grammar.Expr{}
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		member := grammar.Seq(grammar.Literal(p.name+":"), gemmaValue(&p))
		first = grammar.Alt(grammar.Seq(member, later), skip(p.required, first))
		later = grammar.Alt(grammar.Seq(grammar.Literal(","), member, later), skip(p.required, later))
	}
	return grammar.Seq(grammar.Literal("<|tool_call>call:"+t.Name+"{"), first, grammar.Literal("}"+gemmaEnd)), nil
}

// skip is e where a parameter may be left out.
func skip(required bool, e grammar.Expr) grammar.Expr {
	if required {
		return grammar.Alt()
	}
	return e
}

func gemmaText(e grammar.Expr) grammar.Expr {
	return grammar.Seq(grammar.Literal(gemmaQuote), e, grammar.Literal(gemmaQuote))
}

func gemmaValue(p *property) grammar.Expr {
	if is, values := p.text(); is && values != nil {
		return gemmaText(grammar.Choice(values))
	}
	types := p.types
	if len(types) == 0 {
		types = []string{"string"}
	}
	var all []grammar.Expr
	for _, t := range types {
		all = append(all, gemmaType(t, 3))
	}
	return grammar.Alt(all...)
}

// gemmaType is any value of a type, with lists and objects nested so deep.
func gemmaType(t string, depth int) grammar.Expr {
	text := gemmaText(grammar.Until(gemmaQuote))
	inner := []grammar.Expr{text, number, grammar.Choice([]string{"true", "false", "null"})}
	if depth > 0 && (t == "array" || t == "object") {
		inner = append(inner, gemmaType("array", depth-1), gemmaType("object", depth-1))
	}
	list := func(open string, item grammar.Expr, end string) grammar.Expr {
		return grammar.Seq(grammar.Literal(open), grammar.Repeat(grammar.Seq(item, grammar.Repeat(grammar.Seq(grammar.Literal(","), item), 0, -1)), 0, 1), grammar.Literal(end))
	}
	switch t {
	case "integer":
		return whole
	case "number":
		return number
	case "boolean":
		return grammar.Choice([]string{"true", "false"})
	case "null":
		return grammar.Literal("null")
	case "array":
		return list("[", grammar.Alt(inner...), "]")
	case "object":
		return list("{", grammar.Seq(text, grammar.Literal(":"), grammar.Alt(inner...)), "}")
	}
	return text
}
