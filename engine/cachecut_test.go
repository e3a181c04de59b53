package engine

import (
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// TestCutCountsScales: what design.md says of Qwen3.5-27B, 32 KiB a token in one byte a value, with two bytes for the
// scale of each of 16 layers' 4 keys and 4 values.
func TestCutCountsScales(t *testing.T) {
	groups := []models.CacheGroup{{Layers: 16, Heads: 4, KDim: 256, VDim: 256}}
	for dtype, want := range map[kernels.DType]int64{
		kernels.F32: 128 << 10, kernels.F16: 64 << 10, kernels.BF16: 64 << 10,
		kernels.F8E4M3: 32<<10 + 16*8*2, kernels.I8: 32<<10 + 16*8*2,
	} {
		c := cutCache(groups, dtype)
		if c.tokenBytes() != want || c.blockBytes != 16*want {
			t.Errorf("%v: a token takes %d bytes, want %d; a block %d", dtype, c.tokenBytes(), want, c.blockBytes)
		}
	}
}

// TestCutOfGroups: with any type a block of groups of other geometry loses little, also where scales take more of one's
// tokens than of the other's.
func TestCutOfGroups(t *testing.T) {
	for _, groups := range [][]models.CacheGroup{
		{{Kind: models.SlidingWindow, Layers: 40, Heads: 8, KDim: 256, VDim: 256, Window: 1024}, {Layers: 8, Heads: 1, KDim: 512, VDim: 512}},
		{{Kind: models.SlidingWindow, Layers: 10, Heads: 1, KDim: 64, VDim: 64, Window: 1024}, {Layers: 10, Heads: 2, KDim: 128, VDim: 128}},
		{{Kind: models.SlidingWindow, Layers: 8, Heads: 1, KDim: 64, VDim: 64, Window: 128}, {Layers: 8, Heads: 1, KDim: 256, VDim: 128}},
	} {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.I8} {
			c := cutCache(groups, dtype)
			for g, l := range c.layouts {
				used := l.TokenBytes() * int64(l.BlockTokens)
				if l.BlockTokens < 16 || l.BlockTokens%16 != 0 || l.BlockBytes%64 != 0 || used > l.BlockBytes {
					t.Errorf("%v, group %d: %+v", dtype, g, l)
				}
				if lost := 1 - float64(used)/float64(l.BlockBytes); lost > 0.04 {
					t.Errorf("%v, group %d: %d tokens of %d bytes leave %.0f %% of a block of %d", dtype, g, l.BlockTokens, l.TokenBytes(), 100*lost, l.BlockBytes)
				}
			}
		}
	}
}
