package chat

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Jinja2's filters. A filter's first argument is the value it stands behind.

type filter func(s *state, v jinja.Value, p *parameters) (jinja.Value, error)

// filters is filled by init because some of them apply others.
var filters map[string]filter

// unsupportedFilters are Jinja2's own that no known template uses; one that does is refused.
var unsupportedFilters = []string{
	"attr", "center", "filesizeformat", "pprint", "random", "striptags", "truncate", "urlencode", "urlize", "wordwrap", "xmlattr",
}

func (s *state) filter(name string, a args, k kwargs) (jinja.Value, error) {
	f := filters[name]
	if f == nil {
		return undefined, failf("the chat template uses filter %q, which does not exist", name)
	}
	if err := s.tick(1); err != nil {
		return undefined, err
	}
	p := &parameters{s: s, name: name, a: a[1:], k: k}
	return f(s, a[0], p)
}

// textFilter is a filter of str(value) without arguments.
func textFilter(f func(string) string) filter {
	return func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		text, err := s.print(v)
		if err = firstError(err, p.done()); err != nil {
			return undefined, err
		}
		return s.str(s.marks.mapped(text, f))
	}
}

// listFilter is a filter of a value's items without arguments.
func listFilter(f func(s *state, items []jinja.Value) (jinja.Value, error)) filter {
	return func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		items, err := s.iterate(v)
		if err = firstError(err, p.done()); err != nil {
			return undefined, err
		}
		return f(s, items)
	}
}

func init() {
	length := func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		n, ok := s.length(v)
		if !ok {
			return undefined, failf("object of type '%s' has no len()", s.typeName(v))
		}
		return jinja.NewInt(int64(n)), p.done()
	}
	defaultTo := func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		fallback, boolean := p.optional("default_value", jinja.NewString("")), p.optional("boolean", jinja.NewBool(false))
		if v.IsUndefined() || boolean.IsTruthy() && !v.IsTruthy() {
			return fallback, p.done()
		}
		return v, p.done()
	}
	escapeText := func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		if s.kind(v) == isMarkup {
			return v, p.done()
		}
		text, err := s.print(v)
		if err != nil {
			return undefined, err
		}
		text = escapeMarked(s.marks, text)
		return s.markup(text), firstError(p.done(), s.made(len(text)))
	}
	filters = map[string]filter{
		"length": length, "count": length, "default": defaultTo, "d": defaultTo, "e": escapeText, "escape": escapeText,
		"abs": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			if n, ok := asInt(v); ok && n != math.MinInt64 {
				return jinja.NewInt(max(n, -n)), p.done()
			}
			if v.IsFloat() {
				return jinja.NewFloat(math.Abs(v.AsFloat())), p.done()
			}
			return undefined, failf("bad operand type for abs(): '%s'", s.typeName(v))
		},
		"lower": textFilter(lower), "upper": textFilter(upper), "capitalize": textFilter(capitalize),
		"string": textFilter(func(t string) string { return t }),
		"title":  textFilter(titleFilter),
		"wordcount": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			text, err := s.print(v)
			words := strings.FieldsFunc(s.marks.plain(text), func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) })
			return jinja.NewInt(int64(len(words))), firstError(err, p.done())
		},
		"safe": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			text, err := s.print(v)
			return s.markup(text), firstError(err, p.done())
		},
		"trim": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			chars := p.optional("chars", none)
			text, err := s.print(v)
			if err = firstError(err, p.done(), s.scan(len(text))); err != nil {
				return undefined, err
			}
			return s.strip(s.marks.view(text), chars, true, true)
		},
		"replace": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			old, repl, count := p.required("old"), p.required("new"), p.optional("count", none)
			text, err := s.print(v)
			if err = firstError(err, p.done()); err != nil {
				return undefined, err
			}
			from, err1 := s.print(old)
			to, err2 := s.print(repl)
			if err = firstError(err1, err2); err != nil {
				return undefined, err
			}
			return s.replace(s.marks.view(text), jinja.NewString(from), jinja.NewString(to), count)
		},
		"format": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			text, err := s.print(v)
			if err == nil && len(p.k) > 0 {
				err = failf("format with named arguments is not supported")
			}
			if err != nil {
				return undefined, err
			}
			out, err := s.printf(text, p.a)
			if err != nil {
				return undefined, err
			}
			return s.str(out)
		},
		"indent": indent, "tojson": toJSON, "join": join, "sort": sortFilter, "dictsort": dictSort, "unique": unique,
		"groupby": groupBy, "batch": batch, "slice": sliceFilter, "round": round, "int": toInt, "float": toFloat, "sum": sum,
		"max": extremum(1), "min": extremum(-1),
		"map":    mapFilter,
		"select": selection(false, true), "reject": selection(false, false),
		"selectattr": selection(true, true), "rejectattr": selection(true, false),
		"items": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			if v.IsUndefined() {
				return s.generator(nil)
			}
			if !s.isMapping(v) {
				return undefined, failf("Can only get item pairs from a mapping.")
			}
			items, err := s.dictItems(v)
			if err = firstError(err, p.done()); err != nil {
				return undefined, err
			}
			return s.generator(items)
		},
		"list": listFilter(func(s *state, items []jinja.Value) (jinja.Value, error) { return s.list(slices.Clone(items)) }),
		"first": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			items, err := s.iterate(v)
			if err = firstError(err, p.done()); err != nil || len(items) == 0 {
				return undefined, err
			}
			if s.kind(v) == isGenerator { // the others are still to come
				v.AsDict().Set("items", jinja.NewList(items[1:]))
			}
			return items[0], nil
		},
		"last": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			if s.kind(v) == isGenerator {
				return undefined, failf("'generator' object is not reversible")
			}
			items, err := s.iterate(v)
			if err = firstError(err, p.done()); err != nil || len(items) == 0 {
				return undefined, err
			}
			return items[len(items)-1], nil
		},
		"reverse": func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
			generator := s.kind(v) == isGenerator
			items, err := s.iterate(v)
			if err = firstError(err, p.done()); err != nil {
				return undefined, err
			}
			items = slices.Clone(items)
			slices.Reverse(items)
			if generator {
				return s.list(items)
			}
			if _, ok := s.asText(v); !ok {
				return s.generator(items)
			}
			var b strings.Builder
			for _, it := range items {
				b.WriteString(it.AsString())
			}
			return s.str(b.String())
		},
	}
	filters["forceescape"] = func(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
		text, err := s.print(v)
		if err != nil {
			return undefined, err
		}
		return escapeText(s, jinja.NewString(text), p)
	}
}

func (s *state) length(v jinja.Value) (int, bool) {
	if text, ok := s.asText(v); ok {
		return utf8.RuneCountInString(text), true
	}
	switch {
	case v.IsUndefined():
		return 0, true
	case v.IsList():
		return v.AsList().Len(), true
	case s.isMapping(v):
		return v.AsDict().Len(), true
	}
	return 0, false
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

func escape(t string) string { return escaper.Replace(t) }

// escapeMarked escapes request text, too: a marked "<" no longer begins a control token then.
func escapeMarked(m *marks, t string) string {
	var b strings.Builder
	for _, r := range t {
		if p, ok := m.from[r]; ok && strings.ContainsRune(`&<>"'`, p) {
			r = p
		}
		b.WriteString(escape(string(r)))
	}
	return b.String()
}

// titleFilter begins the words that Jinja2's title filter finds with a capital.
func titleFilter(t string) string {
	var b strings.Builder
	begins := true
	for _, r := range t {
		if begins {
			b.WriteString(upper(string(r)))
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
		begins = strings.ContainsRune("-({[<", r) || isSpace(r)
	}
	return b.String()
}

func toJSON(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	ascii, indent := p.optional("ensure_ascii", jinja.NewBool(false)), p.optional("indent", none)
	separators, sortKeys := p.optional("separators", none), p.optional("sort_keys", jinja.NewBool(false))
	if err := p.done(); err != nil {
		return undefined, err
	}
	f := jsonFormat{ascii: ascii.IsTruthy(), sortKeys: sortKeys.IsTruthy(), item: ", ", key: ": "}
	if !indent.IsNone() {
		f.indented, f.item = true, ","
		if n, ok := asInt(indent); ok {
			f.indent = strings.Repeat(" ", int(min(max(n, 0), 1000)))
		} else if text, ok := s.asText(indent); ok {
			f.indent = text
		} else {
			return undefined, failf("tojson: indent must be an integer or a string")
		}
	}
	if !separators.IsNone() {
		two, err := s.unpack(separators, 2)
		if err != nil {
			return undefined, err
		}
		item, ok1 := s.asText(two.AsList().Get(0))
		key, ok2 := s.asText(two.AsList().Get(1))
		if !ok1 || !ok2 {
			return undefined, failf("tojson: separators must be two strings")
		}
		f.item, f.key = item, key
	}
	var b strings.Builder
	if err := s.json(&b, v, &f, 0); err != nil {
		return undefined, err
	}
	return s.str(b.String())
}

func join(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	sep, attribute := p.optional("d", jinja.NewString("")), p.optional("attribute", none)
	items, err := s.iterate(v)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if item, err = s.path(item, attribute, undefined); err == nil {
			parts[i], err = s.print(item)
		}
		if err != nil {
			return undefined, err
		}
	}
	text, err := s.print(sep)
	if err != nil {
		return undefined, err
	}
	return s.joined(parts, text)
}

// path follows a filter's attribute argument: "a.b.0", an index, or none.
func (s *state) path(v, attribute, fallback jinja.Value) (jinja.Value, error) {
	if attribute.IsNone() {
		return v, nil
	}
	steps := args{attribute}
	if text, ok := s.asText(attribute); ok {
		steps = nil
		for part := range strings.SplitSeq(s.marks.plain(text), ".") {
			if n, err := strconv.ParseInt(part, 10, 32); err == nil && n >= 0 {
				steps = append(steps, jinja.NewInt(n))
			} else {
				steps = append(steps, jinja.NewString(part))
			}
		}
	}
	for _, step := range steps {
		var err error
		if v, err = s.item(v, step, "an attribute"); err != nil {
			return undefined, err
		}
		if v.IsUndefined() && !fallback.IsUndefined() {
			v = fallback
		}
	}
	return v, nil
}

func indent(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	width, first, blank := p.optional("width", jinja.NewInt(4)), p.optional("first", jinja.NewBool(false)), p.optional("blank", jinja.NewBool(false))
	text, err := s.print(v)
	if err = firstError(err, p.done()); err != nil {
		return undefined, err
	}
	pad, ok := s.asText(width)
	if !ok {
		n, ok := asInt(width)
		if !ok {
			return undefined, failf("indent: width must be an integer or a string")
		}
		pad = strings.Repeat(" ", int(min(max(n, 0), 1000)))
	}
	self := s.marks.view(text + "\n") // as Jinja2 does it, so that splitting keeps a last empty line
	var b strings.Builder
	for i, l := range lines(self.plain, false) {
		line := self.cut(l[0], l[1])
		if i > 0 {
			b.WriteByte('\n')
		}
		if i > 0 && (line != "" || blank.IsTruthy()) || i == 0 && first.IsTruthy() {
			b.WriteString(pad)
		}
		b.WriteString(line)
		if err := s.made(len(line) + len(pad) + 1); err != nil {
			return undefined, err
		}
	}
	return jinja.NewString(b.String()), nil
}

func round(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	precision, how := p.optional("precision", jinja.NewInt(0)), p.optional("method", jinja.NewString("common"))
	f, ok := asFloat(v)
	n, okN := asInt(precision)
	name, _ := s.asText(how)
	if err := p.done(); err != nil {
		return undefined, err
	}
	if !ok || !okN || n < -300 || n > 300 {
		return undefined, failf("round needs a number and a precision")
	}
	scale := math.Pow(10, float64(n))
	switch name {
	case "ceil":
		return jinja.NewFloat(math.Ceil(f*scale) / scale), nil
	case "floor":
		return jinja.NewFloat(math.Floor(f*scale) / scale), nil
	case "common":
		if !v.IsFloat() && n >= 0 { // round(3, 0) is an integer to Python
			m, _ := asInt(v)
			return jinja.NewInt(m), nil
		}
		if n >= 0 {
			f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(n), 64), 64)
			return jinja.NewFloat(f), nil
		}
		f = math.RoundToEven(f*scale) / scale
		if !v.IsFloat() {
			return jinja.NewInt(int64(math.Round(f))), nil
		}
		return jinja.NewFloat(f), nil
	}
	return undefined, failf("method must be common, ceil or floor")
}

func toInt(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	fallback, base := p.optional("default", jinja.NewInt(0)), p.optional("base", jinja.NewInt(10))
	b, ok := asInt(base)
	if err := p.done(); err != nil || !ok || b < 2 || b > 36 {
		return undefined, firstError(err, failf("int: bad base"))
	}
	if n, ok := asInt(v); ok {
		return jinja.NewInt(n), nil
	}
	f, isFloat := math.NaN(), v.IsFloat()
	if isFloat {
		f = v.AsFloat()
	}
	if text, ok := s.asText(v); ok {
		text = strings.ReplaceAll(strings.TrimFunc(s.marks.plain(text), isSpace), "_", "")
		digits := strings.TrimLeft(text, "+-")
		if prefix := map[int64]string{2: "0b", 8: "0o", 16: "0x"}[b]; prefix != "" && len(text)-len(digits) < 2 {
			text = text[:len(text)-len(digits)] + strings.TrimPrefix(strings.ToLower(digits), prefix)
		}
		if n, err := strconv.ParseInt(text, int(b), 64); err == nil {
			return jinja.NewInt(n), nil
		}
		if parsed, err := strconv.ParseFloat(text, 64); err == nil {
			f = parsed
		}
	}
	if f > -0x1p63 && f < 0x1p63 {
		return jinja.NewInt(int64(f)), nil
	}
	return fallback, nil
}

func toFloat(s *state, v jinja.Value, p *parameters) (jinja.Value, error) {
	fallback := p.optional("default", jinja.NewFloat(0))
	if err := p.done(); err != nil {
		return undefined, err
	}
	if f, ok := asFloat(v); ok {
		return jinja.NewFloat(f), nil
	}
	if text, ok := s.asText(v); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s.marks.plain(text), isSpace), 64); err == nil {
			return jinja.NewFloat(f), nil
		}
	}
	return fallback, nil
}
