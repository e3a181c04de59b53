package grammar

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// bounds of a number; nil: none.
type bounds struct {
	low, high         *big.Rat
	openLow, openHigh bool
	multiple          *big.Rat
	whole             bool
	// What it is not:
	fraction     bool // whole
	others       []*big.Rat
	notMultiples []*big.Rat // multiples of these
}

func (b *bounds) free() bool {
	return b.low == nil && b.high == nil && b.multiple == nil && !b.fraction && len(b.others)+len(b.notMultiples) == 0
}

func (b *bounds) String() string {
	return fmt.Sprint(b.low, b.openLow, b.high, b.openHigh, b.multiple, b.whole, b.fraction, b.others, b.notMultiples)
}

// exclude leaves out a number.
func (b *bounds) exclude(v *value) {
	r := v.number()
	if r == nil {
		fail(v.pointer, "a number of a size that is not supported")
	}
	b.others = append(b.others, r)
}

// divide wants multiples of r as well as of what was wanted before.
func (b *bounds) divide(r *big.Rat) {
	if b.multiple != nil { // in lowest terms, a/b and c/d: lcm(a, c)/gcd(b, d)
		n, m := b.multiple.Num(), r.Num()
		lcm := new(big.Int).Div(new(big.Int).Mul(n, m), new(big.Int).GCD(nil, nil, n, m))
		r = new(big.Rat).SetFrac(lcm, new(big.Int).GCD(nil, nil, b.multiple.Denom(), r.Denom()))
	}
	b.multiple = r
}

// above tightens the lower bound.
func (b *bounds) above(r *big.Rat, open bool) {
	if b.low == nil || r.Cmp(b.low) > 0 {
		b.low, b.openLow = r, open
	} else if r.Cmp(b.low) == 0 {
		b.openLow = b.openLow || open
	}
}

func (b *bounds) below(r *big.Rat, open bool) {
	if b.high == nil || r.Cmp(b.high) < 0 {
		b.high, b.openHigh = r, open
	} else if r.Cmp(b.high) == 0 {
		b.openHigh = b.openHigh || open
	}
}

func (b *bounds) contains(r *big.Rat) bool {
	if b.low != nil {
		if c := r.Cmp(b.low); c < 0 || c == 0 && b.openLow {
			return false
		}
	}
	if b.high != nil {
		if c := r.Cmp(b.high); c > 0 || c == 0 && b.openHigh {
			return false
		}
	}
	divides := func(m *big.Rat) bool { return new(big.Rat).Quo(r, m).IsInt() }
	switch {
	case b.whole && !r.IsInt(), b.fraction && r.IsInt(), b.multiple != nil && !divides(b.multiple):
		return false
	}
	return !slices.ContainsFunc(b.notMultiples, divides) && !slices.ContainsFunc(b.others, func(o *big.Rat) bool { return o.Cmp(r) == 0 })
}

// maxMultiple bounds the automaton of a multipleOf.
const maxMultiple = 20_000

// expr is a number within the bounds, without an exponent; "" for why not when there is one.
func (b *bounds) expr() (e Expr, why string) {
	why = "only decimal numbers are supported that, without the point, are at most " + strconv.Itoa(maxMultiple)
	if b.free() {
		if b.whole {
			return anyInteger(), ""
		}
		return anyNumber(), ""
	}
	decimals := `(\.[0-9]{1,18})?`
	if b.whole {
		decimals = ""
	}
	m := b.multiple
	if b.whole && m != nil && !m.IsInt() {
		all := *b
		all.divide(big.NewRat(1, 1))
		m = all.multiple
	}
	var step Expr
	if m != nil {
		n, k, ok := scaled(m)
		if !ok {
			return Expr{}, why
		}
		switch {
		case k == 0:
			decimals = ""
		case !b.whole:
			decimals = `(\.[0-9]{1,` + strconv.Itoa(k) + `})?`
		}
		if n > 1 {
			step = divisible(n, k)
		}
	}
	digits := mustRegex(numberDigits + decimals)
	if step.n != nil {
		digits = and(digits, step)
	}
	if b.fraction {
		digits = and(digits, mustRegex(`[0-9]+\.[0-9]*[1-9][0-9]*`))
	}
	for _, m := range b.notMultiples {
		n, k, ok := scaled(m)
		if !ok {
			return Expr{}, why
		}
		digits = minus(digits, Seq(divisible(n, k), optional(mustRegex(map[bool]string{true: `\.0*`, false: `0*`}[k == 0]))))
	}
	var parts []Expr
	zero := new(big.Rat)
	// Not negative: from low up to high.
	if b.high == nil || b.high.Sign() > 0 || b.high.Sign() == 0 && !b.openHigh {
		e, why := b.side(digits, false, b.low, b.openLow, b.high, b.openHigh)
		if why != "" {
			return Expr{}, why
		}
		parts = append(parts, e)
	}
	if b.low == nil || b.low.Sign() < 0 {
		var from, to *big.Rat
		if b.high != nil && b.high.Sign() < 0 {
			from = new(big.Rat).Neg(b.high)
		}
		if b.low != nil {
			to = new(big.Rat).Neg(b.low)
		}
		open := b.openHigh
		if from == nil { // -0 is 0
			from, open = zero, true
		}
		e, why := b.side(digits, true, from, open, to, b.openLow)
		if why != "" {
			return Expr{}, why
		}
		parts = append(parts, Seq(raw("-"), e))
	}
	return Alt(parts...), ""
}

// side is the digits of a number that is not negative, or is: then the bounds are those of its negative.
func (b *bounds) side(e Expr, negative bool, low *big.Rat, openLow bool, high *big.Rat, openHigh bool) (Expr, string) {
	if low != nil && (low.Sign() > 0 || low.Sign() == 0 && openLow) {
		digits, ok := decimal(low)
		if !ok {
			return Expr{}, "a bound with more digits than are supported"
		}
		e = and(e, atLeast(digits, openLow))
	}
	if high != nil {
		digits, ok := decimal(high)
		if !ok {
			return Expr{}, "a bound with more digits than are supported"
		}
		e = minus(e, atLeast(digits, !openHigh))
	}
	for _, o := range b.others {
		if negative == (o.Sign() < 0) {
			digits, ok := decimal(new(big.Rat).Abs(o))
			if !ok {
				continue // it has more digits than are written
			}
			zeros := `(\.0+)?`
			if strings.Contains(digits, ".") {
				zeros = `0*`
			}
			e = minus(e, Seq(raw(digits), mustRegex(zeros)))
		}
	}
	return e, ""
}

// scaled is a number as n/10^k with the least k; false when it has too many digits for divisible.
func scaled(r *big.Rat) (n, k int, ok bool) {
	for ; k <= maxFraction; k++ {
		if r.IsInt() {
			ok := r.Num().IsInt64() && r.Num().Int64() <= int64(maxMultiple/(k+1))
			return int(r.Num().Int64()), k, ok
		}
		r = new(big.Rat).Mul(r, big.NewRat(10, 1))
	}
	return 0, 0, false
}

// decimal writes a number that is not negative; false when it takes too many digits.
func decimal(r *big.Rat) (string, bool) {
	s := strings.TrimRight(strings.TrimRight(r.FloatString(maxFraction), "0"), ".")
	if !strings.Contains(r.FloatString(maxFraction), ".") {
		s = r.FloatString(0)
	}
	back, ok := new(big.Rat).SetString(s)
	return s, ok && back.Cmp(r) == 0 && len(s) <= 80
}

// atLeast is a number, whole or with decimals, that is at least (more than, if open) limit, which is written the same way. It is meant to be
// joined with what is a number.
func atLeast(limit string, open bool) Expr {
	whole, fraction, _ := strings.Cut(limit, ".")
	any := oneOf(digits)
	tail := optional(Seq(raw("."), Repeat(any, 1, -1)))
	n := len(whole)
	parts := []Expr{Seq(oneOf(newClass(span{'1', '9'})), Repeat(any, n, -1), tail)}
	above := func(d byte) (Expr, bool) {
		return oneOf(newClass(span{rune(d) + 1, '9'})), d < '9'
	}
	for i := range n {
		if e, ok := above(whole[i]); ok {
			parts = append(parts, Seq(raw(whole[:i]), e, Repeat(any, n-1-i, n-1-i), tail))
		}
	}
	// Equal before the point.
	var fractions []Expr
	for j := range len(fraction) {
		if e, ok := above(fraction[j]); ok {
			fractions = append(fractions, Seq(raw(fraction[:j]), e, Repeat(any, 0, -1)))
		}
	}
	more := Seq(Repeat(any, 0, -1), oneOf(newClass(span{'1', '9'})), Repeat(any, 0, -1))
	if open {
		fractions = append(fractions, Seq(raw(fraction), more))
	} else {
		fractions = append(fractions, Seq(raw(fraction), Repeat(any, 0, -1)))
	}
	same := Seq(raw("."), Alt(fractions...))
	if !open && fraction == "" {
		same = optional(same)
	}
	return Alt(append(parts, Seq(raw(whole), same))...)
}

// divisible is a number that m/10^k divides, with at most k decimals.
func divisible(m, k int) Expr {
	n := &net{states: m * (k + 1)} // at r + j*m: so far the digits have the remainder r, j of them behind the point; j is 0 before
	power := 1                     // 10^(k-j) % m
	for j := k; j >= 0; j-- {
		for r := range m {
			at := j*m + r
			if r*power%m == 0 {
				n.final = append(n.final, at)
			}
			for d := range 10 {
				digit, next := raw(string(rune('0'+d))), (r*10+d)%m
				if j == 0 {
					n.edge(at, next, digit)
					digit = Seq(raw("."), digit)
				}
				if j < k {
					n.edge(at, (j+1)*m+next, digit)
				}
			}
		}
		power = power * 10 % m
	}
	return n.expr()
}
