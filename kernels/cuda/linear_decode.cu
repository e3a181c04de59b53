// linear_decode.cu: dst[T,N] = x[T,K] w^T (+ bias), or added to dst, for T of 1 to 16 (decode); larger T: linear_prefill.cu.
//   x, weights and scales as linear.cuh draws them; dst float32, 4-byte aligned
//   block = strips*parts warps, at most 16: warp (part, strip) multiplies one part of K for one strip; grid (N/16/strips). Each stage
//   brings every warp its next tile and every part its tile of x, which its strips share; `stages` of them are on their way.
//   Parts are summed through shared memory in ascending order, the same order as in linear_prefill.
//   needs shared memory stages*stageBytes, at least 64*warps*(4 + 32*NT) bytes/64 for the sums: the launcher sees to both
//   reference: kernels/ref Linear | cases: kernels/kerneltest/linear.go | numbers: kernels/KERNELS.md
#include "linear.cuh"

extern __shared__ uint4 room[];

template <int KIND, int NT, bool HALF>
__device__ __forceinline__ void decode(float *dst, int dstStride, int add, const char *codes, const char *scales, const float *bias, const char *x,
    const float *sums, const float *inverse, int T, int N, int tiles, int parts, int stages, Scheme m)
{
    const int warps = blockDim.x / 32, strips = warps / parts;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int part = warp / strips, strip = blockIdx.x * strips + warp % strips;
    const bool offsets = m.form & (ZEROS | MINS);

    // A stage: [warp][tile, slots], then [part][x of NT*8 tokens], then [part][sums].
    const int slotBytes = m.slots * 16 * m.record, warpBytes = pieces(KIND) * 512 + slotBytes;
    const int xAt = warps * warpBytes, sumsAt = xAt + parts * NT * xBytes(KIND);
    const int stageBytes = sumsAt + (offsets ? parts * NT * 128 : 0);
    char *shared = (char *)room;

    const int from = part * tiles / parts, count = (part + 1) * tiles / parts - from, most = (tiles + parts - 1) / parts;
    const bool mine = strip * 16 < N;
    const char *myCodes = codes + ((long long)strip * tiles + from) * (pieces(KIND) * 512) + lane * 16;
    const char *myScales = scales + (long long)strip * m.groups * 16 * m.record;
    const int member = warp % strips * 32 + lane, members = strips * 32; // of the part's threads

    auto load = [&](int i) {
        if (i < count) {
            char *to = shared + i % stages * stageBytes;
            if (mine) {
                for (int p = 0; p < pieces(KIND); p++)
                    copy16(to + warp * warpBytes + p * 512 + lane * 16, myCodes + (long long)i * (pieces(KIND) * 512) + p * 512);
                if (lane * 16 < slotBytes)
                    copy16(to + warp * warpBytes + pieces(KIND) * 512 + lane * 16, scalePiece(myScales, lane, from + i, m));
            }
            for (int p = member; p < NT * xBytes(KIND) / 16; p += members) {
                int block = p / (xBytes(KIND) / 16);
                if (block * 8 < T)
                    copy16(to + xAt + part * NT * xBytes(KIND) + p * 16,
                        x + ((long long)block * tiles + from + i) * xBytes(KIND) + p % (xBytes(KIND) / 16) * 16);
            }
            if (offsets)
                for (int p = member; p < NT * 8; p += members)
                    if (p / 8 * 8 < T)
                        copy16(to + sumsAt + part * NT * 128 + p * 16, (const char *)sums + ((long long)(p / 8) * tiles + from + i) * 128 + p % 8 * 16);
        }
        commit();
    };

    float acc[NT][4] = {};
    for (int i = 0; i < stages - 1; i++) load(i);
    for (int i = 0; i < most; i++) {
        waitFor(stages);
        __syncthreads(); // the stage is there for all, and the one that load overwrites has been read by all
        load(i + stages - 1);
        if (i >= count || !mine) continue;
        const char *at = shared + i % stages * stageBytes;
        const uint4 *w = (const uint4 *)(at + warp * warpBytes) + lane;
        const char *slots = at + warp * warpBytes + pieces(KIND) * 512;
        const uint4 *xs = (const uint4 *)(at + xAt + part * NT * xBytes(KIND)) + lane;
        const float *ss = (const float *)(at + sumsAt + part * NT * 128);
        Scale c;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint4 b[NT], r[NT];
#pragma unroll
            for (int n = 0; n < NT; n++)
                if (n * 8 < T) {
                    b[n] = xs[n * (xBytes(KIND) / 16) + h * 32];
                    if (KIND == WBF16) r[n] = xs[n * (xBytes(KIND) / 16) + 64 + h * 32];
                }
#pragma unroll
            for (int o = 0; o < 2; o++) {
                int j = 2 * h + o;
                u32 a[4];
                weights<KIND>(a, w[j * pieces(KIND) / 4 * 32], j);
                if (KIND == W4 || KIND == W8) scaleOf(c, slots, j, g, m);
#pragma unroll
                for (int n = 0; n < NT; n++)
                    if (n * 8 < T)
                        step<KIND, HALF>(acc[n], a, o ? b[n].z : b[n].x, o ? b[n].w : b[n].y, o ? r[n].z : r[n].x, o ? r[n].w : r[n].y, c);
            }
        }
        if ((KIND == W4 || KIND == W8) && offsets)
            for (int j = 0; j < 4; j++) {
                Scale o = offsetOf<KIND>(slots, j, g, m);
#pragma unroll
                for (int n = 0; n < NT; n++)
                    if (n * 8 < T) offsetStep(acc[n], o, ss + n * 32, j, q);
            }
    }

    // Sums of the parts, [part][token][output].
    const int outputs = strips * 16;
    float *all = (float *)room;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
#pragma unroll
    for (int n = 0; n < NT; n++)
        for (int i = 0; i < 4; i++) all[(part * NT * 8 + n * 8 + 2 * q + i % 2) * outputs + warp % strips * 16 + g + i / 2 * 8] = acc[n][i];
    __syncthreads();
    for (int i = threadIdx.x; i < NT * 8 * outputs; i += blockDim.x) {
        int t = i / outputs, o = i % outputs, n = blockIdx.x * outputs + o;
        if (t >= T || n >= N) continue;
        float sum = all[t * outputs + o];
        for (int p = 1; p < parts; p++) sum = __fadd_rn(sum, all[(p * NT * 8 + t) * outputs + o]);
        finish(dst + (long long)t * dstStride + n, sum, inverse[t], bias, n, add);
    }
}

#define DECODE(NAME, KIND, NT, HALF)                                                                                                           \
    extern "C" __global__ void __launch_bounds__(512) NAME(float *dst, int dstStride, int add, const char *codes, const char *scales,          \
        const float *bias, const char *x, const float *sums, const float *inverse, int T, int N, int tiles, int parts, int stages, int form,   \
        int record, int slots, int magic, int groups)                                                                                          \
    {                                                                                                                                          \
        decode<KIND, NT, HALF>(dst, dstStride, add, codes, scales, bias, x, sums, inverse, T, N, tiles, parts, stages,                         \
            Scheme{form, record, slots, (u32)magic, groups});                                                                                  \
    }

// At most 8 tokens, and 16: with one instance a step of 8 would multiply zeros. The _half ones accumulate steps in fp16.
DECODE(linear_decode_w4_8, W4, 1, false)
DECODE(linear_decode_w4_16, W4, 2, false)
DECODE(linear_decode_w8_8, W8, 1, false)
DECODE(linear_decode_w8_16, W8, 2, false)
DECODE(linear_decode_f16_8, WF16, 1, false)
DECODE(linear_decode_f16_16, WF16, 2, false)
DECODE(linear_decode_bf16_8, WBF16, 1, false)
DECODE(linear_decode_bf16_16, WBF16, 2, false)
DECODE(linear_decode_w4_8_half, W4, 1, true)
DECODE(linear_decode_w4_16_half, W4, 2, true)
DECODE(linear_decode_w8_8_half, W8, 1, true)
DECODE(linear_decode_w8_16_half, W8, 2, true)
