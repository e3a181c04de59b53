// rates.cu: what a card can do at best, to hold the kernels of kernels/cuda against.
//   rate_copy, rate_read: 16 bytes a thread and load, 4 loads under way | n in units of 16 bytes, any; grid and block any
//   rate_mma_f32, rate_mma_f16: loops x 8 independent mma.m16n8k16 of fp16 a warp, sums in fp32 or fp16, nothing loaded;
//   one float a thread is stored at out, so that the compiler keeps the sums
#include <cuda_fp16.h>

// dst[i] = src[i].
extern "C" __global__ void rate_copy(uint4 *dst, const uint4 *src, int n)
{
    int step = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = src[i + k * step];
#pragma unroll
        for (int k = 0; k < 4; k++) dst[i + k * step] = v[k];
    }
    for (; i < n; i += step) dst[i] = src[i];
}

// Reads src; each thread stores the exclusive or of what it read at out.
extern "C" __global__ void rate_read(unsigned *out, const uint4 *src, int n)
{
    int step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, i = first;
    unsigned all = 0;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = src[i + k * step];
#pragma unroll
        for (int k = 0; k < 4; k++) all ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step) all ^= src[i].x ^ src[i].y ^ src[i].z ^ src[i].w;
    out[first] = all;
}

// Factors of a thread: fp16 numbers of about 1 and -1, so that sums stay small.
__device__ void factors(unsigned a[4], unsigned b[2])
{
    for (int i = 0; i < 4; i++) a[i] = 0x3c00bc00u ^ (threadIdx.x * 0x00010001u & 0x000f000fu);
    for (int i = 0; i < 2; i++) b[i] = 0x3800b800u ^ (threadIdx.x * 0x00010001u & 0x000f000fu);
}

// Sums in fp32.
extern "C" __global__ void rate_mma_f32(float *out, int loops)
{
    unsigned a[4], b[2];
    factors(a, b);
    float c[8][4] = {};
    for (int l = 0; l < loops; l++) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                         : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    float sum = 0;
    for (int k = 0; k < 8; k++) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Sums in fp16.
extern "C" __global__ void rate_mma_f16(float *out, int loops)
{
    unsigned a[4], b[2], c[8][2] = {};
    factors(a, b);
    for (int l = 0; l < loops; l++) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                         : "+r"(c[k][0]), "+r"(c[k][1])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    unsigned all = 0;
    for (int k = 0; k < 8; k++) all ^= c[k][0] ^ c[k][1];
    out[blockIdx.x * blockDim.x + threadIdx.x] = __uint_as_float(all);
}
