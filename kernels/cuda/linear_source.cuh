// linear_source.cuh: how a row of x becomes what the matrix products read: fp16, or bf16 and its remainder, in the order of linear.cuh, multiplied by
// a power of two of its own that brings its largest magnitude to [8,16).
//   With that no row overflows in fp16, a product of 16 inputs with 8-bit codes stays below 32,768, and what is rounded to
//   fp16's fixed point is 2^-29 of the row's largest. A row below 2^-123 loses bits; it has almost none that matter.
//   A piece are the 8 inputs, two times four 16 apart, that one lane of a warp gets of half a tile.
// It follows linear.cuh and row.cuh.
#pragma once

__device__ __forceinline__ u32 halves(float a, float b)
{
    __half2 h = __floats2half2_rn(a, b);
    return *(u32 *)&h;
}

__device__ __forceinline__ float sum4(u32 a, u32 b)
{
    float2 l = __half22float2(*(__half2 *)&a), h = __half22float2(*(__half2 *)&b);
    return (l.x + l.y) + (h.x + h.y);
}

__device__ __forceinline__ u32 bfloats(float &a, float &b) // and leaves the remainders
{
    __nv_bfloat16 x = __float2bfloat16_rn(a), y = __float2bfloat16_rn(b);
    a -= __bfloat162float(x), b -= __bfloat162float(y);
    return (u32)__bfloat16_as_ushort(x) | (u32)__bfloat16_as_ushort(y) << 16;
}

// magnitude is the largest of four, as bits: a NaN is above infinity, infinity above numbers.
__device__ __forceinline__ u32 magnitude(float4 v)
{
    u32 a = max(__float_as_uint(v.x) & 0x7fffffff, __float_as_uint(v.y) & 0x7fffffff);
    u32 b = max(__float_as_uint(v.z) & 0x7fffffff, __float_as_uint(v.w) & 0x7fffffff);
    return max(a, b);
}

__device__ __forceinline__ void write16(u32 at, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void write4(u32 at, u32 v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }

// blockMax gives every thread the largest m of a block of whole warps.
__device__ __forceinline__ u32 blockMax(u32 m)
{
    __shared__ u32 most[32];
    m = __reduce_max_sync(0xffffffff, m);
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = m;
    __syncthreads();
    m = most[threadIdx.x % (blockDim.x / 32)];
    return __reduce_max_sync(0xffffffff, m);
}

// Power is what a row is multiplied by, and what undoes it: 0 and NaN for a row with a NaN or an infinity, which the inverse alone makes NaN.
struct Power {
    float scale, inverse;
};
__device__ __forceinline__ Power powerOf(u32 largest)
{
    u32 e = max(largest >> 23, 4u); // biased exponent; 2^126 is as far as a row is raised
    if (largest >= 0x7f800000) return {0, __uint_as_float(0x7fc00000)};
    return {__uint_as_float((257 - e) << 23), __uint_as_float((e - 3) << 23)};
}

__device__ __forceinline__ void scale4(float4 &v, float scale) { v.x *= scale, v.y *= scale, v.z *= scale, v.w *= scale; }

// inputOf is the first of the four inputs that piece p begins with; the others follow 16 after it.
__device__ __forceinline__ int inputOf(int p) { return p / 8 * 64 + p / 4 % 2 * 32 + p % 4 * 4; }

// roundPiece rounds a piece that was scaled.
__device__ __forceinline__ uint4 roundPiece(float4 a, float4 b) { return make_uint4(halves(a.x, a.y), halves(a.z, a.w), halves(b.x, b.y), halves(b.z, b.w)); }
__device__ __forceinline__ uint4 bfloatPiece(float4 &a, float4 &b) // and leaves the remainder
{
    return make_uint4(bfloats(a.x, a.y), bfloats(a.z, a.w), bfloats(b.x, b.y), bfloats(b.z, b.w));
}

// sumPiece sums a half's steps over the four lanes that have its pieces, in all of them.
__device__ __forceinline__ float2 sumPiece(uint4 v)
{
    float s0 = sum4(v.x, v.y), s1 = sum4(v.z, v.w);
    for (int d = 1; d < 4; d *= 2) {
        s0 += __shfl_xor_sync(0xffffffff, s0, d);
        s1 += __shfl_xor_sync(0xffffffff, s1, d);
    }
    return {s0, s1};
}

// What x of a product is made from: as it lies, or what an operator would have left there.
enum Made { PLAIN, NORMED, HEADS, GATED };

// Source has rows on 16 bytes, K and n multiples of 4.
struct Source {
    int made;
    const float *x, *gate, *w;
    int xStride, gateStride;
    int K, n; // inputs, and of a head of HEADS
    float eps;
    int f; // of GATED
};

// headsMost is the most heads of HEADS.
constexpr int headsMost = 64;

// Row is row t of a source. Its values are those of rows.cu.
template <int MADE> struct Row {
    const float *x, *gate, *w;
    int K, n, f;
    float scale;         // of NORMED
    const float *scales; // of HEADS, in shared memory

    // Every thread of the block makes it.
    __device__ __forceinline__ Row(const Source &s, int t)
        : x(s.x + (long long)t * s.xStride), gate(s.gate + (long long)t * s.gateStride), w(s.w), K(s.K), n(s.n), f(s.f)
    {
        __shared__ float all[headsMost];
        if (MADE == NORMED) scale = rowScale([&](int k) { return *(const float4 *)(x + k); }, K, s.eps);
        if (MADE == HEADS) {
#pragma unroll 1
            for (int h = threadIdx.x / 32; h * n < K; h += blockDim.x / 32) {
                float v = headScale([&](int k) { return *(const float4 *)(x + h * n + k); }, n, s.eps);
                if (threadIdx.x % 32 == 0) all[h] = v;
            }
            __syncthreads();
            scales = all;
        }
    }

    __device__ __forceinline__ float4 at(int k) const
    {
        if (k >= K) return make_float4(0, 0, 0, 0);
        float4 v = *(const float4 *)(x + k);
        if (MADE == NORMED) v = normed(v, scale, *(const float4 *)(w + k));
        if (MADE == HEADS) {
            int h = k / n;
            v = normed(v, scales[h], *(const float4 *)(w + k - h * n));
        }
        if (MADE == HEADS || MADE == GATED) v = gated(v, *(const float4 *)(gate + k), MADE == HEADS ? SiLU : f);
        return v;
    }
};

// storeRow leaves row t of T in shared memory: pieces [tile][half][T][4] of 16 bytes, with another such tile behind it for bf16; sums
// [tile][step][T] where they are wanted. Returns what undoes its power of two. Values are made for their magnitude first and then to be
// stored; the first pieces of a thread are kept, unless they are gated, which takes registers itself.
template <int MADE> __device__ __forceinline__ float storeRow(const Source &s, int t, int T, int tiles, u32 out, u32 sums, bool bf16)
{
    constexpr int KEPT = MADE == PLAIN ? 2 : MADE == NORMED ? 1 : 0;
    const Row<MADE> row(s, t);
    const int pieces = tiles * 8, rest = threadIdx.x + KEPT * blockDim.x;
    float4 a[KEPT + 1], b[KEPT + 1];
    u32 m = 0;
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        int k = inputOf(threadIdx.x + j * blockDim.x);
        a[j] = row.at(k), b[j] = row.at(k + 16);
        m = max(m, max(magnitude(a[j]), magnitude(b[j])));
    }
#pragma unroll 1
    for (int p = rest; p < pieces; p += blockDim.x) m = max(m, max(magnitude(row.at(inputOf(p))), magnitude(row.at(inputOf(p) + 16))));
    const Power power = powerOf(blockMax(m));
    auto store = [&](int p, float4 a, float4 b) {
        if (power.scale == 0) a = b = make_float4(0, 0, 0, 0);
        scale4(a, power.scale), scale4(b, power.scale);
        u32 at = out + ((p / 4) * T + t) * 64 + p % 4 * 16;
        if (bf16) {
            at += p / 8 * (T * 128);
            if (p < pieces) write16(at, bfloatPiece(a, b)), write16(at + T * 128, bfloatPiece(a, b));
            return;
        }
        uint4 v = roundPiece(a, b);
        if (p < pieces) write16(at, v);
        if (!sums) return;
        float2 f = sumPiece(v);
        if (p < pieces && p % 4 == 0) write4(sums + (p / 2 * T + t) * 4, __float_as_uint(f.x)), write4(sums + ((p / 2 + 1) * T + t) * 4, __float_as_uint(f.y));
    };
#pragma unroll
    for (int j = 0; j < KEPT; j++) store(threadIdx.x + j * blockDim.x, a[j], b[j]);
#pragma unroll 1
    for (int p = rest; p - (int)threadIdx.x < pieces; p += blockDim.x) store(p, row.at(inputOf(p)), row.at(inputOf(p) + 16));
    return power.inverse;
}

// storeRows leaves T rows, and in inverses what undoes their powers of two.
template <int MADE> __device__ __forceinline__ void storeRows(const Source &s, int T, int tiles, u32 out, u32 sums, float *inverses, bool bf16)
{
#pragma unroll 1
    for (int t = 0; t < T; t++) {
        if (t) __syncthreads(); // all have read what the block found of the row before
        float inverse = storeRow<MADE>(s, t, T, tiles, out, sums, bf16);
        if (threadIdx.x == 0) inverses[t] = inverse;
    }
}

__device__ __forceinline__ void storeRows(const Source &s, int T, int tiles, u32 out, u32 sums, float *inverses, bool bf16)
{
    switch (s.made) {
    case PLAIN: return storeRows<PLAIN>(s, T, tiles, out, sums, inverses, bf16);
    case NORMED: return storeRows<NORMED>(s, T, tiles, out, sums, inverses, bf16);
    case HEADS: return storeRows<HEADS>(s, T, tiles, out, sums, inverses, bf16);
    case GATED: return storeRows<GATED>(s, T, tiles, out, sums, inverses, bf16);
    }
}
