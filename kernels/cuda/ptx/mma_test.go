package ptx

import (
	"fmt"
	"strings"
	"testing"
)

// TestEveryShapeOfProduct runs one mma of each shape and type on fragments laid out element by
// element, as the PTX manual's figures number them, and compares with the product of matrices.
func TestEveryShapeOfProduct(t *testing.T) {
	for _, c := range []struct {
		name     string
		k, bits  int
		acc      string
		signA    bool
		signB    bool
		encode   func(float64) uint64
		low, mod int // values: low + something % mod
	}{
		{"m16n8k8.row.col.f32.f16.f16.f32", 8, 16, "f32", true, true, func(x float64) uint64 { return fp16.narrow(x, rn) }, -8, 17},
		{"m16n8k16.row.col.f16.f16.f16.f16", 16, 16, "f16", true, true, func(x float64) uint64 { return fp16.narrow(x, rn) }, -4, 9},
		{"m16n8k8.row.col.f16.f16.f16.f16", 8, 16, "f16", true, true, func(x float64) uint64 { return fp16.narrow(x, rn) }, -4, 9},
		{"m16n8k8.row.col.f32.bf16.bf16.f32", 8, 16, "f32", true, true, func(x float64) uint64 { return bf16.narrow(x, rn) }, -8, 17},
		{"m16n8k4.row.col.f32.tf32.tf32.f32", 4, 32, "f32", true, true, func(x float64) uint64 { return fp32.narrow(x, rn) }, -8, 17},
		{"m16n8k8.row.col.f32.tf32.tf32.f32", 8, 32, "f32", true, true, func(x float64) uint64 { return fp32.narrow(x, rn) }, -8, 17},
		{"m16n8k16.row.col.s32.s8.s8.s32", 16, 8, "s32", true, true, nil, -128, 256},
		{"m16n8k16.row.col.s32.u8.s8.s32", 16, 8, "s32", false, true, nil, 0, 128},
		{"m16n8k32.row.col.s32.s8.u8.s32", 32, 8, "s32", true, false, nil, 0, 128},
		{"m16n8k32.row.col.satfinite.s32.u8.u8.s32", 32, 8, "s32", false, false, nil, 0, 256},
		{"m16n8k32.row.col.s32.s4.s4.s32", 32, 4, "s32", true, true, nil, -8, 16},
		{"m16n8k64.row.col.s32.u4.s4.s32", 64, 4, "s32", false, true, nil, 0, 8},
	} {
		encode := c.encode
		if encode == nil {
			encode = func(x float64) uint64 { return uint64(int64(x)) & maskOf(uint(c.bits)) }
		}
		value := func(i, j int) float64 { return float64(c.low + (i*37+j*101+i*j)%c.mod) }
		vb := func(i, j int) float64 { return value(j+3, i+1) }
		per := 32 / c.bits // elements a register
		nA, nB, nC := 16*c.k/32/per, 8*c.k/32/per, 4
		if c.acc == "f16" {
			nC = 2
		}
		in := make([]uint32, 32*(nA+nB+nC))
		for lane := range 32 {
			g, tid := lane>>2, lane&3
			row := in[lane*(nA+nB+nC):]
			for i := range nA * per {
				// Registers alternate between the upper and lower eight rows; the second pair of
				// registers holds the right half of the columns.
				r, col := g, tid*per+i%per
				if i/per%2 == 1 {
					r += 8
				}
				if i >= 2*per {
					col += c.k / 2
				}
				row[i/per] |= uint32(encode(value(r, col)) << (i % per * c.bits))
			}
			for i := range nB * per {
				r := tid*per + i%per
				if i >= per {
					r += c.k / 2
				}
				row[nA+i/per] |= uint32(encode(vb(r, g)) << (i % per * c.bits))
			}
			for i := range 4 {
				v := float64(100*(g+8*(i>>1)) + 2*tid + i&1)
				switch c.acc {
				case "f32":
					row[nA+nB+i] = uint32(fp32.narrow(v, rn))
				case "s32":
					row[nA+nB+i] = uint32(int32(v))
				default:
					row[nA+nB+i/2] |= uint32(fp16.narrow(v, rn)) << (16 * (i & 1))
				}
			}
		}
		r := loadText(t, []byte(mmaKernel(c.name, nA, nB, nC)))
		y := r.alloc(4 * 32 * nC)
		r.clean(r.run("k", x(1), x(32), 0, 0, y, r.alloc(in)))
		got := read[uint32](r, y, 32*nC)
		for lane := range 32 {
			g, tid := lane>>2, lane&3
			for i := range 4 {
				m, n := g+8*(i>>1), 2*tid+i&1
				want := float64(100*m + n)
				for k := range c.k {
					want += value(m, k) * vb(k, n)
				}
				var have float64
				switch c.acc {
				case "f32":
					have = float64(f32(uint64(got[lane*nC+i])))
				case "s32":
					have = float64(int32(got[lane*nC+i]))
				default:
					have = fp16.widen(uint64(got[lane*nC+i/2] >> (16 * (i & 1)) & 0xffff))
					want = fp16.widen(fp16.narrow(want, rn))
				}
				if have != want {
					t.Fatalf("%s: D[%d,%d] = %v, want %v", c.name, m, n, have, want)
				}
			}
		}
	}
}

func mmaKernel(name string, nA, nB, nC int) string {
	var s strings.Builder
	n := nA + nB + nC
	fmt.Fprintf(&s, ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 y, .param .u64 x)\n{\n")
	fmt.Fprintf(&s, ".reg .b32 %%r<%d>;\n.reg .b32 %%d<4>;\n.reg .b32 %%t;\n.reg .b64 %%a<6>;\n", n)
	fmt.Fprintf(&s, "mov.u32 %%t, %%tid.x;\nld.param.u64 %%a0, [y];\nld.param.u64 %%a1, [x];\nmad.wide.u32 %%a2, %%t, %d, %%a1;\nmad.wide.u32 %%a3, %%t, %d, %%a0;\n", 4*n, 4*nC)
	for i := range n {
		fmt.Fprintf(&s, "ld.global.b32 %%r%d, [%%a2+%d];\n", i, 4*i)
	}
	list := func(p string, from, n int) string {
		var l []string
		for i := range n {
			l = append(l, fmt.Sprintf("%%%s%d", p, from+i))
		}
		return "{" + strings.Join(l, ",") + "}"
	}
	fmt.Fprintf(&s, "mma.sync.aligned.%s %s, %s, %s, %s;\n", name, list("d", 0, nC), list("r", 0, nA), list("r", nA, nB), list("r", nA+nB, nC))
	for i := range nC {
		fmt.Fprintf(&s, "st.global.b32 [%%a3+%d], %%d%d;\n", 4*i, i)
	}
	s.WriteString("ret;\n}\n")
	return s.String()
}
