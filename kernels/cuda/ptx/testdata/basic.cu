// Kernels that show each part of the interpreter at work; expectations stand in basic_test.go.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

__constant__ float table[4] = {1.0f, 2.5f, -3.0f, 4.0f};
__device__ unsigned counter;

__device__ __noinline__ float poly(float x, int n) {
    float s = 0;
    for (int i = 0; i < n; i++) s = s * x + i;
    return s;
}

extern "C" __global__ void saxpy(float *y, const float *__restrict__ x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

// Divergent control flow, a call, local memory, constants and a switch.
extern "C" __global__ void paths(float *y, const int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i];
    float stack[8];
    for (int j = 0; j < 8; j++) stack[j] = j * v;
    float r = 0;
    while (v > 0) {
        if (v & 1) r += poly(r, v & 3);
        else if (v & 2) r -= 1;
        v >>= 1;
    }
    switch (x[i]) {
    case 0: r += 1; break;
    case 1: r *= 2; break;
    case 2: r -= table[1]; break;
    case 3: r += table[2]; break;
    case 4: r = 7; break;
    case 5: r = -r; break;
    case 6: r += 9; break;
    case 7: r *= r; break;
    case 8: r += 0.5f; break;
    case 9: r = table[x[i] & 3]; break;
    }
    y[i] = r + stack[x[i] & 7];
}

// Block sum through shared memory and shuffles; the last block to finish adds the parts.
extern "C" __global__ void sum(const float *x, float *parts, float *out, int n) {
    __shared__ float s[32];
    __shared__ bool last;
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float t = 0;
        for (int i = 0; i < blockDim.x / 32; i++) t += s[i];
        parts[blockIdx.x] = t;
        __threadfence();
        last = atomicInc(&counter, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        float t = 0;
        for (int i = 0; i < gridDim.x; i++) t += parts[i];
        *out = t;
    }
}

// A lock taken by lanes of one warp: each must get its turn.
extern "C" __global__ void locked(int *lock, int *value) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)value += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Transposition of a 32x32 tile, with padding against bank conflicts or without.
template <int P> __device__ void transpose(float *y, const float *x) {
    __shared__ float t[32][32 + P];
    for (int r = threadIdx.y; r < 32; r += blockDim.y) t[r][threadIdx.x] = x[r * 32 + threadIdx.x];
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += blockDim.y) y[r * 32 + threadIdx.x] = t[threadIdx.x][r];
}
extern "C" __global__ void transpose_padded(float *y, const float *x) { transpose<1>(y, x); }
extern "C" __global__ void transpose_plain(float *y, const float *x) { transpose<0>(y, x); }

// y[16,8] = a[16,16] * b[16,8] by cp.async, ldmatrix and mma.
extern "C" __global__ void product(float *y, const half *a, const half *b) {
    __shared__ __align__(16) half sa[16 * 16], sb[16 * 8];
    unsigned pa = (unsigned)__cvta_generic_to_shared(sa), pb = (unsigned)__cvta_generic_to_shared(sb);
    int l = threadIdx.x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(pa + l * 16), "l"(a + l * 8));
    asm volatile("cp.async.commit_group;");
    if (l < 16) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(pb + l * 16), "l"(b + l * 8));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    uint32_t A[4], B[2];
    float d[4] = {0, 0, 0, 0};
    unsigned ra = pa + ((l % 16) * 16 + (l / 16) * 8) * 2, rb = pb + (l % 16) * 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(A[0]), "=r"(A[1]), "=r"(A[2]), "=r"(A[3]) : "r"(ra));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(B[0]), "=r"(B[1]) : "r"(rb));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
    int g = l / 4, t = l % 4;
    y[g * 8 + 2 * t] = d[0];
    y[g * 8 + 2 * t + 1] = d[1];
    y[(g + 8) * 8 + 2 * t] = d[2];
    y[(g + 8) * 8 + 2 * t + 1] = d[3];
}

// Votes, matches and reductions of a warp.
extern "C" __global__ void warp_ops(unsigned *y, const unsigned *x) {
    unsigned l = threadIdx.x, v = x[l];
    unsigned *o = y + l * 16;
    o[0] = __ballot_sync(~0u, v & 1);
    o[1] = __any_sync(~0u, v == 3);
    o[2] = __all_sync(~0u, v < 1000);
    o[3] = __match_any_sync(~0u, v);
    int p;
    o[4] = __match_all_sync(~0u, v, &p);
    o[5] = p;
    o[6] = __reduce_add_sync(~0u, v);
    o[7] = __reduce_max_sync(~0u, v);
    o[8] = __shfl_xor_sync(~0u, v, 5);
    o[9] = __shfl_up_sync(~0u, v, 3);
    o[10] = __shfl_sync(~0u, v, l + 7, 8);
    o[11] = __shfl_down_sync(~0u, v, 2, 16);
    o[12] = __syncthreads_count(v & 1);
    o[13] = __syncthreads_or(v == 3);
    o[14] = __reduce_xor_sync(~0u, v);
    if (l < 13) o[15] = __activemask();
    else o[15] = __ballot_sync(0xffffe000, v & 2);
}

// Every block waits for every other one, whatever the order they start in.
extern "C" __global__ void grid_barrier(int *bar, int *out, int n) {
    if (threadIdx.x == 0) {
        out[blockIdx.x] = blockIdx.x * 3;
        __threadfence();
        atomicAdd(bar, 1);
        while (*(volatile int *)bar < n) {}
        __threadfence();
    }
    __syncthreads();
    out[n + blockIdx.x * blockDim.x + threadIdx.x] = out[(blockIdx.x + 1) % n] + threadIdx.x;
}
