package api

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"strings"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/engine/grammar"
)

// Structured output: OpenAI's response_format, vLLM's structured_outputs and the guided_* fields before it. One request
// may ask for one form.

// structured is what an answer has to look like and the field that says so; field "": anything.
type structured struct {
	field string
	expr  grammar.Expr
}

// maxChoices bounds choice.
const maxChoices = 100_000

// readStructured reads every field that constrains an answer.
func readStructured(o *object) (s structured) {
	if o.err != nil {
		return s
	}
	take := func(field string, expr grammar.Expr, err error) {
		field = strings.TrimSuffix(field, ".")
		switch {
		case o.err != nil:
		case s.field != "":
			o.err = invalid(field, "excludes %s: an answer can have one form", s.field)
		case err != nil:
			o.err = constraintError(field, err)
		default:
			s = structured{field, expr}
		}
	}
	readFormat(o, take)
	if inner := o.object("structured_outputs"); inner != nil {
		readConstraints(inner, "", "structured_outputs.", take)
		for _, name := range []string{"structural_tag", "disable_fallback", "disable_any_whitespace", "disable_additional_properties"} {
			if v := inner.fields[name]; v != nil && !literal("false")(v) {
				inner.fail(name, "is not supported")
			}
		}
		if o.err == nil {
			o.err = inner.err
		}
	}
	readConstraints(o, "guided_", "", take)
	return s
}

type taker func(field string, expr grammar.Expr, err error)

// readFormat reads response_format.
func readFormat(o *object, take taker) {
	f := o.object("response_format")
	if f == nil {
		return
	}
	switch kind := f.string("type"); {
	case f.err != nil:
	case kind == "text":
	case kind == "json_object":
		expr, err := grammar.Schema([]byte(`{"type":"object"}`))
		take("response_format", expr, err)
	case kind == "json_schema":
		outer := f.object("json_schema")
		if outer == nil {
			f.fail("json_schema", "is missing")
			break
		}
		outer.string("name")
		outer.string("description")
		outer.bool("strict", false)
		schema := outer.take("schema", "a schema, which is an object", '{', 't', 'f')
		if schema == nil {
			outer.fail("schema", "is missing")
		} else if outer.err == nil {
			expr, err := grammar.Schema(schema)
			take("response_format.json_schema.schema", expr, err)
		}
		if f.err == nil {
			f.err = outer.err
		}
	case !f.has("type"):
		f.fail("type", "is missing")
	default:
		f.fail("type", "%q is not one of text, json_object and json_schema", shorten(kind, 40))
	}
	if o.err == nil {
		o.err = f.err
	}
}

// readConstraints reads vLLM's fields, each with prefix before its name; path is what errors call the object.
func readConstraints(o *object, prefix, path string, take taker) {
	text := func(name string, read func(string) (grammar.Expr, error)) {
		if o.take(prefix+name, "a string", '"') != nil {
			expr, err := read(o.string(prefix + name))
			take(path+prefix+name, expr, err)
		}
	}
	space, own := grammar.Expr{}, false
	if v := o.take(prefix+"whitespace_pattern", "a string", '"'); v != nil {
		var err error
		if space, err = grammar.Regex(o.string(prefix + "whitespace_pattern")); err != nil {
			o.err = constraintError(path+prefix+"whitespace_pattern", err)
			return
		}
		own = true
		if !o.has(prefix+"json") && !o.has(prefix+"json_object") {
			o.fail(prefix+"whitespace_pattern", "needs a schema")
		}
	}
	if v := o.take(prefix+"json", "a schema: an object, or a string that holds one", '{', '"', 't', 'f'); v != nil {
		raw := []byte(v)
		if v.Kind() == '"' {
			raw = []byte(o.string(prefix + "json"))
		}
		expr, err := grammar.SchemaWithSpace(raw, space, own)
		take(path+prefix+"json", expr, err)
	}
	if o.bool(prefix+"json_object", false) {
		expr, err := grammar.SchemaWithSpace([]byte(`{"type":"object"}`), space, own)
		take(path+prefix+"json_object", expr, err)
	}
	text("regex", grammar.Regex)
	text("grammar", grammar.EBNF)
	if v := o.take(prefix+"choice", "an array of strings", '['); v != nil {
		if choices := readChoices(o, prefix+"choice", v); o.err == nil {
			take(path+prefix+"choice", grammar.Choice(choices), nil)
		}
	}
}

func readChoices(o *object, name string, array jsontext.Value) (choices []string) {
	for i, v := range elements(array) {
		switch {
		case i == maxChoices:
			o.fail(name, "more than %d choices", maxChoices)
			return nil
		case v.Kind() != '"':
			o.fail(name, "want strings, not %s", kindName(v.Kind()))
			return nil
		}
		choices = append(choices, text(v))
	}
	if len(choices) == 0 {
		o.fail(name, "there is no choice")
	}
	return choices
}

// constraintError blames what cannot be compiled on its field.
func constraintError(field string, err error) *apiError {
	var e *grammar.Error
	if errors.As(err, &e) {
		return invalid(field, "%s", strings.ToValidUTF8(shorten(e.Error(), 600), ""))
	}
	return asError(err)
}

// compile makes the request's grammar, in which a model that reasons may do so first.
func (g *generation) compile(ctx context.Context, s structured) error {
	if s.field == "" || g.promptOnly {
		return nil
	}
	expr := afterReasoning(s.expr, g.reasoning, g.inReasoning)
	var err error
	if g.grammar, err = g.h.gen.CompileGrammar(ctx, g.model.Name, expr); err != nil {
		var e *grammar.Error
		if errors.As(err, &e) {
			return constraintError(s.field, err)
		}
	}
	return err
}

// afterReasoning lets reasoning go before an answer: inside, it goes on and has to end; else it may begin.
func afterReasoning(e grammar.Expr, r engine.Reasoning, inside bool) grammar.Expr {
	if r.Parser == "" {
		return e
	}
	space := grammar.Repeat(grammar.Literal("\n"), 0, 2) // models put some behind
	rest := grammar.Seq(grammar.Until(r.Close), grammar.Literal(r.Close), space, e)
	if inside {
		return rest
	}
	return grammar.Alt(e, grammar.Seq(grammar.Literal(r.Open), rest))
}
