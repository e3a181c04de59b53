package ptx

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

type parser struct {
	toks []token
	at   int
	src  *Source
	file int // of the last .loc
	line int
}

// Parse reads one PTX file. An error is an *Error with the line at fault.
func Parse(text []byte) (*Source, error) {
	toks, err := lex(string(text))
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, src: &Source{
		varByName: map[string]*variable{}, funcs: map[string]*function{}, files: map[int]string{},
	}}
	for p.peek().kind != 0 {
		if err := p.module(); err != nil {
			return nil, err
		}
	}
	if p.src.Version == "" {
		return nil, errorf(0, "no .version directive: not PTX")
	}
	return p.src, nil
}

func (p *parser) peek() token { return p.toks[p.at] }

func (p *parser) next() token {
	t := p.toks[p.at]
	if t.kind != 0 {
		p.at++
	}
	return t
}

func (p *parser) is(text string) bool {
	t := p.peek()
	return t.kind != 's' && t.kind != 0 && t.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if t := p.peek(); !p.accept(text) {
		return errorf(t.line, "found %q where %q belongs", t.text, text)
	}
	return nil
}

func (p *parser) word() (string, error) {
	t := p.next()
	if t.kind != 'w' {
		return "", errorf(t.line, "found %q where a name belongs", t.text)
	}
	return t.text, nil
}

func (p *parser) integer() (int, error) {
	t := p.next()
	v, ok := parseInt(t.text)
	if t.kind != 'w' || !ok || v > math.MaxInt32 {
		return 0, errorf(t.line, "found %q where a number belongs", t.text)
	}
	return int(v), nil
}

func (p *parser) module() error {
	t := p.peek()
	switch t.text {
	case ".version":
		p.next()
		v, err := p.word()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(v, "7.") && !strings.HasPrefix(v, "8.") {
			return errorf(t.line, ".version %s: only PTX ISA 7 and 8 are understood", v)
		}
		p.src.Version = v
		return nil
	case ".target":
		p.next()
		v, err := p.word()
		if err != nil {
			return err
		}
		p.src.Target = v
		if n, err := strconv.Atoi(strings.TrimPrefix(v, "sm_")); err != nil || n > 89 || n < 50 {
			return errorf(t.line, ".target %s: only sm_50 to sm_89 are understood", v)
		}
		for p.accept(",") {
			w, err := p.word()
			if err != nil {
				return err
			}
			if w != "debug" && w != "texmode_independent" {
				return errorf(t.line, ".target option %s is not understood", w)
			}
		}
		return nil
	case ".address_size":
		p.next()
		if n, err := p.integer(); err != nil || n != 64 {
			return errorf(t.line, "only .address_size 64 is understood")
		}
		return nil
	case ".file":
		return p.fileDirective()
	case ".section":
		return p.section()
	case ".pragma":
		return p.pragma()
	}
	return p.declaration()
}

func (p *parser) fileDirective() error {
	p.next()
	n, err := p.integer()
	if err != nil {
		return err
	}
	name := p.next()
	if name.kind != 's' {
		return errorf(name.line, ".file without a name")
	}
	p.src.files[n] = name.text
	for p.accept(",") {
		p.next()
	}
	return nil
}

// section skips a DWARF section: it says where the line table is, never what a kernel does.
func (p *parser) section() error {
	line := p.next().line
	if name, err := p.word(); err != nil || !strings.HasPrefix(name, ".debug_") {
		return errorf(line, ".section %s is not understood", name)
	}
	if err := p.expect("{"); err != nil {
		return err
	}
	for !p.accept("}") {
		if p.next().kind == 0 {
			return errorf(line, ".section without end")
		}
	}
	return nil
}

// pragma reads .pragma; "nounroll" is the only one nvcc writes and asks nothing of us.
func (p *parser) pragma() error {
	p.next()
	t := p.next()
	if t.kind != 's' || t.text != "nounroll" && !strings.HasPrefix(t.text, "used_bytes_mask") && t.text != "frequency" {
		return errorf(t.line, ".pragma %q is not understood", t.text)
	}
	return p.expect(";")
}

func (p *parser) declaration() error {
	var extern, linked bool
	for {
		t := p.peek()
		switch t.text {
		case ".extern":
			extern = true
		case ".visible", ".weak", ".common":
			linked = true
		case ".entry":
			return p.function(true)
		case ".func":
			return p.function(false)
		case ".global", ".const", ".shared":
			vs, err := p.variables(extern)
			if err != nil {
				return err
			}
			for _, v := range vs {
				p.src.vars = append(p.src.vars, v)
				if old := p.src.varByName[v.name]; old != nil && !old.extern {
					return errorf(v.line, "%s is declared twice", v.name)
				}
				p.src.varByName[v.name] = v
			}
			return p.expect(";")
		default:
			if linked || extern {
				return errorf(t.line, "found %q where a declaration belongs", t.text)
			}
			return errorf(t.line, "unknown directive %q", t.text)
		}
		p.next()
	}
}

// variables reads ".space [.align n] .type name[dims] [= init], ...", up to its semicolon.
func (p *parser) variables(extern bool) ([]*variable, error) {
	t := p.next()
	proto := variable{space: strings.TrimPrefix(t.text, "."), extern: extern, line: t.line}
	vec := 1
	for proto.typ == "" {
		w := p.next()
		switch w.text {
		case ".align":
			n, err := p.integer()
			if err != nil {
				return nil, err
			}
			if n <= 0 || n&(n-1) != 0 || n > 1<<16 {
				return nil, errorf(w.line, ".align %d is not a power of two", n)
			}
			proto.align = n
		case ".ptr": // ".ptr .global .align 4": what a pointer points to; the accesses are checked anyway
		case ".v2":
			vec = 2
		case ".v4":
			vec = 4
		default:
			typ := strings.TrimPrefix(w.text, ".")
			if typeBytes[typ] == 0 || w.kind != 'w' || w.text == typ {
				return nil, errorf(w.line, "%q is not a type of a variable", w.text)
			}
			proto.typ = typ
		}
	}
	for p.accept(".ptr") { // of a kernel parameter: stands after the type
		for p.is(".global") || p.is(".shared") || p.is(".const") || p.is(".local") {
			p.next()
		}
		if p.accept(".align") {
			if _, err := p.integer(); err != nil {
				return nil, err
			}
		}
	}
	elem := typeBytes[proto.typ] * vec
	if proto.align == 0 {
		proto.align = elem
	}
	var out []*variable
	for {
		v := proto
		name, err := p.word()
		if err != nil {
			return nil, err
		}
		v.name, v.size = name, elem
		for unsized := false; p.accept("["); {
			if p.accept("]") {
				v.size, unsized = 0, true
				continue
			}
			n, err := p.integer()
			if err != nil {
				return nil, err
			}
			if n <= 0 || unsized || v.size > (1<<30)/n {
				return nil, errorf(v.line, "%s: array of %d elements", name, n)
			}
			v.size *= n
			if err := p.expect("]"); err != nil {
				return nil, err
			}
		}
		if p.accept("=") {
			if err := p.initializer(&v); err != nil {
				return nil, err
			}
		}
		if v.size == 0 && (v.space != "shared" || !extern) {
			return nil, errorf(v.line, "%s has no size", name)
		}
		out = append(out, &v)
		if v.space == "param" || !p.accept(",") {
			return out, nil
		}
	}
}

func (p *parser) initializer(v *variable) error {
	line := p.peek().line
	if v.space != "global" && v.space != "const" {
		return errorf(line, "%s: a .%s variable cannot have an initial value", v.name, v.space)
	}
	width := typeBytes[v.typ]
	put := func() error {
		generic := p.accept("generic")
		paren := generic && p.accept("(")
		o, err := p.operand()
		if err != nil {
			return err
		}
		if paren {
			if err := p.expect(")"); err != nil {
				return err
			}
			if p.accept("+") {
				n, err := p.integer()
				if err != nil {
					return err
				}
				o.off += int64(n)
			}
		}
		at := len(v.init)
		v.init = append(v.init, make([]byte, width)...)
		switch {
		case o.kind == oName && width == 8:
			v.relocs = append(v.relocs, reloc{at, width, o.name, o.off, generic, line})
			return nil
		case o.kind == oF32 && width == 8:
			o.bits = math.Float64bits(float64(math.Float32frombits(uint32(o.bits))))
		case o.kind == oF64 && width == 4 && v.typ == "f32":
			o.bits = uint64(math.Float32bits(float32(math.Float64frombits(o.bits))))
		case o.kind == oInt, o.kind == oF32 && width == 4, o.kind == oF64 && width == 8:
		default:
			return errorf(line, "%s: initial value is not understood", v.name)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], o.bits)
		copy(v.init[at:], b[:width])
		return nil
	}
	depth := 0
	for p.accept("{") {
		depth++
	}
	for {
		if err := put(); err != nil {
			return err
		}
		for depth > 0 && p.accept("}") {
			depth--
		}
		if depth == 0 {
			break
		}
		if err := p.expect(","); err != nil {
			return err
		}
		for p.accept("{") {
			depth++
		}
	}
	if v.size == 0 {
		v.size = len(v.init)
	}
	if len(v.init) > v.size {
		return errorf(line, "%s: %d bytes of initial value for %d", v.name, len(v.init), v.size)
	}
	return nil
}

func (p *parser) function(entry bool) error {
	f := &function{entry: entry, line: p.next().line}
	var err error
	p.accept(".noreturn")
	if p.is("(") {
		if f.rets, err = p.params(); err != nil {
			return err
		}
	}
	if f.name, err = p.word(); err != nil {
		return err
	}
	if p.is("(") {
		if f.params, err = p.params(); err != nil {
			return err
		}
	}
	for !p.is("{") && !p.is(";") {
		t := p.next()
		switch t.text {
		case ".maxntid", ".reqntid":
			dims := [3]int{1, 1, 1}
			for i := 0; ; i++ {
				n, err := p.integer()
				if err != nil {
					return err
				}
				if i == 3 {
					return errorf(t.line, "%s has more than three sizes", t.text)
				}
				dims[i] = n
				if !p.accept(",") {
					break
				}
			}
			if t.text == ".reqntid" {
				f.reqntid = dims
			} else {
				f.maxntid = dims[0] * dims[1] * dims[2]
			}
		case ".minnctapersm", ".maxnctapersm", ".maxnreg":
			if _, err := p.integer(); err != nil {
				return err
			}
		case ".noreturn":
		default:
			return errorf(t.line, "unknown directive %q of function %s", t.text, f.name)
		}
	}
	if old := p.src.funcs[f.name]; old != nil && old.body != nil && !p.is(";") {
		return errorf(f.line, "function %s is defined twice", f.name)
	}
	if p.accept(";") {
		if p.src.funcs[f.name] == nil {
			p.src.funcs[f.name] = f
		}
		return nil
	}
	p.file, p.line = 0, 0
	if f.body, err = p.scope(0); err != nil {
		return err
	}
	p.src.funcs[f.name] = f
	if entry {
		p.src.entries = append(p.src.entries, f.name)
	}
	return nil
}

func (p *parser) params() ([]*variable, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var out []*variable
	for !p.accept(")") {
		if len(out) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		if t := p.peek(); t.text != ".param" {
			return nil, errorf(t.line, "parameter in space %q is not understood", t.text)
		}
		vs, err := p.variables(false)
		if err != nil {
			return nil, err
		}
		out = append(out, vs...)
	}
	return out, nil
}

const maxNesting = 200

func (p *parser) scope(depth int) (*scope, error) {
	if depth > maxNesting {
		return nil, errorf(p.peek().line, "braces nest deeper than %d", maxNesting)
	}
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	s := &scope{regs: map[string]string{}, counts: map[string]int{}, vars: map[string]*variable{}, tables: map[string][]string{}}
	for !p.accept("}") {
		t := p.peek()
		var err error
		switch {
		case t.kind == 0:
			return nil, errorf(t.line, "function without end")
		case t.text == "{":
			var sub *scope
			if sub, err = p.scope(depth + 1); err == nil {
				s.items = append(s.items, item{sub: sub})
			}
		case t.text == ".reg":
			err = p.regs(s)
		case t.text == ".local" || t.text == ".shared" || t.text == ".param":
			var vs []*variable
			if vs, err = p.variables(false); err == nil {
				for _, v := range vs {
					if s.vars[v.name] != nil {
						return nil, errorf(v.line, "%s is declared twice", v.name)
					}
					s.vars[v.name] = v
				}
				err = p.expect(";")
			}
		case t.text == ".loc":
			err = p.loc()
		case t.text == ".pragma":
			err = p.pragma()
		case t.kind == 'w' && p.toks[p.at+1].text == ":" && t.text[0] != '.':
			p.at += 2
			if p.is(".branchtargets") {
				err = p.branchTargets(s, t.text)
			} else {
				s.items = append(s.items, item{label: t.text})
			}
		default:
			var in *instr
			if in, err = p.instr(); err == nil {
				s.items = append(s.items, item{in: in})
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (p *parser) branchTargets(s *scope, name string) error {
	p.next()
	for {
		w, err := p.word()
		if err != nil {
			return err
		}
		s.tables[name] = append(s.tables[name], w)
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}

func (p *parser) loc() error {
	line := p.next().line
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = p.integer(); err != nil {
			return err
		}
	}
	for p.accept(",") { // ", function_name $L+0, inlined_at 1 2 3": where the call stood
		for !p.is(",") && p.peek().line == line && p.peek().kind != 0 {
			p.next()
		}
	}
	p.file, p.line = n[0], n[1]
	return nil
}

func (p *parser) regs(s *scope) error {
	p.next()
	w := p.next()
	typ := strings.TrimPrefix(w.text, ".")
	if _, ok := typeBytes[typ]; !ok {
		return errorf(w.line, ".reg of type %s is not understood", w.text)
	}
	for {
		name, err := p.word()
		if err != nil {
			return err
		}
		key := name
		if p.accept("<") {
			n, err := p.integer()
			if err != nil {
				return err
			}
			if n > 1<<20 {
				return errorf(w.line, "%d registers %s", n, name)
			}
			key += "<"
			s.counts[key] = n
			if err := p.expect(">"); err != nil {
				return err
			}
		}
		if _, dup := s.regs[key]; dup {
			return errorf(w.line, "register %s is declared twice", name)
		}
		s.regs[key] = typ
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}
