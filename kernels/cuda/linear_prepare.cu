// linear_prepare.cu: turns x [T,K] float32 into what the matrix products read: fp16, or bf16 and its remainder, in the order of
// linear.cuh, each row multiplied by a power of two of its own that brings its largest magnitude to [8,16).
//   With that no row overflows in fp16, a product of 16 inputs with 8-bit codes stays below 32,768, and what is rounded to
//   fp16's fixed point is 2^-29 of the row's largest. A row below 2^-123 loses bits; it has almost none that matter.
//   grid (T rounded up to 8; rows from T on become zeros), block 32 to 1024
//   order [64*tiles] int32 or none: stored input k is x[order[k]], or 0 where that is negative; none: x[k], 0 from K on
//   aligned: x may be read 16 bytes at a time (16-byte base, stride and K multiples of 4, no order)
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go
#include "linear.cuh"

struct Row {
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

__device__ u32 halves(float a, float b)
{
    __half2 h = __floats2half2_rn(a, b);
    return *(u32 *)&h;
}

__device__ float sum4(u32 a, u32 b)
{
    float2 l = __half22float2(*(__half2 *)&a), h = __half22float2(*(__half2 *)&b);
    return (l.x + l.y) + (h.x + h.y);
}

__device__ u32 bfloats(float &a, float &b) // and leaves the remainders
{
    __nv_bfloat16 x = __float2bfloat16_rn(a), y = __float2bfloat16_rn(b);
    a -= __bfloat162float(x), b -= __bfloat162float(y);
    return (u32)__bfloat16_as_ushort(x) | (u32)__bfloat16_as_ushort(y) << 16;
}

__device__ u32 magnitude(float4 v)
{
    u32 a = max(__float_as_uint(v.x) & 0x7fffffff, __float_as_uint(v.y) & 0x7fffffff);
    u32 b = max(__float_as_uint(v.z) & 0x7fffffff, __float_as_uint(v.w) & 0x7fffffff);
    return max(a, b);
}

// A block's largest magnitude of a row, as bits: a NaN is above infinity, infinity above numbers.
__device__ u32 largest(const Row &row, int tiles)
{
    __shared__ u32 most[32];
    u32 m = 0;
#pragma unroll 4
    for (int p = threadIdx.x; p < tiles * 16; p += blockDim.x) m = max(m, magnitude(row.at(p * 4)));
    m = __reduce_max_sync(0xffffffff, m);
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = m;
    __syncthreads();
    m = most[threadIdx.x % (blockDim.x / 32)];
    return __reduce_max_sync(0xffffffff, m);
}

extern "C" __global__ void __launch_bounds__(1024) linear_prepare(const float *x, int xStride, const int *order, int T, int K, int tiles,
    uint4 *out, float *sums, float *inverse, int bf16, int aligned)
{
    int t = blockIdx.x, g = t % 8;
    Row row = {x + (long long)t * xStride, order, K, aligned != 0};
    float scale = 0;
    if (t < T) {
        u32 m = largest(row, tiles);
        u32 e = max(m >> 23, 4u); // biased exponent; 2^126 is as far as a row is raised
        bool bad = m >= 0x7f800000;
        if (!bad) scale = __uint_as_float((257 - e) << 23);
        if (threadIdx.x == 0) inverse[t] = bad ? __uint_as_float(0x7fc00000) : __uint_as_float((e - 3) << 23);
        if (bad) t = T; // the inverse alone makes it NaN
    }
    // A thread makes the 16 bytes of one lane: two times four inputs, 16 apart.
    const int blocks = gridDim.x / 8, block = blockIdx.x / 8; // of 8 tokens
    for (int p = threadIdx.x; p - (int)threadIdx.x < tiles * 8; p += blockDim.x) {
        int tile = p / 8, i = p / 4 % 2, q = p % 4;
        float4 a = make_float4(0, 0, 0, 0), b = a;
        bool valid = p < tiles * 8;
        if (t < T && valid) {
            a = row.at(tile * 64 + i * 32 + q * 4);
            b = row.at(tile * 64 + i * 32 + q * 4 + 16);
        }
        a.x *= scale, a.y *= scale, a.z *= scale, a.w *= scale;
        b.x *= scale, b.y *= scale, b.z *= scale, b.w *= scale;
        if (bf16) {
            if (!valid) continue;
            uint4 *to = out + ((long long)tile * blocks + block) * 128 + i * 32 + g * 4 + q;
            to[0] = make_uint4(bfloats(a.x, a.y), bfloats(a.z, a.w), bfloats(b.x, b.y), bfloats(b.z, b.w));
            to[64] = make_uint4(bfloats(a.x, a.y), bfloats(a.z, a.w), bfloats(b.x, b.y), bfloats(b.z, b.w));
            continue;
        }
        uint4 v = make_uint4(halves(a.x, a.y), halves(a.z, a.w), halves(b.x, b.y), halves(b.z, b.w));
        if (valid) out[((long long)tile * blocks + block) * 64 + i * 32 + g * 4 + q] = v;
        if (!sums) continue;
        float s0 = sum4(v.x, v.y), s1 = sum4(v.z, v.w);
        for (int d = 1; d < 4; d *= 2) {
            s0 += __shfl_xor_sync(0xffffffff, s0, d);
            s1 += __shfl_xor_sync(0xffffffff, s1, d);
        }
        if (valid && q == 0) {
            float *to = sums + ((long long)tile * blocks + block) * 32 + i * 16 + g;
            to[0] = s0, to[8] = s1;
        }
    }
}
