package grammar

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Notation is a way to write JSON values other than JSON's own: brackets, commas, colons, numbers and words are those of JSON,
// without white space between them.
type Notation struct {
	// Quote stands around strings; control tokens may spell it. Text between quotes is as it is, without escapes, and has no
	// Quote in it. "": nothing stands around strings.
	Quote string
	// Escapes keeps strings as JSON writes them, and its white space: what remains of the notation is Stop.
	Escapes bool
	// BareKeys leaves the quotes of a key out, if it is a plain word.
	BareKeys bool
	// Stop is what no string contains beside Quote; "": there is no such text.
	Stop string
}

// SchemaIn is Schema in another notation.
func SchemaIn(n Notation, schema []byte) (e Expr, err error) {
	if e, err = SchemaWithSpace(schema, Expr{}, !n.Escapes); err != nil {
		return Expr{}, err
	}
	defer func() {
		switch f := recover().(type) {
		case nil:
		case syntax:
			e, err = Expr{}, f.Error
		default:
			panic(f)
		}
	}()
	w := &respeller{n: n, rules: map[*rule]Expr{}, keys: map[*rule]Expr{}}
	return w.value(e), nil
}

// respeller rewrites expressions of JSON. A schema's expression writes a string as one part of a sequence: its quotes, and
// between them parts that are whole characters, so that each can be rewritten alone.
type respeller struct {
	n           Notation
	rules, keys map[*rule]Expr
}

// value rewrites what is outside strings.
func (w *respeller) value(e Expr) Expr {
	n := e.n
	if n == nil {
		return e
	}
	switch n.op {
	case opClass:
		return e
	case opBytes:
		return w.seq([]Expr{e})
	case opSeq:
		return w.seq(n.kids)
	case opAlt, opRepeat, opAnd, opMinus:
		return w.kids(n, w.value)
	case opRule:
		return w.rule(n.rule, w.rules, w.value)
	case opNet:
		out := &net{states: n.net.states, final: n.net.final}
		for _, edge := range n.net.edges {
			out.edge(edge.from, edge.to, w.value(edge.on))
		}
		return out.expr()
	}
	fail("", "what is allowed here cannot be written in this notation")
	return Expr{}
}

func (w *respeller) kids(n *node, rewrite func(Expr) Expr) Expr {
	out := *n
	out.kids = make([]Expr, len(n.kids))
	for i, k := range n.kids {
		out.kids[i] = rewrite(k)
	}
	return Expr{&out}
}

func (w *respeller) rule(r *rule, done map[*rule]Expr, rewrite func(Expr) Expr) Expr {
	if e, ok := done[r]; ok {
		return e
	}
	out := &rule{name: r.name}
	e := Expr{&node{op: opRule, rule: out}}
	done[r] = e // a rule may use itself
	out.body = rewrite(r.body)
	return e
}

// seq rewrites a sequence that begins and ends outside strings.
func (w *respeller) seq(kids []Expr) Expr {
	var out, body []Expr
	inside := false
	for i, k := range kids {
		key := i+1 < len(kids) && kids[i+1].n != nil && kids[i+1].n.op == opBytes && strings.HasPrefix(kids[i+1].n.text, ":")
		switch {
		case k.n == nil:
		case k.n.op != opBytes && inside:
			body = append(body, w.text(k))
		case k.n.op == opRule && key:
			out = append(out, w.rule(k.n.rule, w.keys, w.key))
		case k.n.op != opBytes:
			out = append(out, w.value(k))
		default:
			for text := k.n.text; text != ""; {
				at := quoteIn(text, inside)
				if at < 0 {
					at = len(text)
				}
				part := Expr{&node{op: opBytes, text: text[:at], control: k.n.control}}
				switch {
				case inside:
					body = append(body, w.text(part))
				case at > 0:
					out = append(out, part)
				}
				if at == len(text) {
					break
				}
				text = text[at+1:]
				if inside {
					out, body = append(out, w.string(body, strings.HasPrefix(text, ":") || text == "" && key)), nil
				}
				inside = !inside
			}
		}
	}
	if inside {
		fail("", "what is allowed here cannot be written in this notation")
	}
	return Seq(out...)
}

// quoteIn is where the quote is that begins a string in text, or that ends one; -1: nowhere.
func quoteIn(text string, inside bool) int {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return i
		case text[i] == '\\' && inside:
			i++
		}
	}
	return -1
}

// key rewrites the string that is a key.
func (w *respeller) key(e Expr) Expr {
	if e.n != nil && e.n.op == opSeq && len(e.n.kids) > 2 {
		first, last := e.n.kids[0].n, e.n.kids[len(e.n.kids)-1].n
		if first.op == opBytes && last.op == opBytes && first.text == `"` && last.text == `"` {
			var body []Expr
			for _, k := range e.n.kids[1 : len(e.n.kids)-1] {
				body = append(body, w.text(k))
			}
			return w.string(body, true)
		}
	}
	fail("", "what keys are allowed here cannot be written in this notation")
	return Expr{}
}

// text rewrites what is inside a string.
func (w *respeller) text(e Expr) Expr {
	n := e.n
	switch {
	case n == nil, n.op == opClass, w.n.Escapes:
		return e
	case n == freeChar().n:
		return oneOf(anyChar)
	case n.op == opBytes:
		s, ok := unescaped(n.text)
		if ok {
			return raw(s)
		}
	case n.op == opSeq, n.op == opAlt, n.op == opRepeat, n.op == opAnd, n.op == opMinus:
		return w.kids(n, w.text)
	}
	fail("", "what a string may be here cannot be written in this notation")
	return Expr{}
}

// unescaped is text that was written by escaped; false when it is no whole characters.
func unescaped(text string) (string, bool) {
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			out = append(out, text[i])
			continue
		}
		if i++; i == len(text) {
			return "", false
		}
		switch at := strings.IndexByte(`nrtbf`, text[i]); {
		case at >= 0:
			out = append(out, "\n\r\t\b\f"[at])
		case text[i] == '"', text[i] == '\\':
			out = append(out, text[i])
		case text[i] == 'u' && len(text)-i > 4:
			r := rune(0)
			for _, c := range text[i+1 : i+5] {
				d := strings.IndexRune("0123456789abcdef", c)
				if d < 0 {
					return "", false
				}
				r = r<<4 | rune(d)
			}
			out = utf8.AppendRune(out, r)
			i += 4
		default:
			return "", false
		}
	}
	return string(out), true
}

// bareKey are the keys that are plain words.
const bareKey = `[\p{L}\p{N}_$@./-]+`

var bareKeys = sync.OnceValue(func() Expr { return mustRegex(bareKey) })

func isBare(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune("_$@./-", r)
	})
}

// string is a string of the notation.
func (w *respeller) string(body []Expr, key bool) Expr {
	quote := Literal(w.n.Quote)
	if w.n.Escapes {
		quote = raw(`"`)
	}
	quoted := func(e Expr) Expr { return Seq(quote, e, quote) }
	text, constant := "", true
	for _, e := range body {
		if e.n != nil {
			text, constant = text+e.n.text, constant && e.n.op == opBytes
		}
	}
	stops := []string{w.n.Stop}
	if !w.n.Escapes {
		stops = append(stops, w.n.Quote)
	}
	if constant {
		for _, stop := range stops {
			if stop != "" && strings.Contains(text, stop) {
				fail("", "a text with %q in it cannot be written in this notation", stop)
			}
		}
		if key && w.n.BareKeys && isBare(text) {
			return raw(text)
		}
		return quoted(raw(text))
	}
	e, free := Seq(body...), free(body)
	for _, stop := range stops {
		switch {
		case stop == "":
		case free:
			e, free = Until(stop), false
		default:
			any := Repeat(Expr{&node{op: opAny}}, 0, -1)
			e = minus(e, Seq(any, raw(stop), any))
		}
	}
	if key && w.n.BareKeys {
		return Alt(and(e, bareKeys()), quoted(e))
	}
	return quoted(e)
}

// free reports whether a string may be any text.
func free(body []Expr) bool {
	if len(body) != 1 || body[0].n == nil || body[0].n.op != opRepeat || body[0].n.min != 0 || body[0].n.max >= 0 {
		return false
	}
	of := body[0].n.kids[0].n
	return of != nil && of.op == opClass && len(of.class) == len(anyChar) && of.class[0] == anyChar[0]
}
