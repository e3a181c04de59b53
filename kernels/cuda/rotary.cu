// rotary.cu: rotary embedding with QK-norm, and the store of keys and values to the KV cache.
//   qkv [T, H query heads, G key heads, G value heads] and q [T, H heads] float32, strides in elements; heads of at most 512
//   values, 16 bytes at once where rows and heads have that alignment
//   cosSin [T, 2*half]: cos and then sin of the angle that turns value i of a head with value i+half
//   qNorm, kNorm [kDim] or null: weights of an RMS norm of each query and key head; slots [T]: block * blockTokens + offset,
//   -1 stores nothing; the cache as cache.cuh draws it, G being its heads
//   a warp takes a head of a token, chunk c of its lane values 128 c + 4 lane to + 3; grid (T, ceil((H + 2G) / 8)), block 256
//   reference: kernels/ref RotaryStore | cases: kernels/kerneltest/attention.go, cache.go
#include "cache.cuh"
#include "row.cuh"

enum { NORM_VALUES = 1, KEYS_AS_VALUES = 2 };

// cos_sin: dst[t] = cos and then sin, [half] each, of positions[t] * frequencies, times scale. The angle is rounded to float32,
// as the reference library does; grid (T, ceil(half / threads)).
extern "C" __global__ void cos_sin(float *dst, int dstStride, const float *frequencies, const int *positions, int half, float scale)
{
    int i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= half) return;
    float s, c;
    sincosf(__fmul_rn((float)positions[blockIdx.x], frequencies[i]), &s, &c);
    dst += (long long)blockIdx.x * dstStride;
    dst[i] = c * scale;
    dst[half + i] = s * scale;
}

// turn rotates one value by the angle of a pair; b is its partner, the higher one if low.
__device__ inline float turn(float v, float b, float c, float s, bool low) { return fmaf(low ? -b : b, s, v * c); }

template <int T>
__device__ void rotaryStore(float *q, int qStride, const float *qkv, int qkvStride, const float *cosSin, int cosSinStride, int half,
                            const float *qNorm, const float *kNorm, float eps, int flags, int H, const int *slots, const Cache &c)
{
    int t = blockIdx.x, unit = blockIdx.y * 8 + threadIdx.x / 32, lane = threadIdx.x % 32 * 4, G = c.heads;
    if (unit >= H + 2 * G) return;
    int slot = -1;
    if (unit >= H && (slot = slots[t]) < 0) return;

    bool value = unit >= H + G;
    int head = unit < H ? unit : value ? unit - H - G : unit - H;
    int n = value ? c.vDim : c.kDim;
    const float *x = qkv + (long long)t * qkvStride, *w = value ? nullptr : unit < H ? qNorm : kNorm;
    x += !value ? unit * n : flags & KEYS_AS_VALUES ? (H + head) * n : (H + G) * c.kDim + head * n;
    bool vec = aligned(qkv, qkvStride) && (c.kDim & 3) == 0 && (c.vDim & 3) == 0 && aligned(w, 0);

    float v[4][4];
#pragma unroll
    for (int k = 0; k < 4; k++) *(float4 *)v[k] = load4(x, k * 128 + lane, n, vec);
    bool normed = w || value && flags & NORM_VALUES;
    float scale = 1;
    if (normed)
        scale = rmsScale(
            [&](float unit) {
                float sum = 0;
#pragma unroll
                for (int k = 0; k < 4; k++) sum = addSquares(sum, *(float4 *)v[k], unit);
                return warpSum(sum);
            },
            n, eps);

    const float *angles = cosSin + (long long)t * cosSinStride;
    bool vecAngles = vec && (half & 3) == 0 && aligned(cosSin, cosSinStride);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int i = k * 128 + lane;
        if (i >= n) break;
        float f[4] = {1, 1, 1, 1};
        if (w) *(float4 *)f = load4(w, i, n, vec);
        if (normed)
            for (int e = 0; e < 4; e++) v[k][e] = v[k][e] * scale * f[e];
        if (value || i >= 2 * half) continue;
        // Partners and angles of the four.
        float b[4], co[4], si[4], fb[4] = {1, 1, 1, 1};
        if (vecAngles) {
            int pair = i < half ? i : i - half, other = i < half ? i + half : pair;
            *(float4 *)b = *(const float4 *)(x + other);
            *(float4 *)co = *(const float4 *)(angles + pair);
            *(float4 *)si = *(const float4 *)(angles + half + pair);
            if (w) *(float4 *)fb = *(const float4 *)(w + other);
        } else {
            for (int e = 0; e < 4; e++) {
                int pair = i + e < half ? i + e : i + e - half, other = i + e < half ? i + e + half : pair;
                if (i + e >= 2 * half) continue;
                b[e] = x[other], co[e] = angles[pair], si[e] = angles[half + pair];
                if (w) fb[e] = w[other];
            }
        }
        for (int e = 0; e < 4; e++) {
            if (i + e >= 2 * half) continue;
            if (normed) b[e] = b[e] * scale * fb[e];
            v[k][e] = turn(v[k][e], b[e], co[e], si[e], i + e < half);
        }
    }

    if (unit < H) {
        bool vecQ = aligned(q, qStride) && (n & 3) == 0;
        q += (long long)t * qStride + unit * n;
#pragma unroll
        for (int k = 0; k < 4; k++) store4(q, k * 128 + lane, n, vecQ, *(float4 *)v[k]);
        return;
    }
    int offset = slot % c.blockTokens;
    char *block = c.block(slot / c.blockTokens);
    char *to = (value ? values<T>(c, block, head) : keys<T>(c, block, head)) + (long long)offset * n * codeBytes<T>;
    float unitOf = 1; // of codes
    if (scaled<T>) {
        unsigned largest = 0; // as bits, in which a NaN is more than an infinity, and that more than a number
#pragma unroll
        for (int k = 0; k < 4; k++)
            for (int e = 0; e < 4; e++) largest = max(largest, __float_as_uint(v[k][e]) & 0x7fffffff);
        unsigned short s = cacheScale<T>(__uint_as_float(__reduce_max_sync(~0u, largest)));
        if (lane == 0) (value ? valueScales<T>(c, block, head) : keyScales<T>(c, block, head))[offset] = s;
        unitOf = bf16ToFloat(s);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int i = k * 128 + lane;
        if (i >= n) break;
        unsigned code[4];
        for (int e = 0; e < 4; e++) code[e] = cacheCode<T>(v[k][e], unitOf);
        if ((n & 3) == 0) {
            if (codeBytes<T> == 2)
                *(uint2 *)(to + i * 2) = {code[0] | code[1] << 16, code[2] | code[3] << 16};
            else
                *(unsigned *)(to + i) = code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24;
            continue;
        }
        for (int e = 0; e < 4 && i + e < n; e++) {
            if (codeBytes<T> == 2)
                ((unsigned short *)to)[i + e] = code[e];
            else
                to[i + e] = code[e];
        }
    }
}

#define ROTARY_STORE(NAME, T)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                               \
        NAME(float *q, int qStride, const float *qkv, int qkvStride, const float *cosSin, int cosSinStride, int half,               \
             const float *qNorm, const float *kNorm, float eps, int flags, int H, const int *slots, CACHE_PARAMS)                   \
    {                                                                                                                               \
        rotaryStore<T>(q, qStride, qkv, qkvStride, cosSin, cosSinStride, half, qNorm, kNorm, eps, flags, H, slots, CACHE);          \
    }
ROTARY_STORE(rotary_store_f16, F16)
ROTARY_STORE(rotary_store_bf16, BF16)
ROTARY_STORE(rotary_store_f8, F8)
ROTARY_STORE(rotary_store_i8, I8)
