// linear_source.cuh: how a row of x becomes what the matrix products read: fp16, or bf16 and its remainder, in the order of linear.cuh, multiplied by
// a power of two of its own that brings its largest magnitude to [8,16).
//   With that no row overflows in fp16, a product of 16 inputs with 8-bit codes stays below 32,768, and what is rounded to
//   fp16's fixed point is 2^-29 of the row's largest. A row below 2^-123 loses bits; it has almost none that matter.
//   A piece of row.cuh are the inputs that one lane of a warp gets of half a tile.
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
__device__ __forceinline__ void write8(u32 at, uint2 v) { asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory"); }

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

// Source has x, gate and w on 16 bytes, K and n multiples of 4.
struct Source {
    int made;
    const float *x, *gate, *w;
    int K, n; // inputs, and of a head of HEADS
    float eps;
    int f; // of GATED
};

// headsMost is the most heads of HEADS.
constexpr int headsMost = 64;

// Row is the row that a source makes. Its values are those of rows.cu.
template <int MADE> struct Row {
    const float *x, *gate, *w;
    int K, n, f;
    float scale;         // of NORMED
    float4 a, b;         // of NORMED: what x has of the thread's first piece
    const float *scales; // of HEADS, in shared memory

    // Every thread of the block makes it.
    __device__ __forceinline__ Row(const Source &s) : x(s.x), gate(s.gate), w(s.w), K(s.K), n(s.n), f(s.f)
    {
        __shared__ float all[headsMost];
        if (MADE == NORMED) {
            a = raw(inputOf(threadIdx.x)), b = raw(inputOf(threadIdx.x) + 16);
            scale = rowScale([&](int p, int i) { return p != threadIdx.x ? raw(inputOf(p) + 16 * i) : i ? b : a; }, K, s.eps);
        }
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

    __device__ __forceinline__ float4 raw(int k) const { return k < K ? *(const float4 *)(x + k) : make_float4(0, 0, 0, 0); }

    // at is what is made of v, which is raw(k).
    __device__ __forceinline__ float4 at(int k, float4 v) const
    {
        if (k >= K) return make_float4(0, 0, 0, 0);
        if (MADE == NORMED) v = normed(v, scale, *(const float4 *)(w + k));
        if (MADE == HEADS) {
            int h = k / n;
            v = normed(v, scales[h], *(const float4 *)(w + k - h * n));
        }
        if (MADE == HEADS || MADE == GATED) v = gated(v, *(const float4 *)(gate + k), MADE == HEADS ? SiLU : f);
        return v;
    }
    __device__ __forceinline__ float4 at(int k) const { return at(k, raw(k)); }
};

// storeRow leaves the row in shared memory: pieces [tile][half][4] of 16 bytes, with another such tile behind it for bf16; sums
// [tile][step] where they are wanted. Returns what undoes its power of two. Values are made for their magnitude first and then to be
// stored; the first pieces of a thread are kept, unless they are gated, which takes registers itself.
template <int MADE> __device__ __forceinline__ float storeRow(const Source &s, int tiles, u32 out, u32 sums, bool bf16)
{
    constexpr int KEPT = MADE == PLAIN ? 2 : MADE == NORMED ? 1 : 0;
    const Row<MADE> row(s);
    const int pieces = tiles * 8, rest = threadIdx.x + KEPT * blockDim.x;
    float4 a[KEPT + 1], b[KEPT + 1];
    u32 m = 0;
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        int k = inputOf(threadIdx.x + j * blockDim.x);
        if (MADE == NORMED) a[j] = row.at(k, row.a), b[j] = row.at(k + 16, row.b);
        else a[j] = row.at(k), b[j] = row.at(k + 16);
        m = max(m, max(magnitude(a[j]), magnitude(b[j])));
    }
#pragma unroll 1
    for (int p = rest; p < pieces; p += blockDim.x) m = max(m, max(magnitude(row.at(inputOf(p))), magnitude(row.at(inputOf(p) + 16))));
    const Power power = powerOf(blockMax(m));
    auto store = [&](int p, float4 a, float4 b) {
        if (power.scale == 0) a = b = make_float4(0, 0, 0, 0);
        scale4(a, power.scale), scale4(b, power.scale);
        u32 at = out + p * 16;
        if (bf16) {
            at += p / 8 * 128;
            if (p < pieces) write16(at, bfloatPiece(a, b)), write16(at + 128, bfloatPiece(a, b));
            return;
        }
        uint4 v = roundPiece(a, b);
        if (p < pieces) write16(at, v);
        if (!sums) return;
        float2 f = sumPiece(v);
        if (p < pieces && p % 4 == 0) write8(sums + p * 2, make_uint2(__float_as_uint(f.x), __float_as_uint(f.y)));
    };
#pragma unroll
    for (int j = 0; j < KEPT; j++) store(threadIdx.x + j * blockDim.x, a[j], b[j]);
#pragma unroll 1
    for (int p = rest; p - (int)threadIdx.x < pieces; p += blockDim.x) store(p, row.at(inputOf(p)), row.at(inputOf(p) + 16));
    return power.inverse;
}

// storeRow leaves what a source makes.
__device__ __forceinline__ float storeRow(const Source &s, int tiles, u32 out, u32 sums, bool bf16)
{
    switch (s.made) {
    case NORMED: return storeRow<NORMED>(s, tiles, out, sums, bf16);
    case HEADS: return storeRow<HEADS>(s, tiles, out, sums, bf16);
    case GATED: return storeRow<GATED>(s, tiles, out, sums, bf16);
    default: return storeRow<PLAIN>(s, tiles, out, sums, bf16);
    }
}
