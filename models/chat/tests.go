package chat

import (
	"unicode"

	"github.com/ardanlabs/jinja"
)

// Jinja2's tests: value is NAME.

type test func(s *state, v jinja.Value, a args) (bool, error)

var tests map[string]test

func (s *state) test(name string, a args) (bool, error) {
	t := tests[name]
	if t == nil {
		return false, failf("the chat template uses test %q, which does not exist", name)
	}
	if want := testArguments[name]; len(a)-1 != want {
		return false, failf("test %q takes %d arguments, not %d", name, want, len(a)-1)
	}
	return t(s, a[0], a[1:])
}

// testArguments are the tests that take one.
var testArguments = map[string]int{}

func init() {
	plain := func(f func(s *state, v jinja.Value) bool) test {
		return func(s *state, v jinja.Value, _ args) (bool, error) { return f(s, v), nil }
	}
	order := func(op string, holds func(int) bool) test {
		return func(s *state, v jinja.Value, a args) (bool, error) {
			c, ordered, err := s.compare(v, a[0], op, 0)
			return ordered && holds(c), err
		}
	}
	mod := func(s *state, v, by jinja.Value) (jinja.Value, error) { return s.mod(v, by) }
	parity := func(want int64) test {
		return func(s *state, v jinja.Value, _ args) (bool, error) {
			r, err := mod(s, v, jinja.NewInt(2))
			if err != nil {
				return false, err
			}
			return s.equal(r, jinja.NewInt(want), 0)
		}
	}
	equal := func(s *state, v jinja.Value, a args) (bool, error) { return s.equal(v, a[0], 0) }
	different := func(s *state, v jinja.Value, a args) (bool, error) {
		eq, err := s.equal(v, a[0], 0)
		return !eq, err
	}
	less := order("<", func(c int) bool { return c < 0 })
	greater := order(">", func(c int) bool { return c > 0 })
	atMost := order("<=", func(c int) bool { return c <= 0 })
	atLeast := order(">=", func(c int) bool { return c >= 0 })
	letterCase := func(want, other func(rune) bool) test {
		return func(s *state, v jinja.Value, _ args) (bool, error) {
			text, err := s.print(v)
			return isCased(s.marks.plain(text), want, other), err
		}
	}
	one := map[string]test{
		"eq": equal, "equalto": equal, "==": equal, "ne": different, "!=": different,
		"lt": less, "lessthan": less, "<": less, "gt": greater, "greaterthan": greater, ">": greater,
		"le": atMost, "<=": atMost, "ge": atLeast, ">=": atLeast,
		"in": func(s *state, v jinja.Value, a args) (bool, error) { return s.contains(a[0], v) },
		"divisibleby": func(s *state, v jinja.Value, a args) (bool, error) {
			r, err := mod(s, v, a[0])
			if err != nil {
				return false, err
			}
			return s.equal(r, jinja.NewInt(0), 0)
		},
		"sameas": func(s *state, v jinja.Value, a args) (bool, error) {
			x, y := v, a[0]
			switch {
			case x.IsList() && y.IsList():
				return x.AsList() == y.AsList(), nil
			case x.IsDict() && y.IsDict():
				return x.AsDict() == y.AsDict(), nil
			case s.typeName(x) != s.typeName(y) || x.IsUndefined():
				return false, nil
			}
			return s.equal(x, y, 0)
		},
	}
	tests = map[string]test{
		"defined":   plain(func(_ *state, v jinja.Value) bool { return !v.IsUndefined() }),
		"undefined": plain(func(_ *state, v jinja.Value) bool { return v.IsUndefined() }),
		"none":      plain(func(_ *state, v jinja.Value) bool { return v.IsNone() }),
		"boolean":   plain(func(_ *state, v jinja.Value) bool { return v.IsBool() }),
		"true":      plain(func(_ *state, v jinja.Value) bool { return v.IsBool() && v.AsBool() }),
		"false":     plain(func(_ *state, v jinja.Value) bool { return v.IsBool() && !v.AsBool() }),
		"integer":   plain(func(_ *state, v jinja.Value) bool { return v.IsInt() }),
		"float":     plain(func(_ *state, v jinja.Value) bool { return v.IsFloat() }),
		"number":    plain(func(_ *state, v jinja.Value) bool { return isNumber(v) }),
		"string":    plain(func(s *state, v jinja.Value) bool { _, ok := s.asText(v); return ok }),
		"mapping":   plain(func(s *state, v jinja.Value) bool { return s.isMapping(v) }),
		"sequence":  plain(func(s *state, v jinja.Value) bool { _, ok := s.length(v); return ok && !(v.IsList() && !s.hasItems(v)) }),
		"iterable":  plain(func(s *state, v jinja.Value) bool { _, ok := s.length(v); return ok || s.kind(v) == isGenerator }),
		"callable":  plain(func(_ *state, v jinja.Value) bool { return v.IsCallable() || v.IsUndefined() }),
		"escaped":   plain(func(s *state, v jinja.Value) bool { return s.kind(v) == isMarkup }),
		"odd":       parity(1),
		"even":      parity(0),
		"lower":     letterCase(unicode.IsLower, unicode.IsUpper),
		"upper":     letterCase(unicode.IsUpper, unicode.IsLower),
		"filter": func(s *state, v jinja.Value, _ args) (bool, error) {
			name, _ := s.asText(v)
			return filters[s.marks.plain(name)] != nil, nil
		},
		"test": func(s *state, v jinja.Value, _ args) (bool, error) {
			name, _ := s.asText(v)
			return tests[s.marks.plain(name)] != nil, nil
		},
	}
	for name, t := range one {
		tests[name], testArguments[name] = t, 1
	}
}
