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

// blockSum sums over a block of whole warps, at most 32, and gives it to every thread.
__device__ inline float blockSum(float v)
{
    __shared__ float sums[32];
    v = warpSum(v);
    __syncthreads(); // the sums before these have been read
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
    __syncthreads();
    return warpSum(threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0);
}

// rmsScale is 1 / sqrt(mean + eps) of n values; squares(unit) is the sum of the squares of the values times unit, and is
// taken once more in units of 2^64 when the plain sum is beyond float32.
template <class F> __device__ float rmsScale(F squares, int n, float eps)
{
    float sum = squares(1.f);
    if (sum <= 3.402823466e38f) return 1 / sqrtf(sum / n + eps);
    return 0x1p-64f / sqrtf(squares(0x1p-64f) / n);
}

enum { SiLU, GELUTanh, Sigmoid }; // as kernels.Activation

template <int F> __device__ float activate(float x)
{
    if (F == GELUTanh) x = x / (1 + expf(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
    if (F == SiLU) x = x / (1 + expf(-x));
    if (F == Sigmoid) x = 1 / (1 + expf(-x));
    return x;
}
