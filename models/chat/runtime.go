package chat

import (
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Bounds of one conversation, however often it is rendered until its order will do; text is
// bounded for each rendering. A conversation of six hundred messages takes the dearest of the reference
// templates some tens of thousands of operations; four million take about a second.
const (
	maxOps       = 4_000_000
	probeOps     = 50_000   // of a render that only finds out what a template does
	loopOps      = 5        // what the library does for each turn of a loop
	maxText      = 32 << 20 // bytes of text made, beyond a multiple of the input
	maxCallDepth = 200      // Python's own limit ends a macro's recursion near here
	maxDataDepth = 200
	maxRange     = 100_000 // the reference's sandbox has the same
)

// state is one render: what it may still use, and what the library's values cannot say of themselves.
type state struct {
	ops   int // left
	text  int // bytes left
	depth int
	now   time.Time
	marks *marks
	// lists and objects are lists and dicts of the library that are something else to Python.
	lists   map[*jinja.List]listKind
	objects map[*jinja.Dict]objectKind
	// keys are dicts whose keys came with the request, and how their text is marked.
	keys map[*jinja.Dict]origin
}

type listKind uint8

const (
	isList  listKind = iota
	isTuple          // also printed and compared as one
	isGroup          // a tuple with a grouper and a list
	isRange
	isItems // views of a dict have a length but no items by number
	isKeys
	isValues
)

type objectKind uint8

const (
	isDict objectKind = iota
	isNamespace
	isCycler
	// isMarkup is a string that was declared safe: adding to it escapes the other side. Its text
	// is under key "s", absent when empty so that the library finds it false.
	isMarkup
	// isGenerator is what filters such as map give: true, without length, and gone once read.
	// Its items are a list under key "items".
	isGenerator
)

// failf makes the error of an operation that Python, or a bound, refuses.
func failf(format string, args ...any) error {
	return &Error{Field: "messages", Message: fmt.Sprintf(format, args...)}
}

func (s *state) tick(n int) error {
	if s.ops -= n; s.ops < 0 {
		return failf("the chat template takes too many operations")
	}
	return nil
}

// scan pays for looking at n bytes or items.
func (s *state) scan(n int) error { return s.tick(1 + n/64) }

// made pays for n bytes of new text.
func (s *state) made(n int) error {
	if s.text -= n; s.text < 0 {
		return failf("the chat template makes too much text for this input")
	}
	return s.tick(n / 64)
}

func (s *state) str(text string) (jinja.Value, error) {
	return jinja.NewString(text), s.made(len(text))
}

func (s *state) list(items []jinja.Value) (jinja.Value, error) {
	return jinja.NewList(items), s.tick(1 + len(items))
}

func (s *state) tuple(items ...jinja.Value) jinja.Value {
	return s.listOf(isTuple, items)
}

func (s *state) listOf(kind listKind, items []jinja.Value) jinja.Value {
	v := jinja.NewList(items)
	if s.lists == nil {
		s.lists = map[*jinja.List]listKind{}
	}
	s.lists[v.AsList()] = kind
	return v
}

func (s *state) generator(items []jinja.Value) (jinja.Value, error) {
	v := s.object(isGenerator)
	v.AsDict().Set("items", jinja.NewList(items))
	return v, s.tick(1 + len(items))
}

// listKind is the kind of a value that is a list to the library.
func (s *state) listKind(v jinja.Value) listKind { return s.lists[v.AsList()] }

func (s *state) isTuple(v jinja.Value) bool {
	return v.IsList() && (s.listKind(v) == isTuple || s.listKind(v) == isGroup)
}

// isArray reports a list or tuple, without ranges and views.
func (s *state) isArray(v jinja.Value) bool { return v.IsList() && s.listKind(v) <= isGroup }

// hasItems reports what can be asked for an item by number, beside strings.
func (s *state) hasItems(v jinja.Value) bool { return v.IsList() && s.listKind(v) <= isRange }

func (s *state) object(kind objectKind) jinja.Value {
	v := jinja.NewDict()
	if s.objects == nil {
		s.objects = map[*jinja.Dict]objectKind{}
	}
	s.objects[v.AsDict()] = kind
	return v
}

func (s *state) kind(v jinja.Value) objectKind {
	if !v.IsDict() {
		return isDict
	}
	return s.objects[v.AsDict()]
}

func (s *state) isMapping(v jinja.Value) bool { return v.IsDict() && s.kind(v) == isDict }

func (s *state) markup(text string) jinja.Value {
	v := s.object(isMarkup)
	if text != "" {
		v.AsDict().Set("s", jinja.NewString(text))
	}
	return v
}

// asText returns a string's text, marks and all; markup counts as a string.
func (s *state) asText(v jinja.Value) (string, bool) {
	if v.IsString() {
		return v.AsString(), true
	}
	if s.kind(v) == isMarkup {
		t, ok := v.AsDict().Get("s")
		if !ok {
			return "", true
		}
		return t.AsString(), true
	}
	return "", false
}

// typeName is Python's name of a value's type, as its messages print it.
func (s *state) typeName(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return "Undefined"
	case v.IsNone():
		return "NoneType"
	case v.IsBool():
		return "bool"
	case v.IsInt():
		return "int"
	case v.IsFloat():
		return "float"
	case v.IsString():
		return "str"
	case v.IsList():
		return [...]string{"list", "tuple", "tuple", "range", "dict_items", "dict_keys", "dict_values"}[s.listKind(v)]
	case v.IsDict():
		return [...]string{"dict", "Namespace", "Cycler", "Markup", "generator"}[s.kind(v)]
	}
	return "function"
}

// defined refuses an undefined value in an operation, as Jinja2's Undefined does.
func (s *state) defined(v jinja.Value, what string) error {
	if !v.IsUndefined() {
		return nil
	}
	if what == "" {
		return failf("the chat template uses an undefined value")
	}
	return failf("%s is undefined", s.marks.plain(what))
}

type args = []jinja.Value
type kwargs = map[string]jinja.Value
type function func(s *state, a args, k kwargs) (jinja.Value, error)

var none, undefined = jinja.None(), jinja.Undefined()

// functions returns what translated templates call, bound to this render.
func (s *state) functions() map[string]jinja.Value {
	vars := make(map[string]jinja.Value, len(operators)+len(globals)+16)
	for name, fn := range operators {
		vars[reserved+name] = s.bind(name, fn)
	}
	for name, fn := range globals {
		vars[name] = s.bind(name, fn)
	}
	return vars
}

func (s *state) bind(name string, fn function) jinja.Value {
	// The library treats a callable of the name "dict" in its own way.
	return jinja.NewCallable(reserved+name, func(a []jinja.Value, k map[string]jinja.Value) (jinja.Value, error) {
		if err := s.tick(1); err != nil {
			return undefined, err
		}
		return fn(s, a, k)
	})
}

// operators are the functions of the language; the translator writes their calls, so they are
// given the arguments they expect.
var operators map[string]function

// globals are the functions that templates call by name.
var globals map[string]function

func init() {
	operators = map[string]function{
		"text": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			return a[0], s.made(len(a[0].AsString()))
		},
		"out": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			text, err := s.print(a[0])
			if err != nil {
				return undefined, err
			}
			return s.str(text)
		},
		"undefined": func(*state, args, kwargs) (jinja.Value, error) { return undefined, nil },
		"order":     func(_ *state, a args, _ kwargs) (jinja.Value, error) { return jinja.NewList(a), nil },
		"list":      func(s *state, a args, _ kwargs) (jinja.Value, error) { return s.list(a) },
		"tuple":     func(s *state, a args, _ kwargs) (jinja.Value, error) { return s.tuple(a...), s.tick(len(a)) },
		"dict":      dictLiteral,
		"varargs": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			if !a[0].IsList() {
				return a[0], nil
			}
			return s.tuple(a[0].AsList().Items...), nil
		},
		"mapping": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			if !s.isMapping(a[0]) {
				return undefined, failf("argument after ** must be a mapping, not %s", s.typeName(a[0]))
			}
			return a[0], nil
		},
		"iter":     iterValue,
		"pairs":    pairs,
		"unpack":   func(s *state, a args, _ kwargs) (jinja.Value, error) { return s.unpack(a[0], int(a[1].AsInt())) },
		"nsval":    namespaceValue,
		"noargs":   noArguments,
		"call":     call,
		"callstar": callStar,
		"attr": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			return s.attr(a[0], a[1].AsString(), a[2].AsString())
		},
		"item":  func(s *state, a args, _ kwargs) (jinja.Value, error) { return s.item(a[0], a[1], a[2].AsString()) },
		"slice": slice,
		"filter": func(s *state, a args, k kwargs) (jinja.Value, error) {
			return s.filter(a[0].AsString(), a[1:], k)
		},
		"test": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			ok, err := s.test(a[0].AsString(), a[1:])
			return jinja.NewBool(ok), err
		},
		"add": fold((*state).add), "sub": fold(arithmetic("-")), "mul": fold((*state).mul), "div": fold(arithmetic("/")),
		"floordiv": fold(arithmetic("//")), "mod": fold((*state).mod), "pow": fold(arithmetic("**")),
		"neg": sign(-1), "pos": sign(1),
		"cat": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			var b strings.Builder
			for _, v := range a {
				text, err := s.print(v)
				if err != nil {
					return undefined, err
				}
				b.WriteString(text)
			}
			return s.str(b.String())
		},
		"eq":    comparison(func(s *state, x, y jinja.Value) (bool, error) { return s.equal(x, y, 0) }),
		"ne":    comparison(func(s *state, x, y jinja.Value) (bool, error) { eq, err := s.equal(x, y, 0); return !eq, err }),
		"lt":    ordering("<", func(c int) bool { return c < 0 }),
		"gt":    ordering(">", func(c int) bool { return c > 0 }),
		"le":    ordering("<=", func(c int) bool { return c <= 0 }),
		"ge":    ordering(">=", func(c int) bool { return c >= 0 }),
		"in":    comparison(func(s *state, x, y jinja.Value) (bool, error) { return s.contains(y, x) }),
		"notin": comparison(func(s *state, x, y jinja.Value) (bool, error) { in, err := s.contains(y, x); return !in, err }),
	}
	globals = map[string]function{
		"range": rangeList, "dict": dictFunction, "namespace": namespace, "joiner": joiner, "cycler": cycler,
		"raise_exception": func(s *state, a args, _ kwargs) (jinja.Value, error) {
			if len(a) != 1 {
				return undefined, failf("raise_exception takes one argument")
			}
			text, err := s.print(a[0])
			if err != nil {
				return undefined, err
			}
			return undefined, &Error{Field: "messages", Message: s.marks.plain(text), Raised: true}
		},
		"strftime_now": func(s *state, a args, k kwargs) (jinja.Value, error) {
			p := parameters{s: s, name: "strftime_now", a: a, k: k}
			format, ok := s.asText(p.required("format"))
			if err := p.done(); err != nil {
				return undefined, err
			}
			if !ok {
				return undefined, failf("strftime_now takes a string")
			}
			text, err := strftime(s.now, s.marks.plain(format))
			if err != nil {
				return undefined, err
			}
			return s.str(text)
		},
	}
}

func fold(op func(*state, jinja.Value, jinja.Value) (jinja.Value, error)) function {
	return func(s *state, a args, _ kwargs) (jinja.Value, error) {
		v := a[0]
		for _, next := range a[1:] {
			var err error
			if v, err = op(s, v, next); err != nil {
				return undefined, err
			}
		}
		return v, s.tick(len(a))
	}
}

func comparison(op func(s *state, x, y jinja.Value) (bool, error)) function {
	return func(s *state, a args, _ kwargs) (jinja.Value, error) {
		ok, err := op(s, a[0], a[1])
		return jinja.NewBool(ok), err
	}
}

func ordering(op string, holds func(int) bool) function {
	return comparison(func(s *state, x, y jinja.Value) (bool, error) {
		c, ordered, err := s.compare(x, y, op, 0)
		return ordered && holds(c), err
	})
}

// call calls a[1], whose source text is a[0], with the rest.
func call(s *state, a args, k kwargs) (jinja.Value, error) {
	desc, fn, rest := a[0], a[1], a[2:]
	var order []jinja.Value
	if desc.IsList() {
		order = desc.AsList().Items[1:]
		desc = desc.AsList().Items[0]
	}
	if err := s.defined(fn, desc.AsString()); err != nil {
		return undefined, err
	}
	if fn.IsDict() {
		// A recursive loop is a dict to the library, and takes a list.
		again, ok := fn.AsDict().Get("__call__")
		if !ok || !again.IsCallable() || len(rest) != 1 {
			return undefined, failf("%s is not callable", desc.AsString())
		}
		items, err := s.iterate(rest[0])
		if err = firstError(err, s.tick(loopOps*len(items))); err != nil {
			return undefined, err
		}
		fn, rest = again, args{jinja.NewList(items)}
	}
	if !fn.IsCallable() {
		return undefined, failf("%s: a value of type %s is not callable", desc.AsString(), s.typeName(fn))
	}
	if s.depth++; s.depth > maxCallDepth {
		return undefined, failf("the chat template's macros call each other deeper than %d", maxCallDepth)
	}
	defer func() { s.depth-- }()
	c := fn.AsCallable()
	if c.Name == "loop.changed" { // compares by the library's own recursion
		for _, v := range rest {
			if _, err := s.equal(v, v, 0); err != nil {
				return undefined, err
			}
		}
	}
	if order != nil {
		k = inOrder(k, order)
	}
	return c.Fn(rest, k)
}

// inOrder smuggles the order of named arguments to dict and namespace.
func inOrder(k kwargs, order []jinja.Value) kwargs {
	k[reserved+"order"] = jinja.NewList(order)
	return k
}

func callStar(s *state, a args, k kwargs) (jinja.Value, error) {
	star, err := s.iterate(a[3])
	if err != nil {
		return undefined, err
	}
	rest := append(args{a[0], a[1]}, a[2].AsList().Items...)
	return call(s, append(rest, star...), k)
}

func noArguments(s *state, a args, _ kwargs) (jinja.Value, error) {
	if a[1].AsList().Len() > 0 {
		return undefined, failf("macro %s was given too many arguments", a[0].AsString())
	}
	return jinja.NewString(""), nil
}

func dictLiteral(s *state, a args, _ kwargs) (jinja.Value, error) {
	d := jinja.NewDict()
	for i := 0; i+1 < len(a); i += 2 {
		key, ok := s.asText(a[i])
		if !ok {
			return undefined, failf("a dict with a key of type %s is not supported", s.typeName(a[i]))
		}
		d.AsDict().Set(s.marks.plain(key), a[i+1])
	}
	return d, s.tick(len(a))
}

func namespaceValue(s *state, a args, _ kwargs) (jinja.Value, error) {
	if s.kind(a[0]) != isNamespace {
		return undefined, failf("cannot assign attribute on non-namespace object")
	}
	return a[1], nil
}

// iterate lists what a for loop over v sees.
func (s *state) iterate(v jinja.Value) ([]jinja.Value, error) {
	var items []jinja.Value
	if text, ok := s.asText(v); ok {
		for _, r := range text {
			items = append(items, jinja.NewString(string(r)))
		}
		return items, s.tick(len(items))
	}
	switch {
	case v.IsUndefined():
	case v.IsList():
		items = v.AsList().Items
	case s.kind(v) == isGenerator:
		left, _ := v.AsDict().Get("items")
		items = left.AsList().Items
		v.AsDict().Set("items", jinja.NewList(nil))
	case s.isMapping(v):
		for _, key := range v.AsDict().Keys {
			items = append(items, jinja.NewString(s.markKey(v, key)))
		}
	default:
		return nil, failf("'%s' object is not iterable", s.typeName(v))
	}
	return items, s.tick(len(items))
}

func iterValue(s *state, a args, _ kwargs) (jinja.Value, error) {
	items, err := s.iterate(a[0])
	return jinja.NewList(items), firstError(err, s.tick(loopOps*len(items)))
}

func pairs(s *state, a args, _ kwargs) (jinja.Value, error) {
	items, err := s.iterate(a[0])
	if err = firstError(err, s.tick(loopOps*len(items))); err != nil {
		return undefined, err
	}
	out := make([]jinja.Value, len(items))
	for i, it := range items {
		if out[i], err = s.unpack(it, 2); err != nil {
			return undefined, err
		}
	}
	return jinja.NewList(out), nil
}

func (s *state) unpack(v jinja.Value, n int) (jinja.Value, error) {
	if err := s.defined(v, ""); err != nil {
		return undefined, err
	}
	items, err := s.iterate(v)
	if err != nil {
		return undefined, err
	}
	if len(items) != n {
		return undefined, failf("cannot unpack %d values into %d names", len(items), n)
	}
	return jinja.NewList(items), nil
}
