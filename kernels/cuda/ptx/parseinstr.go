package ptx

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parsing instructions and operands.

func (p *parser) instr() (*instr, error) {
	in := &instr{file: p.file, srcLine: p.line}
	if p.accept("@") {
		in.predNot = p.accept("!")
		var err error
		if in.pred, err = p.word(); err != nil {
			return nil, err
		}
	}
	t := p.next()
	if t.kind != 'w' || t.text[0] == '%' || t.text[0] == '$' {
		return nil, errorf(t.line, "found %q where an instruction belongs", t.text)
	}
	if t.text[0] == '.' {
		return nil, errorf(t.line, "unknown directive %q", t.text)
	}
	in.line, in.name = t.line, t.text
	parts := strings.Split(t.text, ".")
	in.op, in.mods = parts[0], parts[1:]
	if slices.Contains(in.mods, "") {
		return nil, errorf(t.line, "instruction %q is not understood", t.text)
	}
	if err := p.operands(in); err != nil {
		var bad *Error
		if errors.As(err, &bad) {
			return nil, errorf(bad.Line, "%s: %s", in.name, bad.Msg)
		}
		return nil, err
	}
	return in, nil
}

func (p *parser) operands(in *instr) error {
	for !p.accept(";") {
		if len(in.args) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		o, err := p.operand()
		if err != nil {
			return err
		}
		if p.accept("|") {
			q, err := p.operand()
			if err != nil {
				return err
			}
			o.pair = &q
		}
		in.args = append(in.args, o)
	}
	return nil
}

func (p *parser) operand() (operand, error) {
	t := p.next()
	switch t.text {
	case "{", "(":
		o := operand{kind: oVec}
		end := "}"
		if t.text == "(" {
			o.kind, end = oList, ")"
		}
		for !p.accept(end) {
			if len(o.list) > 0 {
				if err := p.expect(","); err != nil {
					return o, err
				}
			}
			if p.is("{") || p.is("(") || p.is("[") {
				return o, errorf(t.line, "list inside a list")
			}
			e, err := p.operand()
			if err != nil {
				return o, err
			}
			o.list = append(o.list, e)
		}
		return o, nil
	case "[":
		if p.is("[") || p.is("{") || p.is("(") {
			return operand{}, errorf(t.line, "address is not understood")
		}
		o, err := p.operand()
		if err != nil {
			return o, err
		}
		if o.kind != oName && o.kind != oInt || o.not || o.neg {
			return o, errorf(t.line, "address is not understood")
		}
		o.kind = oMem
		return o, p.expect("]")
	case "!":
		w, err := p.word()
		return operand{kind: oName, name: w, not: true}, err
	case "-":
		o, err := p.operand()
		switch {
		case err != nil:
		case o.kind == oInt:
			o.bits = -o.bits
		case o.kind == oF64:
			o.bits ^= 1 << 63
		case o.kind == oF32:
			o.bits ^= 1 << 31
		default:
			err = errorf(t.line, "minus before %q", o.name)
		}
		return o, err
	}
	if t.kind != 'w' {
		return operand{}, errorf(t.line, "found %q where an operand belongs", t.text)
	}
	if t.text == "_" {
		return operand{kind: oSink}, nil
	}
	if c := t.text[0]; c >= '0' && c <= '9' {
		return number(t)
	}
	o := operand{kind: oName, name: t.text}
	for p.is("+") || p.is("-") {
		minus := p.next().text == "-"
		if !minus && p.accept("-") {
			minus = true
		}
		w := p.next()
		v, ok := parseInt(w.text)
		if w.kind != 'w' || !ok {
			return o, errorf(w.line, "found %q where an offset belongs", w.text)
		}
		if minus {
			v = -v
		}
		o.off += int64(v)
	}
	return o, nil
}

func parseInt(s string) (uint64, bool) {
	s = strings.TrimSuffix(s, "U")
	if s == "" || s[0] < '0' || s[0] > '9' || strings.Contains(s, "_") {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 0, 64)
	return v, err == nil
}

func number(t token) (operand, error) {
	s := t.text
	if len(s) > 2 && (s[:2] == "0f" || s[:2] == "0F" || s[:2] == "0d" || s[:2] == "0D") {
		v, err := strconv.ParseUint(s[2:], 16, 64)
		single := s[1] == 'f' || s[1] == 'F'
		if err != nil || single && len(s) != 10 || !single && len(s) != 18 {
			return operand{}, errorf(t.line, "%q is not a number", s)
		}
		if single {
			return operand{kind: oF32, bits: v}, nil
		}
		return operand{kind: oF64, bits: v}, nil
	}
	if v, ok := parseInt(s); ok {
		return operand{kind: oInt, bits: v}, nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && strings.ContainsAny(s, ".eE") && !strings.ContainsAny(s, "xXpP_") {
		return operand{kind: oF64, bits: math.Float64bits(f)}, nil
	}
	return operand{}, errorf(t.line, "%q is not a number", s)
}
