// linear_prefill.cu: dst[T,N] = x[T,K] w^T (+ bias), or added to dst, for T above 16 (prefill); smaller T: linear_decode.cu.
//   x, weights and scales as linear.cuh draws them; dst float32, 4-byte aligned
//   block = 8 warps, 128 outputs by 16*TB tokens: warp (half, pair) multiplies strips 2*pair and 2*pair+1 by its half of the tokens, so
//   a strip's codes are unpacked twice a block and a token's x is read four times; grid (T/(16*TB), N/128): blocks that follow
//   each other share weights. A stage is a tile of 8 strips and of all tokens.
//   The sums of a part of K are added to those of the parts before it, the same order as in linear_decode.
//   needs shared memory stages*stageBytes
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go | numbers: kernels/KERNELS.md
#include "linear.cuh"

extern __shared__ uint4 room[];

template <int KIND, int TB, bool HALF>
__device__ __forceinline__ void prefill(float *dst, int dstStride, int add, const char *codes, const char *scales, const float *bias, const char *x,
    const float *sums, const float *inverse, int T, int N, int tiles, int parts, int stages, Scheme m)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int pair = warp % 4, half = warp / 4;
    const bool offsets = m.form & (ZEROS | MINS);

    // A stage: [strip][tile, slots], then [8 tokens][x], then [8 tokens][sums].
    const int slotBytes = m.slots * 16 * m.record, stripBytes = pieces(KIND) * 512 + slotBytes;
    const int xAt = 8 * stripBytes, sumsAt = xAt + 2 * TB * xBytes(KIND);
    const int stageBytes = sumsAt + (offsets ? 2 * TB * 128 : 0);
    char *shared = (char *)room;

    const int firstStrip = blockIdx.y * 8, firstBlock = blockIdx.x * 2 * TB; // of 8 tokens
    const int blocks = min(2 * TB, (T + 7) / 8 - firstBlock);

    // Warp w brings strip w, and x of every eighth block of tokens.
    const bool loads = (firstStrip + warp) * 16 < N;
    const char *myCodes = codes + (long long)(firstStrip + warp) * tiles * (pieces(KIND) * 512) + lane * 16;
    const char *myScales = scales + (long long)(firstStrip + warp) * m.groups * 16 * m.record;
    auto load = [&](int i) {
        if (i < tiles) {
            char *to = shared + i % stages * stageBytes;
            if (loads) {
                char *my = to + warp * stripBytes;
                for (int p = 0; p < pieces(KIND); p++) copy16(my + p * 512 + lane * 16, myCodes + (long long)i * (pieces(KIND) * 512) + p * 512);
                if (lane * 16 < slotBytes) copy16(my + pieces(KIND) * 512 + lane * 16, scalePiece(myScales, lane, i, m));
            }
            for (int b = warp; b < blocks; b += 8) {
                const char *from = x + ((long long)(firstBlock + b) * tiles + i) * xBytes(KIND) + lane * 16;
                for (int p = 0; p < xBytes(KIND) / 512; p++) copy16(to + xAt + b * xBytes(KIND) + p * 512 + lane * 16, from + p * 512);
                if (offsets && lane < 8)
                    copy16(to + sumsAt + b * 128 + lane * 16, (const char *)sums + ((long long)(firstBlock + b) * tiles + i) * 128 + lane * 16);
            }
        }
        commit();
    };

    float total[2][TB][4] = {}, acc[2][TB][4] = {};
    const int mine = min(TB, blocks - half * TB); // blocks of tokens; negative: none
    const bool busy = mine > 0 && (firstStrip + 2 * pair) * 16 < N, both = (firstStrip + 2 * pair + 1) * 16 < N;
    for (int i = 0; i < stages - 1; i++) load(i);
    for (int i = 0, part = 0, end = tiles / parts; i < tiles; i++) {
        if (i == end) {
#pragma unroll
            for (int s = 0; s < 2; s++)
#pragma unroll
                for (int b = 0; b < TB; b++)
#pragma unroll
                    for (int e = 0; e < 4; e++) total[s][b][e] = __fadd_rn(total[s][b][e], acc[s][b][e]), acc[s][b][e] = 0;
            part++;
            end = (part + 1) * tiles / parts;
        }
        waitFor(stages);
        __syncthreads(); // the stage is there for all, and the one that load overwrites has been read by all
        load(i + stages - 1);
        if (!busy) continue;
        const char *at = shared + i % stages * stageBytes;
        const uint4 *xs = (const uint4 *)(at + xAt + half * TB * xBytes(KIND)) + lane;
        const float *ss = (const float *)(at + sumsAt + half * TB * 128);
        const char *w0 = at + 2 * pair * stripBytes, *w1 = w0 + (both ? stripBytes : 0);
        Scale c0, c1;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 a[2][2][4];
            Scale c[2][2];
#pragma unroll
            for (int o = 0; o < 2; o++) {
                int j = 2 * h + o;
                weights<KIND>(a[o][0], ((const uint4 *)w0)[j * pieces(KIND) / 4 * 32 + lane], j);
                weights<KIND>(a[o][1], ((const uint4 *)w1)[j * pieces(KIND) / 4 * 32 + lane], j);
                if (KIND == W4 || KIND == W8) {
                    scaleOf(c0, w0 + pieces(KIND) * 512, j, g, m);
                    scaleOf(c1, w1 + pieces(KIND) * 512, j, g, m);
                }
                c[o][0] = c0, c[o][1] = c1;
            }
#pragma unroll
            for (int b = 0; b < TB; b++) {
                if (b >= mine) break;
                uint4 v = xs[b * (xBytes(KIND) / 16) + h * 32], r = v;
                if (KIND == WBF16) r = xs[b * (xBytes(KIND) / 16) + 64 + h * 32];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    step<KIND, HALF>(acc[e][b], a[0][e], v.x, v.y, r.x, r.y, c[0][e]);
                    step<KIND, HALF>(acc[e][b], a[1][e], v.z, v.w, r.z, r.w, c[1][e]);
                }
            }
        }
        if ((KIND == W4 || KIND == W8) && offsets)
            for (int j = 0; j < 4; j++) {
                Scale o0 = offsetOf<KIND>(w0 + pieces(KIND) * 512, j, g, m), o1 = offsetOf<KIND>(w1 + pieces(KIND) * 512, j, g, m);
#pragma unroll
                for (int b = 0; b < TB; b++) {
                    if (b >= mine) break;
                    offsetStep(acc[0][b], o0, ss + b * 32, j, q);
                    offsetStep(acc[1][b], o1, ss + b * 32, j, q);
                }
            }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    if (!busy) return;
#pragma unroll
    for (int b = 0; b < TB; b++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int t = (firstBlock + half * TB + b) * 8 + 2 * q + e;
            if (t >= T) continue;
            float inv = inverse[t];
            float *row = dst + (long long)t * dstStride;
#pragma unroll
            for (int s = 0; s < 2; s++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    int n = (firstStrip + 2 * pair + s) * 16 + g + i * 8;
                    if (n < N) finish(row + n, __fadd_rn(total[s][b][2 * i + e], acc[s][b][2 * i + e]), inv, bias, n, add);
                }
        }
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

// Tiles of 128 tokens. The _half ones accumulate steps in fp16.
PREFILL(linear_prefill_w4, W4, 8, false)
PREFILL(linear_prefill_w8, W8, 8, false)
PREFILL(linear_prefill_f16, WF16, 8, false)
PREFILL(linear_prefill_bf16, WBF16, 8, false)
PREFILL(linear_prefill_w4_half, W4, 8, true)
PREFILL(linear_prefill_w8_half, W8, 8, true)
