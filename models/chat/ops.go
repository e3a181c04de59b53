package chat

import (
	"cmp"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Python's operators over the library's values. An operation Python refuses is an error here.

// asInt returns an integer or a bool as one.
func asInt(v jinja.Value) (int64, bool) {
	if v.IsInt() {
		return v.AsInt(), true
	}
	if v.IsBool() {
		if v.AsBool() {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func asFloat(v jinja.Value) (float64, bool) {
	if v.IsFloat() {
		return v.AsFloat(), true
	}
	n, ok := asInt(v)
	return float64(n), ok
}

func (s *state) operandError(op string, x, y jinja.Value) error {
	for _, v := range []jinja.Value{x, y} {
		if v.IsUndefined() {
			return failf("the chat template applies %s to an undefined value", op)
		}
	}
	if op == "+" && x.IsString() {
		return failf("can only concatenate str (not \"%s\") to str", s.typeName(y))
	}
	return failf("unsupported operand type(s) for %s: '%s' and '%s'", op, s.typeName(x), s.typeName(y))
}

func (s *state) add(x, y jinja.Value) (jinja.Value, error) {
	a, okA := s.asText(x)
	b, okB := s.asText(y)
	if okA && okB {
		if s.kind(x) == isMarkup || s.kind(y) == isMarkup {
			if x.IsString() {
				a = escape(a)
			}
			if y.IsString() {
				b = escape(b)
			}
			return s.markup(a + b), s.made(len(a) + len(b))
		}
		return s.str(a + b)
	}
	if s.isArray(x) && s.isArray(y) && s.isTuple(x) == s.isTuple(y) {
		if err := s.tick(x.AsList().Len() + y.AsList().Len()); err != nil {
			return undefined, err
		}
		items := append(append([]jinja.Value(nil), x.AsList().Items...), y.AsList().Items...)
		if s.isTuple(x) {
			return s.tuple(items...), nil
		}
		return jinja.NewList(items), nil
	}
	return arithmetic("+")(s, x, y)
}

func (s *state) mul(x, y jinja.Value) (jinja.Value, error) {
	if _, ok := asInt(x); ok {
		x, y = y, x
	}
	n, ok := asInt(y)
	if !ok {
		return arithmetic("*")(s, x, y)
	}
	n = max(n, 0)
	if text, ok := s.asText(x); ok {
		if len(text) == 0 || n == 0 {
			return jinja.NewString(""), nil
		}
		if n > int64(s.text/len(text)) {
			return undefined, s.made(math.MaxInt32)
		}
		return s.str(strings.Repeat(text, int(n)))
	}
	if s.isArray(x) {
		src := x.AsList().Items
		if len(src) == 0 || n == 0 {
			n = 0
		} else if n > int64(s.ops/len(src)) {
			return undefined, s.tick(maxOps)
		}
		items := make([]jinja.Value, 0, len(src)*int(n))
		for range n {
			items = append(items, src...)
		}
		if s.isTuple(x) {
			return s.tuple(items...), s.tick(len(items))
		}
		return jinja.NewList(items), s.tick(len(items))
	}
	return arithmetic("*")(s, x, y)
}

func (s *state) mod(x, y jinja.Value) (jinja.Value, error) {
	if text, ok := s.asText(x); ok {
		values := args{y}
		if s.isTuple(y) {
			values = y.AsList().Items
		}
		out, err := s.printf(text, values)
		if err != nil {
			return undefined, err
		}
		return s.str(out)
	}
	return arithmetic("%")(s, x, y)
}

func sign(by int64) function {
	return func(s *state, a args, _ kwargs) (jinja.Value, error) {
		if n, ok := asInt(a[0]); ok {
			if n == math.MinInt64 && by < 0 {
				return undefined, failf("an integer of more than 64 bits")
			}
			return jinja.NewInt(by * n), nil
		}
		if a[0].IsFloat() {
			return jinja.NewFloat(float64(by) * a[0].AsFloat()), nil
		}
		if err := s.defined(a[0], ""); err != nil {
			return undefined, err
		}
		return undefined, failf("bad operand type for unary sign: '%s'", s.typeName(a[0]))
	}
}

// arithmetic is an operator over numbers. Integers past 64 bits are refused, not rounded.
func arithmetic(op string) func(*state, jinja.Value, jinja.Value) (jinja.Value, error) {
	return func(s *state, x, y jinja.Value) (jinja.Value, error) {
		a, okA := asFloat(x)
		b, okB := asFloat(y)
		if !okA || !okB {
			return undefined, s.operandError(op, x, y)
		}
		if b == 0 && (op == "/" || op == "//" || op == "%") {
			return undefined, failf("division by zero")
		}
		if !x.IsFloat() && !y.IsFloat() && op != "/" {
			m, _ := asInt(x)
			n, _ := asInt(y)
			if op == "**" && n < 0 {
				return jinja.NewFloat(math.Pow(a, b)), nil
			}
			v, ok := integer(op, m, n)
			if !ok {
				return undefined, failf("an integer of more than 64 bits")
			}
			return jinja.NewInt(v), nil
		}
		var f float64
		switch op {
		case "+":
			f = a + b
		case "-":
			f = a - b
		case "*":
			f = a * b
		case "/":
			f = a / b
		case "//":
			f = math.Floor((a - floatMod(a, b)) / b)
		case "%":
			f = floatMod(a, b)
		case "**":
			f = math.Pow(a, b)
		}
		return jinja.NewFloat(f), nil
	}
}

// floatMod has the sign of b, as Python's has.
func floatMod(a, b float64) float64 {
	m := math.Mod(a, b)
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	if m == 0 {
		m = math.Copysign(0, b)
	}
	return m
}

func integer(op string, m, n int64) (int64, bool) {
	switch op {
	case "+":
		v := m + n
		return v, (v > m) == (n > 0)
	case "-":
		v := m - n
		return v, (v < m) == (n > 0)
	case "*":
		hi, lo := bits.Mul64(magnitude(m), magnitude(n))
		negative := (m < 0) != (n < 0)
		if hi != 0 || lo > 1<<63 || lo == 1<<63 && !negative {
			return 0, false
		}
		if negative {
			return -int64(lo), true
		}
		return int64(lo), true
	case "//", "%":
		if m == math.MinInt64 && n == -1 {
			return 0, op == "%"
		}
		q, r := m/n, m%n
		if r != 0 && (r < 0) != (n < 0) {
			q, r = q-1, r+n
		}
		if op == "%" {
			return r, true
		}
		return q, true
	}
	v, ok := int64(1), true
	if m == 0 || m == 1 || m == -1 {
		n = min(n, 2-n%2) // only the sign matters
		if n == 0 {
			return 1, true
		}
	}
	for ; n > 0 && ok; n-- {
		v, ok = integer("*", v, m)
	}
	return v, ok
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// compareNumbers orders numbers exactly, also an integer and a float; false with NaN.
func compareNumbers(x, y jinja.Value) (int, bool) {
	m, intX := asInt(x)
	n, intY := asInt(y)
	if intX && intY {
		return cmp.Compare(m, n), true
	}
	a, _ := asFloat(x)
	b, _ := asFloat(y)
	if math.IsNaN(a) || math.IsNaN(b) {
		return 0, false
	}
	mixed := func(n int64, f float64) int {
		switch {
		case f >= 0x1p63:
			return -1
		case f < -0x1p63:
			return 1
		}
		if c := cmp.Compare(n, int64(f)); c != 0 {
			return c
		}
		return cmp.Compare(0, f-math.Trunc(f))
	}
	if intX {
		return mixed(m, b), true
	}
	if intY {
		return -mixed(n, a), true
	}
	return cmp.Compare(a, b), true
}

func isNumber(v jinja.Value) bool { return v.IsNumber() || v.IsBool() }

func (s *state) equal(x, y jinja.Value, depth int) (bool, error) {
	if depth > maxDataDepth {
		return false, failf("a value nests deeper than %d", maxDataDepth)
	}
	if isNumber(x) && isNumber(y) {
		c, ordered := compareNumbers(x, y)
		return ordered && c == 0, s.tick(1)
	}
	a, okA := s.asText(x)
	b, okB := s.asText(y)
	if okA && okB {
		return s.marks.plain(a) == s.marks.plain(b), s.scan(min(len(a), len(b)))
	}
	switch {
	case x.IsList() && y.IsList():
		p, q := x.AsList().Items, y.AsList().Items
		if len(p) != len(q) || s.isTuple(x) != s.isTuple(y) || !s.isTuple(x) && s.listKind(x) != s.listKind(y) {
			return false, nil
		}
		for i := range p {
			if eq, err := s.equal(p[i], q[i], depth+1); !eq || err != nil {
				return false, err
			}
		}
		return true, s.tick(len(p))
	case x.IsDict() && y.IsDict():
		p, q := x.AsDict(), y.AsDict()
		if s.kind(x) != isDict || s.kind(y) != isDict {
			return p == q, nil
		}
		if p.Len() != q.Len() {
			return false, nil
		}
		for _, key := range p.Keys {
			other, ok := q.Get(key)
			if !ok {
				return false, nil
			}
			if eq, err := s.equal(p.Data[key], other, depth+1); !eq || err != nil {
				return false, err
			}
		}
		return true, s.tick(p.Len())
	}
	return x.IsNone() && y.IsNone() || x.IsUndefined() && y.IsUndefined(), nil
}

// compare orders two values; ordered is false with NaN.
func (s *state) compare(x, y jinja.Value, op string, depth int) (c int, ordered bool, err error) {
	if depth > maxDataDepth {
		return 0, false, failf("a value nests deeper than %d", maxDataDepth)
	}
	if isNumber(x) && isNumber(y) {
		c, ordered = compareNumbers(x, y)
		return c, ordered, nil
	}
	a, okA := s.asText(x)
	b, okB := s.asText(y)
	if okA && okB {
		return strings.Compare(s.marks.plain(a), s.marks.plain(b)), true, s.scan(min(len(a), len(b)))
	}
	if s.isArray(x) && s.isArray(y) && s.isTuple(x) == s.isTuple(y) {
		p, q := x.AsList().Items, y.AsList().Items
		for i := range min(len(p), len(q)) {
			eq, err := s.equal(p[i], q[i], depth)
			if err != nil {
				return 0, false, err
			}
			if !eq {
				return s.compare(p[i], q[i], op, depth+1)
			}
		}
		return cmp.Compare(len(p), len(q)), true, nil
	}
	for _, v := range []jinja.Value{x, y} {
		if err := s.defined(v, ""); err != nil {
			return 0, false, err
		}
	}
	return 0, false, failf("'%s' not supported between instances of '%s' and '%s'", op, s.typeName(x), s.typeName(y))
}

func (s *state) contains(container, item jinja.Value) (bool, error) {
	if text, ok := s.asText(container); ok {
		part, ok := s.asText(item)
		if !ok {
			return false, failf("'in <string>' requires string as left operand, not %s", s.typeName(item))
		}
		return strings.Contains(s.marks.plain(text), s.marks.plain(part)), s.scan(len(text))
	}
	switch {
	case s.isMapping(container):
		key, ok := s.asText(item)
		if !ok {
			if item.IsList() && !s.isTuple(item) || s.isMapping(item) {
				return false, failf("unhashable type: '%s'", s.typeName(item))
			}
			return false, nil
		}
		return container.AsDict().Has(s.marks.plain(key)), nil
	case container.IsList():
		for _, v := range container.AsList().Items {
			if eq, err := s.equal(v, item, 0); eq || err != nil {
				return eq, err
			}
		}
		return false, s.tick(container.AsList().Len())
	case container.IsUndefined():
		return false, nil
	case s.kind(container) == isGenerator:
		items, err := s.iterate(container)
		if err != nil {
			return false, err
		}
		return s.contains(jinja.NewList(items), item)
	}
	return false, failf("argument of type '%s' is not iterable", s.typeName(container))
}

// attr is v.name: a method, else an item of that key.
func (s *state) attr(v jinja.Value, name, source string) (jinja.Value, error) {
	if err := s.defined(v, source); err != nil {
		return undefined, err
	}
	if strings.HasPrefix(name, "_") {
		return undefined, nil // the reference's sandbox hides these
	}
	if m := s.method(v, name); !m.IsUndefined() {
		return m, nil
	}
	if v.IsDict() && s.kind(v) < isMarkup {
		item, _ := v.AsDict().Get(name)
		return item, nil
	}
	if isNumber(v) && numberAttributes[name] {
		return undefined, failf("attribute '%s' of a number is not supported", name)
	}
	return undefined, nil
}

var numberAttributes = map[string]bool{
	"as_integer_ratio": true, "bit_count": true, "bit_length": true, "conjugate": true, "denominator": true, "fromhex": true,
	"hex": true, "imag": true, "is_integer": true, "numerator": true, "real": true, "to_bytes": true, "from_bytes": true,
}

// item is v[key]: an item, else an attribute of that name.
func (s *state) item(v, key jinja.Value, source string) (jinja.Value, error) {
	if err := s.defined(v, source); err != nil {
		return undefined, err
	}
	if n, ok := asInt(key); ok {
		return s.at(v, n)
	}
	name, ok := s.asText(key)
	if !ok {
		return undefined, nil
	}
	name = s.marks.plain(name)
	if v.IsDict() && s.kind(v) < isMarkup {
		if item, ok := v.AsDict().Get(name); ok && !(s.kind(v) == isDict && strings.HasPrefix(name, "__call__") && item.IsCallable()) {
			return item, nil
		}
	}
	if strings.HasPrefix(name, "_") {
		return undefined, nil
	}
	return s.method(v, name), nil
}

func (s *state) at(v jinja.Value, n int64) (jinja.Value, error) {
	if s.hasItems(v) {
		items := v.AsList().Items
		if n < 0 {
			n += int64(len(items))
		}
		if n < 0 || n >= int64(len(items)) {
			return undefined, nil
		}
		return items[n], nil
	}
	text, ok := s.asText(v)
	if !ok {
		return undefined, nil
	}
	if n < 0 {
		n += int64(utf8.RuneCountInString(text))
	}
	for i, r := range text {
		if n == 0 {
			return jinja.NewString(text[i : i+utf8.RuneLen(r)]), s.scan(i)
		}
		n--
	}
	return undefined, s.scan(len(text))
}

// slice is v[start:stop:step].
func slice(s *state, a args, _ kwargs) (jinja.Value, error) {
	v := a[0]
	if err := s.defined(v, a[4].AsString()); err != nil {
		return undefined, err
	}
	text, isText := s.asText(v)
	var runes []rune
	length := 0
	switch {
	case isText:
		runes = []rune(text)
		length = len(runes)
	case s.hasItems(v):
		length = v.AsList().Len()
	default:
		return undefined, failf("'%s' object is not subscriptable", s.typeName(v))
	}
	bounds := [3]*int{}
	for i, b := range a[1:4] {
		if b.IsNone() {
			continue
		}
		n, ok := asInt(b)
		if !ok {
			return undefined, failf("slice indices must be integers or None")
		}
		m := int(min(max(n, -1<<40), 1<<40))
		bounds[i] = &m
	}
	step := 1
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return undefined, failf("slice step cannot be zero")
	}
	low, high := 0, length
	start, stop := 0, length
	if step < 0 {
		low, high = -1, length-1
		start, stop = high, low
	}
	for i, target := range []*int{&start, &stop} {
		if b := bounds[i]; b != nil {
			n := *b
			if n < 0 {
				n += length
			}
			*target = min(max(n, low), high)
		}
	}
	var picked []int
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		picked = append(picked, i)
	}
	if isText {
		out := make([]rune, len(picked))
		for i, at := range picked {
			out[i] = runes[at]
		}
		return s.str(string(out))
	}
	items := make([]jinja.Value, len(picked))
	for i, at := range picked {
		items[i] = v.AsList().Items[at]
	}
	if v.IsList() && s.listKind(v) != isList {
		return s.listOf(min(s.listKind(v), isRange), items), s.tick(len(items))
	}
	return s.list(items)
}
