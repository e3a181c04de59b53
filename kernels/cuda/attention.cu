// attention.cu: causal attention over the paged KV cache, of decode rows and prefill chunks alike.
// Letters: T tokens, S sequences, H query heads, G key heads, per = H/G.
//   q float32 [T, H*kDim] | dst float32 [T, H*vDim] | any strides, 4-byte alignment
//   cache of fp16, bf16, fp8-e4m3 or int8 (cache.cuh) | starts [S+1], contexts [S], tables [S][tableStride]
//   kDim, vDim 1..512, a token's codes of a head a multiple of 4 bytes; window, soft cap; anything else the launcher refuses
//
// A block takes R = 16 rows (a query head of a token each) for every 4 warps: rows of one sequence and key head, counted
// over its tokens and then over the key head's query heads, so that keys and values are read once for all of them. It
// takes 256 positions of the context (a partition) at a time:
//   scores   warp w of 4 has keys 16w to 16w+15 of each 64. q is split into two 16-bit floats, high and low, each summed over
//            kDim in ascending order; of fp16 q, scaled by a power of two of the row's own, the low part is summed in fp16.
//   weights  2^(score - largest of the partition), rounded to 16 bits, in shared memory for the 4 warps; they are summed in
//            16s of keys, and these in ascending order
//   values   warp w of 4 has a quarter of vDim, and sums over keys in ascending order
//   merge    partitions are added up in ascending order, by fold()
// A block either takes one partition, whose sums go to `partial` for attention_merge (decode), or all of them (prefill).
// Both do the same operations in the same order, and masked keys weigh an exact 0: so a row has the same bits in either, in
// any tile and beside any rows. Arithmetic that decides bits is written with intrinsics, which are not fused.
//
// Shared memory, rows an odd number of 16 bytes long, so that ldmatrix meets no bank conflict:
//   q high, q low   [R][kPad + 8]     16 bits; kPad: kDim to a multiple of 16, of fp8 and int8 32
//   weights         [R][256 + 8]      16 bits
//   sums            [R][17] float     of each 16 weights
//   largest         [R][4] float      of each warp's scores
//   up              [R] float         what the row's q was divided by
//   groups          [2][16] address   of each 16 keys' block, of this partition and the next
//   stages          3 of: 64 keys of 128 bytes + 16, or values: keysOfValues rows + 16
// fp8 and int8 stay bytes there. ldmatrix moves pairs of bytes: a lane finds four neighbouring values of a key (so q is
// stored in the order that makes them k = 2c, 2c+1, 2c+8, 2c+9), and of values two neighbours for two keys (so tile 2i has
// the even columns of 16 and tile 2i+1 the odd ones).
//
// reference: kernels/ref Attention | cases: kernels/kerneltest/attention.go | numbers: kernels/KERNELS.md
#include "cache.cuh"
#include "attention_mma.cuh"

enum { PARTITION = 256, KEYS = 64, KEY_ROW = 128 + 16, WEIGHT_ROW = (PARTITION + 8) * 2, STAGES = 3 };

// Scores are kept finite at least here: what sees nothing has this for its largest.
#define LOWEST -1e38f

// keysOfValues is how many keys a stage of values holds: about as many bytes as a stage of keys.
template <int T, int N> constexpr int valueRow = 32 * N * codeBytes<T> + 16;
template <int T, int N> constexpr int keysOfValues =
    8192 / (32 * N * codeBytes<T>) < 16 ? 16 : 8192 / (32 * N * codeBytes<T>) > KEYS ? KEYS : 8192 / (32 * N * codeBytes<T>);
template <int T, int N> constexpr int stageBytes =
    keysOfValues<T, N> * valueRow<T, N> > KEYS * KEY_ROW ? keysOfValues<T, N> * valueRow<T, N> : KEYS * KEY_ROW;

__device__ inline float exp2Of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// tanhOf has an absolute error of about 2^-22, which is all that a score needs.
__device__ inline float tanhOf(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fadd_rn(1.f, exp2Of(__fmul_rn(x, 2.885390082f)))));
    return __fmaf_rn(-2.f, y, 1.f);
}

// Rows says which tokens a block's rows belong to.
struct Rows {
    int seq;
    int first;   // token of row 0 of the tile's sequence
    int begin;   // the tile's first row, counted from there
    int count;   // rows of the sequence
    int last;    // position of token `first`, less `first`: a token's position is last + token
};

// findRows finds the tile-th piece of `rows` rows of the tokens [from, to) of those sequences that have atLeast to atMost
// tokens; false: there are fewer. All lanes get the same.
__device__ inline bool findRows(Rows &f, const int *starts, const int *contexts, int S, int from, int to, int atLeast, int atMost,
    int per, int rows, int tile)
{
    int lane = threadIdx.x & 31;
    for (int base = 0; base < S; base += 32) {
        int a = 0, b = 0;
        if (base + lane < S) a = starts[base + lane], b = starts[base + lane + 1];
        int lo = max(a, from), hi = min(b, to), n = b - a;
        int count = n >= atLeast && n <= atMost && hi > lo ? (hi - lo) * per : 0;
        int tiles = (count + rows - 1) / rows, sum = tiles;
        for (int d = 1; d < 32; d *= 2) {
            int left = __shfl_up_sync(~0u, sum, d);
            if (lane >= d) sum += left;
        }
        unsigned found = __ballot_sync(~0u, sum > tile);
        if (found) {
            int at = __ffs(found) - 1;
            f.seq = base + at;
            f.first = __shfl_sync(~0u, lo, at);
            f.count = __shfl_sync(~0u, count, at);
            // Later tokens see more: they come first.
            f.begin = (__shfl_sync(~0u, sum, at) - 1 - tile) * rows;
            f.last = contexts[f.seq] - __shfl_sync(~0u, b, at);
            return true;
        }
        tile -= __shfl_sync(~0u, sum, 31);
    }
    return false;
}

// fold adds a partition's sums o, whose largest score is m and whose weights sum to l, to those of the partitions before it:
// the caller multiplies what it has by a and o by b.
__device__ inline void fold(float &M, float &L, float m, float l, float &a, float &b)
{
    float top = fmaxf(M, m);
    a = exp2Of(__fsub_rn(M, top));
    b = exp2Of(__fsub_rn(m, top));
    M = top;
    L = __fmaf_rn(L, a, __fmul_rn(l, b));
}
__device__ inline float folded(float O, float o, float a, float b) { return __fmaf_rn(O, a, __fmul_rn(o, b)); }

// finished divides by the sum of weights. A zero has no sign that would tell which masked keys were added.
__device__ inline float finished(float O, float L) { return __fadd_rn(__fdiv_rn(O, L), 0.f); }

// Codes to pairs of bf16, exactly: the bytes 0 and 2 of codes. An fp8's bits, moved to where bf16 has them, are its value
// times 2^-120; an int8's low 7 bits are the last of 128 + them, and its sign bit is worth -128.
template <int T> __device__ unsigned codesToBF16(unsigned codes)
{
    unsigned v;
    if (T == F8)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"((codes & 0x00800080) << 8 | (codes & 0x007f007f) << 4), "r"(0x7b807b80), "r"(0x80008000));
    else
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(v) : "r"((codes & 0x007f007f) | 0x43004300), "r"(0x3f803f80), "r"((codes & 0x00800080) | 0xc300c300));
    return v;
}

// Work is where a block is in the context: the next stage to load.
struct Work {
    int part, tile, slab; // tile: of keys, and then of values, from `keys` on
};

template <int T, int N> struct Attention {
    static constexpr int KV = keysOfValues<T, N>, VROW = valueRow<T, N>, STAGE = stageBytes<T, N>;
    static constexpr int SLAB = 128 / codeBytes<T>;        // values of a key in a stage
    static constexpr int STEP = scaled<T> ? 32 : 16;       // kPad's unit
    static constexpr bool HALF = T != BF16;                // q is fp16

    // Of the block.
    Cache cache;
    const int *table;
    int head;              // key head
    int low, high;         // positions that some row sees
    int kPad, slabs;
    unsigned shared, qHigh, qLow, weights, stages;
    float *sums, *largest, *up;
    long long *groups;

    // Ranges of tiles of a partition that hold positions seen.
    __device__ int keysFrom(int part) const { return max(low - part * PARTITION, 0) / KEYS; }
    __device__ int keysTo(int part) const { return (min(high - part * PARTITION, PARTITION) + KEYS - 1) / KEYS; }
    __device__ int valuesFrom(int part) const { return max(low - part * PARTITION, 0) / KV; }
    __device__ int valuesTo(int part) const { return (min(high - part * PARTITION, PARTITION) + KV - 1) / KV; }

    // find notes where each 16 keys of a partition lie, those that any row sees.
    __device__ void find(int part, int i) const
    {
        int pos = part * PARTITION + i * 16;
        long long at = 0;
        if (pos + 16 > low && pos < high) {
            int block = table[pos / cache.blockTokens], token = pos % cache.blockTokens;
            at = (long long)keys<T>(cache, cache.block(block), head) + (long long)token * cache.kDim * codeBytes<T>;
        }
        groups[(part & 1) * 16 + i] = at;
    }

    // From a group's keys to its values and scales. `token` is the group's first within its block.
    __device__ char *valuesOf(long long at, int token) const
    {
        long long block = at - ((long long)head * cache.blockTokens + token) * cache.kDim * codeBytes<T>;
        return (char *)block + ((long long)cache.blockTokens * (cache.heads * cache.kDim + head * cache.vDim) + (long long)token * cache.vDim) * codeBytes<T>;
    }
    __device__ unsigned short *scalesOf(long long at, int token, int of) const
    {
        char *block = (char *)(at - ((long long)head * cache.blockTokens + token) * cache.kDim * codeBytes<T>);
        return keyScales<T>(cache, block, of) + token;
    }

    // rows copies rows of `bytes` bytes, and zeros up to `padded`, in pieces of U bytes; from(i) is row i's source, 0 for
    // a row of zeros.
    template <int U, class From> __device__ void rows(unsigned dst, int n, int stride, int bytes, int padded, From from) const
    {
        int pieces = (padded + U - 1) / U, wide = min(32 - __clz(pieces - 1), 5);
        if (pieces == 1) wide = 0;
        int at = threadIdx.x & ((1 << wide) - 1);
#pragma unroll 1
        for (int row = threadIdx.x >> wide; row < n; row += blockDim.x >> wide) {
            const char *src = from(row);
#pragma unroll 1
            for (int i = at; i < pieces; i += 1 << wide) {
                bool have = src && i * U < bytes;
                copyAsync<U>(dst + row * stride + i * U, have ? src + i * U : (const char *)cache.layer, have ? U : 0);
            }
        }
    }

    // load begins to fill the stage at dst with what w names.
    template <int U> __device__ void loadBy(const Work &w, unsigned dst) const
    {
        int keyTiles = keysTo(w.part), base = w.part * PARTITION;
        const long long *group = groups + (w.part & 1) * 16;
        if (w.tile < keyTiles) {
            int first = w.tile * KEYS, width = min(SLAB, cache.kDim - w.slab * SLAB), padded = min(SLAB, kPad - w.slab * SLAB);
            rows<U>(dst, KEYS, KEY_ROW, width * codeBytes<T>, padded * codeBytes<T>, [&](int i) -> const char * {
                int pos = base + first + i;
                if (pos < low || pos >= high) return nullptr;
                return (const char *)group[(first + i) / 16] + ((long long)(i & 15) * cache.kDim + w.slab * SLAB) * codeBytes<T>;
            });
        } else {
            int first = (w.tile - keyTiles) * KV;
            rows<U>(dst, KV, VROW, cache.vDim * codeBytes<T>, 32 * N * codeBytes<T>, [&](int i) -> const char * {
                int pos = base + first + i;
                if (pos < low || pos >= high) return nullptr;
                int token = (pos & ~15) % cache.blockTokens;
                return valuesOf(group[(first + i) / 16], token) + (i & 15) * cache.vDim * codeBytes<T>;
            });
        }
    }

    // next loads the stage that w names, if it is before partition `end`, and moves w on.
    __device__ void next(Work &w, int end, int &stage, int unit) const
    {
        if (w.part < end) {
            unsigned dst = stages + stage * STAGE;
            if (unit == 16) loadBy<16>(w, dst);
            else loadBy<4>(w, dst);
            int keyTiles = keysTo(w.part);
            if (w.tile < keyTiles) {
                if (++w.slab == slabs) {
                    w.slab = 0;
                    if (++w.tile == keyTiles) w.tile += valuesFrom(w.part);
                }
            } else if (++w.tile == keyTiles + valuesTo(w.part)) {
                w.part++;
                w.tile = keysFrom(w.part);
            }
        }
        commitAsync();
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
};

// What a launch is: the tiles' tokens are [from, to) of the sequences with atLeast to atMost tokens.
#define PARAMS \
    float *dst, int dstStride, const float *q, int qStride, float *partial, float2 *partialSums, \
    const int *starts, const int *contexts, int S, const int *tables, int tableStride, CACHE_PARAMS, \
    int per, int from, int to, int atLeast, int atMost, int parts, int unit, float scale, float cap, int window

// attend: grid (tiles, G, partitions or 1), R/16 * 128 threads. parts: 0, or how many partitions `partial` has room for, a
// power of two: partial float [to-from][H][parts][vDim], partition p of a row at p % parts, partialSums its m and l.
// scale is of q.k: with a soft cap to units of the cap, else to logarithms of base two. cap: in these, 0: none.
template <int T, int N> __device__ void attend(PARAMS)
{
    typedef Attention<T, N> A;
    extern __shared__ __align__(16) char memory[];
    const int R = blockDim.x / 8, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, w = warp & 3, tile = warp >> 2;
    Rows f;
    if (!findRows(f, starts, contexts, S, from, to, atLeast, atMost, per, R, blockIdx.x)) return;

    // Row i of the tile: token, and the positions [sees from, sees to).
    auto tokenOf = [&](int i) { return f.first + (f.begin + i) / per; };
    auto seesTo = [&](int i) { return f.begin + i < f.count ? f.last + tokenOf(i) + 1 : 0; };
    auto seesFrom = [&](int to) { return window > 0 ? max(to - window, 0) : 0; };

    A a;
    a.cache = CACHE;
    a.table = tables + (long long)f.seq * tableStride;
    a.head = blockIdx.y;
    a.low = seesFrom(seesTo(0));
    a.high = seesTo(min(R, f.count - f.begin) - 1);
    int part = a.low / PARTITION, end = (a.high + PARTITION - 1) / PARTITION;
    if (parts) {
        part += blockIdx.z;
        if (part >= end) return;
        end = part + 1;
    }
    a.kPad = (kDim + A::STEP - 1) / A::STEP * A::STEP;
    a.slabs = (a.kPad + A::SLAB - 1) / A::SLAB;
    const int qRow = (a.kPad + 8) * 2;
    a.shared = (unsigned)__cvta_generic_to_shared(memory);
    a.qHigh = a.shared;
    a.qLow = a.qHigh + R * qRow;
    a.weights = a.qLow + R * qRow;
    a.sums = (float *)(memory + R * (2 * qRow + WEIGHT_ROW));
    a.largest = a.sums + R * 17;
    a.up = a.largest + R * 4;
    a.groups = (long long *)(a.up + R);
    a.stages = a.shared + R * (2 * qRow + WEIGHT_ROW + 4 * 22) + 2 * 16 * 8;

    if (threadIdx.x < 16) a.find(part, threadIdx.x);
    __syncthreads();
    Work work = {part, a.keysFrom(part), 0};
    int loading = 0, using_ = 0;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) a.next(work, end, loading, unit);

    // q, high and low.
#pragma unroll 1
    for (int i = warp; i < R; i += blockDim.x / 32) {
        bool have = f.begin + i < f.count;
        const float *x = q + (long long)tokenOf(i) * qStride + (blockIdx.y * per + (f.begin + i) % per) * kDim;
        float by = 1;
        if (A::HALF) {
            float top = 0;
            if (have)
#pragma unroll 1
                for (int d = lane; d < kDim; d += 32) top = fmaxf(top, fabsf(x[d]));
            for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
            unsigned exponent = min(max(__float_as_uint(top) >> 23, 1u), 253u);
            by = __uint_as_float((254 - exponent) << 23);
            if (lane == 0) a.up[i] = __uint_as_float(exponent << 23);
        }
#pragma unroll 1
        for (int d = lane; d < a.kPad; d += 32) {
            float v = have && d < kDim ? __fmul_rn(x[d], by) : 0;
            int at = scaled<T> ? (d & ~15) | (d & 12) >> 1 | (d & 1) | (d & 2) << 2 : d;
            unsigned short high = A::HALF ? floatToHalf(v) : floatToBF16(v), lower;
            float rest;
            if (A::HALF) {
                asm("cvt.f32.f16 %0, %1;" : "=f"(rest) : "h"(high));
                lower = floatToHalf(__fsub_rn(v, rest));
            } else
                lower = floatToBF16(__fsub_rn(v, bf16ToFloat(high)));
            *(unsigned short *)(memory + i * qRow + at * 2) = high;
            *(unsigned short *)(memory + (R + i) * qRow + at * 2) = lower;
        }
    }

    // This lane's two rows of the tile of 16.
    const int row0 = tile * 16 + lane / 4, row1 = row0 + 8, column = lane % 4 * 2;
    const int to0 = seesTo(row0), to1 = seesTo(row1), from0 = seesFrom(to0), from1 = seesFrom(to1);
    float M0 = LOWEST, M1 = LOWEST, L0 = 0, L1 = 0, O[N][4];
#pragma unroll
    for (int j = 0; j < N; j++) O[j][0] = O[j][1] = O[j][2] = O[j][3] = 0;

    const unsigned aRow = tile * 16 + lane % 16, aColumn = lane / 16 * 16;
    const unsigned qHigh = a.qHigh + aRow * qRow + aColumn, qLow = a.qLow + aRow * qRow + aColumn;
    const unsigned weights = a.weights + aRow * WEIGHT_ROW + aColumn;
    // Of 16 keys, ldmatrix takes two matrices of 8 for each 16 bytes of their values: fp16 and bf16 first along those.
    const unsigned keyAt = scaled<T> ? (w * 16 + lane % 16) * KEY_ROW + lane / 16 * 16
                                     : (w * 16 + lane / 16 * 8 + lane % 8) * KEY_ROW + lane / 8 % 2 * 16;
    const unsigned valueAt = (lane % 16) * A::VROW + w * 8 * N * codeBytes<T> + lane / 16 * 16;

    // wait is the barrier at which the next stage in order can be read, and the one before it be filled again.
    auto wait = [&]() {
        waitAsync<STAGES - 2>();
        __syncthreads();
        a.next(work, end, loading, unit);
        unsigned at = a.stages + using_ * A::STAGE;
        using_ = using_ == STAGES - 1 ? 0 : using_ + 1;
        return at;
    };

    for (; part < end; part++) {
        const int base = part * PARTITION, tilesFrom = a.keysFrom(part), tilesTo = a.keysTo(part);
        if (part + 1 < end && threadIdx.x < 16) a.find(part + 1, threadIdx.x);
        float s[4][8];
        unsigned valueScale[4];
        float m0 = LOWEST, m1 = LOWEST;
        float up0 = 1, up1 = 1;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            valueScale[t] = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) s[t][i] = -INFINITY;
        }
#pragma unroll 1
        for (int t = tilesFrom; t < tilesTo; t++) {
            unsigned keyScale = 0, valueScaleT = 0;
            if (scaled<T>) {
                int pos = base + t * KEYS + w * 16;
                long long at = a.groups[(part & 1) * 16 + t * 4 + w];
                if (at) {
                    int token = pos % blockTokens;
                    keyScale = ((const unsigned *)a.scalesOf(at, token, a.head))[lane % 8];
                    valueScaleT = ((const unsigned *)a.scalesOf(at, token, heads + a.head))[lane % 8];
                }
            }
            float high[2][4] = {}, lowF[2][4] = {};
            unsigned lowH[2][2] = {};
            for (int slab = 0; slab < a.slabs; slab++) {
                unsigned stage = wait() + keyAt;
                unsigned q0 = qHigh + slab * A::SLAB * 2, q1 = qLow + slab * A::SLAB * 2;
                int n = min(A::SLAB, a.kPad - slab * A::SLAB) / A::STEP;
#pragma unroll 1
                for (int k = 0; k < n; k++) {
                    unsigned b[4], qh[4], ql[4];
                    ldmatrix4(b, stage + k * 32);
                    if (scaled<T>) {
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            ldmatrix4(qh, q0 + k * 64 + half * 32);
                            ldmatrix4(ql, q1 + k * 64 + half * 32);
#pragma unroll
                            for (int j = 0; j < 2; j++) {
                                unsigned p[2];
                                codesToHalves<T>(b[half * 2 + j], p);
                                mmaF16(high[j], qh, p[0], p[1]);
                                mmaF16Half(lowH[j], ql, p[0], p[1]);
                            }
                        }
                    } else {
                        ldmatrix4(qh, q0 + k * 32);
                        ldmatrix4(ql, q1 + k * 32);
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                            if (T == F16) {
                                mmaF16(high[j], qh, b[j * 2], b[j * 2 + 1]);
                                mmaF16Half(lowH[j], ql, b[j * 2], b[j * 2 + 1]);
                            } else {
                                mmaBF16(high[j], qh, b[j * 2], b[j * 2 + 1]);
                                mmaBF16(lowF[j], ql, b[j * 2], b[j * 2 + 1]);
                            }
                        }
                    }
                }
            }
            // q's scale is there since the barrier of the first stage.
            if (A::HALF) up0 = a.up[row0], up1 = a.up[row1];
            float x[8];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float2 ks = make_float2(1, 1);
                if (scaled<T>) ks = unpackBF16(__shfl_sync(~0u, keyScale, lane % 4 + j * 4));
                if (A::HALF) {
                    float2 top = unpackF16(lowH[j][0]), bottom = unpackF16(lowH[j][1]);
                    lowF[j][0] = top.x, lowF[j][1] = top.y, lowF[j][2] = bottom.x, lowF[j][3] = bottom.y;
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int pos = base + t * KEYS + w * 16 + j * 8 + column + i % 2;
                    float by = i < 2 ? up0 : up1;
                    if (scaled<T>) by = __fmul_rn(by, i % 2 ? ks.y : ks.x);
                    float score = __fmul_rn(__fadd_rn(high[j][i], lowF[j][i]), __fmul_rn(by, scale));
                    if (cap > 0) score = __fmul_rn(cap, tanhOf(score));
                    bool seen = i < 2 ? pos >= from0 && pos < to0 : pos >= from1 && pos < to1;
                    x[j * 4 + i] = score = seen ? score : -INFINITY;
                    if (i < 2) m0 = fmaxf(m0, score);
                    else m1 = fmaxf(m1, score);
                }
            }
            // Registers have no index.
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (i == t) {
                    valueScale[i] = valueScaleT;
#pragma unroll
                    for (int j = 0; j < 8; j++) s[i][j] = x[j];
                }
        }
        m0 = fmaxf(m0, __shfl_xor_sync(~0u, m0, 1));
        m1 = fmaxf(m1, __shfl_xor_sync(~0u, m1, 1));
        m0 = fmaxf(m0, __shfl_xor_sync(~0u, m0, 2));
        m1 = fmaxf(m1, __shfl_xor_sync(~0u, m1, 2));
        if (lane % 4 == 0) a.largest[row0 * 4 + w] = m0, a.largest[row1 * 4 + w] = m1;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) m0 = fmaxf(m0, a.largest[row0 * 4 + i]), m1 = fmaxf(m1, a.largest[row1 * 4 + i]);

        // Weights.
#pragma unroll
        for (int t = 0; t < 4; t++) {
            if (t < tilesFrom || t >= tilesTo) {
                if (lane % 4 == 0) a.sums[row0 * 17 + t * 4 + w] = a.sums[row1 * 17 + t * 4 + w] = 0;
                continue;
            }
            float p[8];
#pragma unroll
            for (int i = 0; i < 8; i++) p[i] = exp2Of(__fsub_rn(s[t][i], i % 4 < 2 ? m0 : m1));
#pragma unroll
            for (int j = 0; j < 2; j++) {
                unsigned word[2];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float &x = p[j * 4 + r * 2], &y = p[j * 4 + r * 2 + 1];
                    if (scaled<T>) {
                        // A masked key's scale may be anything.
                        float2 vs = unpackBF16(__shfl_sync(~0u, valueScale[t], lane % 4 + j * 4));
                        word[r] = packBF16(s[t][j * 4 + r * 2] == -INFINITY ? 0 : __fmul_rn(x, vs.x),
                            s[t][j * 4 + r * 2 + 1] == -INFINITY ? 0 : __fmul_rn(y, vs.y));
                    } else {
                        word[r] = T == F16 ? packF16(x, y) : packBF16(x, y);
                        float2 rounded = T == F16 ? unpackF16(word[r]) : unpackBF16(word[r]);
                        x = rounded.x, y = rounded.y;
                    }
                }
                unsigned at = a.weights - a.shared + (t * KEYS + w * 16 + j * 8 + column) * 2;
                *(unsigned *)(memory + at + row0 * WEIGHT_ROW) = word[0];
                *(unsigned *)(memory + at + row1 * WEIGHT_ROW) = word[1];
            }
            float l0 = __fadd_rn(__fadd_rn(p[0], p[1]), __fadd_rn(p[4], p[5]));
            float l1 = __fadd_rn(__fadd_rn(p[2], p[3]), __fadd_rn(p[6], p[7]));
            l0 = __fadd_rn(l0, __shfl_xor_sync(~0u, l0, 1));
            l1 = __fadd_rn(l1, __shfl_xor_sync(~0u, l1, 1));
            l0 = __fadd_rn(l0, __shfl_xor_sync(~0u, l0, 2));
            l1 = __fadd_rn(l1, __shfl_xor_sync(~0u, l1, 2));
            if (lane % 4 == 0) a.sums[row0 * 17 + t * 4 + w] = l0, a.sums[row1 * 17 + t * 4 + w] = l1;
        }

        // Values. The barrier of the first stage is the one after the weights.
        float o[N][4] = {};
#pragma unroll 1
        for (int t = a.valuesFrom(part); t < a.valuesTo(part); t++) {
            unsigned stage = wait() + valueAt;
#pragma unroll 1
            for (int k = 0; k < A::KV / 16; k++) {
                unsigned p[4], b[4];
                ldmatrix4(p, weights + (t * A::KV + k * 16) * 2);
                unsigned at = stage + k * 16 * A::VROW;
                if (!scaled<T>) {
#pragma unroll
                    for (int j = 0; j < N; j += 2) {
                        ldmatrix4t(b, at + j * 16);
                        if (T == F16) {
                            mmaF16(o[j], p, b[0], b[1]);
                            mmaF16(o[j + 1], p, b[2], b[3]);
                        } else {
                            mmaBF16(o[j], p, b[0], b[1]);
                            mmaBF16(o[j + 1], p, b[2], b[3]);
                        }
                    }
                } else {
#pragma unroll
                    for (int j = 0; j < N; j += 4) {
                        if (N == 2) ldmatrix2t(b, at);
                        else ldmatrix4t(b, at + j * 8);
#pragma unroll
                        for (int i = 0; i < (N == 2 ? 1 : 2); i++) {
                            mmaBF16(o[j + 2 * i], p, codesToBF16<T>(b[2 * i]), codesToBF16<T>(b[2 * i + 1]));
                            mmaBF16(o[j + 2 * i + 1], p, codesToBF16<T>(b[2 * i] >> 8), codesToBF16<T>(b[2 * i + 1] >> 8));
                        }
                    }
                }
            }
        }
        float l0 = a.sums[row0 * 17], l1 = a.sums[row1 * 17];
#pragma unroll
        for (int i = 1; i < 16; i++) l0 = __fadd_rn(l0, a.sums[row0 * 17 + i]), l1 = __fadd_rn(l1, a.sums[row1 * 17 + i]);

        if (parts) {
            M0 = m0, M1 = m1, L0 = l0, L1 = l1;
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) O[j][i] = o[j][i];
        } else {
            float a0, b0, a1, b1;
            fold(M0, L0, m0, l0, a0, b0);
            fold(M1, L1, m1, l1, a1, b1);
#pragma unroll
            for (int j = 0; j < N; j++) {
                O[j][0] = folded(O[j][0], o[j][0], a0, b0), O[j][1] = folded(O[j][1], o[j][1], a0, b0);
                O[j][2] = folded(O[j][2], o[j][2], a1, b1), O[j][3] = folded(O[j][3], o[j][3], a1, b1);
            }
        }
    }

    // Column i % 2 of this lane, of tile j of the warp's N.
    auto columnOf = [&](int j, int i) {
        return w * 8 * N + (scaled<T> ? j / 2 * 16 + (column + i % 2) * 2 + j % 2 : j * 8 + column + i % 2);
    };
    const int H = heads * per;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = r ? row1 : row0;
        if (f.begin + row >= f.count) continue;
        int token = tokenOf(row), h = blockIdx.y * per + (f.begin + row) % per;
        float L = r ? L1 : L0;
        float *out = dst + (long long)token * dstStride + h * vDim;
        if (parts) {
            long long at = ((long long)(token - from) * H + h) * parts + (end - 1) % parts;
            out = partial + at * vDim;
            if (w == 0 && lane % 4 == 0) partialSums[at] = make_float2(r ? M1 : M0, L);
        }
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int c = columnOf(j, i);
                if (c < vDim) out[c] = parts ? O[j][r * 2 + i] : finished(O[j][r * 2 + i], L);
            }
    }
}

// An entry for each type and width of values; of each width, a block is at most so many threads.
#define ENTRY(name, T, N, threads) \
    extern "C" __global__ __launch_bounds__(threads, 1) void name(PARAMS) \
    { \
        attend<T, N>(dst, dstStride, q, qStride, partial, partialSums, starts, contexts, S, tables, tableStride, layer, pageBytes, \
            blockBytes, blocksPerPage, blockTokens, heads, kDim, vDim, per, from, to, atLeast, atMost, parts, unit, scale, cap, window); \
    }
#define WIDTHS(name, T) \
    ENTRY(name##_64, T, 2, 512) \
    ENTRY(name##_128, T, 4, 512) \
    ENTRY(name##_256, T, 8, 256) \
    ENTRY(name##_512, T, 16, 256)
WIDTHS(attention_f16, F16)
WIDTHS(attention_bf16, BF16)
WIDTHS(attention_f8, F8)
WIDTHS(attention_i8, I8)

// attention_merge: dst of the tokens whose partitions are in `partial`. Grid (to - from, H, ceil(vDim/64)), 64 threads.
extern "C" __global__ __launch_bounds__(64) void attention_merge(float *dst, int dstStride, const float *partial, const float2 *partialSums,
    const int *starts, const int *contexts, int S, int from, int to, int atLeast, int atMost, int parts, int window, int vDim)
{
    const int token = from + blockIdx.x, H = gridDim.y, h = blockIdx.y, d = blockIdx.z * 64 + threadIdx.x;
    Rows f;
    if (!findRows(f, starts, contexts, S, token, token + 1, atLeast, atMost, 1, 1, 0) || d >= vDim) return;
    const int last = f.last + f.first;
    const int first = (window > 0 ? max(last + 1 - window, 0) : 0) / PARTITION, end = last / PARTITION + 1;
    const long long at = ((long long)blockIdx.x * H + h) * parts;
    float M = LOWEST, L = 0, O = 0;
#pragma unroll 4
    for (int p = first; p < end; p++) {
        long long i = at + p % parts;
        float2 ml = partialSums[i];
        float a, b;
        fold(M, L, ml.x, ml.y, a, b);
        O = folded(O, partial[i * vDim + d], a, b);
    }
    dst[(long long)token * dstStride + h * vDim + d] = finished(O, L);
}
