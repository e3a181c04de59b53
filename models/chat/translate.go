package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The translator turns a template into one that the Jinja library renders as Python would.
//
// The library carries out statements: if, for, set, macro, call, scopes. But its operators,
// filters and methods are lenient where Python raises, and its white-space rules are not quite
// Jinja2's. So the source is parsed here by Jinja2's grammar and written anew: each text becomes
// an output of a string literal, and each operator, attribute, call, filter and test a call of a
// function of package chat (oi__add, oi__attr, ...), which has Python's meaning, counts work and
// bounds recursion. What the library does not have (with, filter blocks, scoped block sets,
// unpacking of three) is said in terms of macros and those functions.

const (
	// reserved starts the names of the functions that translated templates call.
	reserved = "oi__"
	// Real templates stay under 20 KB, 12 statements and 15 expressions deep.
	maxSource    = 512 << 10
	maxExprDepth = 120
	maxStmtDepth = 60
)

type translator struct {
	toks []token
	pos  int
	out  strings.Builder

	exprDepth, stmtDepth int
	loops                int // for loops around, within the innermost macro
	conditional          int // if bodies and conditional expressions around
	inBlock              int // bodies that became macros around
	names                int // made-up names so far
}

// code is a translated expression.
type code struct {
	s     string
	depth int
	call  bool // s is a call of oi__call, as a call block needs
}

// bail carries a syntax error up the recursive descent.
type bail struct{ err error }

// translate returns source in the form that the library renders exactly.
func translate(source string) (out string, err error) {
	if len(source) > maxSource {
		return "", fmt.Errorf("chat template: %d bytes exceed the limit of %d", len(source), maxSource)
	}
	toks, err := lex(normalize(source))
	if err != nil {
		return "", err
	}
	t := &translator{toks: toks}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bail)
			if !ok {
				panic(r)
			}
			err = b.err
		}
	}()
	t.body()
	if t.peek().kind != tokEOF {
		t.fail("unexpected %s", t.toks[min(t.pos+1, len(t.toks)-1)])
	}
	return t.out.String(), nil
}

func (t *translator) fail(format string, args ...any) {
	panic(bail{fmt.Errorf("chat template: line %d: %s", t.peek().line, fmt.Sprintf(format, args...))})
}

func (t *translator) peek() token { return t.toks[t.pos] }

func (t *translator) next() token {
	tok := t.toks[t.pos]
	if tok.kind != tokEOF {
		t.pos++
	}
	return tok
}

func (t *translator) isOp(op string) bool {
	tok := t.peek()
	return tok.kind == tokOp && tok.val == op
}

func (t *translator) isName(name string) bool {
	tok := t.peek()
	return tok.kind == tokName && tok.val == name
}

func (t *translator) skipOp(op string) bool {
	ok := t.isOp(op)
	if ok {
		t.pos++
	}
	return ok
}

func (t *translator) skipName(name string) bool {
	ok := t.isName(name)
	if ok {
		t.pos++
	}
	return ok
}

func (t *translator) expectOp(op string) {
	if !t.skipOp(op) {
		t.fail("expected %q, found %q", op, t.peek())
	}
}

func (t *translator) expectName() string {
	tok := t.peek()
	if tok.kind != tokName {
		t.fail("expected a name, found %q", tok)
	}
	t.pos++
	return tok.val
}

func (t *translator) expectEnd() {
	if t.peek().kind != tokBlockEnd {
		t.fail("expected %%}, found %q", t.peek())
	}
	t.pos++
}

func (t *translator) fresh() string {
	t.names++
	return reserved + "n" + strconv.Itoa(t.names)
}

func (t *translator) stmt(format string, args ...any) {
	t.out.WriteString("{% ")
	fmt.Fprintf(&t.out, format, args...)
	t.out.WriteString(" %}")
}

func (t *translator) print(s string) {
	t.out.WriteString("{{ " + s + " }}")
}

// body translates up to a block whose keyword is one of ends (left unread, after its {%), or to
// the end of the template.
func (t *translator) body(ends ...string) {
	if t.stmtDepth++; t.stmtDepth > maxStmtDepth {
		t.fail("statements nest deeper than %d", maxStmtDepth)
	}
	for {
		switch tok := t.next(); tok.kind {
		case tokEOF:
			if len(ends) > 0 {
				t.fail("missing {%% %s %%}", ends[len(ends)-1])
			}
			return
		case tokText:
			t.print(reserved + "text(" + quote(tok.val) + ")")
		case tokVarBegin:
			v := t.tuple(true)
			if t.peek().kind != tokVarEnd {
				t.fail("expected }}, found %q", t.peek())
			}
			t.pos++
			t.print(reserved + "out(" + v.s + ")")
		case tokBlockBegin:
			keyword := t.peek()
			if keyword.kind != tokName {
				t.fail("expected a statement, found %q", keyword)
			}
			if slices.Contains(ends, keyword.val) {
				t.stmtDepth--
				return
			}
			t.pos++
			t.statement(keyword.val)
		default:
			t.fail("unexpected %q", tok)
		}
	}
}

// close reads the keyword that body stopped at and, unless more follows it, the block's end.
func (t *translator) close() {
	t.next()
	t.expectEnd()
}

func (t *translator) statement(keyword string) {
	switch keyword {
	case "if":
		t.ifStatement()
	case "for":
		t.forStatement()
	case "set":
		t.setStatement()
	case "macro":
		t.macroStatement()
	case "call":
		t.callStatement()
	case "with":
		t.withStatement()
	case "filter":
		name := t.fresh()
		input := code{s: t.callMacro(name, nil)}
		v := t.filterChain(input, true)
		t.expectEnd()
		t.blockMacro(name, nil, "endfilter")
		t.print(reserved + "out(" + v.s + ")")
	case "generation": // marks the answer for training; its body is text like any other
		t.expectEnd()
		t.body("endgeneration")
		t.close()
	case "block":
		t.expectName()
		t.skipName("scoped")
		t.skipName("required")
		t.expectEnd()
		t.body("endblock")
		t.next()
		if t.peek().kind == tokName {
			t.pos++
		}
		t.expectEnd()
	case "break", "continue":
		if t.loops == 0 {
			t.fail("%s outside a loop, or within a with, set, filter or macro body inside one", keyword)
		}
		t.expectEnd()
		t.stmt("%s", keyword)
	default:
		t.pos--
		t.fail("statement %q is unknown or not supported", keyword)
	}
}

func (t *translator) ifStatement() {
	t.conditional++
	t.stmt("if %s", t.tuple(false).s)
	t.expectEnd()
	for {
		t.body("elif", "else", "endif")
		switch t.next().val {
		case "elif":
			t.stmt("elif %s", t.tuple(false).s)
			t.expectEnd()
		case "else":
			t.expectEnd()
			t.stmt("else")
			t.body("endif")
			t.close()
			t.stmt("endif")
			t.conditional--
			return
		default:
			t.expectEnd()
			t.stmt("endif")
			t.conditional--
			return
		}
	}
}

// targets reads the names that a for or set assigns to.
func (t *translator) targets() (names []string, tuple bool) {
	paren := t.skipOp("(")
	for {
		names = append(names, t.variable())
		if !t.skipOp(",") {
			break
		}
		tuple = true
		if t.isName("in") || t.isOp("=") || t.isOp(")") {
			break
		}
	}
	if paren {
		t.expectOp(")")
	}
	return names, tuple
}

// variable reads a name that may be assigned to.
func (t *translator) variable() string {
	name := t.expectName()
	if _, constant := constants[name]; constant || slices.Contains(keywords, name) || name == "null" {
		t.pos--
		t.fail("cannot assign to %q", name)
	}
	return name
}

func (t *translator) forStatement() {
	names, tuple := t.targets()
	if !t.skipName("in") {
		t.fail("expected in, found %q", t.peek())
	}
	iter := t.tuple(false, "recursive")
	filter, recursive := "", ""
	target, fn := names[0], "iter"
	if tuple {
		switch len(names) {
		case 2:
			target, fn = names[0]+", "+names[1], "pairs"
		default:
			target = t.fresh()
		}
	}
	if t.skipName("if") {
		if tuple && len(names) != 2 {
			t.fail("a filtered loop over %d names is not supported", len(names))
		}
		filter = " if " + t.expression().s
	}
	if t.skipName("recursive") {
		recursive = " recursive"
	}
	t.expectEnd()
	t.stmt("for %s in %s%s(%s)%s%s", target, reserved, fn, iter.s, filter, recursive)
	if tuple && len(names) != 2 {
		t.unpack(names, target)
	}
	t.loops++
	t.body("else", "endfor")
	t.loops--
	if t.next().val == "else" {
		t.expectEnd()
		t.stmt("else")
		t.body("endfor")
		t.next()
	}
	t.expectEnd()
	t.stmt("endfor")
}

// unpack assigns the items of a value to names; a trailing comma makes a target of one name the
// library can split.
func (t *translator) unpack(names []string, value string) {
	if len(names) == 1 {
		t.stmt("set %s = %sitem(%sunpack(%s, 1), 0, \"\")", names[0], reserved, reserved, value)
		return
	}
	t.stmt("set %s = %sunpack(%s, %d)", strings.Join(names, ", "), reserved, value, len(names))
}

func (t *translator) setStatement() {
	if t.peek().kind == tokName && t.toks[t.pos+1].kind == tokOp && t.toks[t.pos+1].val == "." {
		namespace := t.variable()
		t.pos++
		target := namespace + "." + t.expectName()
		t.assign(func(v string) {
			t.stmt("set %s = %snsval(%s, %s)", target, reserved, namespace, v)
		})
		return
	}
	names, tuple := t.targets()
	t.assign(func(v string) {
		if tuple {
			t.unpack(names, v)
		} else {
			t.stmt("set %s = %s", names[0], v)
		}
	})
}

// assign reads "= value", or the body of a block set, and stores it.
func (t *translator) assign(store func(string)) {
	if t.skipOp("=") {
		v := t.tuple(true)
		t.expectEnd()
		store(v.s)
		return
	}
	name := t.fresh()
	v := code{s: t.callMacro(name, nil)}
	if t.isOp("|") {
		v = t.filterChain(v, false)
	}
	t.expectEnd()
	t.blockMacro(name, nil, "endset")
	store(v.s)
}

// blockMacro makes the coming body a macro, which gives it a scope and yields its text.
func (t *translator) blockMacro(name string, params []string, end string) {
	t.stmt("macro %s(%s)", name, strings.Join(params, ", "))
	loops := t.loops
	t.loops = 0
	t.inBlock++
	t.body(end)
	t.inBlock--
	t.loops = loops
	t.close()
	t.stmt("endmacro")
}

func (t *translator) callMacro(name string, args []string) string {
	return reserved + "call(" + strings.Join(append([]string{quote(name), name}, args...), ", ") + ")"
}

func (t *translator) withStatement() {
	var names, values []string
	for t.peek().kind != tokBlockEnd {
		if len(names) > 0 {
			t.expectOp(",")
		}
		names = append(names, t.variable())
		t.expectOp("=")
		values = append(values, t.expression().s)
	}
	t.expectEnd()
	name := t.fresh()
	t.blockMacro(name, names, "endwith")
	t.print(reserved + "out(" + t.callMacro(name, values) + ")")
}

func (t *translator) macroStatement() {
	name := t.variable()
	params := t.params(true)
	t.expectEnd()
	t.stmt("macro %s(%s)", name, strings.Join(params, ", "))
	start, loops, inBlock := t.pos, t.loops, t.inBlock
	t.loops, t.inBlock = 0, 0
	t.body("endmacro")
	t.loops, t.inBlock = loops, inBlock
	if !slices.ContainsFunc(t.toks[start:t.pos], func(k token) bool { return k.kind == tokName && k.val == "varargs" }) {
		// The library drops arguments that have no parameter; Jinja2 raises.
		t.print(reserved + "noargs(" + quote(name) + ", varargs)")
	}
	t.close()
	t.stmt("endmacro")
}

func (t *translator) params(defaults bool) []string {
	t.expectOp("(")
	var params []string
	for !t.isOp(")") {
		if len(params) > 0 {
			t.expectOp(",")
		}
		p := t.variable()
		if t.skipOp("=") {
			if !defaults {
				t.fail("a default for %q of a call block is not supported", p)
			}
			p += "=" + t.expression().s
		}
		params = append(params, p)
	}
	t.expectOp(")")
	return params
}

func (t *translator) callStatement() {
	var params []string
	if t.isOp("(") {
		params = t.params(false)
	}
	call := t.expression()
	if !call.call {
		t.fail("expected a call, without unpacked arguments")
	}
	t.expectEnd()
	t.stmt("call(%s) %s", strings.Join(params, ", "), call.s)
	loops, inBlock := t.loops, t.inBlock
	t.loops, t.inBlock = 0, inBlock+1
	t.body("endcall")
	t.loops, t.inBlock = loops, inBlock
	t.close()
	t.stmt("endcall")
}

// quote writes a string literal that the library reads back unchanged.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
