package quant

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/x448/float16"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
)

var formats = []*Blocks{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ4_NL, IQ4_XS}

// unpacked returns the rows of raw, and the values they stand for, each operation rounded to float32.
func unpacked(b *Blocks, raw []byte) (kernels.Rows, []float32) {
	n := len(raw) / b.Bytes * b.Values
	m := kernels.Matrix{N: 1, K: n, Bits: b.Bits, Group: b.Group, HasMin: b.HasMin}
	var rows kernels.Rows
	rows.Reset(m, 1)
	for i := range rows.Codes {
		rows.Codes[i] = 0xee // a byte that is left out shows
	}
	b.Unpack(&rows, 0, raw)
	values := make([]float32, n)
	for i, code := range rows.Codes {
		g := i / b.Group
		if b.HasMin {
			product := rows.Scale[g] * float32(code)
			values[i] = product + rows.Min[g]
		} else {
			values[i] = rows.Scale[g] * float32(int(code)-int(rows.Zero[g]))
		}
	}
	return rows, values
}

// same compares bits, but lets one NaN be another.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] && !(got[i] != got[i] && want[i] != want[i]) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func TestBlocksEqualReference(t *testing.T) {
	ref := testdata.Tensors(t, testdata.Shared(t, "golden/gguf/vectors/golden.safetensors"))
	for _, b := range formats {
		if slices.Contains(slices.Concat(slices.Collect(maps.Values(ownVectors))...), b) {
			continue
		}
		_, got := unpacked(b, ref[b.Name+".raw"].Data)
		same(t, b.Name, got, ref[b.Name+".expected"].Float32())
	}
	for name, dtype := range map[string]kernels.DType{"F16": kernels.F16, "BF16": kernels.BF16} {
		want := ref[name+".expected"].Float32()
		got := make([]float32, len(want))
		Floats(got, dtype, ref[name+".raw"].Data)
		same(t, name, got, want)
	}
}

// ownVectors are files of testdata with what types are in them.
var ownVectors = map[string][]*Blocks{"q5.json": {Q5_0, Q5_1}, "blocks.json": {Q2_K, Q3_K, IQ4_NL, IQ4_XS}}

func TestMoreBlocksEqualReference(t *testing.T) {
	for name, list := range ownVectors {
		raw, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var ref map[string]json.RawMessage
		if err := json.Unmarshal(raw, &ref); err != nil {
			t.Fatal(err)
		}
		for _, b := range list {
			var c struct {
				Raw    string
				Values []float32
			}
			if err := json.Unmarshal(ref[b.Name], &c); err != nil {
				t.Fatal(err)
			}
			blocks, err := hex.DecodeString(c.Raw)
			if err != nil {
				t.Fatal(err)
			}
			_, got := unpacked(b, blocks)
			same(t, b.Name, got, c.Values)
		}
	}
}

// TestBlocksKeepCodesInRange also shows that where a block lies in dst changes nothing.
func TestBlocksKeepCodesInRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, b := range formats {
		raw := make([]byte, 3*b.Bytes)
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		rows, _ := unpacked(b, raw)
		for i, code := range rows.Codes {
			if b.Bits == 4 && code > 15 {
				t.Errorf("%s: code %d is %d", b.Name, i, code)
			}
		}
		var alone kernels.Rows
		alone.Reset(kernels.Matrix{N: 1, K: 3 * b.Values, Bits: b.Bits, Group: b.Group, HasMin: b.HasMin}, 1)
		for i := range 3 {
			b.Unpack(&alone, i*b.Values, raw[i*b.Bytes:(i+1)*b.Bytes])
		}
		if string(alone.Codes) != string(rows.Codes) {
			t.Errorf("%s: three blocks one by one differ from three at once", b.Name)
		}
	}
}

func TestScaleTypeIsTrue(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, b := range formats {
		if b.ScaleType != kernels.F16 {
			continue
		}
		raw := make([]byte, 64*b.Bytes)
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		rows, _ := unpacked(b, raw)
		for _, list := range [][]float32{rows.Scale, rows.Min} {
			for _, s := range list {
				if back := float16.Fromfloat32(s).Float32(); back != s && s == s {
					t.Errorf("%s: scale %v is no fp16 number", b.Name, s)
				}
			}
		}
	}
}

func TestF16IsExactForEveryNumber(t *testing.T) {
	for h := range 1 << 16 {
		got, want := F16(uint16(h)), float16.Frombits(uint16(h)).Float32()
		if got != want && !(got != got && want != want) || math.Signbit(float64(got)) != math.Signbit(float64(want)) {
			t.Fatalf("F16(%#04x) is %v, want %v", h, got, want)
		}
	}
}

func TestFloatsOfOddLengths(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16} {
		for n := range 11 {
			src, want := []byte{}, []float32{}
			for i := range n {
				v := float32(i) - 3.5 // exact in every type
				want = append(want, v)
				switch dtype {
				case kernels.F32:
					src = binary.LittleEndian.AppendUint32(src, math.Float32bits(v))
				case kernels.F16:
					src = binary.LittleEndian.AppendUint16(src, float16.Fromfloat32(v).Bits())
				case kernels.BF16:
					src = binary.LittleEndian.AppendUint16(src, uint16(math.Float32bits(v)>>16))
				}
			}
			got := make([]float32, n)
			Floats(got, dtype, src)
			if n > 0 {
				same(t, fmt.Sprint(dtype, n), got, want)
			}
		}
	}
}

func TestPackedOfOddLengths(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, bits := range []int{4, 8} {
		for n := range 40 {
			want := make([]uint8, n)
			words := make([]uint32, (n*bits+31)/32)
			for i := range want {
				want[i] = uint8(rng.Uint32()) & (1<<bits - 1)
				words[i*bits/32] |= uint32(want[i]) << (i * bits % 32)
			}
			var src []byte
			for _, w := range words {
				src = binary.LittleEndian.AppendUint32(src, w)
			}
			got := make([]uint8, n)
			Packed(got, bits, src)
			if string(got) != string(want) {
				t.Errorf("%d codes of %d bits: got %v, want %v", n, bits, got, want)
			}
		}
	}
}

// TestColumns holds both layouts to one code at a time, for all outputs and for some.
func TestColumns(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	order := [8]int{0, 2, 4, 6, 1, 3, 5, 7} // of the outputs of an AWQ word
	for _, layout := range []string{"gptq4", "gptq8", "awq"} {
		for _, shape := range [][2]int{{8, 8}, {72, 16}, {200, 40}, {12, 24}} {
			k, n := shape[0], shape[1]
			bits := 4
			if layout == "gptq8" {
				bits = 8
			}
			if layout == "gptq4" && k%8 != 0 {
				continue
			}
			want := make([]uint8, n*k)
			words := make([]uint32, n*k*bits/32)
			for c := range n {
				for i := range k {
					code := uint8(rng.Uint32()) & (1<<bits - 1)
					want[c*k+i] = code
					if layout == "awq" {
						words[i*(n/8)+c/8] |= uint32(code) << (4 * slices.Index(order[:], c%8))
					} else {
						per := 32 / bits
						words[i/per*n+c] |= uint32(code) << (bits * (i % per))
					}
				}
			}
			var src []byte
			for _, w := range words {
				src = binary.LittleEndian.AppendUint32(src, w)
			}
			for _, part := range [][2]int{{0, n}, {0, 1}, {3, n - 3}, {5, 2}, {n - 1, 1}, {4, 0}} {
				first, count := part[0], part[1]
				got := make([]uint8, count*k)
				if layout == "awq" {
					AWQColumns(got, k, src, n/8, first, count)
				} else {
					Columns(got, k, bits, src, n, first, count)
				}
				if string(got) != string(want[first*k:(first+count)*k]) {
					t.Errorf("%s [%d,%d]: outputs %d to %d differ", layout, n, k, first, first+count)
				}
			}
			for c := range 8 {
				if got := Code(src, c/8, AWQPlace(c), 4); layout == "awq" && got != want[c*k] {
					t.Errorf("awq: code of output %d is %d, want %d", c, got, want[c*k])
				}
			}
		}
	}
}

func BenchmarkColumns(bench *testing.B) {
	const k, cols, n = 4096, 4096, 256
	codes, src := make([]uint8, n*k), make([]byte, k*cols/2)
	bench.Run("gptq", func(bench *testing.B) {
		bench.SetBytes(n * k / 2)
		for bench.Loop() {
			Columns(codes, k, 4, src, cols, 512, n)
		}
	})
	bench.Run("awq", func(bench *testing.B) {
		bench.SetBytes(n * k / 2)
		for bench.Loop() {
			AWQColumns(codes, k, src, cols/8, 512, n)
		}
	})
}

func BenchmarkUnpack(bench *testing.B) {
	const values = 1 << 16
	rows := kernels.Rows{Codes: make([]uint8, values), Scale: make([]float32, values/16), Zero: make([]uint8, values/16), Min: make([]float32, values/16),
		Float: make([]float32, values)}
	for _, b := range formats {
		raw := make([]byte, values/b.Values*b.Bytes)
		bench.Run(b.Name, func(bench *testing.B) {
			bench.SetBytes(int64(len(raw)))
			for bench.Loop() {
				b.Unpack(&rows, 0, raw)
			}
		})
	}
	raw := make([]byte, 4*values)
	bench.Run("packed4", func(bench *testing.B) {
		bench.SetBytes(values / 2)
		for bench.Loop() {
			Packed(rows.Codes, 4, raw)
		}
	})
	for _, dtype := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16} {
		bench.Run(dtype.String(), func(bench *testing.B) {
			bench.SetBytes(int64(values * dtype.Bytes()))
			for bench.Loop() {
				Floats(rows.Float, dtype, raw)
			}
		})
	}
}
