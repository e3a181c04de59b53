package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/x448/float16"
)

// Kinds of packed weights, as linear.cuh numbers them; kindFloat32 is row-major and has no tiles.
const (
	kindW4      = 4
	kindW8      = 8
	kindF16     = 16
	kindBF16    = 17
	kindFloat32 = 32
)

// Bits of the form of a scale record.
const (
	formWide   = 1 // float32 instead of 16 bits
	formBFloat = 2
	formZeros  = 4 // 16 bits: the offset is a number of scales
	formMins   = 8 // 16 bits: the offset is the canonical minimum; wide: of the middle code, whatever it came from
)

const (
	stripRows  = 16
	tileInputs = 64
	stepInputs = 16
	// maxInputs keeps the kernels' division by group size exact.
	maxInputs = 1 << 18
)

// packing is how a matrix lies on a card: see linear.cuh for the picture. Packing is pure; it knows no card.
type packing struct {
	kind   int
	N, K   int
	group  int // inputs of a group as stored; 0: none
	padded int // the same on the card, a multiple of 16
	tiles  int // of 64 inputs
	form   int
	record int // bytes of a scale record
	slots  int // of a tile
	groups int // records of an output
	cut    int // parts of K
	// order has the input of x of each of 64*tiles inputs, -1 where there is none; nil: inputs lie in their order. Of
	// kindFloat32 it has K entries.
	order []int32
}

// packingOf says how matrices of m's scheme are packed; N is theirs together.
func packingOf(m kernels.Matrix, N int) (packing, error) {
	p := packing{kind: kindOf(m), N: N, K: m.K, group: m.Group, order: m.Perm}
	if m.K > maxInputs {
		return p, fmt.Errorf("load: %s has %d inputs; %d are the most", m.Name, m.K, maxInputs)
	}
	if p.kind == kindFloat32 {
		return p, nil
	}
	stored := m.K
	if m.Bits != 0 {
		p.padded = roundUp(m.Group, stepInputs)
		stored = m.K / m.Group * p.padded
	}
	p.tiles = roundUp(stored, tileInputs) / tileInputs
	p.cut = cut(p.strips(), p.tiles)
	if m.Perm != nil || stored != m.K {
		p.order = make([]int32, p.tiles*tileInputs)
		for i := range p.order {
			p.order[i] = -1
		}
		for k := range m.K {
			from := int32(k)
			if m.Perm != nil {
				from = m.Perm[k]
			}
			p.order[p.place(k)] = from
		}
	}
	if m.Bits == 0 {
		return p, nil
	}
	run := tileInputs // the most inputs that surely share a scale
	for p.padded%run != 0 {
		run /= 2
	}
	p.slots = tileInputs / run
	p.groups = (p.tiles*p.slots-1)/(p.padded/run) + 1
	p.record = 2
	switch {
	case m.ScaleType == kernels.F32:
		p.form, p.record = formWide, 4
	case m.ScaleType == kernels.BF16:
		p.form = formBFloat
	}
	switch {
	case m.HasMin:
		p.form |= formMins
	case !m.Symmetric:
		p.form |= formZeros
	}
	if p.offsets() {
		p.record *= 2
	}
	return p, nil
}

// cut is in how many parts K is cut. It depends on the weight alone: it is part of the result. Parts are computed by different
// warps of a decode block, so that narrow matrices keep as many loads on their way as wide ones (two of 48 outputs, as
// qwen3_5 has them, would wait for each tile in turn); wide ones gain more by strips that share x.
func cut(strips, tiles int) int {
	switch {
	case tiles < 16:
		return 1
	case tiles < 32 || strips >= 8*2*82:
		return 2
	case tiles < 64 || strips >= 32:
		return 4
	}
	return 8
}

func kindOf(m kernels.Matrix) int {
	switch {
	case m.Bits != 0:
		return m.Bits
	case m.Type == kernels.F16:
		return kindF16
	case m.Type == kernels.BF16:
		return kindBF16
	}
	return kindFloat32
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// place is where stored input k lies among the padded ones.
func (p *packing) place(k int) int {
	if p.padded == p.group {
		return k
	}
	return k/p.group*p.padded + k%p.group
}

func (p *packing) strips() int   { return roundUp(p.N, stripRows) / stripRows }
func (p *packing) offsets() bool { return p.form&(formZeros|formMins) != 0 }

// tileBytes are those of the codes of a tile.
func (p *packing) tileBytes() int {
	switch p.kind {
	case kindW4:
		return 512
	case kindW8:
		return 1024
	}
	return 2048
}

// xBytes are those of x for 8 tokens and a tile.
func (p *packing) xBytes() int {
	if p.kind == kindBF16 {
		return 2048
	}
	return 1024
}

// slotBytes are those of a tile's scales in shared memory.
func (p *packing) slotBytes() int { return p.slots * stripRows * p.record }

// stripBytes and scaleBytes are those of a strip's codes and scales. A strip of kindFloat32 is its rows.
func (p *packing) stripBytes() int {
	if p.kind == kindFloat32 {
		return stripRows * p.K * 4
	}
	return p.tiles * p.tileBytes()
}
func (p *packing) scaleBytes() int { return p.groups * stripRows * p.record }

// magic divides: of slot number i, the group is (2i+1)*magic >> 32.
func (p *packing) magic() uint32 {
	if p.slots == 0 {
		return 0
	}
	d := uint64(2 * p.padded * p.slots / tileInputs)
	return uint32((1<<32 + d - 1) / d)
}

func (p *packing) middle() int { return 1 << (p.kind - 1) }

// output is a row of a matrix in canonical form, its inputs in stored order.
type output struct {
	codes []uint8
	scale []float32
	zero  []uint8
	min   []float32
	float []float32
}

// strip packs at most 16 outputs: codes has stripBytes, scales scaleBytes. Missing outputs become zeros.
func (p *packing) strip(codes, scales []byte, rows []output) {
	switch p.kind {
	case kindFloat32:
		clear(codes)
		for i, r := range rows {
			for k, v := range r.float {
				binary.LittleEndian.PutUint32(codes[(i*p.K+k)*4:], math.Float32bits(v))
			}
		}
		return
	case kindF16, kindBF16:
		p.stripFloats(codes, rows)
		return
	}
	var wide [stripRows][]uint8
	for i := range wide {
		if i < len(rows) && p.padded == p.group && p.K%tileInputs == 0 {
			wide[i] = rows[i].codes
			continue
		}
		wide[i] = make([]uint8, p.tiles*tileInputs)
		if i < len(rows) {
			for k, step := 0, p.group; k < p.K; k += step {
				copy(wide[i][p.place(k):], rows[i].codes[k:k+step])
			}
		}
	}
	for g := range 8 {
		lower, upper := wide[g], wide[g+8]
		for step := range p.tiles * 4 {
			a, b := lower[step*16:][:16], upper[step*16:][:16]
			if p.kind == kindW4 {
				step4(codes[step/2*256+g*32+step%2*4:][:28], a, b)
			} else {
				step8(codes[step/2*512+g*64+step%2*8:][:56], a, b)
			}
		}
	}
	p.stripScales(scales, rows)
}

// step4 packs a step of outputs g and g+8 for four lanes.
func step4(to []byte, a, b []uint8) {
	le := binary.LittleEndian
	for i := range 2 {
		// Bytes of v: inputs 0 to 3 of each of two lanes, g below, g+8 above; 1 and 2 change places.
		v := le.Uint64(a[i*8:]) | le.Uint64(b[i*8:])<<4
		v = v&0xff0000ffff0000ff | v>>8&0x0000ff000000ff00 | v&0x0000ff000000ff00<<8
		le.PutUint32(to[i*16:], uint32(v))
		le.PutUint32(to[i*16+8:], uint32(v>>32))
	}
}

func step8(to []byte, a, b []uint8) {
	for q := range 4 {
		copy(to[q*16:][:4], a[q*4:][:4])
		copy(to[q*16+4:][:4], b[q*4:][:4])
	}
}

func (p *packing) stripFloats(codes []byte, rows []output) {
	clear(codes)
	for i, r := range rows {
		lane, word := i%8*4, i/8
		for k, v := range r.float {
			tile, j, q, e := k/64, k/16%4, k/4%4, k%4
			at := tile*2048 + j*512 + (lane+q)*16 + (word+e/2*2)*4 + e%2*2
			binary.LittleEndian.PutUint16(codes[at:], half(v, p.kind == kindBF16))
		}
	}
}

// stripScales writes the records [group][output]; padding has scales of 0.
func (p *packing) stripScales(scales []byte, rows []output) {
	clear(scales)
	le := binary.LittleEndian
	bf := p.form&formBFloat != 0
	for i, r := range rows {
		for g, s := range r.scale {
			at := scales[(g*stripRows+i)*p.record:]
			if p.form&formWide == 0 {
				le.PutUint16(at, half(s, bf))
				switch {
				case p.form&formZeros != 0:
					le.PutUint16(at[2:], half(float32(p.middle()-int(r.zero[g])), bf))
				case p.form&formMins != 0:
					le.PutUint16(at[2:], half(r.min[g], bf))
				}
				continue
			}
			le.PutUint32(at, math.Float32bits(s))
			switch {
			case p.form&formZeros != 0:
				le.PutUint32(at[4:], math.Float32bits(s*float32(p.middle()-int(r.zero[g]))))
			case p.form&formMins != 0:
				le.PutUint32(at[4:], math.Float32bits(float32(float64(s)*float64(p.middle())+float64(r.min[g]))))
			}
		}
	}
}

// half rounds to 16 bits; what is packed is exact.
func half(v float32, bf bool) uint16 {
	if bf {
		return uint16(math.Float32bits(v) >> 16)
	}
	return float16.Fromfloat32(v).Bits()
}
