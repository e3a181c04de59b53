package chat

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Expressions, by Jinja2's grammar and precedence: condition, or, and, not, comparison, + -, ~,
// * / // %, **, sign, postfix, filters and tests.

var constants = map[string]string{
	"true": "true", "True": "true", "false": "false", "False": "false", "none": "none", "None": "none",
}

var keywords = []string{"and", "else", "if", "in", "is", "not", "or"}

// apply writes a call of one of chat's functions.
func (t *translator) apply(fn string, args ...code) code {
	return t.applyNamed(fn, args, nil)
}

func (t *translator) applyNamed(fn string, args []code, named []string) code {
	parts := make([]string, len(args), len(args)+len(named))
	depth := 0
	for i, a := range args {
		parts[i] = a.s
		depth = max(depth, a.depth)
	}
	return t.deep(code{s: reserved + fn + "(" + strings.Join(append(parts, named...), ", ") + ")", depth: depth})
}

// deep counts one more level of an expression.
func (t *translator) deep(c code) code {
	if c.depth++; c.depth > maxExprDepth {
		t.fail("an expression nests deeper than %d", maxExprDepth)
	}
	return c
}

func literal(s string) code { return code{s: quote(s)} }

// tuple reads one expression, or several separated by commas.
func (t *translator) tuple(conditional bool, ends ...string) code {
	read := t.or
	if conditional {
		read = t.expression
	}
	done := func() bool {
		tok := t.peek()
		return tok.kind == tokVarEnd || tok.kind == tokBlockEnd || t.isOp(")") ||
			tok.kind == tokName && slices.Contains(ends, tok.val)
	}
	items := []code{read()}
	if !t.isOp(",") {
		return items[0]
	}
	for t.skipOp(",") && !done() {
		items = append(items, read())
	}
	return t.apply("tuple", items...)
}

func (t *translator) enter() func() {
	if t.exprDepth++; t.exprDepth > maxExprDepth {
		t.fail("an expression nests deeper than %d", maxExprDepth)
	}
	return func() { t.exprDepth-- }
}

func (t *translator) expression() code {
	defer t.enter()()
	// Whether a filter exists matters only when it is reached, in a condition's branches; the
	// branch before "if" is read before that is known.
	t.conditional++
	v := t.or()
	t.conditional--
	for t.skipName("if") {
		t.conditional++
		cond := t.or()
		depth := max(v.depth, cond.depth)
		if t.skipName("else") {
			other := t.expression()
			v = t.deep(code{s: "(" + v.s + " if " + cond.s + " else " + other.s + ")", depth: max(depth, other.depth)})
		} else {
			v = t.deep(code{s: "(" + v.s + " if " + cond.s + " else " + reserved + "undefined())", depth: depth})
		}
		t.conditional--
	}
	return v
}

func (t *translator) or() code {
	return t.logic("or", func() code { return t.logic("and", t.not) })
}

func (t *translator) logic(word string, operand func() code) code {
	v := operand()
	if !t.isName(word) {
		return v
	}
	parts, depth := []string{v.s}, v.depth
	for t.skipName(word) {
		v = operand()
		parts = append(parts, v.s)
		depth = max(depth, v.depth)
	}
	// The library's tree leans left, one level for each operand.
	return t.deep(code{s: "(" + strings.Join(parts, " "+word+" ") + ")", depth: depth + len(parts)/4})
}

func (t *translator) not() code {
	if t.isName("not") {
		defer t.enter()()
		t.pos++
		v := t.not()
		return t.deep(code{s: "(not " + v.s + ")", depth: v.depth})
	}
	return t.comparison()
}

var comparisons = map[string]string{"==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge"}

func (t *translator) comparison() code {
	left := t.sum()
	var parts []string
	depth := 0
	for {
		fn := ""
		switch tok := t.peek(); {
		case tok.kind == tokOp:
			fn = comparisons[tok.val]
		case t.isName("in"):
			fn = "in"
		case t.isName("not") && t.toks[t.pos+1].kind == tokName && t.toks[t.pos+1].val == "in":
			t.pos++
			fn = "notin"
		}
		if fn == "" {
			break
		}
		t.pos++
		right := t.sum()
		c := t.apply(fn, left, right)
		parts, depth = append(parts, c.s), max(depth, c.depth)
		left = right
	}
	switch len(parts) {
	case 0:
		return left
	case 1:
		return code{s: parts[0], depth: depth}
	}
	return t.deep(code{s: "(" + strings.Join(parts, " and ") + ")", depth: depth + len(parts)/4})
}

// chain reads operands joined by left-associative operators; a run of one operator is one call.
func (t *translator) chain(ops map[string]string, operand func() code) code {
	v := operand()
	for t.peek().kind == tokOp && ops[t.peek().val] != "" {
		op := t.peek().val
		args := []code{v}
		for t.skipOp(op) {
			args = append(args, operand())
		}
		v = t.apply(ops[op], args...)
	}
	return v
}

func (t *translator) sum() code {
	return t.chain(map[string]string{"+": "add", "-": "sub"}, t.concat)
}

func (t *translator) concat() code {
	return t.chain(map[string]string{"~": "cat"}, t.product)
}

func (t *translator) product() code {
	return t.chain(map[string]string{"*": "mul", "/": "div", "//": "floordiv", "%": "mod"}, t.power)
}

func (t *translator) power() code {
	return t.chain(map[string]string{"**": "pow"}, func() code { return t.unary(true) })
}

func (t *translator) unary(filters bool) code {
	defer t.enter()()
	start := t.pos
	var v code
	switch {
	case t.skipOp("-"):
		v = t.apply("neg", t.unary(false))
	case t.skipOp("+"):
		v = t.apply("pos", t.unary(false))
	default:
		v = t.primary()
	}
	v = t.postfix(v, start)
	if !filters {
		return v
	}
	for {
		switch {
		case t.isOp("|"):
			v = t.filterChain(v, false)
		case t.isName("is"):
			v = t.test(v)
		case t.isOp("("):
			v = t.call(v, start)
		default:
			return v
		}
	}
}

func (t *translator) primary() code {
	tok := t.next()
	switch tok.kind {
	case tokName:
		if c, ok := constants[tok.val]; ok {
			return code{s: c}
		}
		if slices.Contains(keywords, tok.val) {
			t.pos--
			t.fail("unexpected %q", tok)
		}
		if tok.val == "null" { // a literal to the library, an ordinary name to Jinja2
			return code{s: reserved + "undefined()"}
		}
		if t.inBlock > 0 && (tok.val == "varargs" || tok.val == "kwargs") {
			t.pos--
			t.fail("%s within a with, set, filter or call body is not supported", tok.val)
		}
		switch tok.val {
		case "varargs": // a tuple to Python
			return t.apply("varargs", code{s: tok.val})
		case "self", "lipsum":
			t.pos--
			t.fail("%q is not supported", tok.val)
		}
		return code{s: tok.val}
	case tokString:
		s := tok.val
		for t.peek().kind == tokString {
			s += t.next().val
		}
		return literal(s)
	case tokInt:
		n, err := strconv.ParseInt(tok.val, 0, 64)
		if err != nil {
			t.fail("number %s is not an integer of 64 bits", tok.val)
		}
		return code{s: strconv.FormatInt(n, 10)}
	case tokFloat:
		f, err := strconv.ParseFloat(tok.val, 64)
		if err != nil || math.IsInf(f, 0) {
			t.fail("number %s is out of range", tok.val)
		}
		s := strconv.FormatFloat(f, 'e', -1, 64)
		return code{s: s}
	case tokOp:
		switch tok.val {
		case "(":
			if t.skipOp(")") {
				return t.apply("tuple")
			}
			v := t.tuple(true)
			t.expectOp(")")
			return v
		case "[":
			items := t.list("]", t.expression)
			parts, depth := make([]string, len(items)), 0
			for i, it := range items {
				parts[i], depth = it.s, max(depth, it.depth)
			}
			return t.deep(code{s: "[" + strings.Join(parts, ", ") + "]", depth: depth})
		case "{":
			var members []code
			t.list("}", func() code {
				key := t.expression()
				t.expectOp(":")
				members = append(members, key, t.expression())
				return code{}
			})
			return t.apply("dict", members...)
		}
	}
	t.pos = max(t.pos-1, 0)
	t.fail("unexpected %q", tok)
	return code{}
}

func (t *translator) list(end string, item func() code) []code {
	var items []code
	for !t.isOp(end) {
		if len(items) > 0 {
			t.expectOp(",")
			if t.isOp(end) {
				break
			}
		}
		items = append(items, item())
	}
	t.expectOp(end)
	return items
}

// source is the template text of the tokens from start, for messages.
func (t *translator) source(start int) code {
	var b strings.Builder
	for i := start; i < t.pos && b.Len() < 60; i++ {
		if t.toks[i].kind == tokString {
			b.WriteString("'" + t.toks[i].val + "'")
		} else {
			b.WriteString(t.toks[i].val)
		}
	}
	return literal(b.String())
}

func (t *translator) postfix(v code, start int) code {
	for {
		desc := t.source(start)
		switch {
		case t.skipOp("."):
			tok := t.next()
			switch tok.kind {
			case tokName:
				v = t.apply("attr", v, literal(tok.val), desc)
			case tokInt:
				v = t.apply("item", v, code{s: tok.val}, desc)
			default:
				t.pos--
				t.fail("expected a name or a number after \".\", found %q", tok)
			}
		case t.skipOp("["):
			v = t.subscript(v, desc)
		case t.isOp("("):
			v = t.call(v, start)
		default:
			return v
		}
	}
}

func (t *translator) subscript(v, desc code) code {
	bounds := [3]code{{s: "none"}, {s: "none"}, {s: "none"}}
	if !t.isOp(":") {
		bounds[0] = t.expression()
		if t.skipOp("]") {
			return t.apply("item", v, bounds[0], desc)
		}
		if t.isOp(",") {
			t.fail("a subscript of several values is not supported")
		}
	}
	for i := 1; i < 3 && t.skipOp(":"); i++ {
		if !t.isOp(":") && !t.isOp("]") {
			bounds[i] = t.expression()
		}
	}
	t.expectOp("]")
	return t.apply("slice", v, bounds[0], bounds[1], bounds[2], desc)
}

// arguments reads a call's arguments. star and starstar are the unpacked ones.
func (t *translator) arguments() (args []code, named []string, star, starstar *code, depth int) {
	t.expectOp("(")
	for first := true; !t.isOp(")"); first = false {
		if !first {
			t.expectOp(",")
			if t.isOp(")") {
				break
			}
		}
		switch {
		case t.skipOp("**"):
			v := t.expression()
			starstar, depth = &v, max(depth, v.depth)
		case t.skipOp("*"):
			v := t.expression()
			star, depth = &v, max(depth, v.depth)
		case t.peek().kind == tokName && t.toks[t.pos+1].kind == tokOp && t.toks[t.pos+1].val == "=":
			name := t.next().val
			t.pos++
			v := t.expression()
			named, depth = append(named, name+"="+v.s), max(depth, v.depth)
		default:
			if len(named) > 0 || star != nil || starstar != nil {
				t.fail("a positional argument after a named or unpacked one")
			}
			v := t.expression()
			args, depth = append(args, v), max(depth, v.depth)
		}
	}
	t.expectOp(")")
	return args, named, star, starstar, depth
}

func (t *translator) call(fn code, start int) code {
	desc := t.source(start)
	args, named, star, starstar, depth := t.arguments()
	if starstar != nil {
		named = append(named, "**"+reserved+"mapping("+starstar.s+")")
	}
	fn.depth = max(fn.depth, depth)
	if star != nil {
		list := t.apply("list", args...)
		return t.applyNamed("callstar", []code{desc, fn, list, *star}, named)
	}
	// dict(a=1) and namespace(a=1) keep the order of their arguments; a call would not.
	if (fn.s == "dict" || fn.s == "namespace") && starstar == nil && len(named) > 1 {
		var keys []string
		for _, n := range named {
			k, _, _ := strings.Cut(n, "=")
			keys = append(keys, quote(k))
		}
		desc.s = reserved + "order(" + desc.s + ", " + strings.Join(keys, ", ") + ")"
	}
	c := t.applyNamed("call", append([]code{desc, fn}, args...), named)
	c.call = true
	return c
}

func (t *translator) filterChain(v code, first bool) code {
	for first || t.skipOp("|") {
		first = false
		name := t.expectName()
		for t.skipOp(".") {
			name += "." + t.expectName()
		}
		t.known("filter", name, filters[name] != nil, unsupportedFilters)
		v = t.applyOn("filter", name, v, t.isOp("("))
	}
	return v
}

// applyOn applies a filter or test, with arguments when they follow.
func (t *translator) applyOn(kind, name string, v code, arguments bool) code {
	all := []code{literal(name), v}
	var named []string
	if arguments {
		args, n, star, starstar, depth := t.arguments()
		if star != nil || starstar != nil {
			t.fail("unpacked arguments of %s %q are not supported", kind, name)
		}
		all[1].depth = max(all[1].depth, depth)
		all, named = append(all, args...), n
	}
	return t.applyNamed(kind, all, named)
}

// known refuses a filter or test that cannot be carried out. One that Jinja2 does not know
// either is an error only where it is reached, if it stands in a condition's branch.
func (t *translator) known(kind, name string, have bool, unsupported []string) {
	switch {
	case have:
	case slices.Contains(unsupported, name):
		t.fail("%s %q is not supported", kind, name)
	case t.conditional <= 1:
		t.fail("no %s named %q", kind, name)
	}
}

func (t *translator) test(v code) code {
	t.pos++
	negated := t.skipName("not")
	name := t.expectName()
	for t.skipOp(".") {
		name += "." + t.expectName()
	}
	t.known("test", name, tests[name] != nil, nil)
	tok := t.peek()
	switch {
	case t.isOp("("):
		v = t.applyOn("test", name, v, true)
	case (tok.kind == tokName && tok.val != "else" && tok.val != "or" && tok.val != "and") ||
		tok.kind == tokString || tok.kind == tokInt || tok.kind == tokFloat || t.isOp("[") || t.isOp("{"):
		if t.isName("is") {
			t.fail("tests cannot be chained with is")
		}
		start := t.pos
		v = t.apply("test", literal(name), v, t.postfix(t.primary(), start))
	default:
		v = t.applyOn("test", name, v, false)
	}
	if negated {
		v = t.deep(code{s: "(not " + v.s + ")", depth: v.depth})
	}
	return v
}
