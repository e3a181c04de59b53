// attention_stages.cuh: what attention.cu's blocks do around the tensor cores: find their rows and keys, load stages of keys and
// values, decode them, and add up partitions and spans. Letters and layouts are drawn there. It needs cache.cuh and attention_mma.cuh.
#pragma once

enum { PARTITION = 256, SPAN = 2, KEY_ROW = 128 + 16, WEIGHT_ROW = (PARTITION + 8) * 2 };

// Scores are kept finite at least here: what sees nothing has this for its largest.
#define LOWEST -1e38f

// W warps share 16 rows: a stage of keys has 16 for each warp, one of values about as many bytes.
template <int T, int N, int W> constexpr int valueRow = 8 * N * W * codeBytes<T> + 16;
template <int T, int N, int W> constexpr int keysOfValues =
    256 / (N * codeBytes<T>) < 16 ? 16 : 256 / (N * codeBytes<T>) > 16 * W ? 16 * W : 256 / (N * codeBytes<T>);
template <int T, int N, int W> constexpr int stageBytes =
    keysOfValues<T, N, W> * valueRow<T, N, W> > 16 * W * KEY_ROW ? keysOfValues<T, N, W> * valueRow<T, N, W> : 16 * W * KEY_ROW;

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

// Rows says which tokens a block's rows belong to. Tokens are counted through the sequences that a launch takes.
struct Rows {
    int seq;
    int token, count; // number of the sequence's first token, and rows of it and those after it
    int first;        // the same token in q
    int begin;        // the tile's first row, counted from it
    int last;         // a token's position is last + where it is in q
    int unit;         // of the context
};

// findRows finds the item-th piece of work: `rows` rows of the tokens numbered [from, to) of the sequences that have atLeast
// to atMost tokens, and of the context one unit of so many positions, or all when `unit` is 0. false: there are fewer. All
// lanes get the same.
__device__ inline bool findRows(Rows &f, const int *starts, const int *contexts, int S, int from, int to, int atLeast, int atMost,
    int per, int rows, int window, int unit, int item)
{
    int lane = threadIdx.x & 31, before = 0;
    auto scan = [&](int v) {
        for (int d = 1; d < 32; d *= 2) {
            int left = __shfl_up_sync(~0u, v, d);
            if (lane >= d) v += left;
        }
        return v;
    };
    for (int base = 0; base < S; base += 32) {
        int a = 0, b = 0, context = 0;
        if (base + lane < S) a = starts[base + lane], b = starts[base + lane + 1], context = contexts[base + lane];
        int n = b - a >= atLeast && b - a <= atMost ? b - a : 0;
        int sum = before + scan(n), number = sum - n;
        int lo = max(number, from), count = max(min(sum, to) - lo, 0) * per;
        int tiles = (count + rows - 1) / rows, first = a + lo - number, last = context - b, units = 1, begin = 0;
        if (unit) {
            begin = window > 0 ? max(last + first + 1 - window, 0) / unit : 0;
            units = (context + unit - 1) / unit - begin;
        }
        int items = scan(tiles * units);
        unsigned found = __ballot_sync(~0u, items > item);
        if (found) {
            int at = __ffs(found) - 1;
            tiles = __shfl_sync(~0u, tiles, at);
            item -= __shfl_sync(~0u, items, at) - tiles * __shfl_sync(~0u, units, at);
            f.seq = base + at;
            f.token = __shfl_sync(~0u, lo, at);
            f.count = __shfl_sync(~0u, count, at);
            f.first = __shfl_sync(~0u, first, at);
            f.last = __shfl_sync(~0u, last, at);
            f.unit = __shfl_sync(~0u, begin, at) + item / tiles;
            // Later tokens see more: where a block goes over the whole context they come first.
            f.begin = (unit ? item % tiles : tiles - 1 - item) * rows;
            return true;
        }
        item -= __shfl_sync(~0u, items, 31);
        before = __shfl_sync(~0u, sum, 31);
    }
    return false;
}

// fold adds the sums o of some positions, whose largest score is m and whose weights sum to l, to those of positions before
// them: the caller multiplies what it has by a and o by b. What begins with LOWEST and zeros becomes what is added, exactly.
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

// addUp makes a lane's four columns of a row of the sums of its units [first, last], which lie at `partial` and `sums`, unit u's
// at u % units; so many units make a span. The row has `width` columns from the lane's first on.
__device__ __noinline__ void addUp(float *dst, const float *partial, const float2 *sums, int width, int stride, int first, int last, int units, int span)
{
    const int lane = threadIdx.x & 31;
    float M = LOWEST, L = 0, spanM = LOWEST, spanL = 0;
    float O[4] = {}, spanO[4] = {};
#pragma unroll 1
    for (int base = first; base <= last; base += 16) {
        // Other blocks wrote them: not from the multiprocessor's own cache.
        float4 o[16];
#pragma unroll
        for (int i = 0; i < 16; i++)
            o[i] = base + i <= last && width > 0 ? __ldcg((const float4 *)(partial + (long long)((base + i) % units) * stride)) : make_float4(0, 0, 0, 0);
        float2 ml = make_float2(LOWEST, 0);
        if (lane < 16 && base + lane <= last) ml = __ldcg(sums + (base + lane) % units);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (base + i > last) break;
            float a, b;
            fold(spanM, spanL, __shfl_sync(~0u, ml.x, i), __shfl_sync(~0u, ml.y, i), a, b);
            spanO[0] = folded(spanO[0], o[i].x, a, b), spanO[1] = folded(spanO[1], o[i].y, a, b);
            spanO[2] = folded(spanO[2], o[i].z, a, b), spanO[3] = folded(spanO[3], o[i].w, a, b);
            if ((base + i + 1) % span != 0 && base + i < last) continue;
            fold(M, L, spanM, spanL, a, b);
#pragma unroll
            for (int j = 0; j < 4; j++) O[j] = folded(O[j], spanO[j], a, b), spanO[j] = 0;
            spanM = LOWEST, spanL = 0;
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (j < width) dst[j] = finished(O[j], L);
}

// Four codes of a byte to pairs of fp16, exactly: even has bytes 0 and 2, odd 1 and 3. An fp8's bits, moved to where fp16 has
// them, are its value over 256 (codeUnit); an int8 with its sign flipped is the last bits of 1024 + 128 + its value.
template <int T> __device__ void codesToF16(unsigned codes, unsigned &even, unsigned &odd)
{
    if (T == F8) {
        even = codes << 7 & 0x3f803f80;
        odd = codes >> 1 & 0x3f803f80;
        asm("lop3.b32 %0, %0, %1, %2, 0xf8;" : "+r"(even) : "r"(codes << 8), "n"(0x80008000)); // a | b & c
        asm("lop3.b32 %0, %0, %1, %2, 0xf8;" : "+r"(odd) : "r"(codes), "n"(0x80008000));
    } else {
        asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(even) : "r"(codes), "n"(0x00ff00ff), "r"(0x64806480)); // a & b ^ c
        asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(odd) : "r"(codes >> 8), "n"(0x00ff00ff), "r"(0x64806480));
        asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(even) : "r"(0x64806480));
        asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(odd) : "r"(0x64806480));
    }
}

// finiteOnly makes what is not finite in a pair of fp16 or bf16 a zero.
template <int T> __device__ unsigned finiteOnly(unsigned pair)
{
    const unsigned exponent = T == F16 ? 0x7c00 : 0x7f80;
    if ((pair & exponent) == exponent) pair &= 0xffff0000;
    if ((pair >> 16 & exponent) == exponent) pair &= 0xffff;
    return pair;
}
template <int T> __device__ void mma16(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    if (T == F16) mmaF16(c, a, b0, b1);
    else mmaBF16(c, a, b0, b1);
}
template <int T> __device__ float float16(unsigned short v) { return T == F16 ? unpackF16(v).x : bf16ToFloat(v); }

// Group says where 16 keys lie that are neighbours in a block.
struct Group {
    char *keys, *values;
    unsigned short *scales; // of the keys, of fp8 and int8
    long long fill;         // to a multiple of 16 bytes
};

// Work is the next stage to load: slab `slab` of tile `tile` of keys, or from `keyEnd` on of values.
struct Work {
    int part, tile, slab;
    int keyEnd, end; // tiles of this partition
    int dst;         // stage
};

template <int T, int N, int W> struct Attention {
    static constexpr int KEYS = 16 * W, TILES = PARTITION / KEYS;
    static constexpr int KV = keysOfValues<T, N, W>, VROW = valueRow<T, N, W>, STAGE = stageBytes<T, N, W>;
    static constexpr int SLAB = 128 / codeBytes<T>;        // values of a key in a stage
    static constexpr int STEP = scaled<T> ? 32 : 16;       // kPad's unit
    static constexpr bool HALF = T != BF16;                // q is fp16

    // Of the block.
    Cache cache;
    const int *table;
    int head;              // key head
    int low, high;         // positions that some row sees
    int kPad, slabs, stageCount;
    int keyBytes, valueBytes; // of a key's codes
    unsigned shared, qHigh, qLow, weights, stages;
    float *sums, *largest, *up;
    Group *groups;

    // Ranges of tiles of a partition that hold positions seen.
    __device__ unsigned from(int part) const { return max(low - part * PARTITION, 0); }
    __device__ unsigned to(int part) const { return min(high - part * PARTITION, PARTITION); }
    __device__ int keysFrom(int part) const { return from(part) / KEYS; }
    __device__ int keysTo(int part) const { return (to(part) + KEYS - 1) / KEYS; }
    __device__ int valuesFrom(int part) const { return from(part) / KV; }
    __device__ int valuesTo(int part) const { return (to(part) + KV - 1) / KV; }

    // find notes where each 16 keys of a partition lie, those that any row sees.
    __device__ void find(int part, int i) const
    {
        int pos = part * PARTITION + i * 16;
        Group g = {};
        if (pos + 16 > low && pos < high) {
            char *block = cache.block(table[pos / cache.blockTokens]);
            int token = pos % cache.blockTokens;
            g.keys = keys<T>(cache, block, head) + token * cache.kDim * codeBytes<T>;
            g.values = values<T>(cache, block, head) + token * cache.vDim * codeBytes<T>;
            if (scaled<T>) g.scales = keyScales<T>(cache, block, head) + token;
        }
        groups[(part & 3) * 16 + i] = g;
    }

    // load begins to fill the stage that w names. A thread has the same piece of 16 bytes of several keys.
    __device__ void load(const Work &w, int unit) const
    {
        const Group *group = groups + (w.part & 3) * 16;
        const unsigned seen = high - low, begin = w.part * PARTITION - low, dst = stages + w.dst * STAGE;
        if (w.tile < w.keyEnd) {
            unsigned at = threadIdx.x % 8 * 16, row = threadIdx.x / 8;
            int slab = w.slab * 128, have = keyBytes - slab - at;
            if (at + slab >= kPad * codeBytes<T>) return;
            rows<KEYS>(row, blockDim.x / 8, dst + row * KEY_ROW + at, KEY_ROW, &group[w.tile * W].keys, keyBytes, slab + at, have,
                begin + w.tile * KEYS, seen, unit);
        } else {
            constexpr unsigned PIECES = N * W * codeBytes<T> / 2;
            unsigned at = threadIdx.x % PIECES * 16, row = threadIdx.x / PIECES, first = (w.tile - w.keyEnd) * KV;
            rows<KV>(row, blockDim.x / PIECES, dst + row * VROW + at, VROW, &group[first / 16].values, valueBytes, at, valueBytes - at,
                begin + first, seen, unit);
        }
    }

    // rows copies a piece of every step-th of KEYS keys, from `row` on, whose codes of `bytes` each lie in groups of 16; pos is
    // where the first of all is among the positions seen, and what none sees becomes zeros.
    template <int KEYS>
    __device__ void rows(unsigned row, unsigned step, unsigned dst, int dstRow, char *const *group, int bytes, int at, int have,
        unsigned pos, unsigned seen, int unit) const
    {
        static_assert(sizeof(Group) == 32, "group[4 i] is the next group's");
        if (unit == 16) {
            int size = have > 0 ? 16 : 0;
#pragma unroll 4
            for (; row < KEYS; row += step, dst += step * dstRow)
                copyAsync<16>(dst, group[row / 16 * 4] + (row % 16 * bytes + at), pos + row < seen ? size : 0);
        } else
#pragma unroll 1
            for (; row < KEYS; row += step, dst += step * dstRow) {
                const char *src = group[row / 16 * 4] + (row % 16 * bytes + at);
#pragma unroll 1
                for (int i = 0; i < 16; i += 4) copyAsync<4>(dst + i, src + i, pos + row < seen && have > i ? 4 : 0);
            }
    }

    // begin sets w to the first stage of a partition.
    __device__ void begin(Work &w, int part) const
    {
        w.part = part;
        w.tile = keysFrom(part);
        w.slab = 0;
        w.keyEnd = keysTo(part);
        w.end = w.keyEnd + valuesTo(part);
    }

    // next loads the stage that w names, if it is before partition `end`, and moves w on.
    __device__ void next(Work &w, int end, int unit) const
    {
        if (w.part < end) {
            load(w, unit);
            if (w.tile >= w.keyEnd) {
                if (++w.tile == w.end) begin(w, w.part + 1);
            } else if (++w.slab == slabs) {
                w.slab = 0;
                if (++w.tile == w.keyEnd) w.tile += valuesFrom(w.part);
            }
        }
        commitAsync();
        w.dst = w.dst == stageCount - 1 ? 0 : w.dst + 1;
    }
};
