// cache.cuh: where keys and values lie in the KV cache, and what its codes are. cache.go has the same in Go.
//
// A block holds, layer after layer:
//   keys          [heads][blockTokens][kDim]
//   values        [heads][blockTokens][vDim]
//   key scales    [heads][blockTokens] bfloat16, of fp8 and int8 alone
//   value scales  [heads][blockTokens] bfloat16, of fp8 and int8 alone
// and block id starts at id / blocksPerPage * pageBytes + id % blocksPerPage * blockBytes. Blocks, layers and each of the
// four arrays start at multiples of 16 bytes, as the launcher checks and blockTokens, a multiple of 16, makes them; a
// token's codes do so when their bytes are a multiple of 16. Types are numbered as kernels.DType. What scales and codes are
// is kernels.CacheLayout's rule; sm_86 converts no fp8, so codes are made and read by their bits.
#pragma once

enum { F16 = 1, BF16 = 2, F8 = 3, I8 = 4 };

// The parameters of a kernel that reads or writes one layer's cache, in the order of cacheArgs in cache.go.
#define CACHE_PARAMS \
    char *layer, long long pageBytes, long long blockBytes, int blocksPerPage, int blockTokens, int heads, int kDim, int vDim
#define CACHE \
    Cache { layer, pageBytes, blockBytes, blocksPerPage, blockTokens, heads, kDim, vDim }

struct Cache {
    char *layer;  // of block 0
    long long pageBytes, blockBytes;
    int blocksPerPage, blockTokens, heads, kDim, vDim;

    __device__ char *block(int id) const
    {
        return layer + (long long)(id / blocksPerPage) * pageBytes + (long long)(id % blocksPerPage) * blockBytes;
    }
};

template <int T> constexpr int codeBytes = T == F16 || T == BF16 ? 2 : 1;
template <int T> constexpr bool scaled = T == F8 || T == I8;
template <int T> constexpr float cacheTop = T == F8 ? 448.f : 127.f;

// A head's codes in a block (or its first token's): token t's are kDim or vDim further each.
template <int T> __device__ char *keys(const Cache &c, char *block, int head)
{
    return block + (long long)head * c.blockTokens * c.kDim * codeBytes<T>;
}
template <int T> __device__ char *values(const Cache &c, char *block, int head)
{
    return block + (long long)c.blockTokens * codeBytes<T> * (c.heads * c.kDim + head * c.vDim);
}

// A head's scales in a block, one a token.
template <int T> __device__ unsigned short *keyScales(const Cache &c, char *block, int head)
{
    return (unsigned short *)(block + (long long)c.blockTokens * c.heads * (c.kDim + c.vDim) * codeBytes<T>) + head * c.blockTokens;
}
template <int T> __device__ unsigned short *valueScales(const Cache &c, char *block, int head)
{
    return keyScales<T>(c, block, c.heads + head);
}

__device__ inline float bf16ToFloat(unsigned short b) { return __uint_as_float((unsigned)b << 16); }

__device__ inline unsigned short floatToBF16(float v)
{
    unsigned short b;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(v));
    return b;
}

__device__ inline unsigned short floatToHalf(float v)
{
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}

// cacheScale is the least bfloat16 that is not below largest / top, of the largest magnitude of a head; NaN when that is an
// infinity or a NaN.
template <int T> __device__ unsigned short cacheScale(float largest)
{
    if (!(largest <= 3.402823466e38f)) return 0x7fc0;
    return (unsigned short)((__float_as_uint(__fdiv_rn(largest, cacheTop<T>)) + 0xffff) >> 16);
}

// toE4M3 is the code nearest to v, the even one of two, for |v| up to 464. Below 2^-6 codes are 2^-9 apart, which is the
// last bit of 2^14; above, the mantissa is cut to 3 bits and the exponent's bias of 127 becomes 7.
__device__ inline unsigned toE4M3(float v)
{
    unsigned bits = __float_as_uint(v), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    unsigned small = __float_as_uint(__uint_as_float(size) + 16384.f) & 0xff;
    unsigned large = min((size + 0x7ffff + (size >> 20 & 1)) >> 20, 120u * 8 + 0x7e) - 120 * 8;
    return sign | (size < 0x3c800000 ? small : large);
}

// cacheCode is the code of v in a head of that scale, in the low bits.
template <int T> __device__ unsigned cacheCode(float v, float scale)
{
    if (T == F16) return floatToHalf(v);
    if (T == BF16) return floatToBF16(v);
    if (scale == 0 || scale != scale) return 0;
    v = __fdiv_rn(v, scale);
    return T == I8 ? (unsigned)__float2int_rn(v) & 0xff : toE4M3(v);
}

// codeUnit<T> times what codesToHalves gives is a code's value.
template <int T> constexpr float codeUnit = T == F8 ? 256.f : 1.f;

// codesToHalves makes four codes of a byte each two pairs of fp16, exactly. An fp8's bits, moved to where fp16 has them, are
// its value over 256; an int8's, with its sign flipped, are the last bits of 1024 + 128 + its value.
template <int T> __device__ void codesToHalves(unsigned codes, unsigned pairs[2])
{
    if (T == F8) {
        unsigned a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);
        pairs[0] = (a & 0x80008000) | (a & 0x7f007f00) >> 1;
        pairs[1] = (b & 0x80008000) | (b & 0x7f007f00) >> 1;
    } else {
        codes ^= 0x80808080;
        pairs[0] = __byte_perm(codes, 0x64646464, 0x4140);
        pairs[1] = __byte_perm(codes, 0x64646464, 0x4342);
        asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pairs[0]) : "r"(0x64806480));
        asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pairs[1]) : "r"(0x64806480));
    }
}
