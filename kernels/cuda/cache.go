package cuda

import (
	"fmt"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
)

// cacheTypes are the types of KV cache that kernels are compiled for. cache.cuh draws a block.
var cacheTypes = []kernels.DType{kernels.F16, kernels.BF16, kernels.F8E4M3, kernels.I8}

// cacheFits says what a cache that package check accepts must have beyond that for the kernels of op.
func cacheFits(op string, kv kernels.KV) error {
	l := kv.Layout
	switch {
	case !slices.Contains(cacheTypes, l.DType):
		return fmt.Errorf("%s: no KV cache of %v", op, l.DType)
	case l.BlockTokens%16 != 0:
		return fmt.Errorf("%s: blocks of %d tokens: not a multiple of 16", op, l.BlockTokens)
	case l.BlockBytes%16 != 0 || l.PageBytes%16 != 0 || kv.Pages.Addr%16 != 0:
		return fmt.Errorf("%s: blocks of %d bytes in pages of %d at %#x: not multiples of 16", op, l.BlockBytes, l.PageBytes, kv.Pages.Addr)
	}
	return nil
}

// cacheArgs are the arguments for CACHE_PARAMS.
func cacheArgs(kv kernels.KV) []uint64 {
	l := kv.Layout
	return []uint64{
		kv.Pages.Addr + uint64(kv.Layer)*uint64(l.BlockTokens)*uint64(l.LayerBytes()),
		uint64(l.PageBytes), uint64(l.BlockBytes), arg(l.BlocksPerPage), arg(l.BlockTokens), arg(l.Heads), arg(l.KDim), arg(l.VDim),
	}
}
