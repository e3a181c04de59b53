// row.cuh: what kernels that work on rows of float32 share: four neighbours at a time, sums over a block, functions.
#pragma once

// aligned says that each row of x, stride elements apart, begins at a multiple of 16 bytes.
__device__ inline bool aligned(const void *x, int stride) { return ((unsigned long long)x & 15) == 0 && (stride & 3) == 0; }

// load4 is x[i..i+3], 0 beyond n: one load when vec says that x is aligned. Arithmetic does not depend on which.
__device__ inline float4 load4(const float *x, int i, int n, bool vec)
{
    if (vec && i + 4 <= n) return *(const float4 *)(x + i);
    float4 v = {0, 0, 0, 0};
    if (i < n) v.x = x[i];
    if (i + 1 < n) v.y = x[i + 1];
    if (i + 2 < n) v.z = x[i + 2];
    if (i + 3 < n) v.w = x[i + 3];
    return v;
}

// store4 stores v, or what lies below n of it. The compiler would make four stores of one.
__device__ inline void store4(float *x, int i, int n, bool vec, float4 v)
{
    if (vec && i + 4 <= n) {
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(x + i)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                     : "memory");
        return;
    }
    if (i < n) x[i] = v.x;
    if (i + 1 < n) x[i + 1] = v.y;
    if (i + 2 < n) x[i + 2] = v.z;
    if (i + 3 < n) x[i + 3] = v.w;
}

// addSquares is sum + the squares of v * unit, in order.
__device__ inline float addSquares(float sum, float4 v, float unit)
{
    v.x *= unit, v.y *= unit, v.z *= unit, v.w *= unit;
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
}

__device__ inline float warpSum(float v)
{
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

__device__ inline float warpMax(float v)
{
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
    return v;
}

// rmsScale is 1 / sqrt(mean + eps) of n values; squares(unit) is the sum of the squares of the values times unit, and is
// taken once more in units of 2^64 when the plain sum is beyond float32.
template <class F> __device__ float rmsScale(F squares, int n, float eps)
{
    float unit = 1;
#pragma unroll 1
    for (;; unit = 0x1p-64f) {
        float sum = squares(unit);
        if (unit != 1) return unit / sqrtf(sum / n);
        if (sum <= 3.402823466e38f) return 1 / sqrtf(sum / n + eps);
    }
}

// A piece of a row are two times four columns, 16 apart; eight pieces are 64 columns. inputOf is the first column of piece p.
__device__ __forceinline__ int inputOf(int p) { return p / 8 * 64 + p / 4 % 2 * 32 + p % 4 * 4; }

// rowScale is rmsScale of a row of float32, for all threads of a block of whole warps; load4(p, i) gives the four of piece p that begin at
// inputOf(p) + 16i, zeros beyond the row. Its sums run over pieces as 512 threads would take them, and over these threads' lanes and
// warps, whatever the block.
template <class F> __device__ __forceinline__ float rowScale(F load4, int cols, float eps)
{
    __shared__ float sums[16];
    const int lane = threadIdx.x % 32;
    return rmsScale(
        [&](float unit) {
            __syncthreads(); // the sums before these have been read
#pragma unroll 1
            for (int warp = threadIdx.x / 32; warp < 16; warp += blockDim.x / 32) {
                float sum = 0;
#pragma unroll 2
                for (int p = warp * 32 + lane; p < (cols + 63) / 64 * 8; p += 512) sum = addSquares(addSquares(sum, load4(p, 0), unit), load4(p, 1), unit);
                sum = warpSum(sum);
                if (lane == 0) sums[warp] = sum;
            }
            __syncthreads();
            return warpSum(lane < 16 ? sums[lane] : 0);
        },
        cols, eps);
}

// headScale is rmsScale of n values, for all lanes of a warp.
template <class F> __device__ __forceinline__ float headScale(F load4, int n, float eps)
{
    return rmsScale(
        [&](float unit) {
            float sum = 0;
#pragma unroll 1
            for (int i = threadIdx.x % 32 * 4; i < n; i += 128) sum = addSquares(sum, load4(i), unit);
            return warpSum(sum);
        },
        n, eps);
}

// normed is v / rms * w.
__device__ inline float4 normed(float4 v, float scale, float4 w)
{
    return {v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w};
}

enum { SiLU, GELUTanh, Sigmoid }; // as kernels.Activation

// activate is function f of x, with its roundings written out: several kernels compute it, and all get the same bits.
__device__ __forceinline__ float activate(float x, int f)
{
    float e = -x, over = 1;
    if (f == GELUTanh) e = __fmul_rn(-1.5957691216057308f, __fmaf_rn(__fmul_rn(__fmul_rn(0.044715f, x), x), x, x));
    if (f != Sigmoid) over = x;
    return __fdiv_rn(over, __fadd_rn(1, expf(e)));
}

// gated is f(gate) * v.
__device__ __forceinline__ float4 gated(float4 v, float4 gate, int f)
{
    return {v.x * activate(gate.x, f), v.y * activate(gate.y, f), v.z * activate(gate.z, f), v.w * activate(gate.w, f)};
}
