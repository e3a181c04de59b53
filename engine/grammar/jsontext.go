package grammar

import "sync"

// White space of JSON: none, a space, or a new line and up to maxIndent of space. Without a bound a model may go on with it for ever.
const maxIndent = 40

var white = named("white space", optional(Alt(raw(" "), Seq(raw("\n"), Repeat(oneOf(chars(" \t")), 0, maxIndent)))))

// plain are the characters that JSON writes as themselves.
var plain = anyChar.minus(newClass(span{0, 0x1F}, span{'"', '"'}, span{'\\', '\\'}))

var hexDigit = newClass(span{'0', '9'}, span{'a', 'f'}, span{'A', 'F'})

// freeChar is a character of a string in any spelling of it but lone surrogates.
var freeChar = sync.OnceValue(func() Expr {
	h := oneOf(hexDigit)
	d := oneOf(chars("dD"))
	return Alt(oneOf(plain), Seq(raw(`\`), oneOf(chars(`"\/bfnrt`))),
		Seq(raw(`\u`), Alt(
			Seq(oneOf(hexDigit.minus(chars("dD"))), h, h, h),
			Seq(d, oneOf(newClass(span{'0', '7'})), h, h),
			Seq(d, oneOf(chars("89abAB")), h, h, raw(`\u`), d, oneOf(chars("cdefCDEF")), h, h))))
})

// anyWritten is any character as written.
var anyWritten = sync.OnceValue(func() Expr { return written(anyChar) })

// written is a character of c as this package writes it in a string.
func written(c class) Expr {
	parts := []Expr{oneOf(c.minus(anyChar.minus(plain)))}
	for _, r := range `"\` {
		if c.has(r) {
			parts = append(parts, raw(`\`+string(r)))
		}
	}
	for r := range rune(0x20) {
		if c.has(r) {
			parts = append(parts, raw(controlEscape(r)))
		}
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return Alt(parts...)
}

var anyString = sync.OnceValue(func() Expr {
	return named("string", Seq(raw(`"`), Repeat(freeChar(), 0, -1), raw(`"`)))
})

// Digits of numbers without bounds: what a float64 holds, and no endless ones.
const (
	maxFraction  = 18
	numberDigits = `(0|[1-9][0-9]{0,17})`
	exponent     = `([eE][+-]?([0-9]{1,2}|1[0-9]{2}|2[0-7][0-9]))?`
)

func mustRegex(s string) Expr {
	e, err := Regex(s)
	if err != nil {
		panic("grammar: " + s + ": " + err.Error())
	}
	return e
}

var (
	anyInteger = sync.OnceValue(func() Expr { return named("integer", mustRegex(`-?`+numberDigits)) })
	anyNumber  = sync.OnceValue(func() Expr {
		return named("number", mustRegex(`-?`+numberDigits+`(\.[0-9]{1,18})?`+exponent))
	})
)

// JSON is any JSON value.
func JSON() Expr { return anyValue(white) }

func anyValue(ws Expr) Expr {
	r := &rule{name: "value"}
	value := Expr{&node{op: opRule, rule: r}}
	r.body = Alt(anyString(), anyNumber(), raw("true"), raw("false"), raw("null"),
		anyObject(ws, anyString(), value), anyArray(ws, value))
	return value
}

func anyObject(ws, key, value Expr) Expr {
	member := Seq(key, raw(":"), ws, value)
	return Seq(raw("{"), ws, optional(Seq(member, Repeat(Seq(raw(","), ws, member), 0, -1), ws)), raw("}"))
}

func anyArray(ws, value Expr) Expr {
	return Seq(raw("["), ws, optional(Seq(value, Repeat(Seq(raw(","), ws, value), 0, -1), ws)), raw("]"))
}
