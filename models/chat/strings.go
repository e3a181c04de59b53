package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// What the methods of strings do, on plain offsets: see view.

func strip(left, right bool) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		chars := p.optional("chars", none)
		if err := p.done(); err != nil {
			return undefined, err
		}
		return s.strip(self, chars, left, right)
	}
}

func (s *state) strip(self view, chars jinja.Value, left, right bool) (jinja.Value, error) {
	cut := isSpace
	if !chars.IsNone() {
		set, err := s.wantText(chars)
		if err != nil {
			return undefined, err
		}
		cut = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	i, j := 0, len(self.plain)
	if left {
		i = j - len(strings.TrimLeftFunc(self.plain, cut))
	}
	if right {
		j = i + len(strings.TrimRightFunc(self.plain[i:], cut))
	}
	return s.str(self.cut(i, j))
}

// pieces makes strings of a view from plain offsets.
func (s *state) pieces(self view, bounds [][2]int) (jinja.Value, error) {
	items := make([]jinja.Value, len(bounds))
	for i, b := range bounds {
		items[i] = jinja.NewString(self.cut(b[0], b[1]))
	}
	if err := s.made(len(self.text)); err != nil {
		return undefined, err
	}
	return s.list(items)
}

func split(fromRight bool) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		sep, limit := p.optional("sep", none), p.optional("maxsplit", jinja.NewInt(-1))
		if err := p.done(); err != nil {
			return undefined, err
		}
		n, ok := asInt(limit)
		if !ok {
			return undefined, failf("maxsplit must be an integer")
		}
		if n < 0 {
			n = int64(len(self.plain)) + 1
		}
		var bounds [][2]int
		var err error
		if sep.IsNone() {
			bounds = splitSpace(self.plain, int(n), fromRight)
		} else {
			text, e := s.wantText(sep)
			if e == nil && text == "" {
				e = failf("empty separator")
			}
			err = e
			if e == nil {
				bounds = splitText(self.plain, text, int(n), fromRight)
			}
		}
		if err != nil {
			return undefined, err
		}
		return s.pieces(self, bounds)
	}
}

func splitText(text, sep string, n int, fromRight bool) (bounds [][2]int) {
	i, j := 0, len(text)
	for ; n > 0; n-- {
		if fromRight {
			at := strings.LastIndex(text[:j], sep)
			if at < 0 {
				break
			}
			bounds = append(bounds, [2]int{at + len(sep), j})
			j = at
		} else {
			at := strings.Index(text[i:], sep)
			if at < 0 {
				break
			}
			bounds = append(bounds, [2]int{i, i + at})
			i += at + len(sep)
		}
	}
	bounds = append(bounds, [2]int{i, j})
	if fromRight {
		reverse(bounds)
	}
	return bounds
}

func splitSpace(text string, n int, fromRight bool) (bounds [][2]int) {
	i := len(text) - len(strings.TrimLeftFunc(text, isSpace))
	j := len(strings.TrimRightFunc(text, isSpace))
	if fromRight {
		i = 0
		for j > 0 {
			at := strings.LastIndexFunc(text[:j], isSpace)
			if n == 0 || at < 0 {
				bounds = append(bounds, [2]int{0, j})
				break
			}
			_, size := utf8.DecodeRuneInString(text[at:])
			bounds = append(bounds, [2]int{at + size, j})
			j = len(strings.TrimRightFunc(text[:at], isSpace))
			n--
		}
		reverse(bounds)
		return bounds
	}
	for j = len(text); i < j; n-- {
		at := strings.IndexFunc(text[i:], isSpace)
		if n == 0 || at < 0 {
			end := j
			if at < 0 {
				end = len(text)
			}
			return append(bounds, [2]int{i, end})
		}
		bounds = append(bounds, [2]int{i, i + at})
		i = len(text) - len(strings.TrimLeftFunc(text[i+at:], isSpace))
	}
	return bounds
}

func reverse(b [][2]int) {
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
}

func isLineEnd(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

func splitLines(s *state, self view, p *parameters) (jinja.Value, error) {
	keep := p.optional("keepends", jinja.NewBool(false)).IsTruthy()
	if err := p.done(); err != nil {
		return undefined, err
	}
	return s.pieces(self, lines(self.plain, keep))
}

func lines(text string, keep bool) (bounds [][2]int) {
	for i := 0; i < len(text); {
		at := strings.IndexFunc(text[i:], isLineEnd)
		if at < 0 {
			return append(bounds, [2]int{i, len(text)})
		}
		at += i
		_, size := utf8.DecodeRuneInString(text[at:])
		if strings.HasPrefix(text[at:], "\r\n") {
			size = 2
		}
		end := at
		if keep {
			end += size
		}
		bounds = append(bounds, [2]int{i, end})
		i = at + size
	}
	return bounds
}

func partition(last bool) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		sep, err := s.onlyText(p, "sep")
		if err == nil && sep == "" {
			err = failf("empty separator")
		}
		if err != nil {
			return undefined, err
		}
		n, at := len(self.plain), strings.Index(self.plain, sep)
		if last {
			at = strings.LastIndex(self.plain, sep)
		}
		b := [][2]int{{0, at}, {at, at + len(sep)}, {at + len(sep), n}}
		if at < 0 {
			b = [][2]int{{0, n}, {n, n}, {n, n}}
			if last {
				b = [][2]int{{0, 0}, {0, 0}, {0, n}}
			}
		}
		v, err := s.pieces(self, b)
		if err != nil {
			return undefined, err
		}
		return s.tuple(v.AsList().Items...), nil
	}
}

// window narrows a string to its optional start and end arguments.
func (s *state) window(self view, p *parameters) (view, error) {
	first, last := p.optional("start", none), p.optional("end", none)
	if err := p.done(); err != nil {
		return view{}, err
	}
	if first.IsNone() && last.IsNone() {
		return self, nil
	}
	v, err := slice(s, args{jinja.NewString(self.text), first, last, none, jinja.NewString("")}, nil)
	if err != nil {
		return view{}, err
	}
	return s.marks.view(v.AsString()), nil
}

func affix(has func(s, affix string) bool) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		arg := p.required("affix")
		part, err := s.window(self, p)
		if err != nil {
			return undefined, err
		}
		options := args{arg}
		if s.isTuple(arg) {
			options = arg.AsList().Items
		}
		for _, o := range options {
			text, ok := s.asText(o)
			if !ok {
				return undefined, failf("%s first arg must be str or a tuple of str, not %s", p.name, s.typeName(o))
			}
			if has(part.plain, s.marks.plain(text)) {
				return jinja.NewBool(true), nil
			}
		}
		return jinja.NewBool(false), nil
	}
}

func find(index func(s, sub string) int, must bool) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		sub := p.required("sub")
		offset := int64(0)
		if len(p.a) > 1 {
			n, ok := asInt(p.a[1])
			if !ok && !p.a[1].IsNone() {
				return undefined, failf("slice indices must be integers or None")
			}
			length := int64(utf8.RuneCountInString(self.plain))
			if n < 0 {
				n = max(n+length, 0)
			}
			offset = min(n, length)
		}
		part, err := s.window(self, p)
		if err != nil {
			return undefined, err
		}
		text, err := s.wantText(sub)
		if err != nil {
			return undefined, err
		}
		at := index(part.plain, text)
		if at < 0 {
			if must {
				return undefined, failf("substring not found")
			}
			return jinja.NewInt(-1), nil
		}
		return jinja.NewInt(offset + int64(utf8.RuneCountInString(part.plain[:at]))), nil
	}
}

func (s *state) replace(self view, old, repl, count jinja.Value) (jinja.Value, error) {
	from, err := s.wantText(old)
	if err != nil {
		return undefined, err
	}
	to, ok := s.asText(repl)
	n, okN := asInt(count)
	if count.IsNone() {
		n, okN = -1, true
	}
	if !ok || !okN {
		return undefined, failf("replace takes two strings and a count")
	}
	found := strings.Count(self.plain, from)
	if n >= 0 {
		found = int(min(int64(found), n))
	}
	if err := s.made(len(self.text) + found*len(to)); err != nil {
		return undefined, err
	}
	var b strings.Builder
	at := 0
	for i := range found {
		next := at
		if from == "" {
			if i > 0 {
				_, size := utf8.DecodeRuneInString(self.plain[at:])
				next = at + size
			}
		} else {
			next = at + strings.Index(self.plain[at:], from)
		}
		b.WriteString(self.cut(at, next))
		b.WriteString(to)
		at = next + len(from)
	}
	b.WriteString(self.cut(at, len(self.plain)))
	return jinja.NewString(b.String()), nil
}

func (s *state) joined(parts []string, sep string) (jinja.Value, error) {
	n := len(sep) * max(len(parts)-1, 0)
	for _, p := range parts {
		n += len(p)
	}
	if err := s.made(n); err != nil {
		return undefined, err
	}
	return jinja.NewString(strings.Join(parts, sep)), nil
}

func mapped(f func(string) string) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		if err := p.done(); err != nil {
			return undefined, err
		}
		return s.str(s.marks.mapped(self.text, f))
	}
}

func every(is func(rune) bool) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		none := strings.IndexFunc(self.plain, func(r rune) bool { return !is(r) }) < 0
		return jinja.NewBool(none && self.plain != ""), p.done()
	}
}

func cased(want, other func(rune) bool) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		return jinja.NewBool(isCased(self.plain, want, other)), p.done()
	}
}

func isCased(text string, want, other func(rune) bool) bool {
	return strings.IndexFunc(text, want) >= 0 && strings.IndexFunc(text, func(r rune) bool { return other(r) || unicode.IsTitle(r) }) < 0
}

func justify(left, right int) stringMethod {
	return func(s *state, self view, p *parameters) (jinja.Value, error) {
		n, err := s.width(p)
		fill := p.optional("fillchar", jinja.NewString(" "))
		c, ok := s.asText(fill)
		if err = firstError(err, p.done()); err != nil {
			return undefined, err
		}
		if !ok || utf8.RuneCountInString(c) != 1 {
			return undefined, failf("the fill character must be exactly one character long")
		}
		pad := max(n-utf8.RuneCountInString(self.plain), 0)
		before := pad * left
		if left == right {
			before = pad/2 + pad&n&1
		}
		return s.str(strings.Repeat(c, before) + self.text + strings.Repeat(c, pad-before))
	}
}

// format is str.format with plain fields: {}, {0} and {name}.
func format(s *state, self view, p *parameters) (jinja.Value, error) {
	var b strings.Builder
	text, auto := self.plain, 0
	for i := 0; i < len(text); {
		c := text[i]
		if c != '{' && c != '}' {
			j := strings.IndexAny(text[i:], "{}")
			if j < 0 {
				j = len(text) - i
			}
			b.WriteString(self.cut(i, i+j))
			i += j
			continue
		}
		if i+1 < len(text) && text[i+1] == c {
			b.WriteByte(c)
			i += 2
			continue
		}
		end := strings.IndexByte(text[i:], '}')
		if c == '}' || end < 0 {
			return undefined, failf("single '%c' encountered in format string", c)
		}
		field := text[i+1 : i+end]
		i += end + 1
		var v jinja.Value
		n, isIndex := parseDigits(field, len(field), 10)
		switch {
		case field == "":
			n, isIndex = rune(auto), true
			auto++
			fallthrough
		case isIndex:
			if int(n) >= len(p.a) {
				return undefined, failf("replacement index %d out of range for positional args tuple", n)
			}
			v = p.a[n]
		default:
			var ok bool
			if v, ok = p.k[field]; !ok {
				return undefined, failf("format field {%s} is not supported", field)
			}
		}
		out, err := s.print(v)
		if err != nil {
			return undefined, err
		}
		b.WriteString(out)
	}
	return s.str(b.String())
}

func capitalize(t string) string {
	_, n := utf8.DecodeRuneInString(t)
	return titleCase(t[:n]) + lower(t[n:])
}

// titleCase is a single character as the first of a word; it may become several.
func titleCase(c string) string { return cases.Title(language.Und).String(c) }

// title begins each run of letters with a capital.
func title(t string) string {
	var b strings.Builder
	inside := false
	for _, r := range t {
		if inside {
			b.WriteRune(unicode.ToLower(r))
		} else {
			b.WriteString(titleCase(string(r)))
		}
		inside = unicode.IsLetter(r)
	}
	return b.String()
}
