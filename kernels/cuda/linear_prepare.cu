// linear_prepare.cu: turns x [T,K] float32 into what the matrix products read, as linear_source.cuh says, in global memory; of few tokens
// linear_decode.cu does it itself.
//   grid (T rounded up to 8; rows from T on become zeros), block 32 to 1024
//   order [64*tiles] int32 or none: stored input k is x[order[k]], or 0 where that is negative; none: x[k], 0 from K on
//   aligned: x may be read 16 bytes at a time (16-byte base, stride and K multiples of 4, no order)
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go
#include "linear.cuh"
#include "row.cuh"
#include "linear_source.cuh"

struct Stored {
    const float *x;
    const int *order;
    int K;
    bool aligned;
    __device__ float4 at(int k) const
    {
        if (aligned) return k < K ? *(const float4 *)(x + k) : make_float4(0, 0, 0, 0);
        float v[4];
        for (int i = 0; i < 4; i++) {
            int from = order ? order[k + i] : k + i < K ? k + i : -1;
            v[i] = from < 0 ? 0 : x[from];
        }
        return make_float4(v[0], v[1], v[2], v[3]);
    }
};

extern "C" __global__ void __launch_bounds__(1024) linear_prepare(const float *x, int xStride, const int *order, int T, int K, int tiles,
    uint4 *out, float *sums, float *inverse, int bf16, int aligned)
{
    int t = blockIdx.x, g = t % 8;
    const Stored row = {x + (long long)t * xStride, order, K, aligned != 0};
    float scale = 0;
    if (t < T) {
        u32 m = 0;
#pragma unroll 4
        for (int p = threadIdx.x; p < tiles * 16; p += blockDim.x) m = max(m, magnitude(row.at(p * 4)));
        const Power power = powerOf(blockMax(m));
        scale = power.scale;
        if (threadIdx.x == 0) inverse[t] = power.inverse;
        if (scale == 0) t = T; // the inverse alone makes it NaN
    }
    // A thread makes a piece at a time.
    const int blocks = gridDim.x / 8, block = blockIdx.x / 8; // of 8 tokens
    for (int p = threadIdx.x; p - (int)threadIdx.x < tiles * 8; p += blockDim.x) {
        const int tile = p / 8, i = p / 4 % 2, q = p % 4;
        float4 a = make_float4(0, 0, 0, 0), b = a;
        const bool valid = p < tiles * 8;
        if (t < T && valid) a = row.at(inputOf(p)), b = row.at(inputOf(p) + 16);
        scale4(a, scale), scale4(b, scale);
        if (bf16) {
            if (!valid) continue;
            uint4 *to = out + ((long long)tile * blocks + block) * 128 + i * 32 + g * 4 + q;
            to[0] = bfloatPiece(a, b), to[64] = bfloatPiece(a, b);
            continue;
        }
        uint4 v = roundPiece(a, b);
        if (valid) out[((long long)tile * blocks + block) * 64 + i * 32 + g * 4 + q] = v;
        if (!sums) continue;
        float2 f = sumPiece(v);
        if (valid && q == 0) {
            float *to = sums + ((long long)tile * blocks + block) * 32 + i * 16 + g;
            to[0] = f.x, to[8] = f.y;
        }
    }
}
