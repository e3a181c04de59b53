package ptx

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// mma.sync: D[16,8] = A[16,K] * B[K,8] + C[16,8], spread over a warp.
//
// With g = lane/4, t = lane%4 and E elements in a 32-bit register:
//
//	A: register r, element i is row g + 8*(r&1), column (r>>1)*4E + t*E + i
//	B: register r, element i is row r*4E + t*E + i, column g
//	C, D: element j is row g + 8*(j>>1), column 2t + (j&1); f16 puts two in a register
//
// Products are exact. The K products of an element and then C are added in float64, and the sum is
// rounded once to nearest: to float32, or to fp16 where D is fp16. Integers are exact.
//
// NVIDIA states neither order nor precision. Measured on V100, T4 and A100 (Fasi, Higham, Mikaitis,
// Pranesh: Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330, 2021): products
// are exact and subnormals kept; 4 (V100, T4) or 8 (A100) of them and C are aligned to the largest and
// cut, not rounded, below the last bit of float32 or few bits lower; the sum is normalised at its
// end; fp16 results are rounded to nearest. A card's float32 sum is thus biased towards zero by up to
// a few units in the last place of the largest term an instruction, which this does not show: what
// is compared with a card needs a tolerance of about K/8 * 2**-22 of the sum of magnitudes.

type mmaOp struct {
	name       string // of shape, sums and factors
	k          int
	e          uint // elements a register
	a, b, c, d []int32
	decodeA    func(bits uint64, i uint) float64
	decodeB    func(bits uint64, i uint) float64
	half       bool // C and D are f16
	halfC      bool
	integer    bool
	f16        bool
	sat        bool
}

func (c *compiler) tensor(m *modifiers) error {
	in := c.in
	ok := m.has("sync") && m.has("aligned")
	shape := m.take("m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m16n8k64")
	ok = ok && m.has("row") && m.has("col")
	mm := &mmaOp{sat: m.has("satfinite")}
	if !ok || shape == "" || len(m.left) != 4 {
		return m.refuse()
	}
	td, ta, tb, tc := m.left[0], m.left[1], m.left[2], m.left[3]
	width := uint(0)
	var ks []string
	switch ta {
	case "f16", "bf16":
		width, ks = 16, []string{"m16n8k8", "m16n8k16"}
	case "tf32":
		width, ks = 32, []string{"m16n8k4", "m16n8k8"}
	case "s8", "u8":
		width, ks = 8, []string{"m16n8k16", "m16n8k32"}
	case "s4", "u4":
		width, ks = 4, []string{"m16n8k32", "m16n8k64"}
	}
	mm.integer = width == 8 || width == 4
	if !slices.Contains(ks, shape) || mm.sat && !mm.integer {
		return m.refuse()
	}
	switch {
	case mm.integer:
		ok = td == "s32" && tc == "s32" && tb[1:] == ta[1:] && (tb[0] == 's' || tb[0] == 'u')
	case ta == "f16":
		ok = tb == ta && (td == "f16" || td == "f32") && (tc == "f16" || tc == "f32")
	default:
		ok = tb == ta && td == "f32" && tc == "f32"
	}
	if !ok {
		return m.refuse()
	}
	mm.name = shape + "." + td + "." + ta
	mm.f16 = ta == "f16"
	mm.half, mm.halfC = td == "f16", tc == "f16"
	mm.k = map[string]int{"m16n8k4": 4, "m16n8k8": 8, "m16n8k16": 16, "m16n8k32": 32, "m16n8k64": 64}[shape]
	mm.e = 32 / width
	mm.decodeA, mm.decodeB = decoder(ta, width), decoder(tb, width)
	if err := c.want(4); err != nil {
		return err
	}
	nA := 16 * mm.k / 32 / int(mm.e)
	nB := 8 * mm.k / 32 / int(mm.e)
	count := func(half bool) (int, string) {
		if half {
			return 2, "b32"
		}
		return 4, "b32"
	}
	nD, tyD := count(mm.half)
	nC, tyC := count(mm.halfC)
	var err error
	get := func(o operand, n int, typ string, dst bool) []int32 {
		list := o.list
		if o.kind != oVec {
			list = []operand{o}
		}
		if len(list) != n && err == nil {
			err = c.errorf("%d registers where %d belong", len(list), n)
		}
		var out []int32
		for _, e := range list {
			var r int32
			var e2 error
			if dst {
				r, e2 = c.dest(e, typ)
			} else {
				r, e2 = c.source(e, typ)
			}
			if e2 != nil && err == nil {
				err = e2
			}
			out = append(out, r)
		}
		return out
	}
	mm.d = get(in.args[0], nD, tyD, true)
	mm.a = get(in.args[1], nA, "b32", false)
	mm.b = get(in.args[2], nB, "b32", false)
	mm.c = get(in.args[3], nC, tyC, false)
	if err != nil {
		return err
	}
	return c.guarded(op{kind: kMMA, class: Tensor, mma: mm})
}

func decoder(t string, w uint) func(uint64, uint) float64 {
	switch t {
	case "f16":
		return func(b uint64, i uint) float64 { return float64(halfTable[b>>(16*i)&0xffff]) }
	case "bf16":
		return func(b uint64, i uint) float64 { return float64(f32(b >> (16 * i) << 16 & 0xffff0000)) }
	case "tf32": // the low 13 bits are not looked at
		return func(b uint64, _ uint) float64 { return float64(f32(b & 0xffffe000)) }
	}
	s := t[0] == 's'
	return func(b uint64, i uint) float64 { return float64(int64(ext(b>>(w*i), w, s))) }
}

// mmaScratch holds the operands of one product; a worker has one, for zeroing it costs more than
// the product.
type mmaScratch struct {
	a [16][64]float64
	b [8][64]float64 // by column

	kept [6][8]decoded // 16-bit factors, by operand and register
}

func (w *warp) mma(o *op) {
	mm := o.mma
	s := &w.block.worker.scratch
	if mm.e == 2 && mm.half == mm.halfC {
		w.mma16(mm, s)
		return
	}
	A, B := &s.a, &s.b
	E := int(mm.e)
	for r, reg := range mm.a {
		v := &w.regs[reg]
		for lane := range 32 {
			row, col := lane>>2+8*(r&1), (r>>1)*4*E+lane&3*E
			mm.fill(A[row&15][col:col+E], v[lane], mm.decodeA)
		}
	}
	for r, reg := range mm.b {
		v := &w.regs[reg]
		for lane := range 32 {
			col := r*4*E + lane&3*E
			mm.fill(B[lane>>2][col:col+E], v[lane], mm.decodeB)
		}
	}
	k := mm.k
	var D [32][4]uint64
	for lane := range 32 {
		g, t := lane>>2, lane&3
		var sums [4]float64
		sums[0], sums[1], sums[2], sums[3] = dot4(A[g][:k], A[g+8][:k], B[2*t][:k], B[2*t+1][:k])
		for j, sum := range sums {
			switch {
			case mm.integer:
				v := int64(int32(w.regs[mm.c[j]][lane])) + int64(sum)
				if mm.sat {
					v = max(math.MinInt32, min(math.MaxInt32, v))
				}
				D[lane][j] = uint64(uint32(v))
				continue
			case mm.halfC:
				sum += float64(halfTable[w.regs[mm.c[j>>1]][lane]>>(16*(j&1))&0xffff])
			default:
				sum += float64(f32(w.regs[mm.c[j]][lane]))
			}
			if mm.half {
				D[lane][j] = fp16.narrow(sum, rn)
			} else {
				D[lane][j] = b32(float32(sum))
			}
		}
	}
	for lane := range 32 {
		for j, reg := range mm.d {
			if mm.half {
				w.regs[reg][lane] = D[lane][2*j] | D[lane][2*j+1]<<16
			} else {
				w.regs[reg][lane] = D[lane][j]
			}
		}
	}
}

// mma16 is mma for 16-bit factors and sums of one type, the product that nearly all kernels make. A
// register of A or B decoded is an 8x8 matrix, row by row or column by column.
func (w *warp) mma16(mm *mmaOp, s *mmaScratch) {
	var a [4]*[64]float64
	var b [2]*[64]float64
	for r, reg := range mm.a {
		a[r&3] = s.decode(mm, r&3, reg, &w.regs[reg])
	}
	for r, reg := range mm.b {
		b[r&1] = s.decode(mm, 4+r&1, reg, &w.regs[reg])
	}
	// Of a lane all of C is read before any of D is written: they may have the same registers.
	if mm.half {
		c0, c1, d0, d1 := &w.regs[mm.c[0]], &w.regs[mm.c[1]], &w.regs[mm.d[0]], &w.regs[mm.d[1]]
		for lane := range 32 {
			s00, s01, s10, s11 := sums16(mm.k, &a, &b, lane)
			x, y := c0[lane], c1[lane]
			d0[lane] = half(s00+float64(halfTable[x&0xffff])) | half(s01+float64(halfTable[x>>16&0xffff]))<<16
			d1[lane] = half(s10+float64(halfTable[y&0xffff])) | half(s11+float64(halfTable[y>>16&0xffff]))<<16
		}
		return
	}
	c0, c1, c2, c3 := &w.regs[mm.c[0]], &w.regs[mm.c[1]], &w.regs[mm.c[2]], &w.regs[mm.c[3]]
	d0, d1, d2, d3 := &w.regs[mm.d[0]], &w.regs[mm.d[1]], &w.regs[mm.d[2]], &w.regs[mm.d[3]]
	for lane := range 32 {
		s00, s01, s10, s11 := sums16(mm.k, &a, &b, lane)
		x0, x1, x2, x3 := c0[lane], c1[lane], c2[lane], c3[lane]
		d0[lane] = b32(float32(s00 + float64(f32(x0))))
		d1[lane] = b32(float32(s01 + float64(f32(x1))))
		d2[lane] = b32(float32(s10 + float64(f32(x2))))
		d3[lane] = b32(float32(s11 + float64(f32(x3))))
	}
}

// sums16 are the four sums of a lane, of k products each.
func sums16(k int, a *[4]*[64]float64, b *[2]*[64]float64, lane int) (s00, s01, s10, s11 float64) {
	g, t := 8*(lane>>2&7), 16*(lane&3)
	if k == 16 {
		return dot16((*[8]float64)(a[0][g:]), (*[8]float64)(a[1][g:]), (*[8]float64)(a[2][g:]), (*[8]float64)(a[3][g:]),
			(*[16]float64)(b[0][t:]), (*[16]float64)(b[1][t:]))
	}
	return dot4(a[0][g:g+8], a[1][g:g+8], b[0][t:t+8], b[0][t+8:t+16])
}

// decoded is a register of 16-bit factors and what they are. A kernel multiplies a fragment with
// several others: it is decoded once as long as it stays.
type decoded struct {
	reg int32 // +1
	f16 bool
	raw vec
	x   [64]float64
}

func (s *mmaScratch) decode(mm *mmaOp, operand int, reg int32, v *vec) *[64]float64 {
	d := &s.kept[operand][reg&7]
	if d.reg == reg+1 && d.f16 == mm.f16 && d.raw == *v {
		return &d.x
	}
	d.reg, d.f16, d.raw = reg+1, mm.f16, *v
	if mm.f16 {
		for lane, x := range v {
			d.x[2*lane], d.x[2*lane+1] = float64(halfTable[x&0xffff]), float64(halfTable[x>>16&0xffff])
		}
		return &d.x
	}
	for lane, x := range v {
		d.x[2*lane], d.x[2*lane+1] = float64(f32(x<<16&0xffff0000)), float64(f32(x&0xffff0000))
	}
	return &d.x
}

// dot16 multiplies two rows by two columns of 16 elements: x0 and x1 hold the first eight of the
// rows, u0 and u1 the rest; y and v both columns' first eight and rest.
func dot16(x0, x1, u0, u1 *[8]float64, y, v *[16]float64) (s00, s01, s10, s11 float64) {
	for i := range 8 {
		a, b, c, d := x0[i], x1[i], u0[i], u1[i]
		s00 += a*y[i] + c*v[i]
		s01 += a*y[i+8] + c*v[i+8]
		s10 += b*y[i] + d*v[i]
		s11 += b*y[i+8] + d*v[i+8]
	}
	return
}

// ldmatrix loads 8x8 matrices of 16-bit numbers: lane 8m+r names row r of matrix m; lane l gets
// elements 2*(l%4) and the next of row l/4, or transposed, of column l/4.
func (w *warp) ldmatrix(o *op, act uint32, pc int32) {
	mo := o.mem
	rows := uint32(uint64(1)<<(8*len(mo.regs)) - 1)
	q := request{base: &w.regs[o.a], imm: o.imm, narrow: o.sub&1 == 1, space: mo.space, n: 16, align: 16}
	w.beginAccess()
	var data [32][]byte
	for rows != 0 {
		r, good, taken := w.locate(&q, pc, rows)
		rows &^= taken
		if good == 0 {
			continue
		}
		w.touch(o, pc, r, good, 16, false, 0)
		for m := good; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m) & 31
			data[lane] = r.data[w.acc.off[lane] : w.acc.off[lane]+16]
		}
	}
	w.endAccess(pc, 16)
	for lane, b := range data[:8*len(mo.regs)] {
		if b == nil {
			data[lane] = zeroRow[:]
		}
	}
	for m, reg := range mo.regs {
		d := &w.tmp
		for g := range 8 {
			b := data[8*m+g][:16]
			if o.sub&2 == 0 {
				for t := range 4 {
					d[4*g+t] = uint64(binary.LittleEndian.Uint32(b[4*t:]))
				}
				continue
			}
			// Row g holds elements g&1 of lanes 4*c + g/2.
			for c := range 8 {
				v := uint64(binary.LittleEndian.Uint16(b[2*c:]))
				if g&1 == 0 {
					d[4*c+g>>1] = v
				} else {
					d[4*c+g>>1] |= v << 16
				}
			}
		}
		if act == fullMask {
			w.regs[reg] = w.tmp
		} else {
			w.merge(&w.regs[reg], act)
		}
	}
}

var zeroRow [16]byte

// dot4 multiplies two rows by two columns. The four sums run side by side in the processor.
func dot4(a0, a1, b0, b1 []float64) (s0, s1, s2, s3 float64) {
	n := len(a0)
	a1, b0, b1 = a1[:n], b0[:n], b1[:n]
	for i, x0 := range a0 {
		x1, y0, y1 := a1[i], b0[i], b1[i]
		s0 += x0 * y0
		s1 += x0 * y1
		s2 += x1 * y0
		s3 += x1 * y1
	}
	return
}

// fill decodes the elements of one register.
func (mm *mmaOp) fill(to []float64, v uint64, decode func(uint64, uint) float64) {
	if mm.f16 {
		to[1], to[0] = float64(halfTable[v>>16&0xffff]), float64(halfTable[v&0xffff])
		return
	}
	for i := range to {
		to[i] = decode(v, uint(i))
	}
}
