// delta.cu: the gated delta rule token by token; many tokens together: delta_chunk.cu.
//   S = S exp(-rate softplus(a + bias));  S = S + k (sigmoid(b) (v - S^T k))^T;  dst = S^T q, with unit k and q / sqrt(K)
//   dst [T,H V] | qkv [T, G K queries, G K keys, H V values] | a, b [T,H] | rate, bias [H] | float32, strides in elements
//   S [K,V] float32, a head's unit of a state on pages; K <= 256; V, strides and alignment are free
//   starts [runs+1], in, out [runs, statePages] as kernels.Runs; chains [2, runs]: whether a run begins a chain, and the run
//   that follows it in its chain, or -1
//   grid (ceil(V/32), H, runs), block 64 = 2 warps of 16 columns each: 192 blocks for one sequence of 48 heads of 128x128, two
//   or three for each of 82 multiprocessors; a block takes the runs of a chain one after another, S in registers
//   decode: bytes are those of the state, in and out, and of inputs once; a warp issues some 420 instructions for a token, 256 of them the
//   four operations for each value of its columns (decay, known value, update, output). What a run begins with comes in one request,
//   so the state's 16 loads a lane are under way one latency after the start, and keys are prepared behind them
//   reference: kernels/ref GatedDelta | cases: kernels/kerneltest/state.go | numbers: delta_test.go

#include "delta.cuh"

// What a block reads of a run and its head before all else: a lane of its first warp each, in one request.
enum { BEGINS, NEXT, FROM, TO, FRESH, IN, OUT, RATE, BIAS, WORDS };

template <int R, bool Whole> __device__ inline void steps(DELTA_PARAMETERS)
{
    enum { WARPS = 2 };
    __shared__ __align__(16) DeltaTile<R> tiles[2];
    __shared__ int words[WORDS];
    int h = blockIdx.y, run = blockIdx.z, slab = (blockIdx.x * WARPS + threadIdx.x / 32) * SLAB;
    DeltaState state = DELTA_STATE;
    DeltaInputs x = DELTA_INPUTS(h, 0, 0);
    bool none = Whole && slab >= V; // the last warp of a head of an odd number of slabs
    for (bool first = true; run >= 0; first = false) {
        if (threadIdx.x < 32) {
            const int *at = starts + run + (threadIdx.x == TO);
            if (threadIdx.x == BEGINS) at = chains + run;
            if (threadIdx.x == NEXT) at = chains + gridDim.z + run;
            if (threadIdx.x == FRESH) at = in + (long long)run * statePages;
            if (threadIdx.x == IN) at = state.entry(in, run, h);
            if (threadIdx.x == OUT) at = state.entry(out, run, h);
            if (threadIdx.x == RATE) at = (const int *)rate + h;
            if (threadIdx.x == BIAS) at = (const int *)bias + h;
            int word = threadIdx.x < WORDS ? *at : 0;
            if (threadIdx.x < WORDS) words[threadIdx.x] = word;
            // Decays are made by this warp.
            x.rate = __int_as_float(__shfl_sync(~0u, word, RATE));
            x.bias = __int_as_float(__shfl_sync(~0u, word, BIAS));
        }
        __syncthreads();
        if (first && !words[BEGINS]) return;
        bool fresh = none || words[FRESH] == 0;
        int from = words[FROM], T = words[TO] - from, left = words[OUT];
        float S[R][4];
        loadState<R, Whole>(S, fresh ? nullptr : state.head(words[IN], h), slab, K, V);
        run = words[NEXT];
        deltaSteps<R, WARPS>(S, tiles, x, from, T, slab, K, V);
        if (!none) storeState<R, Whole>(S, state.head(left, h), slab, K, V);
    }
}

#define DELTA_ARGUMENTS                                                                                                            \
    dst, dstStride, qkv, qkvStride, a, aStride, b, bStride, rate, bias, eps, G, pages, pageBytes, starts, in, out, chains, perPage, \
        firstUnit, statePages, H, K, V

// K = 128 and states on multiples of 16 bytes: every model so far.
extern "C" __global__ void __launch_bounds__(64) delta_steps_128(DELTA_PARAMETERS) { steps<16, true>(DELTA_ARGUMENTS); }
// Any K up to 128, and any V.
extern "C" __global__ void __launch_bounds__(64) delta_steps_odd(DELTA_PARAMETERS) { steps<16, false>(DELTA_ARGUMENTS); }
// Any K up to 256, and any V.
extern "C" __global__ void __launch_bounds__(64) delta_steps_256(DELTA_PARAMETERS) { steps<32, false>(DELTA_ARGUMENTS); }
