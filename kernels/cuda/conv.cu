// conv.cu: depthwise causal convolution over the tokens of a run, silu after it: dst[t,c] = silu(sum over j <= n of
// w[c*(n+1)+j] * x[t-n+j,c]), in ascending order of j.
//   x, dst [T, C] float32, strides in elements; w [C, n+1]; n columns before a token, 1 to 15
//   What comes before a run's first token are the columns of its state, [channels of a unit][n] in each of its units, oldest
//   first. Only a run's first n tokens see them, and only its last n tokens are left there. So there are two kernels:
//   conv_states   has all to do with states: a block takes 128 channels of a chain of runs (Device.chains), one run after the
//                 other, of each the columns, the first n tokens and the columns it leaves; grid (C/128, runs), block 128,
//                 2 * 128 * n * 4 bytes of shared memory
//   conv_tokens   takes the tokens beyond, 32 of 128 channels a block, from x alone; grid (C/128, T/32), block 128
//   _3: n is 3 and known to the compiler; the sums are the same
//   reference: kernels/ref CausalConv | cases: kernels/kerneltest/state.go
#include "row.cuh"

constexpr int Channels = 128, Tokens = 32, MaxColumns = 15;

// Weights of a channel.
template <int N> __device__ void loadWeights(float *f, const float *w, int c, int n)
{
    if (N == 3 && aligned(w, 0)) {
        *(float4 *)f = *(const float4 *)(w + c * 4);
        return;
    }
    for (int j = 0; j <= n; j++) f[j] = w[c * (n + 1) + j];
}

template <int N>
__device__ void convStates(float *dst, int dstStride, const float *x, int xStride, const float *w, int C, int columns, char *pages,
                           long long pageBytes, const int *starts, const int *in, const int *out, const int *chains, int perPage,
                           int firstUnit, int statePages, int unitChannels, long long unitBytes)
{
    extern __shared__ float before[]; // columns [128][n], and those that are left
    const int n = N ? N : columns;
    float *left = before + Channels * n;
    int first = blockIdx.x * Channels, c = first + threadIdx.x, count = min(Channels, C - first) * n;
    if (!chains[blockIdx.y]) return;
    // Where value i of the block's columns lies in the state on these pages.
    auto at = [&](const int *pagesOf, int i) {
        int channel = first + i / n, unit = firstUnit + channel / unitChannels;
        return (float *)(pages + pagesOf[unit / perPage] * pageBytes + unit % perPage * unitBytes) + channel % unitChannels * n + i % n;
    };
    float f[N ? N + 1 : MaxColumns + 1];
    if (c < C) loadWeights<N>(f, w, c, n);
    for (int r = blockIdx.y; r >= 0; r = chains[gridDim.y + r]) {
        const int *from = in + (long long)r * statePages, *to = out + (long long)r * statePages;
        int start = starts[r], tokens = starts[r + 1] - start;
        bool zeros = from[0] == 0;
        for (int i = threadIdx.x; i < count; i += Channels) before[i] = zeros ? 0 : *at(from, i);
        __syncthreads();
        if (c < C) {
            // Token p of the run; below 0 a column.
            auto seen = [&](int p) { return p < 0 ? before[threadIdx.x * n + n + p] : x[(long long)(start + p) * xStride + c]; };
            for (int t = 0; t < min(tokens, n); t++) {
                float sum = 0;
#pragma unroll
                for (int j = 0; j <= (N ? N : n); j++) sum = fmaf(f[j], seen(t - n + j), sum);
                dst[(long long)(start + t) * dstStride + c] = activate(sum, SiLU);
            }
            for (int j = 0; j < n; j++) left[threadIdx.x * n + j] = seen(tokens - n + j);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += Channels) *at(to, i) = left[i];
        __syncthreads(); // the next run may begin with what this one left
    }
}

template <int N>
__device__ void convTokens(float *dst, int dstStride, const float *x, int xStride, const float *w, int C, int columns, const int *starts,
                           int runs, int T)
{
    const int n = N ? N : columns;
    int c = blockIdx.x * Channels + threadIdx.x, t = blockIdx.y * Tokens, end = min(t + Tokens, T);
    if (c >= C) return;
    int r = 0; // the last run that begins at or before t
    for (int high = runs; high - r > 1;) {
        int middle = (r + high) / 2;
        if (starts[middle] <= t)
            r = middle;
        else
            high = middle;
    }
    int start = starts[r], next = starts[r + 1];
    float f[N ? N + 1 : MaxColumns + 1], seen[N ? N + 1 : MaxColumns + 1];
    loadWeights<N>(f, w, c, n);
    for (int j = 0; j < n; j++) seen[j + 1] = t - n + j < 0 ? 0 : x[(long long)(t - n + j) * xStride + c];
#pragma unroll 8
    for (; t < end; t++) {
        for (int j = 0; j < n; j++) seen[j] = seen[j + 1];
        seen[n] = x[(long long)t * xStride + c];
        while (t >= next) start = next, next = starts[++r + 1];
        if (t - start < n) continue; // conv_states has it
        float sum = 0;
#pragma unroll
        for (int j = 0; j <= (N ? N : n); j++) sum = fmaf(f[j], seen[j], sum);
        dst[(long long)t * dstStride + c] = activate(sum, SiLU);
    }
}

#define CONV(SUFFIX, N)                                                                                                              \
    extern "C" __global__ void __launch_bounds__(128)                                                                                \
        conv_states##SUFFIX(float *dst, int dstStride, const float *x, int xStride, const float *w, int C, int n, char *pages,       \
                            long long pageBytes, const int *starts, const int *in, const int *out, const int *chains, int perPage,   \
                            int firstUnit, int statePages, int unitChannels, long long unitBytes)                                    \
    {                                                                                                                                \
        convStates<N>(dst, dstStride, x, xStride, w, C, n, pages, pageBytes, starts, in, out, chains, perPage, firstUnit, statePages, \
                      unitChannels, unitBytes);                                                                                      \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(128) conv_tokens##SUFFIX(                                                           \
        float *dst, int dstStride, const float *x, int xStride, const float *w, int C, int n, const int *starts, int runs, int T)     \
    {                                                                                                                                \
        convTokens<N>(dst, dstStride, x, xStride, w, C, n, starts, runs, T);                                                         \
    }
CONV(, 0)
CONV(_3, 3)
