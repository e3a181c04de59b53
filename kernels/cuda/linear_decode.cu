// linear_decode.cu: dst[T,N] = x[T,K] w^T (+ bias), or added to dst, for T of 1 to 16 (decode); larger T: linear_prefill.cu.
//   x, weights and scales as linear.cuh draws them; dst float32, 4-byte aligned
//   block = strips*parts warps, at most 16: warp (part, strip) multiplies one part of K for one strip; grid (N/16/strips). Each stage
//   brings every warp its next tile and every part its tile of x, which its strips share; `stages` of them are on their way.
//   Parts are summed through shared memory in ascending order, the same order as in linear_prefill.
//   the _row ones take one token's x as a float32 row, or what it is made from (linear_source.cuh): while its first stages of weights are on
//   their way, a block leaves the row in shared memory as linear_prepare would, [tile][half][4 lanes] of 16 bytes
//   needs shared memory for `stages` stages and this row, and in the end for the sums of the parts: the launcher sees to both
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go, sequences.go | numbers: kernels/KERNELS.md
#include "linear.cuh"
#include "row.cuh"
#include "linear_source.cuh"

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

// ROW: T is 1, x comes from source, and x, sums and inverse are not used.
template <int KIND, int NT, bool HALF, bool ROW>
__device__ __forceinline__ void decode(float *dst, int dstStride, int add, const char *codes, const char *scales, const float *bias, const char *x,
    const float *sums, const float *inverses, const Source &source, int T, int N, int tiles, int parts, int stages, const Scheme &m)
{
    const int warps = blockDim.x / 32, strips = warps / parts;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int part = warp / strips, strip = blockIdx.x * strips + warp % strips;
    const bool offsets = m.form & (ZEROS | MINS), mine = strip * 16 < N;

    // A stage: [warp][tile, slots], then [part][x of NT*8 tokens], then [part][sums]; with ROW the last two lie behind all stages, whole.
    const int warpBytes = tileBytes(KIND) + m.slots * 16 * m.record;
    const int xAt = warps * warpBytes, sumsAt = xAt + parts * NT * xBytes(KIND);
    const u32 stageBytes = kept(ROW ? xAt : sumsAt + (offsets ? parts * NT * 128 : 0));
    const u32 base = sharedAddress(room), end = kept(base + stages * stageBytes);

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
    const u32 rowSums = end + tiles * tileRow;
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
        if (to == end) to = base;
    };

    for (int i = 0; i < stages - 1; i++) load(i);
    if (ROW) {
        __shared__ float undo;
        float inverse = storeRow<KIND == WBF16>(source, tiles, end, offsets ? rowSums : 0);
        if (threadIdx.x == 0) undo = inverse;
        inverses = &undo;
    }

    // Where a tile is read, from the start of a stage.
    const u32 ofCodes = kept(warp * warpBytes + lane * (KIND == W4 ? 8 : 16)), ofScales = kept(warp * warpBytes + tileBytes(KIND) + g * m.record);
    const u32 ofX = kept(xAt + part * NT * xBytes(KIND) + lane * 16), ofSums = sumsAt + part * NT * 128 + q * 8;
    float acc[NT][4] = {};
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

    u32 at = base, myRow = kept(end + from * tileRow + lane * 16);
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
        if (at == end) at = base;
        myRow += tileRow;
    }

    // Sums of the parts, [part][token][output]; four more a row, so that a warp's tokens fall into banks of their own.
    const int outputs = strips * 16, row = outputs + 4;
    float *all = (float *)room;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) all[(part * NT * 8 + n * 8 + 2 * q + i % 2) * row + warp % strips * 16 + g + i / 2 * 8] = acc[n][i];
    __syncthreads();
    for (int i = threadIdx.x; i < NT * 8 * outputs; i += blockDim.x) {
        int t = i / outputs, o = i % outputs, n = blockIdx.x * outputs + o;
        if (t >= T || n >= N) continue;
        float sum = all[t * row + o];
        for (int p = 1; p < parts; p++) sum = __fadd_rn(sum, all[(p * NT * 8 + t) * row + o]);
        finish(dst + (long long)t * dstStride + n, sum, inverses[t], bias, n, add);
    }
}

#define DECODE(NAME, KIND, NT, HALF, WARPS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) NAME(float *dst, int dstStride, int add, const char *codes, const char *scales,\
        const float *bias, const char *x, const float *sums, const float *inverse, int T, int N, int tiles, int parts, int stages, int form,   \
        int record, int slots, int magic, int groups)                                                                                          \
    {                                                                                                                                          \
        decode<KIND, NT, HALF, false>(dst, dstStride, add, codes, scales, bias, x, sums, inverse, Source{}, T, N, tiles, parts, stages,        \
            Scheme{form, record, slots, (u32)magic, groups});                                                                                  \
    }

#define DECODE_ROW(NAME, KIND, HALF, WARPS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) NAME(float *dst, int add, const char *codes, const char *scales,               \
        const float *bias, int N, int tiles, int parts, int stages, int form, int record, int slots, int magic, int groups, int made,          \
        const float *x, const float *gate, const float *w, int K, int n, float eps, int f)                                                     \
    {                                                                                                                                          \
        decode<KIND, 1, HALF, true>(dst, 0, add, codes, scales, bias, nullptr, nullptr, nullptr,                                       \
            Source{made, x, gate, w, K, n, eps, f}, 1, N, tiles, parts, stages,                                    \
            Scheme{form, record, slots, (u32)magic, groups});                                                                                  \
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
