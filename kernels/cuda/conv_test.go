package cuda

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
)

// convolve runs runs of tokens over states of pages of n columns on d and returns outputs and the arena.
func convolve(t testing.TB, d kernels.Device, l kernels.StateLayout, starts, in, out []int32, x, w []float32) (dst []float32, arena []byte) {
	t.Helper()
	T := int(starts[len(starts)-1])
	rnd := rand.New(rand.NewPCG(8, 8))
	pages := tensor(t, d, 1, normal(rnd, 12*int(l.PageBytes)/4))
	y := tensor(t, d, T, make([]float32, T*l.ConvChannels))
	up := func(v []int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }
	d.Begin()
	s := kernels.State{Pages: pages.Buf, Layout: &l, Layer: 1, Runs: kernels.Runs{Starts: up(starts), In: up(in), Out: up(out)}}
	d.CausalConv(y, tensor(t, d, T, x), tensor(t, d, 1, w), s)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	return floatsOf(t, d, y), held(t, d, pages.Buf)
}

// TestConvolutionOfChains: runs of one step that begin with what an earlier one left, in place, from a snapshot and back, of
// fewer tokens than columns and of more than a tile, leave the columns of the reference in every bit, and nothing else.
func TestConvolutionOfChains(t *testing.T) {
	d, r := open(t, 4), ref.Open()
	defer d.Close()
	for _, columns := range []int{1, 3, 7} {
		t.Run(fmt.Sprint(columns, " columns"), func(t *testing.T) {
			const C = 200
			l := kernels.StateLayout{Layers: 2, Heads: 1, KDim: 16, VDim: 16, ConvChannels: C, ConvColumns: columns}
			l.PageBytes = 14*l.UnitBytes() + 64
			if l.StatePages() != 1 {
				t.Fatal(l.StatePages())
			}
			rnd := rand.New(rand.NewPCG(1, uint64(columns)))
			// 1 in place, to 2 and back; 4 from zeros by one token; an idle run; 3 in place over tiles; 5 from 1's snapshot in 2.
			starts := []int32{0, 2, 3, 44, 45, 46, 46, 122, 123, 125}
			in := []int32{1, 1, 2, 0, 4, 6, 3, 2, 5}
			out := []int32{1, 2, 1, 4, 4, 7, 3, 5, 5}
			T := int(starts[len(starts)-1])
			x, w := normal(rnd, T*C), normal(rnd, C*(columns+1))
			got, arena := convolve(t, d, l, starts, in, out, x, w)
			want, wantArena := convolve(t, r, l, starts, in, out, x, w)
			if !bytes.Equal(arena, wantArena) {
				t.Error("states differ")
			}
			for i, v := range want {
				if math.Abs(float64(got[i]-v)) > 4e-6*(1+math.Abs(float64(v))) {
					t.Fatalf("token %d, channel %d: got %v, want %v", i/C, i%C, got[i], v)
				}
			}
		})
	}
}

// TestConvolutionMovesWhatItMust at a model's width: a token's channels once each way, and a state's columns in whole sectors.
func TestConvolutionMovesWhatItMust(t *testing.T) {
	d, all := counted(t)
	const C = 1024
	l := kernels.StateLayout{Layers: 2, Heads: 2, KDim: 64, VDim: 64, ConvChannels: C, ConvColumns: 3}
	l.PageBytes = 8 * l.UnitBytes()
	rnd := rand.New(rand.NewPCG(3, 3))
	w := normal(rnd, C*4)
	convolve(t, d, l, []int32{0, 1, 2, 3}, []int32{1, 2, 3}, []int32{1, 2, 3}, normal(rnd, 3*C), w)
	if len(*all) != 1 {
		t.Fatalf("decode launched %d kernels", len(*all))
	}
	n := (*all)[0]
	arrays := 5 * 32 // runs and chains
	if read, write := 3*C*4+4*C*4+3*3*C*4+arrays, 3*C*4+3*3*C*4; int(n.DRAMReadBytes) > read || int(n.DRAMWriteBytes) != write {
		t.Errorf("decode: read %d bytes, wrote %d; want %d and %d", n.DRAMReadBytes, n.DRAMWriteBytes, read, write)
	}
	if n.GlobalStores.Efficiency < 0.99 || n.BankConflicts > 0 {
		t.Errorf("decode: stores %+v, %d bank conflicts", n.GlobalStores, n.BankConflicts)
	}
	*all = nil
	convolve(t, d, l, []int32{0, 96}, []int32{0}, []int32{1}, normal(rnd, 96*C), w)
	n = (*all)[1]
	if read := 96*C*4 + 4*C*4 + 32; n.kernel != "conv_tokens_3" || int(n.DRAMReadBytes) > read || int(n.DRAMWriteBytes) != 93*C*4 {
		t.Errorf("prefill: %s read %d bytes, wrote %d; want at most %d and %d", n.kernel, n.DRAMReadBytes, n.DRAMWriteBytes, read, 93*C*4)
	}
	if n.GlobalLoads.Efficiency < 0.97 || n.GlobalStores.Efficiency < 0.99 {
		t.Errorf("prefill: loads %+v, stores %+v", n.GlobalLoads, n.GlobalStores)
	}
}
