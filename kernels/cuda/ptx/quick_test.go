package ptx

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// numbers are bit patterns that are ordinary, special or close to a tie for several types.
func numbers(r *rand.Rand) (v vec) {
	for i := range v {
		x := r.Uint64() & 0xffffffff
		switch r.IntN(8) {
		case 0:
			x = []uint64{0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 1, 0x80000001, 0x7c007c00, 0x7e01fc00, 0x00018001, 0x03ff0400, 0x477fe000, 0x477fefff, 0x33000000, 0x33800000}[r.IntN(15)]
		case 1:
			x = uint64(math.Float32bits(float32(r.IntN(64) - 32)))
		case 2:
			x = uint64(math.Float32bits(float32(r.NormFloat64())))
		case 3: // a tie of fp16 or bf16
			x = uint64(math.Float32bits(float32(r.NormFloat64())))&0xffffe000 | 0x1000
		case 4:
			x = uint64(0x3c00+r.IntN(1024)) | uint64(0xb800+r.IntN(1024))<<16
		case 5:
			x = uint64(r.IntN(40))
		}
		v[i] = x
	}
	return v
}

func TestQuickFormsEqualTheGeneral(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, f := range quickForms {
		p := strings.Split(name, ".")
		op, ok, err := generalALU(&instr{op: p[0], name: name, mods: p[1:]})
		if !ok || err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		approximate := strings.HasPrefix(name, "ex2")
		bad := 0
		for range 3000 {
			a, b, c := numbers(r), numbers(r), numbers(r)
			var want, got vec
			op.f(&want, &a, &b, &c)
			f(&got, &a, &b, &c)
			for i := range want {
				w, g := want[i], got[i]
				if p[0] == "cvt" && width(p[len(p)-2]) <= 32 { // the compiler cuts it to the register
					w &= maskOf(max(width(p[len(p)-2]), 16))
				}
				if w == g || approximate && math.Abs(float64(int32(w)-int32(g))) <= 1 {
					continue
				}
				if bad++; bad <= 3 {
					t.Errorf("%s(%#x, %#x, %#x) = %#x, want %#x", name, a[i], b[i], c[i], g, w)
				}
			}
		}
	}
}

func TestQuickComparisonsEqualTheGeneral(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n := 0
	for _, test := range strings.Fields("eq ne lt le gt ge lo ls hi hs ltu leu gtu geu equ neu num nan") {
		for _, typ := range strings.Fields("u16 s16 b32 u32 s32 u64 s64 f32") {
			f := quickCompare(test, typ, false)
			g := ordering(test, typ, false)
			if (f == nil) != (g == nil) {
				t.Errorf("%s.%s: quick %v, general %v", test, typ, f != nil, g != nil)
			}
			if f == nil {
				continue
			}
			n++
			for range 200 {
				a, b := numbers(r), numbers(r)
				for i := range b {
					if a[i] &= maskOf(width(typ)); i%4 == 0 {
						b[i] = a[i]
					}
					b[i] &= maskOf(width(typ))
				}
				if got, want := f(&a, &b), lanes(g)(&a, &b); got != want {
					t.Fatalf("%s.%s: lanes %#x, want %#x of %#x and %#x", test, typ, got, want, a, b)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("%d comparisons", n)
	}
}

func TestLop3GivesItsTable(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for table := range 256 {
		op, _, err := compileALU(&instr{op: "lop3", name: "lop3.b32", mods: []string{"b32"}, args: []operand{{}, {}, {}, {}, {kind: oInt, bits: uint64(table)}}})
		if err != nil {
			t.Fatal(err)
		}
		a, b, c := numbers(r), numbers(r), numbers(r)
		var got vec
		op.f(&got, &a, &b, &c)
		for i := range got {
			var want uint64
			for bit := range 32 {
				k := a[i]>>bit&1<<2 | b[i]>>bit&1<<1 | c[i]>>bit&1
				want |= uint64(table) >> k & 1 << bit
			}
			if got[i] != want {
				t.Fatalf("lop3 %#x of %#x, %#x, %#x = %#x, want %#x", table, a[i], b[i], c[i], got[i], want)
			}
		}
	}
}
