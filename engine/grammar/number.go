package grammar

import (
	"math/big"
	"strconv"
	"strings"
)

// bounds of a number; nil: none.
type bounds struct {
	low, high         *big.Rat
	openLow, openHigh bool
	multiple          *big.Rat
	whole             bool
}

func (b *bounds) free() bool { return b.low == nil && b.high == nil && b.multiple == nil }

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
	return b.multiple == nil || new(big.Rat).Quo(r, b.multiple).IsInt()
}

const maxMultiple = 2000

// expr is a number within the bounds, without an exponent; "" for why not when there is one.
func (b *bounds) expr() (e Expr, why string) {
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
	step := int64(0)
	if m := b.multiple; m != nil {
		if m.IsInt() && m.Num().IsInt64() && m.Num().Int64() <= maxMultiple {
			step, decimals = m.Num().Int64(), ""
		} else if k := powerOfTenth(m); k > 0 && k <= maxFraction {
			if !b.whole {
				decimals = `(\.[0-9]{1,` + strconv.Itoa(k) + `})?`
			}
		} else {
			return Expr{}, "only whole numbers up to " + strconv.Itoa(maxMultiple) + " and 0.1, 0.01 ... are supported"
		}
	}
	var parts []Expr
	zero := new(big.Rat)
	// Not negative: from low up to high.
	if b.high == nil || b.high.Sign() > 0 || b.high.Sign() == 0 && !b.openHigh {
		e, why := side(decimals, step, b.low, b.openLow, b.high, b.openHigh)
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
		e, why := side(decimals, step, from, open, to, b.openLow)
		if why != "" {
			return Expr{}, why
		}
		parts = append(parts, Seq(raw("-"), e))
	}
	return Alt(parts...), ""
}

// side is a number that is not negative.
func side(decimals string, step int64, low *big.Rat, openLow bool, high *big.Rat, openHigh bool) (Expr, string) {
	e := mustRegex(numberDigits + decimals)
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
	if step > 1 {
		e = and(e, divisible(int(step)))
	}
	return e, ""
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

// powerOfTenth returns k if r is 10^-k, 0 if it is none.
func powerOfTenth(r *big.Rat) int {
	if r.Num().Cmp(big.NewInt(1)) != 0 {
		return 0
	}
	s := r.Denom().String()
	if strings.Trim(s[1:], "0") == "" && s[0] == '1' {
		return len(s) - 1
	}
	return 0
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

// divisible is a whole number that m divides.
func divisible(m int) Expr {
	n := &net{states: m, final: []int{0}}
	for r := range m {
		for d := range 10 {
			n.edge(r, (r*10+d)%m, raw(string(rune('0'+d))))
		}
	}
	return n.expr()
}
