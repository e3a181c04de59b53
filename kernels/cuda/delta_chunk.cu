// delta_chunk.cu: the gated delta rule (delta.cu) for C = 16 tokens of a run at once, by products on tensor cores.
//   Over a chunk, with d[t,i] the product of the decays of tokens i+1 to t and before[t] that of tokens 0 to t:
//     L[t,i] = beta[t] d[t,i] k[t].k[i], i < t      A[t,i] = d[t,i] q[t].k[i], i <= t      inv = (I + L)^-1
//     E = inv diag(beta) (V - diag(before) K S);  dst = diag(before) Q S + A E;  S = before[15] S + K^T diag(d[15,.]) E
//   delta_mix makes inv and A of every chunk; delta_chunks takes states through them. A run's tokens beyond its whole chunks,
//   and runs of fewer than 16, go token by token as in delta.cu, with the same bits.
//   Why 16: a chunk of C costs 3 K V + 2 C V products a token in delta_chunks (some 9 % less at 16 than at 64), its
//   inverse is one warp's work, and fewer tokens are left over.
//   Cost of a token in a warp's 16 columns on sm_86 (SASS): 9.75 mma, 208 cycles of a GeForce card's tensor core, beside 120 instructions,
//   and some 30 in delta_mix; delta.cu takes 420.
//   K = 128, V % 16 == 0, states on multiples of 16 bytes; otherwise as delta.cu
//
// Precision. Operands are float32 split into two fp16, x 2^s = hi + lo to 22 bits: keys, queries, inv and A (none above 1)
// with s = 8, columns of S and E with an s of their own that puts their largest value at 2^13 to 2^14. A product is hi hi,
// accumulated in float32, and hi lo + lo hi, 2^-11 of it, accumulated in fp16 (no sum reaches 65504), which runs twice as fast
// on GeForce cards. What is dropped is 2^-22 of |x| |y|.
//
// A warp holds 16 columns of S as S^T [16 columns, 128], in the fragments of mma.m16n8k16's C and D: with lane = 4 g + q
//     S[j][0], S[j][1]: column g,     rows 8 j + 2 q, + 1
//     S[j][2], S[j][3]: column g + 8, the same rows
// Two of them side by side are a fragment of A: so S^T K^T, S^T Q^T, E^T inv^T, E^T A^T and E^T K take their left side from
// registers, and their right side is K or Q as it lies in shared memory, or inv and A as delta_mix lays them out:
//     lane's 4 words of hi, all lanes', then of lo: [8 j + g][2 q, + 1] for j = 0, [8 j + g][2 q + 8, + 1] for j = 0, the same for j = 1
//
// No sum may take in a later token, for what is not a number must not spread backwards; but a product of matrices does, times
// 0. So from the first token on whose value in a column is none (2^120 or more counts as none), the column is
// cleared, and is made NaN after the products.
//   reference: kernels/ref GatedDelta | cases: kernels/kerneltest/delta.go | numbers: delta_test.go

#include <cuda_fp16.h>
#include "delta.cuh"

enum {
    C = 16,         // tokens of a chunk
    KD = 128,       // K
    ROW = KD + 8,   // halves of a row of keys in shared memory: 8 rows of 16 bytes fall on different banks
    SQUARE = 24,    // floats of a row of inv and A in shared memory: pairs of 4 rows fall on different banks
    // delta_mix's results for a chunk and a head, in words: inv and A in fragments, then the gates.
    MIX_INV = 0,
    MIX_A = 256,
    MIX_BETA = 512,
    MIX_BEFORE = MIX_BETA + C,
    MIX_AFTER = MIX_BEFORE + C, // d[15,t]
    MIX_WORDS = 576,
    LENGTHS = 2 * C, // for a chunk and a key head: what keys and then queries are multiplied by
};

const float FIXED = 256; // what numbers of at most 1 are multiplied by before they are split

// slotAt returns where delta_mix's results of a chunk begin: the lengths of its key heads, then the heads' words. A chunk
// has the slot of its first token / C: no two share one.
__device__ inline float *slotAt(float *mix, long long slot, int G, int H) { return mix + slot * (G * LENGTHS + H * MIX_WORDS); }

// split makes the fp16 pairs hi and lo of x0 and x1.
__device__ inline void split(float x0, float x1, unsigned &hi, unsigned &lo)
{
    __half2 h = __floats2half2_rn(x0, x1);
    float2 f = __half22float2(h);
    __half2 l = __floats2half2_rn(__fsub_rn(x0, f.x), __fsub_rn(x1, f.y));
    hi = *(unsigned *)&h;
    lo = *(unsigned *)&l;
}

// delta_mix: grid (slots, G), block 256; slots from the token `first` on.
extern "C" __global__ void __launch_bounds__(256) delta_mix(const float *qkv, int qkvStride, const float *a, int aStride, const float *b,
    int bStride, const float *rate, const float *bias, float eps, int G, const int *starts, int runs, int H, float *mix, int first)
{
    __shared__ __align__(16) float key[C][KD + 4], query[C][KD + 4]; // 16 bytes of 8 rows fall on different banks
    __shared__ float kk[C][C], qk[C][C];
    __shared__ __align__(16) float square[8][2][C][SQUARE];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = blockIdx.y;

    // The chunk whose first token is one of this slot's, if any, covers the slot's last token.
    int last = first + blockIdx.x * C + C - 1, lo = 0, hi = runs; // starts[lo] <= last < starts[hi]
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (starts[mid] <= last) lo = mid;
        else hi = mid;
    }
    int from = starts[lo] + (last - starts[lo]) / C * C;
    if (from + C > starts[lo + 1]) return;
    float *out = slotAt(mix, blockIdx.x, G, H);

    for (int r = warp; r < 2 * C; r += 8) { // keys, then queries
        int t = r % C;
        const float *row = qkv + (long long)(from + t) * qkvStride + (r < C ? G + g : g) * KD;
        float x[4], s = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = row[lane + 32 * i];
        s = lengthOf(x, eps, r < C ? 1 : __fdiv_rn(1, __fsqrt_rn(KD)));
#pragma unroll
        for (int i = 0; i < 4; i++) (r < C ? key : query)[t][lane + 32 * i] = __fmul_rn(x[i], s);
        if (lane == 0) out[g * LENGTHS + r] = s;
    }
    __syncthreads();
    {
        int t = threadIdx.x / C, i = threadIdx.x % C;
        float sk = 0, sq = 0;
#pragma unroll 8
        for (int e = 0; e < KD; e += 4) {
            float4 x = *(float4 *)&key[i][e], y = *(float4 *)&key[t][e], z = *(float4 *)&query[t][e];
            sk = x.x * y.x + sk, sk = x.y * y.y + sk, sk = x.z * y.z + sk, sk = x.w * y.w + sk;
            sq = x.x * z.x + sq, sq = x.y * z.y + sq, sq = x.z * z.z + sq, sq = x.w * z.w + sq;
        }
        kk[t][i] = sk, qk[t][i] = sq;
    }
    __syncthreads();

    int each = H / G;
    for (int h = g * each + warp; h < (g + 1) * each; h += 8) {
        float *words = out + G * LENGTHS + (long long)h * MIX_WORDS;
        float(&inv)[C][SQUARE] = square[warp][0], (&A)[C][SQUARE] = square[warp][1];
        // Lane i has column i, twice; and the gates of token i.
        int i = lane % C;
        long long row = from + i;
        float decay = deltaDecay(a[row * aStride + h], rate[h], bias[h]), beta = deltaBeta(b[row * bStride + h]);
        float L[C], d = 0, before = 1, upTo = 0;
#pragma unroll
        for (int t = 0; t < C; t++) {
            float dt = __shfl_sync(~0u, decay, t), bt = __shfl_sync(~0u, beta, t);
            before *= dt;
            upTo = t == i ? before : upTo;
            d = t == i ? 1 : d * dt;
            // Above the diagonal there is nothing, not even what is not a number.
            L[t] = i < t ? bt * (d * kk[t][i]) : 0;
            if (lane < C) A[t][i] = i <= t ? d * qk[t][i] : 0;
        }
        float column[C];
#pragma unroll
        for (int t = 0; t < C; t++) {
            float s = t == i ? 1 : 0;
#pragma unroll
            for (int m = 0; m < t; m++) {
                float l = __shfl_sync(~0u, L[t], m);
                if (m >= i) s -= l * column[m];
            }
            column[t] = i <= t ? s : 0;
            if (lane < C) inv[t][i] = column[t];
        }
        if (lane < C) {
            words[MIX_BETA + i] = beta;
            words[MIX_BEFORE + i] = upTo;
            words[MIX_AFTER + i] = d;
        }
        __syncwarp();
        int gr = lane / 4, q = lane % 4;
#pragma unroll
        for (int w = 0; w < 2; w++) {
            float(&m)[C][SQUARE] = square[warp][w];
            unsigned part[8];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float2 x = *(float2 *)&m[n / 2 * 8 + gr][n % 2 * 8 + 2 * q];
                split(x.x * FIXED, x.y * FIXED, part[n], part[4 + n]);
            }
            uint4 *to = (uint4 *)(words + (w == 0 ? MIX_INV : MIX_A)) + lane;
            to[0] = make_uint4(part[0], part[1], part[2], part[3]);
            to[32] = make_uint4(part[4], part[5], part[6], part[7]);
        }
        __syncwarp(); // before the next head's
    }
}

__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void mma(unsigned (&d)[2], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A Product is one 16x8 tile of x y in two accumulators.
struct Product {
    float hh[4] = {0, 0, 0, 0};
    unsigned hl[2] = {0, 0};

    __device__ void add(const unsigned (&aHi)[4], const unsigned (&aLo)[4], unsigned bHi0, unsigned bHi1, unsigned bLo0, unsigned bLo1)
    {
        mma(hh, aHi, bHi0, bHi1);
        mma(hl, aLo, bHi0, bHi1);
        mma(hl, aHi, bLo0, bLo1);
    }

    __device__ float at(int i) const
    {
        float2 f = __half22float2(*(const __half2 *)&hl[i / 2]);
        return __fadd_rn(hh[i], i % 2 ? f.y : f.x);
    }
};

__device__ inline void loadMatrices(unsigned (&r)[4], const __half *at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(at)));
}

__device__ inline void loadTransposed(unsigned (&r)[4], const __half *at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(at)));
}

// A Scale is a power of two for each of the lane's columns, g and g + 8, that puts the largest of a column at 2^13 to 2^14.
struct Scale {
    float to[2], back[2];

    // max: of the lane's values. fmaxf passes over what is not a number, so other tokens' bits do not depend on it.
    __device__ Scale(float max0, float max1)
    {
        float m[2] = {max0, max1};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            m[i] = fmaxf(m[i], __shfl_xor_sync(~0u, m[i], 1));
            m[i] = fmaxf(m[i], __shfl_xor_sync(~0u, m[i], 2));
            int e = min(267 - (int)(__float_as_uint(m[i]) >> 23), 252); // neither it nor its inverse leaves the normal numbers
            to[i] = __uint_as_float(e << 23);
            back[i] = __fmul_rn(__uint_as_float((254 - e) << 23), 1 / FIXED);
        }
    }
};

// Fragment makes an operand A of two tiles of C and D: 16 rows (columns of S), 16 of what is summed over.
struct Fragment {
    unsigned hi[4], lo[4];

    __device__ Fragment(const float (&x)[4], const float (&y)[4], const Scale &s)
    {
        split(__fmul_rn(x[0], s.to[0]), __fmul_rn(x[1], s.to[0]), hi[0], lo[0]);
        split(__fmul_rn(x[2], s.to[1]), __fmul_rn(x[3], s.to[1]), hi[1], lo[1]);
        split(__fmul_rn(y[0], s.to[0]), __fmul_rn(y[1], s.to[0]), hi[2], lo[2]);
        split(__fmul_rn(y[2], s.to[1]), __fmul_rn(y[3], s.to[1]), hi[3], lo[3]);
    }
};

__device__ inline Scale scaleOf(const float (&x)[2][4])
{
    return Scale(fmaxf(fmaxf(fabsf(x[0][0]), fabsf(x[0][1])), fmaxf(fabsf(x[1][0]), fabsf(x[1][1]))),
        fmaxf(fmaxf(fabsf(x[0][2]), fabsf(x[0][3])), fmaxf(fabsf(x[1][2]), fabsf(x[1][3]))));
}

// Keys and queries of a chunk, split. [t][k]
struct ChunkTile {
    __half key[2][C][ROW], query[2][C][ROW];
};

// Words of inv or A: fragments of B for two tiles of 8 tokens.
struct Right {
    uint4 hi, lo;

    __device__ Right(const float *words)
    {
        const uint4 *at = (const uint4 *)words + threadIdx.x % 32;
        hi = at[0], lo = at[32];
    }
    __device__ void into(Product (&p)[2], const Fragment &x) const
    {
        p[0].add(x.hi, x.lo, hi.x, hi.y, lo.x, lo.y);
        p[1].add(x.hi, x.lo, hi.z, hi.w, lo.z, lo.w);
    }
};

// Gates of the lane's tokens 8 j + 2 q + i of a tile j, in gate[j][i].
__device__ inline void loadGates(float (&gate)[2][2], const float *at)
{
    int q = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float2 x = *(const float2 *)(at + 8 * j + 2 * q);
        gate[j][0] = x.x, gate[j][1] = x.y;
    }
}

// chunkStep takes S through a chunk: v are its values and becomes its outputs, [tile of tokens][as in S].
__device__ inline void chunkStep(float (&S)[16][4], float (&v)[2][4], const ChunkTile &tile, const float *words)
{
    int lane = threadIdx.x % 32;
    float before[2][2];
    loadGates(before, words + MIX_BEFORE);

    float max0 = 0, max1 = 0;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        max0 = fmaxf(max0, fmaxf(fabsf(S[j][0]), fabsf(S[j][1])));
        max1 = fmaxf(max1, fmaxf(fabsf(S[j][2]), fabsf(S[j][3])));
    }
    Scale scale(max0, max1);
    Product known[2], recalled[2]; // S^T K^T, S^T Q^T
    int at = lane % 8 * ROW + lane / 16 * 8 * ROW + lane / 8 % 2 * 8; // the row that the lane names: tokens 0-7 twice, then 8-15
#pragma unroll
    for (int s = 0; s < 8; s++) {
        Fragment x(S[2 * s], S[2 * s + 1], scale);
        unsigned hi[4], lo[4];
        loadMatrices(hi, &tile.key[0][0][16 * s] + at);
        loadMatrices(lo, &tile.key[1][0][16 * s] + at);
        known[0].add(x.hi, x.lo, hi[0], hi[1], lo[0], lo[1]);
        known[1].add(x.hi, x.lo, hi[2], hi[3], lo[2], lo[3]);
        loadMatrices(hi, &tile.query[0][0][16 * s] + at);
        loadMatrices(lo, &tile.query[1][0][16 * s] + at);
        recalled[0].add(x.hi, x.lo, hi[0], hi[1], lo[0], lo[1]);
        recalled[1].add(x.hi, x.lo, hi[2], hi[3], lo[2], lo[3]);
    }

    float e[2][4];
    int bad[2] = {C, C}; // the first token at which a column is no number
    {
        float beta[2][2];
        loadGates(beta, words + MIX_BETA);
        bool any = false;
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float k = __fmul_rn(known[j].at(i), scale.back[i / 2]);
                e[j][i] = __fmul_rn(beta[j][i % 2], __fmaf_rn(-before[j][i % 2], k, v[j][i]));
                any |= !(fabsf(e[j][i]) < 0x1p120f);
            }
        if (__any_sync(~0u, any)) {
#pragma unroll
            for (int j = 1; j >= 0; j--)
#pragma unroll
                for (int i = 3; i >= 0; i--)
                    if (!(fabsf(e[j][i]) < 0x1p120f)) bad[i / 2] = 8 * j + 2 * (lane % 4) + i % 2;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                bad[c] = min(bad[c], __shfl_xor_sync(~0u, bad[c], 1));
                bad[c] = min(bad[c], __shfl_xor_sync(~0u, bad[c], 2));
            }
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (8 * j + 2 * (lane % 4) + i % 2 >= bad[i / 2]) e[j][i] = 0;
        }
    }
    {
        Scale s = scaleOf(e);
        Product p[2];
        Right(words + MIX_INV).into(p, Fragment(e[0], e[1], s));
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) // inv may be none from there on, too
                e[j][i] = 8 * j + 2 * (lane % 4) + i % 2 < bad[i / 2] ? __fmul_rn(p[j].at(i), s.back[i / 2]) : 0;
    }
    {
        Scale s = scaleOf(e);
        Product p[2];
        Right(words + MIX_A).into(p, Fragment(e[0], e[1], s));
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float own = __fmul_rn(p[j].at(i), s.back[i / 2]);
                v[j][i] = __fmaf_rn(before[j][i % 2], __fmul_rn(recalled[j].at(i), scale.back[i / 2]), own);
                if (8 * j + 2 * (lane % 4) + i % 2 >= bad[i / 2]) v[j][i] = __uint_as_float(0x7fffffff);
            }
    }
    float after[2][2], all = words[MIX_BEFORE + C - 1];
    loadGates(after, words + MIX_AFTER);
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) e[j][i] = __fmul_rn(after[j][i % 2], e[j][i]);
    Scale s = scaleOf(e);
    Fragment x(e[0], e[1], s);
    at = lane % 16 * ROW + lane / 16 * 8; // tokens 0-7, 8-15, for 8 values of a key; then for the next 8
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
        unsigned hi[4], lo[4];
        loadTransposed(hi, &tile.key[0][0][8 * j] + at);
        loadTransposed(lo, &tile.key[1][0][8 * j] + at);
        Product p[2];
        p[0].add(x.hi, x.lo, hi[0], hi[1], lo[0], lo[1]);
        p[1].add(x.hi, x.lo, hi[2], hi[3], lo[2], lo[3]);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                S[j + n][i] = __fmaf_rn(all, S[j + n][i], __fmul_rn(p[n].at(i), s.back[i / 2]));
                if (bad[i / 2] < C) S[j + n][i] = __uint_as_float(0x7fffffff);
            }
    }
}

// ChunkAhead fetches what a thread makes of a chunk before it is its turn: one value of all keys and queries, into shared memory
// that is the thread's own, and the values of its columns.
struct ChunkAhead {
    float v[2][4];

    __device__ void fetch(float (&raw)[2 * C][KD], const DeltaInputs &x, long long from, int slab, bool idle)
    {
        int lane = threadIdx.x % 32;
        const float *row = x.qkv + from * x.qkvStride + threadIdx.x;
        unsigned to = (unsigned)__cvta_generic_to_shared(&raw[0][threadIdx.x]);
#pragma unroll
        for (int t = 0; t < C; t++, row += x.qkvStride) {
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + t * KD * 4), "l"(row + x.k) : "memory");
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + (C + t) * KD * 4), "l"(row + x.q) : "memory");
        }
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[j][i] = idle ? 0 : x.qkv[(from + 8 * j + 2 * (lane % 4) + i % 2) * x.qkvStride + x.v + slab + lane / 4 + i / 2 * 8];
    }

    __device__ void put(ChunkTile &tile, const float (&raw)[2 * C][KD], const float *lengths) const
    {
        asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
        for (int n = 0; n < 2 * C; n += 4) {
            float4 l4 = *(const float4 *)(lengths + n);
            float length[4] = {l4.x, l4.y, l4.z, l4.w};
#pragma unroll
            for (int r = n; r < n + 4; r++) {
                float x = __fmul_rn(__fmul_rn(raw[r][threadIdx.x], length[r - n]), FIXED);
                __half h = __float2half_rn(x);
                auto &to = r < C ? tile.key : tile.query;
                to[0][r % C][threadIdx.x] = h;
                to[1][r % C][threadIdx.x] = __float2half_rn(__fsub_rn(x, __half2float(h)));
            }
        }
    }
};

// delta_chunks: grid (ceil(V/64), H, runs), block 128 = 4 warps of 16 columns each. It takes states through what begins at tokens
// first <= t < end: chunks, whose mix is there, and what is left over of runs. Whoever has less memory for the mix
// calls it several times, on multiples of C.
extern "C" __global__ void __launch_bounds__(128, 2) delta_chunks(DELTA_PARAMETERS, float *mix, int first, int end)
{
    enum { WARPS = 4 };
    union Shared {
        struct {
            ChunkTile tile;
            float raw[2 * C][KD];
        } chunk;
        DeltaTile<16> tokens[2];
    };
    __shared__ __align__(16) char memory[sizeof(Shared)];
    Shared &shared = *(Shared *)memory;
    int h = blockIdx.y, g = h / (H / G), run = blockIdx.z, lane = threadIdx.x % 32;
    int slab = (blockIdx.x * WARPS + threadIdx.x / 32) * SLAB;
    if (!chains[run]) return;
    DeltaState state = DELTA_STATE;
    DeltaInputs x = DELTA_INPUTS(h, rate[h], bias[h]);
    bool idle = slab >= V;
    for (const int *next = chains + gridDim.z; run >= 0; run = next[run]) {
        int from = starts[run], to = starts[run + 1];
        int tail = from + (to - from) / C * C; // the first token of no chunk
        // The chunks that begin in the range, [at, stop); and whether the rest does.
        int at = from + (max(first - from, 0) + C - 1) / C * C;
        int stop = min(tail, from + (max(end - from, 0) + C - 1) / C * C);
        bool rest = tail < to && first <= tail && tail < end;
        if (at >= stop && !rest) continue;
        float *left = idle ? nullptr : state.head(*state.entry(out, run, h), h);
        float *had = left;
        if (at == from) had = idle || in[(long long)run * statePages] == 0 ? nullptr : state.head(*state.entry(in, run, h), h);
        if (at < stop) {
            float S[16][4];
#pragma unroll
            for (int j = 0; j < 16; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) S[j][i] = had ? had[(8 * j + 2 * (lane % 4) + i % 2) * V + slab + lane / 4 + i / 2 * 8] : 0;
            ChunkAhead ahead;
            ahead.fetch(shared.chunk.raw, x, at, slab, idle);
            for (; at < stop; at += C) {
                const float *words = slotAt(mix, (at - first) / C, G, H);
                ahead.put(shared.chunk.tile, shared.chunk.raw, words + g * LENGTHS);
                float v[2][4];
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++) v[j][i] = ahead.v[j][i];
                __syncthreads();
                if (at + C < stop) ahead.fetch(shared.chunk.raw, x, at + C, slab, idle);
                if (!idle) {
                    chunkStep(S, v, shared.chunk.tile, words + G * LENGTHS + (long long)h * MIX_WORDS);
#pragma unroll
                    for (int j = 0; j < 2; j++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            x.dst[(long long)(at + 8 * j + 2 * (lane % 4) + i % 2) * x.dstStride + x.y + slab + lane / 4 + i / 2 * 8] = v[j][i];
                }
                __syncthreads(); // the tile is overwritten next
            }
            if (!idle)
#pragma unroll
                for (int j = 0; j < 16; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++) left[(8 * j + 2 * (lane % 4) + i % 2) * V + slab + lane / 4 + i / 2 * 8] = S[j][i];
            had = left;
            __syncwarp(); // other lanes read it
        }
        if (rest) {
            float S[16][4];
            loadState<16, true>(S, had, slab, K, V);
            deltaSteps<16, WARPS>(S, shared.tokens, x, tail, to - tail, slab, K, V);
            if (!idle) storeState<16, true>(S, left, slab, K, V);
            __syncwarp(); // the chain's next run may read it by other lanes
        }
    }
}
