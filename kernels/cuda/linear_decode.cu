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
//   needs shared memory for `stages` stages, and in the end for the sums of the parts: the launcher sees to both
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go | numbers: kernels/KERNELS.md
#include "linear.cuh"
#include "row.cuh"
#include "linear_end.cuh"

extern __shared__ uint4 room[];

template <bool V> struct Constant {
    static constexpr bool value = V;
};

template <int KIND, int NT, bool HALF>
__device__ __forceinline__ void decode(float acc[NT][4], const End &end, int block, const char *codes, const char *scales, const char *x,
    const float *sums, int N, int tiles, int parts, int stages, const Scheme &m)
{
    const int warps = blockDim.x / 32, strips = warps / parts;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int part = warp / strips, strip = end.strip(block, warp % strips, strips, N);
    const bool offsets = m.form & (ZEROS | MINS), mine = strip >= 0;

    // A stage: [warp][tile, slots], then [part][x of NT*8 tokens], then [part][sums].
    const int warpBytes = tileBytes(KIND) + m.slots * 16 * m.record;
    const int xAt = warps * warpBytes, sumsAt = xAt + parts * NT * xBytes(KIND);
    const u32 stageBytes = kept(sumsAt + (offsets ? parts * NT * 128 : 0));
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

    // Where all this goes, and where it is read, from the start of a stage.
    const u32 toCodes = kept(warp * warpBytes + lane * 16), toX = kept(xAt + part * NT * xBytes(KIND) + member);
    const u32 ofCodes = kept(warp * warpBytes + lane * (KIND == W4 ? 8 : 16)), ofScales = kept(warp * warpBytes + tileBytes(KIND) + g * m.record);
    const u32 ofX = kept(xAt + part * NT * xBytes(KIND) + lane * 16), ofSums = sumsAt + part * NT * 128 + q * 8;
    // What to do, as bits, so that it takes one register.
    const u32 todo = kept((mine ? 1 : 0) | (copiesScales && mine ? 2 : 0) | (member < NT * xBytes(KIND) ? 4 : 0) |
        (members < NT * xBytes(KIND) ? 8 : 0) | (offsets ? 16 : 0));

    u32 to = base;
    auto load = [&](int i) {
        if (i < count) {
            if (todo & 1) {
#pragma unroll
                for (int p = 0; p < tileBytes(KIND); p += 512) copy16(to + toCodes + p, myCodes + p);
            }
            if (todo & 2) copy16(to + toCodes + tileBytes(KIND), myScales + (unsigned long long)__umulhi(twice, m.magic) * (16 * m.record));
            if (todo & 4) copy16(to + toX, myX);
            if (todo & 8)
                for (int p = members; p + member < NT * xBytes(KIND); p += members) copy16(to + toX + p, myX + p);
            if (todo & 16)
                for (int p = member; p < NT * 128; p += members)
                    copy16(to + sumsAt + part * NT * 128 + p, (const char *)sums + (long long)(from + i) * (NT * 128) + p);
            myCodes += tileBytes(KIND), myX += NT * xBytes(KIND), twice += 2 * m.slots;
        }
        commit();
        to += stageBytes;
        if (to == limit) to = base;
    };

    // A tile's products. ONE: it has one scale an output, of 16 bits.
    auto multiply = [&](u32 at, auto ONE) {
        const u32 w = at + ofCodes, xs = at + ofX, slots = at + ofScales;
        constexpr int UNROLL = ONE.value && NT == 1 ? 2 : 1; // both halves at once would not fit the registers
        Scale c;
        if (ONE.value) c.lower = narrow(read2(slots), m.form), c.upper = narrow(read2(slots + 16), m.form);
#pragma unroll UNROLL
        for (int h = 0; h < 2; h++) {
            Half<KIND> half = halfAt<KIND>(w, h);
            uint4 b[NT], r[NT];
#pragma unroll
            for (int n = 0; n < NT; n++) {
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

    for (int i = 0; i < stages - 1; i++) load(i);
    u32 at = base;
    const bool one = (KIND == W4 || KIND == W8) && m.slots == 1 && m.record == 2;
    for (int i = 0; i < most; i++) {
        waitFor(stages);
        __syncthreads(); // the stage is there for all, and the one that load overwrites has been read by all
        load(i + stages - 1);
        if (i < count && mine) {
            if (one) {
                multiply(at, Constant<true>());
            } else {
                multiply(at, Constant<false>());
                if ((KIND == W4 || KIND == W8) && offsets)
#pragma unroll 1
                    for (int j = 0; j < 4; j++) {
                        Scale o = offsetOf<KIND>(at + ofScales, j, m);
#pragma unroll
                        for (int n = 0; n < NT; n++) offsetStep(acc[n], o, at + ofSums + n * 128 + j * 32);
                    }
            }
        }
        at += stageBytes;
        if (at == limit) at = base;
    }

    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
}

// Few is a part of fp16 or bf16 weights that follows the launch's own.
struct Few {
    const char *codes, *x;
    int tiles, parts;
};

template <int KIND, int NT> __device__ __forceinline__ void decodeFew(float acc[NT][4], const Few &f)
{
    const int part = threadIdx.x / 32, strip = blockIdx.x;
    if (part >= f.parts) return;
    const int from = part * f.tiles / f.parts, count = (part + 1) * f.tiles / f.parts - from;
    const char *w = f.codes + ((long long)strip * f.tiles + from) * tileBytes(KIND) + threadIdx.x % 32 * 16;
    const char *x = f.x + (long long)from * (NT * xBytes(KIND)) + threadIdx.x % 32 * 16;
#pragma unroll 1
    for (int i = 0; i < count; i++, w += tileBytes(KIND), x += NT * xBytes(KIND)) {
#pragma unroll(NT == 1 ? 2 : 1)
        for (int h = 0; h < 2; h++) {
            const uint4 lower = __ldg((const uint4 *)(w + h * 1024)), upper = __ldg((const uint4 *)(w + h * 1024 + 512));
            const Half<KIND> half = {lower.x, lower.y, lower.z, lower.w, upper.x, upper.y, upper.z, upper.w};
            u32 a[2][4];
            weights<KIND>(a[0], half, 0), weights<KIND>(a[1], half, 1);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const char *at = x + n * xBytes(KIND) + h * 512;
                const uint4 b = *(const uint4 *)at, r = KIND == WBF16 ? *(const uint4 *)(at + 1024) : b;
                steps<KIND, false>(acc[n], a[0], a[1], b, r, Scale{}, Scale{});
            }
        }
    }
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

// The parameters of all kernels: the product's, those of its end, and Few.
#define PARAMETERS                                                                                                                             \
    float *dst, int dstStride, int mode, const char *codes, const char *scales, const float *bias, const char *x, const float *sums,           \
        const float *inverse, int T, int N, int tiles, int parts, int stages, int form, int record, int slots, int magic, int groups, int gate,\
        int first, float *mixed, int mixedStride, const float *filter, int C, int columns, char *pages, long long pageBytes, const int *in,    \
        const int *out, int statePages, int perPage, int firstUnit, int unitChannels, long long unitBytes, int fewKind, int fewBlocks,         \
        const char *fewCodes, const char *fewX, const float *fewBias, const float *fewInverse, int fewN, int fewTiles, int fewParts

#define DECODE(NAME, KIND, NT, HALF, WARPS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) NAME(PARAMETERS)                                                               \
    {                                                                                                                                          \
        End end{mode, gate, dst, dstStride, first,                                                                                             \
                Convolution{mixed, mixedStride, filter, C, columns, pages, pageBytes, in, out, statePages, perPage, firstUnit, unitChannels,   \
                            unitBytes}};                                                                                                       \
        float acc[NT][4] = {};                                                                                                                 \
        int block = blockIdx.x - fewBlocks, strips = blockDim.x / 32 / parts;                                                                  \
        if ((KIND == W4 || KIND == W8) && block < 0) {                                                                                         \
            const Few few{fewCodes, fewX, fewTiles, fewParts};                                                                                 \
            if (fewKind == WF16) decodeFew<WF16, NT>(acc, few);                                                                                \
            else decodeFew<WBF16, NT>(acc, few);                                                                                               \
            end.dst += N, end.first += N;                                                                                                      \
            block = blockIdx.x, strips = 1, parts = fewParts, bias = fewBias, inverse = fewInverse, N = fewN;                                  \
        } else {                                                                                                                               \
            decode<KIND, NT, HALF>(acc, end, block, codes, scales, x, sums, N, tiles, parts, stages,                                           \
                Scheme{form, record, slots, (u32)magic, groups});                                                                              \
        }                                                                                                                                      \
        sumParts<NT>(acc, end, block, strips, parts, bias, inverse, T, N);                                                                     \
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
