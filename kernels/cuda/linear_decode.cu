// linear_decode.cu: y[T,N] = x[T,K] w^T (+ bias) for T of 1 to 16 (decode), and what becomes of it (`mode`); larger T: linear_prefill.cu.
//   STORE  dst[T,N] = y
//   ADD    dst[T,N] += y
//   GATE   dst[T,N/2] = f(y[:, :N/2]) * y[:, N/2:], N a multiple of 32: as gate_mul of rows.cu makes it of a stored y. A block has as many strips of
//          the one half as of the other, output by output
//   CONV   of the outputs below C, out = the convolution of conv.cu over y, each token being a run of its own; the rest is stored in dst. Those below C are not
//   x, weights and scales as linear.cuh draws them; dst float32, 4-byte aligned
//   block = strips*parts warps, at most 16: warp (part, strip) multiplies one part of K for one strip; grid (N/16/strips). Each stage
//   brings every warp its next tile and every part its tile of x, which its strips share; `stages` of them are on their way.
//   In front of these blocks may be those of another part of the same weight, of 16 bits (`Few`): for its few outputs a launch of their own would
//   take longer than their bytes. A block takes a strip of it, a warp for each part; warps read weights as they lie, into registers.
//   Parts are summed through shared memory in ascending order, the same order as in linear_prefill.
//   the _row ones take one token's x as a float32 row, or what it is made from (linear_source.cuh): while its first stages of weights are on
//   their way, a block leaves the row in shared memory as linear_prepare would, [tile][half][4 lanes] of 16 bytes
//   needs shared memory for `stages` stages and this row, and in the end for the sums of the parts: the launcher sees to both
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go, sequences.go | numbers: kernels/KERNELS.md
#include "linear.cuh"
#include "row.cuh"
#include "linear_source.cuh"
#include "linear_end.cuh"

extern __shared__ uint4 room[];

template <bool V> struct Constant {
    static constexpr bool value = V;
};

// waitForLong is waitFor of 5 to 7 stages.
__device__ __forceinline__ void waitForLong(int stages)
{
    if (stages == 7) asm volatile("cp.async.wait_group 5;" ::: "memory");
    else if (stages == 6) asm volatile("cp.async.wait_group 4;" ::: "memory");
    else asm volatile("cp.async.wait_group 3;" ::: "memory");
}

// Few is a part of fp16 or bf16 weights that follows the launch's own.
struct Few {
    int kind, blocks;
    const char *codes, *x;
    const float *bias, *inverse;
    int N, tiles, parts;
};

// decodeFew leaves the sums of a strip in acc. ROW: T is 1 and x is the row in shared memory.
template <int KIND, int NT, bool ROW>
__device__ __forceinline__ void decodeFew(float acc[NT][4], const Few &f, u32 row)
{
    const int part = threadIdx.x / 32, lane = threadIdx.x % 32, strip = blockIdx.x;
    const int from = part * f.tiles / f.parts, count = part < f.parts ? (part + 1) * f.tiles / f.parts - from : 0;
    const char *w = f.codes + ((long long)strip * f.tiles + from) * tileBytes(KIND) + lane * 16;
    const char *x = f.x + (long long)from * (NT * xBytes(KIND)) + lane * 16;
    constexpr u32 tileRow = xBytes(KIND) / 8;
    row += from * tileRow + lane * 16;
#pragma unroll 1
    for (int i = 0; i < count; i++, w += tileBytes(KIND), x += NT * xBytes(KIND), row += tileRow) {
#pragma unroll(NT == 1 && !ROW ? 2 : 1)
        for (int h = 0; h < 2; h++) {
            const uint4 lower = __ldg((const uint4 *)(w + h * 1024)), upper = __ldg((const uint4 *)(w + h * 1024 + 512));
            const Half<KIND> half = {lower.x, lower.y, lower.z, lower.w, upper.x, upper.y, upper.z, upper.w};
            u32 a[2][4];
            weights<KIND>(a[0], half, 0), weights<KIND>(a[1], half, 1);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const char *at = x + n * xBytes(KIND) + h * 512;
                uint4 b, r = {};
                if (ROW) {
                    b = read16If(row + h * 64, lane < 4);
                    if (KIND == WBF16) r = read16If(row + (h + 2) * 64, lane < 4);
                } else {
                    b = *(const uint4 *)at;
                    if (KIND == WBF16) r = *(const uint4 *)(at + 1024);
                }
                steps<KIND, false>(acc[n], a[0], a[1], b, r, Scale{}, Scale{});
            }
        }
    }
    if (ROW) __syncthreads(); // sums come where the row was
}

// decode leaves the block's sums in acc, of few's where its number is negative. ROW: T is 1, x comes from source instead of x and sums, and undo gets what undoes its
// power of two.
template <int KIND, int NT, bool HALF, bool ROW>
__device__ __forceinline__ void decode(float acc[NT][4], const End &end, int block, const char *codes, const char *scales, const char *x,
    const float *sums, const Source &source, float *undo, int N, int tiles, int parts, int stages, const Scheme &m, const Few &few)
{
    const bool isFew = (KIND == W4 || KIND == W8) && block < 0;
    const int warps = blockDim.x / 32, strips = warps / parts;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int part = warp / strips, strip = end.strip(block, warp % strips, strips, N);
    const bool offsets = m.form & (ZEROS | MINS), mine = strip >= 0;

    // A stage: [warp][tile, slots], then [part][x of NT*8 tokens], then [part][sums]; with ROW the last two lie behind all stages, whole.
    const int warpBytes = tileBytes(KIND) + m.slots * 16 * m.record;
    const int xAt = warps * warpBytes, sumsAt = xAt + parts * NT * xBytes(KIND);
    const u32 stageBytes = kept(ROW ? xAt : sumsAt + (offsets ? parts * NT * 128 : 0));
    const u32 base = sharedAddress(room), limit = kept(base + stages * stageBytes);

    // What this thread copies of each tile: its strip's codes, a piece of its scales, and of x and the sums what falls to it.
    const int from = part * tiles / parts, count = kept((part + 1) * tiles / parts - from), most = (tiles + parts - 1) / parts;
    const char *myCodes = codes + ((long long)strip * tiles + from) * tileBytes(KIND) + lane * 16;
    const bool copiesScales = lane < m.slots * m.record;
    const int slot = copiesScales ? lane / m.record : 0, rest = copiesScales ? lane % m.record * 16 : 0;
    const char *myScales = kept(scales + (long long)strip * m.groups * 16 * m.record + rest);
    u32 twice = kept(2 * (from * m.slots + slot) + 1); // of the slot that it copies, and one
    const int member = (warp % strips * 32 + lane) * 16, members = strips * 512; // bytes that the part's threads copy at once
    const char *myX = x + (long long)from * (NT * xBytes(KIND)) + member;

    // Where all this goes, from the start of a stage.
    const u32 toCodes = kept(warp * warpBytes + lane * 16), toX = kept(xAt + part * NT * xBytes(KIND) + member);
    constexpr u32 tileRow = xBytes(KIND) / 8; // of ROW
    const u32 rowSums = limit + tiles * tileRow;
    // What to do, as bits, so that it takes one register.
    const u32 todo = kept((mine ? 1 : 0) | (copiesScales && mine ? 2 : 0) | (member < NT * xBytes(KIND) ? 4 : 0) |
        (members < NT * xBytes(KIND) ? 8 : 0) | (offsets ? 16 : 0) | (lane < 4 ? 32 : 0));

    u32 to = base;
    auto load = [&](int i) {
        if (i < count) {
            if (todo & 1) {
#pragma unroll
                for (int p = 0; p < tileBytes(KIND); p += 512) copy16(to + toCodes + p, myCodes + p);
            }
            if (todo & 2) copy16(to + toCodes + tileBytes(KIND), myScales + (unsigned long long)__umulhi(twice, m.magic) * (16 * m.record));
            if (!ROW && todo & 4) copy16(to + toX, myX);
            if (!ROW && todo & 8)
                for (int p = members; p + member < NT * xBytes(KIND); p += members) copy16(to + toX + p, myX + p);
            if (!ROW && todo & 16)
                for (int p = member; p < NT * 128; p += members)
                    copy16(to + sumsAt + part * NT * 128 + p, (const char *)sums + (long long)(from + i) * (NT * 128) + p);
            myCodes += tileBytes(KIND), myX += NT * xBytes(KIND), twice += 2 * m.slots;
        }
        commit();
        to += stageBytes;
        if (to == limit) to = base;
    };

    if (!isFew)
        for (int i = 0; i < stages - 1; i++) load(i);
    if (ROW) {
        float inverse = storeRow(source, isFew ? few.tiles : tiles, isFew ? base : limit, offsets && !isFew ? rowSums : 0,
            isFew ? few.kind == WBF16 : KIND == WBF16);
        if (threadIdx.x == 0) *undo = inverse;
    }
    if (isFew) {
        if (ROW) __syncthreads();
        if (few.kind == WF16) decodeFew<WF16, NT, ROW>(acc, few, base);
        else decodeFew<WBF16, NT, ROW>(acc, few, base);
        return;
    }

    // Where a tile is read, from the start of a stage.
    const u32 ofCodes = kept(warp * warpBytes + lane * (KIND == W4 ? 8 : 16)), ofScales = kept(warp * warpBytes + tileBytes(KIND) + g * m.record);
    const u32 ofX = kept(xAt + part * NT * xBytes(KIND) + lane * 16), ofSums = sumsAt + part * NT * 128 + q * 8;
    // A tile's products. ONE: it has one scale an output, of 16 bits.
    auto multiply = [&](u32 at, u32 xs, auto ONE) {
        const u32 w = at + ofCodes, slots = at + ofScales;
        constexpr int UNROLL = ONE.value && NT == 1 ? 2 : 1; // both halves at once would not fit the registers
        Scale c;
        if (ONE.value) c.lower = narrow(read2(slots), m.form), c.upper = narrow(read2(slots + 16), m.form);
#pragma unroll UNROLL
        for (int h = 0; h < 2; h++) {
            Half<KIND> half = halfAt<KIND>(w, h);
            uint4 b[NT], r[NT];
#pragma unroll
            for (int n = 0; n < NT; n++) {
                if (ROW) {
                    b[n] = read16If(xs + h * 64, todo & 32);
                    if (KIND == WBF16) r[n] = read16If(xs + (h + 2) * 64, todo & 32);
                    continue;
                }
                b[n] = read16(xs + n * xBytes(KIND) + h * 512);
                if (KIND == WBF16) r[n] = read16(xs + n * xBytes(KIND) + 1024 + h * 512);
            }
            u32 a[2][4];
            Scale first, second;
            weights<KIND>(a[0], half, 0), weights<KIND>(a[1], half, 1);
            if ((KIND == W4 || KIND == W8) && !ONE.value) scaleOf(c, slots, h, 0, m);
            first = c;
            if ((KIND == W4 || KIND == W8) && !ONE.value && !HALF) scaleOf(c, slots, h, 1, m);
            second = c;
#pragma unroll
            for (int n = 0; n < NT; n++) steps<KIND, HALF>(acc[n], a[0], a[1], b[n], r[n], first, second);
        }
    };

    u32 at = base, myRow = kept(limit + from * tileRow + lane * 16);
    const bool one = (KIND == W4 || KIND == W8) && m.slots == 1 && m.record == 2;
    for (int i = 0; i < most; i++) {
        if (ROW && stages > 4) waitForLong(stages);
        else waitFor(stages);
        __syncthreads(); // the stage is there for all, and the one that load overwrites has been read by all
        load(i + stages - 1);
        if (i < count && mine) {
            if (one) {
                multiply(at, ROW ? myRow : at + ofX, Constant<true>());
            } else {
                multiply(at, ROW ? myRow : at + ofX, Constant<false>());
                if ((KIND == W4 || KIND == W8) && offsets)
#pragma unroll 1
                    for (int j = 0; j < 4; j++) {
                        Scale o = offsetOf<KIND>(at + ofScales, j, m);
#pragma unroll
                        for (int n = 0; n < NT; n++) {
                            if (ROW) offsetStep(acc[n], o, q == 0 ? __uint_as_float(read4(rowSums + ((from + i) * 4 + j) * 4)) : 0, 0);
                            else offsetStep(acc[n], o, at + ofSums + n * 128 + j * 32);
                        }
                    }
            }
        }
        at += stageBytes;
        if (at == limit) at = base;
        myRow += tileRow;
    }

    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
}

// sumParts finishes a block of `strips`: the parts' sums go through shared memory.
template <int NT>
__device__ __forceinline__ void sumParts(const float acc[NT][4], const End &end, int block, int strips, int parts, const float *bias, const float *inverse,
    int T, int N)
{
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    // [part][token][output]; four more a row, so that a warp's tokens fall into banks of their own.
    const int outputs = strips * 16, row = outputs + 4;
    float *all = (float *)room;
    if (warp < strips * parts)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) all[(warp / strips * NT * 8 + n * 8 + 2 * q + i % 2) * row + warp % strips * 16 + g + i / 2 * 8] = acc[n][i];
    __syncthreads();
    auto sum = [&](int t, int o) {
        float v = all[t * row + o];
        for (int p = 1; p < parts; p++) v = __fadd_rn(v, all[(p * NT * 8 + t) * row + o]);
        return v;
    };
    end.finish(sum, block, NT * 8, strips, bias, inverse, T, N);
}

template <int KIND, int NT, bool HALF, bool ROW>
__device__ __forceinline__ void kernel(End end, const char *codes, const char *scales, const float *bias, const char *x, const float *sums,
    const float *inverse, const Source &source, int T, int N, int tiles, int parts, int stages, const Scheme &m, const Few &few)
{
    __shared__ float undo;
    if (ROW) inverse = &undo;
    float acc[NT][4] = {};
    int block = blockIdx.x - few.blocks, strips = blockDim.x / 32 / parts;
    decode<KIND, NT, HALF, ROW>(acc, end, block, codes, scales, x, sums, source, &undo, N, tiles, parts, stages, m, few);
    if ((KIND == W4 || KIND == W8) && block < 0) {
        end.dst += N, end.first += N;
        block = blockIdx.x, strips = 1, parts = few.parts, bias = few.bias, N = few.N;
        if (!ROW) inverse = few.inverse;
    }
    sumParts<NT>(acc, end, block, strips, parts, bias, inverse, T, N);
}

// What all entries have of parameters, beside x: the product's, those of its end, and Few.
#define PARAMETERS                                                                                                                             \
    float *dst, int dstStride, int mode, const char *codes, const char *scales, const float *bias, int T, int N, int tiles, int parts,         \
        int stages, int form, int record, int slots, int magic, int groups, int gated, int first, float *mixed, int mixedStride,               \
        const float *filter, int C, int columns, char *pages, long long pageBytes, const int *in, const int *out, int statePages, int perPage, \
        int firstUnit, int unitChannels, long long unitBytes, int fewKind, int fewBlocks, const char *fewCodes, const float *fewBias,          \
        int fewN, int fewTiles, int fewParts
#define END                                                                                                                                    \
    End{mode, gated, dst, dstStride, first,                                                                                                    \
        Convolution{mixed, mixedStride, filter, C, columns, pages, pageBytes, in, out, statePages, perPage, firstUnit, unitChannels, unitBytes}}

#define DECODE(NAME, KIND, NT, HALF, WARPS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                                                \
        NAME(PARAMETERS, const char *x, const float *sums, const float *inverse, const char *fewX, const float *fewInverse)                    \
    {                                                                                                                                          \
        kernel<KIND, NT, HALF, false>(END, codes, scales, bias, x, sums, inverse, Source{}, T, N, tiles, parts, stages,                        \
            Scheme{form, record, slots, (u32)magic, groups}, Few{fewKind, fewBlocks, fewCodes, fewX, fewBias, fewInverse, fewN, fewTiles, fewParts});\
    }

#define DECODE_ROW(NAME, KIND, HALF, WARPS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) NAME(PARAMETERS, int made, const float *x, const float *gate,                  \
        const float *w, int K, int n, float eps, int f)                                                                                        \
    {                                                                                                                                          \
        kernel<KIND, 1, HALF, true>(END, codes, scales, bias, nullptr, nullptr, nullptr,                                                       \
            Source{made, x, gate, w, K, n, eps, f}, T, N, tiles, parts, stages,                                                                \
            Scheme{form, record, slots, (u32)magic, groups}, Few{fewKind, fewBlocks, fewCodes, nullptr, fewBias, nullptr, fewN, fewTiles, fewParts});\
    }

// At most 8 tokens, and 16: with one instance a step of 8 would multiply zeros. The _half ones accumulate 32 inputs in fp16. Blocks of 4-bit weights have 16
// warps, others 8, so that two blocks share a multiprocessor and one's beginning and end hide behind the other.
DECODE(linear_decode_w4_8, W4, 1, false, 16)
DECODE(linear_decode_w4_16, W4, 2, false, 16)
DECODE(linear_decode_w8_8, W8, 1, false, 8)
DECODE(linear_decode_w8_16, W8, 2, false, 8)
DECODE(linear_decode_f16_8, WF16, 1, false, 8)
DECODE(linear_decode_f16_16, WF16, 2, false, 8)
DECODE(linear_decode_bf16_8, WBF16, 1, false, 8)
DECODE(linear_decode_bf16_16, WBF16, 2, false, 8)
DECODE(linear_decode_w4_8_half, W4, 1, true, 16)
DECODE(linear_decode_w4_16_half, W4, 2, true, 16)
DECODE(linear_decode_w8_8_half, W8, 1, true, 8)
DECODE(linear_decode_w8_16_half, W8, 2, true, 8)
DECODE_ROW(linear_decode_w4_row, W4, false, 16)
DECODE_ROW(linear_decode_w8_row, W8, false, 8)
DECODE_ROW(linear_decode_f16_row, WF16, false, 8)
DECODE_ROW(linear_decode_bf16_row, WBF16, false, 8)
DECODE_ROW(linear_decode_w4_row_half, W4, true, 16)
DECODE_ROW(linear_decode_w8_row_half, W8, true, 8)
