// attention.cu: causal attention over the paged KV cache, of decode rows and prefill chunks alike.
// Letters: T tokens, S sequences, H query heads, G key heads, per = H/G.
//   q float32 [T, H*kDim] | dst float32 [T, H*vDim] | any strides, 4-byte alignment
//   cache of fp16, bf16, fp8-e4m3 or int8 (cache.cuh) | starts [S+1], contexts [S], tables [S][tableStride]
//   kDim, vDim 1..512, a token's codes of a head a multiple of 4 bytes; window, soft cap; anything else the launcher refuses
//
// A block takes R rows (a query head of a token each), 16 for every W warps: rows of one sequence and key head, counted
// over its tokens and then over the key head's query heads, so that keys and values are read once for all of them. W is 8
// for values of 256, where the tensor cores' time is as long as memory's, else 4. It takes 256 positions of the context (a
// partition) at a time:
//   scores   warp w of W has keys 16w to 16w+15 of each 16W. q is split into two 16-bit floats, high and low, each summed over
//            kDim in ascending order; of fp16 q, scaled by a power of two of the row's own, the low part is summed in fp16.
//   weights  2^(score - largest of the partition), rounded to 16 bits, in shared memory for the W warps; they are summed in
//            16s of keys, and these in ascending order. Values' scales are in the weights, over a power of two of the row's
//            own near the largest of those it sees, which its sums are multiplied by.
//   values   warp w of W has that part of vDim, and sums over keys in ascending order
//   sums     the SPAN partitions of a span are added up in ascending order, and then the spans, by fold()
// A block takes the whole context, spans' sums gathering in dst (prefill), or one unit of it, which is a span or a partition
// (decode). Then it leaves its sums in `partial` and takes a ticket; who takes a tile's last adds up what all left.
// Both do the same operations in the same order, and masked keys weigh an exact 0: so a row has the same bits in either, in
// any tile and beside any rows. Arithmetic that decides bits is written with intrinsics, which are not fused.
//
// Shared memory, rows an odd number of 16 bytes long, so that ldmatrix meets no bank conflict:
//   q high, q low   [R][kPad + 8]     16 bits; kPad: kDim to a multiple of 16, of fp8 and int8 32
//   weights         [R][256 + 8]      16 bits
//   sums            [R][17] float     of each 16 weights
//   largest         [2][W][R] float   of each warp's scores, and of its values' scales
//   up              [R] float         what the row's q was divided by
//   groups          [4][16] Group     of 16 keys each, of partition p at p % 4
//   stages          2 to 4 of: 16W keys of 128 bytes + 16, or values: keysOfValues rows + 16
// fp8 and int8 stay bytes there. ldmatrix moves pairs of bytes: a lane finds four neighbouring values of a key (so q is
// stored in the order that makes them k = 2c, 2c+8, 2c+1, 2c+9), and of values two neighbours for two keys (so tile 2i has
// the even columns of 16 and tile 2i+1 the odd ones).
//
// reference: kernels/ref Attention | cases: kernels/kerneltest/attention.go | numbers: kernels/KERNELS.md
#include "cache.cuh"
#include "attention_mma.cuh"
#include "attention_stages.cuh"

// What a launch is: its tokens are those numbered [from, to) of the sequences with atLeast to atMost tokens.
#define PARAMS \
    float *dst, int dstStride, const float *q, int qStride, float *partial, float2 *partialSums, \
    const int *starts, const int *contexts, int S, const int *tables, int tableStride, CACHE_PARAMS, \
    int per, int from, int to, int atLeast, int atMost, int each, int units, unsigned *tickets, int stageCount, int unit, float scale, float cap, int window

// attend: grid (pieces of work, G), R/16 * W * 32 threads. each: 0, or how many partitions a unit is. units: how many of them
// `partial` has room for: partial float [to-from][H][units][vStride], unit u of a row at u % units, partialSums its m and l.
// tickets are zeros between launches, a word for each row and key head, of which a tile uses its first row's.
// scale is of q.k: with a soft cap to units of the cap, else to logarithms of base two. cap: in these, 0: none.
template <int T, int N, int W> __device__ void attend(PARAMS)
{
    typedef Attention<T, N, W> A;
    extern __shared__ __align__(16) char memory[];
    constexpr int KEYS = A::KEYS, TILES = A::TILES;
    const int R = blockDim.x / (2 * W), lane = threadIdx.x & 31, warp = threadIdx.x >> 5, w = warp % W, tile = warp / W;
    Rows f;
    if (!findRows(f, starts, contexts, S, from, to, atLeast, atMost, per, R, window, each * PARTITION, blockIdx.x)) return;

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
    // The units that the tile sees, and of these this block's.
    int firstUnit = 0, unitCount = 1;
    if (each) {
        firstUnit = part / each;
        unitCount = (end - 1) / each + 1 - firstUnit;
        if (f.unit < firstUnit || f.unit >= firstUnit + unitCount) return;
        part = max(part, f.unit * each);
        end = min(end, (f.unit + 1) * each);
    }
    const bool whole = unitCount == 1; // no other block has part of the context
    const int H = heads * per, vStride = (vDim + 3) & ~3;
    a.kPad = (kDim + A::STEP - 1) / A::STEP * A::STEP;
    a.slabs = (a.kPad + A::SLAB - 1) / A::SLAB;
    a.stageCount = stageCount;
    a.keyBytes = kDim * codeBytes<T>;
    a.valueBytes = vDim * codeBytes<T>;
    const int qRow = (a.kPad + 8) * 2;
    a.shared = (unsigned)__cvta_generic_to_shared(memory);
    a.qHigh = a.shared;
    a.qLow = a.qHigh + R * qRow;
    a.weights = a.qLow + R * qRow;
    a.sums = (float *)(memory + R * (2 * qRow + WEIGHT_ROW));
    a.largest = a.sums + R * 17;
    a.up = a.largest + R * 2 * W;
    a.groups = (Group *)(a.up + R);
    a.stages = a.shared + R * (2 * qRow + WEIGHT_ROW + 4 * (18 + 2 * W)) + 4 * 16 * sizeof(Group);

    if (threadIdx.x < 32 && part + threadIdx.x / 16 < end) a.find(part + threadIdx.x / 16, threadIdx.x % 16);
    __syncthreads();
    Work work;
    work.dst = 0;
    a.begin(work, part);
    int reading = 0; // stage
#pragma unroll 1
    for (int i = 1; i < stageCount; i++) a.next(work, end, unit);

    // q, high and low.
#pragma unroll 1
    for (int i = warp; i < R; i += blockDim.x / 32) {
        if (f.begin + i >= f.count) {
            for (int at = lane * 16; at < 2 * a.kPad; at += 512) {
                *(uint4 *)(memory + i * qRow + at) = make_uint4(0, 0, 0, 0);
                *(uint4 *)(memory + (R + i) * qRow + at) = make_uint4(0, 0, 0, 0);
            }
            if (A::HALF && lane == 0) a.up[i] = 1;
            continue;
        }
        const float *x = q + (long long)tokenOf(i) * qStride + (blockIdx.y * per + (f.begin + i) % per) * kDim;
        float by = 1;
        if (A::HALF) {
            float top = 0;
#pragma unroll 2
            for (int d = lane; d < kDim; d += 32) top = fmaxf(top, fabsf(x[d]));
            for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
            unsigned exponent = min(max(__float_as_uint(top) >> 23, 1u), 253u);
            by = __uint_as_float((254 - exponent) << 23);
            if (lane == 0) a.up[i] = __uint_as_float(exponent << 23);
        }
#pragma unroll 1
        for (int d = lane; d < a.kPad; d += 32) {
            float v = d < kDim ? __fmul_rn(x[d], by) : 0;
            int at = scaled<T> ? (d & ~15) | (d & 12) >> 1 | (d & 2) >> 1 | (d & 1) << 3 : d;
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
    // Positions that all rows of the block see.
    const int allFrom = seesFrom(a.high), allTo = seesTo(0);
    const bool oneToken = allTo == a.high;
    bool gathered = false; // dst has earlier spans' sums, and these their largest and their weights'
    float gatheredM[2], gatheredL[2];
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
        if (stageCount == 2) waitAsync<0>();
        else if (stageCount == 3) waitAsync<1>();
        else waitAsync<2>();
        __syncthreads();
        a.next(work, end, unit);
        unsigned at = a.stages + reading * A::STAGE;
        reading = reading == stageCount - 1 ? 0 : reading + 1;
        return at;
    };

    for (; part < end; part++) {
        const int base = part * PARTITION, tilesFrom = a.keysFrom(part), tilesTo = a.keysTo(part);
        // A partition has two stages at least and three more are on their way: they are of the one after the next at most.
        if (part + 2 < end && threadIdx.x < 16) a.find(part + 2, threadIdx.x);
        float s[TILES][8];
        unsigned valueScale[TILES];
        float m0 = LOWEST, m1 = LOWEST, top0 = 0, top1 = 0;
        float up0 = 1, up1 = 1;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            valueScale[t] = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) s[t][i] = -INFINITY;
        }
#pragma unroll 1
        for (int t = tilesFrom; t < tilesTo; t++) {
            unsigned keyScale = 0, valueScaleT = 0;
            if (scaled<T>) {
                const unsigned *at = (const unsigned *)a.groups[(part & 3) * 16 + t * W + w].scales;
                if (at) {
                    keyScale = at[lane % 8];
                    valueScaleT = at[heads * blockTokens / 2 + lane % 8];
                }
            }
            float high[2][4] = {}, lowF[2][4] = {};
            unsigned lowH[2][2] = {};
            for (int slab = 0; slab < a.slabs; slab++) {
                unsigned stage = wait() + keyAt;
                unsigned q0 = qHigh + slab * A::SLAB * 2, q1 = qLow + slab * A::SLAB * 2;
                int n = min(A::SLAB, a.kPad - slab * A::SLAB) / A::STEP;
#pragma unroll 2
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
                                unsigned even, odd;
                                codesToF16<T>(b[half * 2 + j], even, odd);
                                mmaF16(high[j], qh, even, odd);
                                mmaF16Half(lowH[j], ql, even, odd);
                            }
                        }
                    } else {
                        ldmatrix4(qh, q0 + k * 32);
                        ldmatrix4(ql, q1 + k * 32);
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                            mma16<T>(high[j], qh, b[j * 2], b[j * 2 + 1]);
                            if (T == F16) mmaF16Half(lowH[j], ql, b[j * 2], b[j * 2 + 1]);
                            else mmaBF16(lowF[j], ql, b[j * 2], b[j * 2 + 1]);
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
                    float by = i < 2 ? up0 : up1;
                    if (scaled<T>) by = __fmul_rn(by, i % 2 ? ks.y : ks.x);
                    float score = __fmul_rn(__fadd_rn(high[j][i], lowF[j][i]), __fmul_rn(by, scale));
                    if (cap > 0) score = __fmul_rn(cap, tanhOf(score));
                    x[j * 4 + i] = score;
                }
            }
            const int first = base + t * KEYS;
            if (first >= allFrom && first + KEYS <= allTo) {
                if (scaled<T>) {
                    float2 vs = unpackBF16(valueScaleT); // of two of the 16 keys; four lanes' will meet
                    float top = fmaxf(vs.x, vs.y);
                    top = fmaxf(top, __shfl_xor_sync(~0u, top, 4));
                    top0 = fmaxf(top0, top), top1 = fmaxf(top1, top);
                }
            } else {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float2 vs = make_float2(0, 0);
                    if (scaled<T>) vs = unpackBF16(__shfl_sync(~0u, valueScaleT, lane % 4 + j * 4));
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int pos = first + w * 16 + j * 8 + column + i % 2;
                        bool seen = i < 2 ? pos >= from0 && pos < to0 : pos >= from1 && pos < to1;
                        if (!seen) x[j * 4 + i] = -INFINITY;
                        else if (i < 2) top0 = fmaxf(top0, i % 2 ? vs.y : vs.x);
                        else top1 = fmaxf(top1, i % 2 ? vs.y : vs.x);
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < 2; j++)
                m0 = fmaxf(m0, fmaxf(x[j * 4], x[j * 4 + 1])), m1 = fmaxf(m1, fmaxf(x[j * 4 + 2], x[j * 4 + 3]));
            // Registers have no index.
#pragma unroll
            for (int i = 0; i < TILES; i++)
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
        if (lane % 4 == 0) a.largest[w * R + row0] = m0, a.largest[w * R + row1] = m1;
        if (scaled<T>) {
            top0 = fmaxf(top0, __shfl_xor_sync(~0u, top0, 1));
            top1 = fmaxf(top1, __shfl_xor_sync(~0u, top1, 1));
            top0 = fmaxf(top0, __shfl_xor_sync(~0u, top0, 2));
            top1 = fmaxf(top1, __shfl_xor_sync(~0u, top1, 2));
            if (lane % 4 == 0) a.largest[(W + w) * R + row0] = top0, a.largest[(W + w) * R + row1] = top1;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < W; i++) m0 = fmaxf(m0, a.largest[i * R + row0]), m1 = fmaxf(m1, a.largest[i * R + row1]);
        float down[2] = {1, 1}, back[2] = {1, 1}; // of values' scales, and of sums
        if (scaled<T>) {
#pragma unroll
            for (int i = 0; i < W; i++)
                top0 = fmaxf(top0, a.largest[(W + i) * R + row0]), top1 = fmaxf(top1, a.largest[(W + i) * R + row1]);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                // Weights reach 512, which leaves fp16 the most room for small ones. Codes of fp8 are over 256.
                unsigned exponent = min(max(__float_as_uint(r ? top1 : top0) >> 23, 9u), 253u);
                down[r] = __uint_as_float((254 + 8 - exponent) << 23);
                back[r] = __uint_as_float((T == F8 ? exponent : exponent - 8) << 23);
            }
        }

        // Weights.
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            if (t < tilesFrom || t >= tilesTo) {
                if (lane % 4 == 0) a.sums[row0 * 17 + t * W + w] = a.sums[row1 * 17 + t * W + w] = 0;
                continue;
            }
            const bool all = base + t * KEYS >= allFrom && base + (t + 1) * KEYS <= allTo;
            float p[8];
#pragma unroll
            for (int i = 0; i < 8; i++) p[i] = exp2Of(__fsub_rn(s[t][i], i % 4 < 2 ? m0 : m1));
#pragma unroll
            for (int j = 0; j < 2; j++) {
                unsigned word[2];
                float2 vs = make_float2(1, 1);
                if (scaled<T>) vs = unpackBF16(__shfl_sync(~0u, valueScale[t], lane % 4 + j * 4));
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    float &x = p[j * 4 + r * 2], &y = p[j * 4 + r * 2 + 1];
                    if (scaled<T>) {
                        float scaledX = __fmul_rn(x, __fmul_rn(vs.x, down[r])), scaledY = __fmul_rn(y, __fmul_rn(vs.y, down[r]));
                        if (!all) { // a masked key's scale may be anything
                            if (s[t][j * 4 + r * 2] == -INFINITY) scaledX = 0;
                            if (s[t][j * 4 + r * 2 + 1] == -INFINITY) scaledY = 0;
                        }
                        word[r] = packF16(scaledX, scaledY);
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
            if (lane % 4 == 0) a.sums[row0 * 17 + t * W + w] = l0, a.sums[row1 * 17 + t * W + w] = l1;
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
                    // Where some rows see what others do not, 0 times an infinity would show.
                    int pos = base + t * A::KV + k * 16;
                    if (oneToken || pos >= allFrom && pos + 16 <= allTo) {
#pragma unroll
                        for (int j = 0; j < N; j += 2) {
                            ldmatrix4t(b, at + j * 16);
                            mma16<T>(o[j], p, b[0], b[1]);
                            mma16<T>(o[j + 1], p, b[2], b[3]);
                        }
                        continue;
                    }
                    unsigned bad = 0;
#pragma unroll
                    for (int j = 0; j < N; j += 2) {
                        ldmatrix4t(b, at + j * 16);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            unsigned finite = finiteOnly<T>(b[i]);
                            bad |= finite ^ b[i];
                            b[i] = finite;
                        }
                        mma16<T>(o[j], p, b[0], b[1]);
                        mma16<T>(o[j + 1], p, b[2], b[3]);
                    }
                    if (__any_sync(~0u, bad != 0)) {
                        const char *value = memory + (stage - valueAt - a.shared) + k * 16 * A::VROW + (w * 8 * N + column) * 2;
                        const char *weight = memory + (a.weights - a.shared) + (t * A::KV + k * 16) * 2;
#pragma unroll 1
                        for (int i = 0; i < 16; i++, pos++) {
                            bool seen0 = pos >= from0 && pos < to0, seen1 = pos >= from1 && pos < to1;
                            float p0 = float16<T>(*(const unsigned short *)(weight + row0 * WEIGHT_ROW + i * 2));
                            float p1 = float16<T>(*(const unsigned short *)(weight + row1 * WEIGHT_ROW + i * 2));
#pragma unroll
                            for (int j = 0; j < N * 2; j++) {
                                float v = float16<T>(*(const unsigned short *)(value + i * A::VROW + j / 2 * 16 + j % 2 * 2));
                                if (__fsub_rn(v, v) == 0) continue;
                                if (seen0) o[j / 2][j % 2] = __fmaf_rn(p0, v, o[j / 2][j % 2]);
                                if (seen1) o[j / 2][2 + j % 2] = __fmaf_rn(p1, v, o[j / 2][2 + j % 2]);
                            }
                        }
                    }
                } else {
#pragma unroll
                    for (int j = 0; j < N; j += 4) {
                        if (N == 2) ldmatrix2t(b, at);
                        else ldmatrix4t(b, at + j * 8);
#pragma unroll
                        for (int i = 0; i < (N == 2 ? 1 : 2); i++) {
                            unsigned even[2], odd[2];
                            codesToF16<T>(b[2 * i], even[0], odd[0]);
                            codesToF16<T>(b[2 * i + 1], even[1], odd[1]);
                            mmaF16(o[j + 2 * i], p, even[0], even[1]);
                            mmaF16(o[j + 2 * i + 1], p, odd[0], odd[1]);
                        }
                    }
                }
            }
        }
        float l0 = a.sums[row0 * 17], l1 = a.sums[row1 * 17];
#pragma unroll
        for (int i = 1; i < 16; i++) l0 = __fadd_rn(l0, a.sums[row0 * 17 + i]), l1 = __fadd_rn(l1, a.sums[row1 * 17 + i]);

        if (scaled<T>)
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) o[j][i] = __fmul_rn(o[j][i], back[i / 2]);
        float a0, b0, a1, b1;
        fold(M0, L0, m0, l0, a0, b0);
        fold(M1, L1, m1, l1, a1, b1);
#pragma unroll
        for (int j = 0; j < N; j++) {
            O[j][0] = folded(O[j][0], o[j][0], a0, b0), O[j][1] = folded(O[j][1], o[j][1], a0, b0);
            O[j][2] = folded(O[j][2], o[j][2], a1, b1), O[j][3] = folded(O[j][3], o[j][3], a1, b1);
        }
        if (part % SPAN != SPAN - 1 && part + 1 < end) continue;

        // The end of a span, or of what the block has of one: to dst, where earlier spans are, or to `partial`.
        // A lane has C neighbouring columns of each pair of tiles (of 16-bit values: of each tile).
        constexpr int C = scaled<T> ? 4 : 2;
        const bool last = part + 1 == end, wide = !whole || !((size_t)dst % 16 || dstStride % 4 || vDim % 4);
        const int width = whole ? vDim : vStride;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = r ? row1 : row0;
            if (f.begin + row >= f.count) continue;
            int token = tokenOf(row), h = blockIdx.y * per + (f.begin + row) % per;
            float M = r ? M1 : M0, L = r ? L1 : L0, before = 0, now = 1;
            float *out = dst + (long long)token * dstStride + h * vDim;
            if (!whole) {
                long long at = ((long long)(f.token - from + token - f.first) * H + h) * units + f.unit % units;
                out = partial + at * vStride;
                if (w == 0 && lane % 4 == 0) partialSums[at] = make_float2(M, L);
            } else if (gathered) {
                fold(gatheredM[r], gatheredL[r], M, L, before, now);
                L = gatheredL[r];
            } else
                gatheredM[r] = M, gatheredL[r] = L;
#pragma unroll
            for (int j = 0; j < N; j += C / 2) {
                int c = w * 8 * N + j * 8 + lane % 4 * C;
                if (c >= width) break;
                float v[C];
#pragma unroll
                for (int i = 0; i < C; i++) v[i] = scaled<T> ? O[j + i % 2][r * 2 + i / 2] : O[j][r * 2 + i];
                if (gathered) {
                    float old[C];
                    if (!wide)
#pragma unroll
                        for (int i = 0; i < C; i++) old[i] = out[c + i];
                    else if (C == 4)
                        *(float4 *)old = *(float4 *)(out + c);
                    else
                        *(float2 *)old = *(float2 *)(out + c);
#pragma unroll
                    for (int i = 0; i < C; i++) v[i] = folded(old[i], v[i], before, now);
                }
                if (whole && last)
#pragma unroll
                    for (int i = 0; i < C; i++) v[i] = finished(v[i], L);
                if (!wide)
#pragma unroll
                    for (int i = 0; i < C; i++) out[c + i] = v[i];
                else if (C == 4)
                    *(float4 *)(out + c) = make_float4(v[0], v[1], v[C - 2], v[C - 1]);
                else
                    *(float2 *)(out + c) = make_float2(v[0], v[1]);
            }
        }
        if (!last) {
            gathered = true;
            M0 = M1 = LOWEST, L0 = L1 = 0;
#pragma unroll
            for (int j = 0; j < N; j++) O[j][0] = O[j][1] = O[j][2] = O[j][3] = 0;
        }
    }
    if (whole) return;

    // The last block of the tile to get here has all sums to add up. The ticket goes from 0 to the number of blocks, and so
    // back to 0 for the next launch.
    int *flag = (int *)a.sums;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *ticket = tickets + ((long long)(f.token - from) * per + f.begin) * heads + blockIdx.y;
        __threadfence();
        *flag = atomicInc(ticket, unitCount - 1) == unitCount - 1;
        __threadfence();
    }
    __syncthreads();
    if (!*flag) return;
    const int columns = (vDim + 127) / 128, rows = min(R, f.count - f.begin), lastUnit = firstUnit + unitCount - 1;
#pragma unroll 1
    for (int task = warp; task < rows * columns; task += blockDim.x / 32) {
        int i = task / columns, d = task % columns * 128 + lane * 4, token = tokenOf(i), h = blockIdx.y * per + (f.begin + i) % per;
        long long at = ((long long)(f.token - from + token - f.first) * H + h) * units;
        addUp(dst + (long long)token * dstStride + h * vDim + d, partial + at * vStride + d, partialSums + at, vDim - d, vStride,
            firstUnit, lastUnit, units, SPAN / each);
    }
}

// An entry for each type and width of values, and for how many warps share 16 rows; a block is at most so many threads.
#define ENTRY(name, T, N, W, threads) \
    extern "C" __global__ __launch_bounds__(threads, 1) void name(PARAMS) \
    { \
        attend<T, N, W>(dst, dstStride, q, qStride, partial, partialSums, starts, contexts, S, tables, tableStride, layer, pageBytes, \
            blockBytes, blocksPerPage, blockTokens, heads, kDim, vDim, per, from, to, atLeast, atMost, each, units, tickets, stageCount, \
            unit, scale, cap, window); \
    }
#define WIDTHS(name, T) \
    ENTRY(name##_64, T, 2, 4, 512) \
    ENTRY(name##_128, T, 4, 4, 512) \
    ENTRY(name##_256, T, 4, 8, 512) \
    ENTRY(name##_512, T, 16, 4, 256)
WIDTHS(attention_f16, F16)
WIDTHS(attention_bf16, BF16)
WIDTHS(attention_f8, F8)
WIDTHS(attention_i8, I8)
