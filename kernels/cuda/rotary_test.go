package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

// stored runs RotaryStore on d over an arena of 0xff and returns the arena and the queries.
func stored(t testing.TB, d kernels.Device, l kernels.CacheLayout, H int, qkv, angles []float32, slots []int32, p kernels.RotaryParams) (arena, q []byte) {
	t.Helper()
	T := len(slots)
	pages, err := d.Alloc(3 * l.PageBytes)
	if err != nil {
		t.Fatal(err)
	}
	if pages.Host != nil {
		for i := range pages.Host {
			pages.Host[i] = 0xff
		}
	} else if err := d.(*Device).CopyIn(pages, bytes.Repeat([]byte{0xff}, int(pages.Len))); err != nil {
		t.Fatal(err)
	}
	queries := tensor(t, d, T, make([]float32, T*H*l.KDim))
	p.CosSin = tensor(t, d, T, angles)
	d.Begin()
	d.RotaryStore(queries, kernels.KV{Pages: pages, Layout: &l, Layer: 1, Slots: d.Upload(kernels.Ints{Host: slots})}, tensor(t, d, T, qkv), p)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	return held(t, d, pages), held(t, d, queries.Buf)
}

// TestCacheBytes: what is stored without a turn or a norm has the bytes of the reference's cache, scales included, for
// values that are hard to round; and lies where the reference has it.
func TestCacheBytes(t *testing.T) {
	d, r := open(t, 3), ref.Open()
	defer d.Close()
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, typ := range cacheTypes {
		for _, dims := range [][2]int{{64, 64}, {128, 96}, {24, 44}, {7, 5}, {512, 512}} {
			t.Run(fmt.Sprint(typ, " ", dims), func(t *testing.T) {
				const H, G, T = 3, 2, 24
				l := kernels.CacheLayout{DType: typ, Layers: 2, Heads: G, KDim: dims[0], VDim: dims[1], BlockTokens: 16, BlocksPerPage: 2}
				l.BlockBytes = 16*l.TokenBytes() + 32
				l.PageBytes = 2*l.BlockBytes + 48
				width := (H+G)*l.KDim + G*l.VDim
				qkv := make([]float32, T*width)
				for i := range qkv {
					// Halves of a code's step, subnormals, huge values, zeros, NaNs: by token.
					switch v := rnd.NormFloat64(); i / width % 8 {
					case 0, 1:
						qkv[i] = float32(v)
					case 2:
						qkv[i] = float32(float64(rnd.IntN(255)-127) / 2)
					case 3:
						qkv[i] = float32(math.Ldexp(float64(rnd.IntN(33)-16)/2, rnd.IntN(12)-8))
					case 4:
						qkv[i] = float32(v * 1e-42)
					case 5:
						qkv[i] = float32(v * 1e37)
					case 6:
						qkv[i] = float32(math.Copysign(0, v))
					case 7:
						if qkv[i] = float32(v); rnd.IntN(width) == 0 {
							qkv[i] = float32(math.Inf(1))
						}
					}
				}
				qkv[7*width] = float32(math.NaN())
				slots := make([]int32, T)
				for i, s := range rnd.Perm(6 * 16)[:T] {
					slots[i] = int32(s)
				}
				slots[9] = -1
				angles := make([]float32, T*2)
				for i := range T {
					angles[2*i] = 1
				}
				arena, q := stored(t, d, l, H, qkv, angles, slots, kernels.RotaryParams{})
				wantArena, wantQ := stored(t, r, l, H, qkv, angles, slots, kernels.RotaryParams{})
				for i := 0; i < len(q); i += 4 {
					got, want := binary.LittleEndian.Uint32(q[i:]), binary.LittleEndian.Uint32(wantQ[i:])
					if isNaN := want&0x7fffffff > 0x7f800000; got != want && !(isNaN && got&0x7fffffff > 0x7f800000) {
						t.Fatalf("query value %d: %08x, want %08x", i/4, got, want)
					}
				}
				for i := range arena {
					if arena[i] != wantArena[i] && !bothNaN(l, arena, wantArena, i) {
						t.Fatalf("byte %d of the arena: %#x, want %#x", i, arena[i], wantArena[i])
					}
				}
			})
		}
	}
}

// bothNaN says whether byte i of two arenas of 16 bits a value belongs to a NaN in both: its bits are a device's own.
func bothNaN(l kernels.CacheLayout, a, b []byte, i int) bool {
	infinity := map[kernels.DType]uint16{kernels.F16: 0x7c00, kernels.BF16: 0x7f80}[l.DType]
	at := func(x []byte) uint16 { return (uint16(x[i&^1]) | uint16(x[i|1])<<8) & 0x7fff }
	return infinity != 0 && at(a) > infinity && at(b) > infinity
}

// TestRotaryStoreMovesWhatItMust: a token's heads are read and written once, in whole sectors.
func TestRotaryStoreMovesWhatItMust(t *testing.T) {
	d, all := counted(t)
	rnd := rand.New(rand.NewPCG(9, 9))
	const H, G, T, dim = 8, 2, 4, 128
	for _, typ := range cacheTypes {
		l := kernels.CacheLayout{DType: typ, Layers: 2, Heads: G, KDim: dim, VDim: dim, BlockTokens: 16, BlocksPerPage: 2}
		l.BlockBytes = 16 * l.TokenBytes()
		l.PageBytes = 2 * l.BlockBytes
		*all = nil
		norm := tensor(t, d, 1, normal(rnd, dim))
		stored(t, d, l, H, normal(rnd, T*(H+2*G)*dim), normal(rnd, T*dim), []int32{0, 1, 2, 50}, kernels.RotaryParams{QNorm: norm, KNorm: norm, Eps: 1e-6})
		n := (*all)[0]
		// Slots take a sector; so does each token's scale, which stands beside the scales of other tokens.
		read := 4*(T*(H+2*G)*dim+T*dim+dim) + 32
		write := 4*T*H*dim + T*2*G*dim*typ.Bytes()
		if l.ScaleBytes() > 0 {
			write += 2 * 2 * G * 32 // two of the blocks, keys and values, heads
		}
		if int(n.DRAMReadBytes) != read || int(n.DRAMWriteBytes) != write {
			t.Errorf("%v: read %d bytes, wrote %d; want %d and %d", typ, n.DRAMReadBytes, n.DRAMWriteBytes, read, write)
		}
		if n.GlobalLoads.Efficiency < 0.98 || n.GlobalStores.Efficiency < 0.9 {
			t.Errorf("%v: loads %+v, stores %+v", typ, n.GlobalLoads, n.GlobalStores)
		}
	}
}
