// linear_prefill.cu: dst[T,N] = x[T,K] w^T (+ bias), or added to dst, for T above 16 (prefill); smaller T: linear_decode.cu.
//   x, weights and scales as linear.cuh draws them; dst float32, 4-byte aligned
//   block = 4 or 8 warps, as many strips by 16*TB tokens: warp (half, pair) multiplies strips 2*pair and 2*pair+1 by its half of the
//   tokens, so a strip's codes are unpacked twice a block; grid (T/(16*TB), N/16/strips): blocks that follow each other share
//   weights. A stage is a tile of the strips and of all tokens; tokens from T on are those before them once more.
//   The sums of a part of K are added to those of the parts before it, the same order as in linear_decode.
//   needs shared memory for `stages` stages, and in the end for the sums: the launcher sees to both
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go | numbers: kernels/KERNELS.md
#include "linear.cuh"

extern __shared__ uint4 room[];

template <int KIND, int TB, bool HALF>
__device__ __forceinline__ void prefill(float *dst, int dstStride, int add, const char *codes, const char *scales, const float *bias, const char *x,
    const float *sums, const float *inverse, int T, int N, int tiles, int parts, int stages, const Scheme &m)
{
    const int strips = blockDim.x / 32, pairs = strips / 2;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int pair = warp % pairs, side = warp / pairs;
    const bool offsets = m.form & (ZEROS | MINS);

    // A stage: [strip][tile, slots], then x and then the sums, [8 tokens].
    const int stripBytes = tileBytes(KIND) + m.slots * 16 * m.record;
    const int xAt = strips * stripBytes, sumsAt = xAt + 2 * TB * xBytes(KIND);
    const u32 stageBytes = sumsAt + (offsets ? 2 * TB * 128 : 0);
    const u32 base = sharedAddress(room), end = base + stages * stageBytes;

    const int firstStrip = blockIdx.y * strips, firstBlock = blockIdx.x * 2 * TB; // of 8 tokens
    const int blocks = min(2 * TB, (T + 7) / 8 - firstBlock);

    // Warp w brings strip w, and x of each strips-th block of tokens. A strip beyond N is the last one again.
    const int lastStrip = (N - 1) / 16, loads = min(firstStrip + warp, lastStrip);
    const char *myCodes = codes + (long long)loads * tiles * tileBytes(KIND) + lane * 16;
    const char *myScales = scales + (long long)loads * m.groups * 16 * m.record;
    const bool copiesScales = lane < m.slots * m.record;
    const int slot = copiesScales ? lane / m.record : 0, rest = copiesScales ? lane % m.record * 16 : 0;
    const int blocksOfAll = (T + 7) / 8;
    const char *tileX = x + (long long)firstBlock * xBytes(KIND) + lane * 16;
    const char *tileSums = (const char *)sums + (long long)firstBlock * 128 + lane * 16;

    u32 to = base;
    int tile = 0;
    auto load = [&]() {
        if (tile < tiles) {
            u32 my = to + warp * stripBytes + lane * 16;
#pragma unroll
            for (int p = 0; p < tileBytes(KIND); p += 512) copy16(my + p, myCodes + p);
            if (copiesScales) copy16(my + tileBytes(KIND), scalePiece(myScales, slot, rest, tile, m));
            for (int b = warp; b < 2 * TB; b += strips) {
                int from = min(b, blocks - 1);
#pragma unroll
                for (int p = 0; p < xBytes(KIND); p += 512) copy16(to + xAt + b * xBytes(KIND) + p + lane * 16, tileX + from * xBytes(KIND) + p);
                if (offsets && lane < 8) copy16(to + sumsAt + b * 128 + lane * 16, tileSums + from * 128);
            }
            myCodes += tileBytes(KIND), tileX += (long long)blocksOfAll * xBytes(KIND), tileSums += (long long)blocksOfAll * 128, tile++;
        }
        commit();
        to += stageBytes;
        if (to == end) to = base;
    };

    float total[2][TB][4] = {}, acc[2][TB][4] = {};
    const bool busy = side * TB < blocks && firstStrip + 2 * pair <= lastStrip;
    for (int i = 0; i < stages - 1; i++) load();
    u32 at = base;
    for (int i = 0, part = 0, next = tiles / parts; i < tiles; i++) {
        if (i == next) {
#pragma unroll
            for (int s = 0; s < 2; s++)
#pragma unroll
                for (int b = 0; b < TB; b++)
#pragma unroll
                    for (int e = 0; e < 4; e++) total[s][b][e] = __fadd_rn(total[s][b][e], acc[s][b][e]), acc[s][b][e] = 0;
            part++;
            next = (part + 1) * tiles / parts;
        }
        waitFor(stages);
        __syncthreads(); // the stage is there for all, and the one that load overwrites has been read by all
        load();
        if (busy) {
            const u32 xs = at + xAt + side * TB * xBytes(KIND) + lane * 16;
            const u32 laneAt = lane * (KIND == W4 ? 8 : 16);
            const u32 w0 = at + 2 * pair * stripBytes, w1 = w0 + stripBytes;
            const u32 slots0 = w0 + tileBytes(KIND) + g * m.record, slots1 = slots0 + stripBytes;
            Scale c0, c1;
#pragma unroll 1
            for (int h = 0; h < 2; h++) {
                u32 a[2][2][4];
                Scale c[2][2];
                Half<KIND> half0 = halfAt<KIND>(w0 + laneAt, h), half1 = halfAt<KIND>(w1 + laneAt, h);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    weights<KIND>(a[i][0], half0, i);
                    weights<KIND>(a[i][1], half1, i);
                    if (KIND == W4 || KIND == W8) scaleOf(c0, slots0, h, i, m), scaleOf(c1, slots1, h, i, m);
                    c[i][0] = c0, c[i][1] = c1;
                }
#pragma unroll
                for (int b = 0; b < TB; b++) {
                    uint4 v = read16(xs + b * xBytes(KIND) + h * 512), r = v;
                    if (KIND == WBF16) r = read16(xs + b * xBytes(KIND) + 1024 + h * 512);
#pragma unroll
                    for (int s = 0; s < 2; s++) steps<KIND, HALF>(acc[s][b], a[0][s], a[1][s], v, r, c[0][s], c[1][s]);
                }
            }
            if ((KIND == W4 || KIND == W8) && offsets)
#pragma unroll 1
                for (int j = 0; j < 4; j++) {
                    Scale o0 = offsetOf<KIND>(slots0, j, m), o1 = offsetOf<KIND>(slots1, j, m);
#pragma unroll
                    for (int b = 0; b < TB; b++) {
                        u32 s = at + sumsAt + (side * TB + b) * 128 + j * 32 + q * 8;
                        offsetStep(acc[0][b], o0, s);
                        offsetStep(acc[1][b], o1, s);
                    }
                }
        }
        at += stageBytes;
        if (at == end) at = base;
    }

    // The sums, [token][output]; four more a row, so that a warp's tokens fall into banks of their own. Then the inverses.
    const int outputs = strips * 16, row = outputs + 4;
    float *all = (float *)room, *undo = all + 16 * TB * row;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int b = 0; b < TB; b++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                all[((side * TB + b) * 8 + 2 * q + e % 2) * row + (2 * pair + s) * 16 + g + e / 2 * 8] = __fadd_rn(total[s][b][e], acc[s][b][e]);
    for (int i = threadIdx.x; i < 16 * TB; i += blockDim.x) undo[i] = inverse[min(firstBlock * 8 + i, T - 1)];
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * TB * outputs; i += blockDim.x) {
        int o = i % outputs, n = firstStrip * 16 + o, t = firstBlock * 8 + i / outputs;
        if (t < T && n < N) finish(dst + (long long)t * dstStride + n, all[i / outputs * row + o], undo[i / outputs], bias, n, add);
    }
}

#define PREFILL(NAME, KIND, TB, HALF)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) NAME(float *dst, int dstStride, int add, const char *codes, const char *scales,          \
        const float *bias, const char *x, const float *sums, const float *inverse, int T, int N, int tiles, int parts, int stages, int form,   \
        int record, int slots, int magic, int groups)                                                                                          \
    {                                                                                                                                          \
        prefill<KIND, TB, HALF>(dst, dstStride, add, codes, scales, bias, x, sums, inverse, T, N, tiles, parts, stages,                        \
            Scheme{form, record, slots, (u32)magic, groups});                                                                                  \
    }

// Tiles of 128 tokens; and of 64 and 32, for a step of few tokens computes a whole tile. 16-bit weights at 128 would spill. The _half ones accumulate 32 inputs in fp16.
PREFILL(linear_prefill_w4_32, W4, 2, false)
PREFILL(linear_prefill_w4_64, W4, 4, false)
PREFILL(linear_prefill_w4_128, W4, 8, false)
PREFILL(linear_prefill_w8_32, W8, 2, false)
PREFILL(linear_prefill_w8_64, W8, 4, false)
PREFILL(linear_prefill_w8_128, W8, 8, false)
PREFILL(linear_prefill_f16_32, WF16, 2, false)
PREFILL(linear_prefill_f16_64, WF16, 4, false)
PREFILL(linear_prefill_bf16_32, WBF16, 2, false)
PREFILL(linear_prefill_bf16_64, WBF16, 4, false)
PREFILL(linear_prefill_w4_32_half, W4, 2, true)
PREFILL(linear_prefill_w4_64_half, W4, 4, true)
PREFILL(linear_prefill_w4_128_half, W4, 8, true)
PREFILL(linear_prefill_w8_32_half, W8, 2, true)
PREFILL(linear_prefill_w8_64_half, W8, 4, true)
PREFILL(linear_prefill_w8_128_half, W8, 8, true)
