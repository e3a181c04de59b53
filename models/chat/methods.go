package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Methods of Python's str, list and dict. Those that change a list or dict are refused, as the
// reference's sandbox refuses them.

type method func(s *state, self jinja.Value, a args, k kwargs) (jinja.Value, error)

// method returns the bound method, undefined when there is none.
func (s *state) method(v jinja.Value, name string) jinja.Value {
	var m method
	text, isText := s.asText(v)
	switch {
	case isText:
		if f := stringMethods[name]; f != nil {
			return s.bind(name, func(s *state, a args, k kwargs) (jinja.Value, error) {
				if err := s.scan(len(text)); err != nil {
					return undefined, err
				}
				return f(s, s.marks.view(text), &parameters{s: s, name: name, a: a, k: k})
			})
		}
		if unsupportedStringMethods[name] {
			m = refused("str", name, "is not supported")
		}
	case s.isArray(v):
		if i, ok := groupFields[name]; ok && s.listKind(v) == isGroup {
			return v.AsList().Get(i)
		}
		if m = listMethods[name]; m == nil && mutators[name] && !s.isTuple(v) {
			m = refused("list", name, "is unsafe")
		}
	case s.isMapping(v):
		if m = dictMethods[name]; m == nil && mutators[name] {
			m = refused("dict", name, "is unsafe")
		}
	}
	if m == nil {
		return undefined
	}
	return s.bind(name, func(s *state, a args, k kwargs) (jinja.Value, error) { return m(s, v, a, k) })
}

func refused(typeName, name, why string) method {
	return func(*state, jinja.Value, args, kwargs) (jinja.Value, error) {
		return undefined, failf("access to attribute '%s' of '%s' object %s", name, typeName, why)
	}
}

// groupFields are the names of a group's two items.
var groupFields = map[string]int{"grouper": 0, "list": 1}

var mutators = map[string]bool{
	"append": true, "clear": true, "extend": true, "insert": true, "pop": true, "popitem": true,
	"remove": true, "reverse": true, "setdefault": true, "sort": true, "update": true,
}

var listMethods = map[string]method{
	"copy": func(s *state, self jinja.Value, a args, _ kwargs) (jinja.Value, error) {
		return s.list(append([]jinja.Value(nil), self.AsList().Items...))
	},
	"count": func(s *state, self jinja.Value, a args, k kwargs) (jinja.Value, error) {
		p := parameters{s: s, name: "count", a: a, k: k}
		item, n := p.required("value"), 0
		if err := p.done(); err != nil {
			return undefined, err
		}
		for _, v := range self.AsList().Items {
			eq, err := s.equal(v, item, 0)
			if err != nil {
				return undefined, err
			}
			if eq {
				n++
			}
		}
		return jinja.NewInt(int64(n)), nil
	},
	"index": func(s *state, self jinja.Value, a args, k kwargs) (jinja.Value, error) {
		p := parameters{s: s, name: "index", a: a, k: k}
		item := p.required("value")
		if err := p.done(); err != nil {
			return undefined, err
		}
		for i, v := range self.AsList().Items {
			if eq, err := s.equal(v, item, 0); eq || err != nil {
				return jinja.NewInt(int64(i)), err
			}
		}
		return undefined, failf("value is not in list")
	},
}

var dictMethods = map[string]method{
	"items": func(s *state, self jinja.Value, a args, _ kwargs) (jinja.Value, error) {
		items, err := s.dictItems(self)
		return s.listOf(isItems, items), err
	},
	"keys": func(s *state, self jinja.Value, a args, _ kwargs) (jinja.Value, error) {
		items, err := s.iterate(self)
		return s.listOf(isKeys, items), err
	},
	"values": func(s *state, self jinja.Value, a args, _ kwargs) (jinja.Value, error) {
		d := self.AsDict()
		var items []jinja.Value
		for _, key := range d.Keys {
			items = append(items, d.Data[key])
		}
		return s.listOf(isValues, items), s.tick(len(items))
	},
	"copy": func(s *state, self jinja.Value, a args, _ kwargs) (jinja.Value, error) {
		return dictFunction(s, args{self}, nil)
	},
	"get": func(s *state, self jinja.Value, a args, k kwargs) (jinja.Value, error) {
		p := parameters{s: s, name: "get", a: a, k: k}
		key, fallback := p.required("key"), p.optional("default", none)
		if err := p.done(); err != nil {
			return undefined, err
		}
		if name, ok := s.asText(key); ok {
			if v, ok := self.AsDict().Get(s.marks.plain(name)); ok {
				return v, nil
			}
		}
		return fallback, nil
	},
}

func (s *state) dictItems(v jinja.Value) ([]jinja.Value, error) {
	d := v.AsDict()
	items := make([]jinja.Value, d.Len())
	for i, key := range d.Keys {
		items[i] = s.tuple(jinja.NewString(s.markKey(v, key)), d.Data[key])
	}
	return items, s.tick(len(items))
}

// markKey is the text of a key of v, marked when it came with the request.
func (s *state) markKey(v jinja.Value, key string) string {
	if from, ok := s.keys[v.AsDict()]; ok {
		return s.marks.mark(key, from)
	}
	return key
}

type stringMethod func(s *state, self view, p *parameters) (jinja.Value, error)

var unsupportedStringMethods = map[string]bool{
	"encode": true, "expandtabs": true, "format_map": true, "istitle": true, "maketrans": true, "translate": true,
	"isidentifier": true, "isprintable": true, "isdecimal": true, "swapcase": true, "casefold": true, "isascii": true,
}

var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"strip":  strip(true, true),
		"lstrip": strip(true, false),
		"rstrip": strip(false, true),
		"split":  split(false), "rsplit": split(true), "splitlines": splitLines,
		"partition": partition(false), "rpartition": partition(true),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"find": find(strings.Index, false), "rfind": find(strings.LastIndex, false),
		"index": find(strings.Index, true), "rindex": find(strings.LastIndex, true),
		"count": func(s *state, self view, p *parameters) (jinja.Value, error) {
			sub := p.required("sub")
			part, err := s.window(self, p)
			if err != nil {
				return undefined, err
			}
			text, err := s.wantText(sub)
			if err != nil {
				return undefined, err
			}
			return jinja.NewInt(int64(strings.Count(part.plain, text))), nil
		},
		"replace": func(s *state, self view, p *parameters) (jinja.Value, error) {
			old, repl, count := p.required("old"), p.required("new"), p.optional("count", jinja.NewInt(-1))
			if err := p.done(); err != nil {
				return undefined, err
			}
			return s.replace(self, old, repl, count)
		},
		"join": func(s *state, self view, p *parameters) (jinja.Value, error) {
			items, err := s.iterate(p.required("iterable"))
			if err != nil || p.done() != nil {
				return undefined, firstError(p.done(), err)
			}
			parts := make([]string, len(items))
			for i, v := range items {
				text, ok := s.asText(v)
				if !ok {
					return undefined, failf("sequence item %d: expected str instance, %s found", i, s.typeName(v))
				}
				parts[i] = text
			}
			return s.joined(parts, self.text)
		},
		"upper":      mapped(upper),
		"lower":      mapped(lower),
		"title":      mapped(title),
		"capitalize": mapped(capitalize),
		"isdigit":    every(unicode.IsDigit), "isnumeric": every(unicode.IsNumber), "isalpha": every(unicode.IsLetter),
		"isalnum": every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isspace": every(isSpace),
		"islower": cased(unicode.IsLower, unicode.IsUpper), "isupper": cased(unicode.IsUpper, unicode.IsLower),
		"zfill": func(s *state, self view, p *parameters) (jinja.Value, error) {
			n, err := s.width(p)
			if err != nil {
				return undefined, err
			}
			fill := strings.Repeat("0", max(n-utf8.RuneCountInString(self.plain), 0))
			if self.plain != "" && strings.IndexByte("+-", self.plain[0]) >= 0 {
				return s.str(self.text[:1] + fill + self.text[1:])
			}
			return s.str(fill + self.text)
		},
		"ljust": justify(0, 1), "rjust": justify(1, 0), "center": justify(1, 1),
		"removeprefix": func(s *state, self view, p *parameters) (jinja.Value, error) {
			text, err := s.onlyText(p, "prefix")
			if err != nil || !strings.HasPrefix(self.plain, text) {
				return jinja.NewString(self.text), err
			}
			return s.str(self.cut(len(text), len(self.plain)))
		},
		"removesuffix": func(s *state, self view, p *parameters) (jinja.Value, error) {
			text, err := s.onlyText(p, "suffix")
			if err != nil || !strings.HasSuffix(self.plain, text) {
				return jinja.NewString(self.text), err
			}
			return s.str(self.cut(0, len(self.plain)-len(text)))
		},
		"format": format,
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// wantText is the plain text of a string argument.
func (s *state) wantText(v jinja.Value) (string, error) {
	text, ok := s.asText(v)
	if !ok {
		return "", failf("must be str, not %s", s.typeName(v))
	}
	return s.marks.plain(text), nil
}

func (s *state) onlyText(p *parameters, name string) (string, error) {
	v := p.required(name)
	if err := p.done(); err != nil {
		return "", err
	}
	return s.wantText(v)
}

func (s *state) width(p *parameters) (int, error) {
	n, ok := asInt(p.required("width"))
	if !ok {
		return 0, failf("%s needs an integer width", p.name)
	}
	if err := s.made(int(min(max(n, 0), 1<<31))); err != nil {
		return 0, err
	}
	return int(n), nil
}

func upper(t string) string { return cases.Upper(language.Und).String(t) }
func lower(t string) string { return cases.Lower(language.Und).String(t) }
