package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Values as text: Python's str, repr, json.dumps, printf formats and strftime.

// print is str(v).
func (s *state) print(v jinja.Value) (string, error) {
	if text, ok := s.asText(v); ok {
		return text, nil
	}
	if v.IsUndefined() {
		return "", nil
	}
	var b strings.Builder
	err := s.repr(&b, v, 0)
	return b.String(), err
}

func (s *state) repr(b *strings.Builder, v jinja.Value, depth int) error {
	if depth > maxDataDepth {
		return failf("a value nests deeper than %d", maxDataDepth)
	}
	if err := s.tick(1); err != nil {
		return err
	}
	switch {
	case v.IsUndefined():
		b.WriteString("Undefined")
	case v.IsNone():
		b.WriteString("None")
	case v.IsBool():
		if v.AsBool() {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case v.IsInt():
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		b.WriteString(formatFloat(v.AsFloat()))
	case v.IsString():
		s.reprString(b, v.AsString())
		return s.made(len(v.AsString()))
	case v.IsList():
		open, end := "[", "]"
		switch s.listKind(v) {
		case isTuple, isGroup:
			open, end = "(", ")"
		case isRange:
			return failf("printing a range is not supported")
		case isItems, isKeys, isValues:
			open, end = s.typeName(v)+"([", "])"
		}
		b.WriteString(open)
		for i, item := range v.AsList().Items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := s.repr(b, item, depth+1); err != nil {
				return err
			}
		}
		if s.isTuple(v) && v.AsList().Len() == 1 {
			b.WriteByte(',')
		}
		b.WriteString(end)
	case v.IsDict():
		switch s.kind(v) {
		case isMarkup:
			text, _ := s.asText(v)
			b.WriteString("Markup(")
			s.reprString(b, text)
			b.WriteByte(')')
			return s.made(len(text))
		case isCycler, isGenerator:
			return failf("printing a %s is not supported", s.typeName(v))
		case isNamespace:
			b.WriteString("<Namespace ")
			defer b.WriteByte('>')
		}
		d := v.AsDict()
		b.WriteByte('{')
		for i, key := range d.Keys {
			if i > 0 {
				b.WriteString(", ")
			}
			s.reprString(b, s.markKey(v, key))
			b.WriteString(": ")
			if err := s.repr(b, d.Data[key], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		return failf("printing a function is not supported")
	}
	return nil
}

// formatFloat is Python's repr of a float.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return map[bool]string{true: "inf", false: "-inf"}[f > 0]
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		format = 'e'
	}
	out := strconv.FormatFloat(f, format, -1, 64)
	if !strings.ContainsAny(out, ".e") {
		out += ".0"
	}
	return out
}

func (s *state) reprString(b *strings.Builder, text string) {
	plain := s.marks.plain(text)
	quote := '\''
	if strings.Contains(plain, "'") && !strings.Contains(plain, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range text {
		switch p := s.marks.char(r); {
		case p == quote || p == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < utf8.RuneSelf || s.marks.isMark(r) || printable(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}

// printable is Python's str.isprintable for one character above ASCII.
func printable(r rune) bool {
	return unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r)
}

type jsonFormat struct {
	ascii, sortKeys, indented bool
	indent, item, key         string
}

// json writes json.dumps(v).
func (s *state) json(b *strings.Builder, v jinja.Value, f *jsonFormat, depth int) error {
	if depth > maxDataDepth {
		return failf("a value nests deeper than %d", maxDataDepth)
	}
	if err := s.tick(1); err != nil {
		return err
	}
	newline := func(depth int) error {
		if !f.indented {
			return nil
		}
		b.WriteByte('\n')
		for range depth {
			b.WriteString(f.indent)
		}
		return s.made(1 + depth*len(f.indent))
	}
	if text, ok := s.asText(v); ok {
		s.jsonString(b, text, f.ascii)
		return s.made(len(text))
	}
	switch {
	case v.IsNone():
		b.WriteString("null")
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		switch x := v.AsFloat(); {
		case math.IsNaN(x):
			b.WriteString("NaN")
		case math.IsInf(x, 0):
			b.WriteString(map[bool]string{true: "Infinity", false: "-Infinity"}[x > 0])
		default:
			b.WriteString(formatFloat(x))
		}
	case s.isArray(v):
		b.WriteByte('[')
		for i, item := range v.AsList().Items {
			if i > 0 {
				b.WriteString(f.item)
			}
			if err := newline(depth + 1); err != nil {
				return err
			}
			if err := s.json(b, item, f, depth+1); err != nil {
				return err
			}
		}
		if v.AsList().Len() > 0 {
			if err := newline(depth); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case s.isMapping(v):
		d := v.AsDict()
		keys := d.Keys
		if f.sortKeys {
			keys = slices.Sorted(slices.Values(keys))
		}
		b.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				b.WriteString(f.item)
			}
			if err := newline(depth + 1); err != nil {
				return err
			}
			s.jsonString(b, s.markKey(v, key), f.ascii)
			b.WriteString(f.key)
			if err := s.json(b, d.Data[key], f, depth+1); err != nil {
				return err
			}
		}
		if len(keys) > 0 {
			if err := newline(depth); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		return failf("Object of type %s is not JSON serializable", s.typeName(v))
	}
	return nil
}

func (s *state) jsonString(b *strings.Builder, text string, ascii bool) {
	b.WriteByte('"')
	for _, r := range text {
		switch p := s.marks.char(r); {
		case p == '"' || p == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 && strings.IndexByte("\n\r\t\f\b", byte(r)) >= 0:
			b.WriteByte('\\')
			b.WriteByte("nrtfb"[strings.IndexByte("\n\r\t\f\b", byte(r))])
		case r < 0x20 || ascii && r == 0x7f:
			fmt.Fprintf(b, `\u%04x`, r)
		case ascii && r >= utf8.RuneSelf && !s.marks.isMark(r):
			if r > 0xffff {
				r -= 0x10000
				fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			} else {
				fmt.Fprintf(b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// printf is Python's format % values.
func (s *state) printf(format string, values args) (string, error) {
	var b strings.Builder
	used := 0
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start := i
		i++
		for i < len(format) && strings.IndexByte("#0- +.123456789", format[i]) >= 0 {
			i++
		}
		if i == len(format) {
			return "", failf("incomplete format")
		}
		flags := format[start:i]
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if len(flags) > 6 {
			return "", failf("format %q is not supported", format[start:i+1])
		}
		if used == len(values) {
			return "", failf("not enough arguments for format string")
		}
		v := values[used]
		used++
		switch c := format[i]; c {
		case 's', 'r':
			text, err := s.print(v)
			if c == 'r' {
				var r strings.Builder
				err = s.repr(&r, v, 0)
				text = r.String()
			}
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, flags+"s", text)
		case 'd', 'i', 'u', 'x', 'X', 'o':
			n, ok := asInt(v)
			if v.IsFloat() && (c == 'd' || c == 'i' || c == 'u') && math.Abs(v.AsFloat()) < 1<<62 {
				n, ok = int64(v.AsFloat()), true
			}
			if !ok {
				return "", failf("%%%c format: a real number is required, not %s", c, s.typeName(v))
			}
			if c == 'i' || c == 'u' {
				c = 'd'
			}
			fmt.Fprintf(&b, flags+string(c), n)
		case 'f', 'F', 'e', 'E':
			x, ok := asFloat(v)
			if !ok {
				return "", failf("must be real number, not %s", s.typeName(v))
			}
			fmt.Fprintf(&b, flags+string(c), x)
		default:
			return "", failf("format %q is not supported", format[start:i+1])
		}
	}
	if used < len(values) && !(len(values) == 1 && s.isMapping(values[0])) {
		return "", failf("not all arguments converted during string formatting")
	}
	return b.String(), s.scan(len(format))
}

// strftime is Python's, in the C locale.
func strftime(t time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
		'p': "PM", 'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'c': "Mon Jan _2 15:04:05 2006",
		'x': "01/02/06", 'X': "15:04:05", 'e': "_2",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // %-d: no padding
		if plain {
			i++
		}
		switch c := format[i]; {
		case c == '%':
			b.WriteByte('%')
		case c == 'n':
			b.WriteByte('\n')
		case c == 't':
			b.WriteByte('\t')
		case c == 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case c == 'u':
			b.WriteString(strconv.Itoa((int(t.Weekday())+6)%7 + 1))
		case c == 'w':
			b.WriteString(strconv.Itoa(int(t.Weekday())))
		case c == 'Z' || c == 'z': // the reference's clock has no zone
		case layouts[c] != "":
			text := t.Format(layouts[c])
			if plain {
				if text = strings.TrimLeft(text, "0 "); text == "" {
					text = "0"
				}
			}
			b.WriteString(text)
		default:
			return "", failf("strftime_now: %%%c is not supported", c)
		}
	}
	return b.String(), nil
}
