// linear_rows.cu: products with weights kept in float32, and single rows of any weight.
//   linear_float32: dst[T,N] = x[T,K] w^T (+ bias), or added to dst; w float32 [N,K] row-major. For small matrices and tests: x is not rounded, and
//   nothing is tuned. A warp takes one output and 4 tokens: lane l sums inputs l, l+32, ... and lanes are added in pairs, so
//   a row's sum does not depend on T. grid (N/8, T/4), block 256
//   embed_*: dst[t] = scale * w[ids[t]]; grid (ids), block 256
//   reference: kernels/ref | cases: kernels/kerneltest/linear.go
#include "linear.cuh"

extern "C" __global__ void __launch_bounds__(256) linear_float32(float *dst, int dstStride, int add, const float *w, const float *bias, const float *x,
    int xStride, const int *order, int T, int N, int K)
{
    int n = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.y * 4;
    if (n >= N) return;
    float acc[4] = {};
    for (int k = lane; k < K; k += 32) {
        float v = w[(long long)n * K + k];
        int from = order ? order[k] : k;
        for (int t = 0; t < 4; t++)
            if (first + t < T) acc[t] = __fmaf_rn(v, x[(long long)(first + t) * xStride + from], acc[t]);
    }
    for (int t = 0; t < 4; t++) {
        for (int d = 16; d > 0; d /= 2) acc[t] += __shfl_xor_sync(0xffffffff, acc[t], d);
        if (lane == 0 && first + t < T) finish(dst + (long long)(first + t) * dstStride + n, acc[t], 1, bias, n, add);
    }
}

// Rows of tiles. kind: of Kind; order as in linear_prepare.
extern "C" __global__ void __launch_bounds__(256) embed_tiles(float *dst, int dstStride, const int *ids, int first, int N, const char *codes, const char *scales,
    const int *order, int K, int tiles, float scale, int kind, int form, int bytesOfRecord, int slots, int magic, int groups)
{
    int n = ids[blockIdx.x] - first;
    if (n < 0 || n >= N) return; // a row of another part
    Scheme m = {form, bytesOfRecord, slots, (u32)magic, groups};
    int strip = n / 16, g = n % 8, upper = n / 8 % 2;
    const int bytes = tileBytes(kind);
    float *to = dst + (long long)blockIdx.x * dstStride;
    // A thread takes four inputs: step j of a tile, lane q.
    for (int i = threadIdx.x; i < tiles * 16; i += 256) {
        int tile = i / 16, j = i / 4 % 4, q = i % 4;
        const u32 *at = (const u32 *)(codes + ((long long)strip * tiles + tile) * bytes + j / 2 * (bytes / 2)); // the half
        float v[4];
        if (kind == W4) {
            u32 w = at[(g * 4 + q) * 2 + j % 2] >> 4 * upper;
            v[0] = (int)(w & 15) - 8, v[1] = (int)(w >> 16 & 15) - 8, v[2] = (int)(w >> 8 & 15) - 8, v[3] = (int)(w >> 24 & 15) - 8;
        } else if (kind == W8) {
            u32 w = at[(g * 4 + q) * 4 + j % 2 * 2 + upper];
            for (int e = 0; e < 4; e++) v[e] = (int)(w >> 8 * e & 255) - 128;
        } else {
            const u32 *w = at + j % 2 * 128 + (g * 4 + q) * 4 + upper;
            u32 lo = w[0], hi = w[2];
            int f = kind == WBF16 ? BFLOAT : 0;
            v[0] = narrow(lo & 0xffff, f), v[1] = narrow(lo >> 16, f), v[2] = narrow(hi & 0xffff, f), v[3] = narrow(hi >> 16, f);
        }
        if (m.record) {
            u32 group = __umulhi(2 * (u32)(tile * slots + (j * slots >> 2)) + 1, m.magic);
            const char *record = scales + (((long long)strip * groups + group) * 16 + n % 16) * m.record;
            float s, o = 0;
            if (form & WIDE) {
                s = *(const float *)record;
                if (form & (ZEROS | MINS)) o = *(const float *)(record + 4);
            } else {
                u32 bits = *(const unsigned short *)record;
                s = narrow(bits, form);
                if (form & (ZEROS | MINS)) o = offset(bits, *(const unsigned short *)(record + 2), form, kind == W4 ? 8 : 128);
            }
            for (int e = 0; e < 4; e++) v[e] = __fmaf_rn(s, v[e], o);
        }
        for (int e = 0; e < 4; e++) {
            int k = tile * 64 + j * 16 + q * 4 + e;
            if (order) k = order[k];
            else if (k >= K) k = -1;
            if (k >= 0) to[k] = __fmul_rn(v[e], scale);
        }
    }
}

// Rows of float32.
extern "C" __global__ void __launch_bounds__(256) embed_float32(float *dst, int dstStride, const int *ids, int first, int N, const float *w, const int *order, int K,
    float scale)
{
    int n = ids[blockIdx.x] - first;
    if (n < 0 || n >= N) return;
    float *to = dst + (long long)blockIdx.x * dstStride;
    for (int k = threadIdx.x; k < K; k += 256) to[order ? order[k] : k] = __fmul_rn(w[(long long)n * K + k], scale);
}
