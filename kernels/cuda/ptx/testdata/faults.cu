// Kernels that are wrong on purpose. A line that holds "FAULT kind" is where the interpreter must
// report that kind and no other; kernels whose name ends in _fixed are right.
#include <cstdint>

#define COPY16(dst, src) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(dst)), "l"(src))
#define COMMIT() asm volatile("cp.async.commit_group;")
#define WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

extern "C" __global__ void overrun(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        y[i] = 2; // FAULT bounds
}

extern "C" __global__ void shared_overrun(float *y, const float *x, int n) {
    __shared__ float s[64];
    s[threadIdx.x + 1] = 1; // FAULT bounds
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x | 1];
}

extern "C" __global__ void misaligned(float *y, const float *x, int n) {
    float2 v = *(const float2 *)(x + 1 + threadIdx.x * 2); // FAULT misaligned
    y[threadIdx.x] = v.x + v.y;
}

extern "C" __global__ void uninitialized(float *y, const float *x, int n) {
    float v = y[threadIdx.x]; // FAULT uninitialized
    y[threadIdx.x] = v + 1;
}

extern "C" __global__ void shared_uninitialized(float *y, const float *x, int n) {
    __shared__ float s[128];
    if (threadIdx.x < 32) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x]; // FAULT uninitialized
}

extern "C" __global__ void missing_barrier(float *y, const float *x, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x]; // FAULT race
}

extern "C" __global__ void missing_second_barrier(float *y, const float *x, int n) {
    __shared__ float s[64];
    for (int k = 0; k < 2; k++) {
        s[threadIdx.x] = x[threadIdx.x + 64 * k]; // FAULT race
        __syncthreads();
        y[threadIdx.x + 64 * k] = s[63 - threadIdx.x];
    }
}

extern "C" __global__ void both_barriers_fixed(float *y, const float *x, int n) {
    __shared__ float s[64];
    for (int k = 0; k < 2; k++) {
        s[threadIdx.x] = x[threadIdx.x + 64 * k];
        __syncthreads();
        y[threadIdx.x + 64 * k] = s[63 - threadIdx.x];
        __syncthreads();
    }
}

extern "C" __global__ void missing_warp_barrier(float *y, const float *x, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[threadIdx.x ^ 1]; // FAULT race
}

extern "C" __global__ void warp_barrier_fixed(float *y, const float *x, int n) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}

extern "C" __global__ void same_value_fixed(float *y, const float *x, int n) {
    __shared__ float s[16];
    s[threadIdx.x % 8] = threadIdx.x % 8; // lanes write what others of them write
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x % 8];
}

extern "C" __global__ void lanes_collide(float *y, const float *x, int n) {
    __shared__ float s[16];
    s[threadIdx.x % 8] = threadIdx.x; // FAULT race
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x % 8];
}

extern "C" __global__ void blocks_collide(float *y, const float *x, int n) {
    y[threadIdx.x] = blockIdx.x; // FAULT race
}

extern "C" __global__ void block_reads_neighbour(float *y, const float *x, int n) {
    volatile float *flag = y + 512;
    if (blockIdx.x == 0) {
        y[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) *flag = 1;
    } else {
        if (threadIdx.x == 0)
            while (*flag != 1) {}
        __syncthreads();
        y[threadIdx.x + 64] = y[threadIdx.x]; // FAULT race
    }
}

extern "C" __global__ void block_reads_neighbour_fixed(float *y, const float *x, int n) {
    volatile float *flag = y + 512;
    if (blockIdx.x == 0) {
        y[threadIdx.x] = x[threadIdx.x];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            *flag = 1;
        }
    } else {
        if (threadIdx.x == 0)
            while (*flag != 1) {}
        __syncthreads();
        y[threadIdx.x + 64] = y[threadIdx.x];
    }
}

extern "C" __global__ void missing_wait(float *y, const float *x, int n) {
    __shared__ __align__(16) float s[2][256];
    COPY16(&s[0][threadIdx.x * 4], x + threadIdx.x * 4);
    COMMIT();
    COPY16(&s[1][threadIdx.x * 4], x + threadIdx.x * 4 + 256);
    COMMIT();
    WAIT(1);
    __syncthreads();
    y[threadIdx.x] = s[0][threadIdx.x];
    y[threadIdx.x + 64] = s[1][threadIdx.x]; // FAULT race
}

extern "C" __global__ void barrier_without_wait(float *y, const float *x, int n) {
    __shared__ __align__(16) float s[256];
    COPY16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    COMMIT();
    __syncthreads();
    y[threadIdx.x] = s[255 - threadIdx.x]; // FAULT race
}

extern "C" __global__ void one_reader_waited_for(float *y, const float *x, int n) {
    // Of two reads of a place the write is ordered after one only.
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        y[threadIdx.x] = s[threadIdx.x];
        __syncwarp();
        s[threadIdx.x] = 3; // FAULT race
    } else {
        y[threadIdx.x] = s[threadIdx.x - 32];
    }
}

extern "C" __global__ void wait_without_barrier(float *y, const float *x, int n) {
    __shared__ __align__(16) float s[256];
    COPY16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    COMMIT();
    WAIT(0);
    y[threadIdx.x] = s[255 - threadIdx.x]; // FAULT race
}

extern "C" __global__ void refill_too_early(float *y, const float *x, int n) {
    __shared__ __align__(16) float s[256];
    float a = 0;
    for (int k = 0; k < 2; k++) {
        COPY16(&s[threadIdx.x * 4], x + threadIdx.x * 4 + 256 * k); // FAULT race
        COMMIT();
        WAIT(0);
        __syncthreads();
        a += s[255 - threadIdx.x];
    }
    y[threadIdx.x] = a;
}

extern "C" __global__ void stages_fixed(float *y, const float *x, int n) {
    __shared__ __align__(16) float s[2][256];
    COPY16(&s[0][threadIdx.x * 4], x + threadIdx.x * 4);
    COMMIT();
    float a = 0;
    for (int k = 0; k < 2; k++) {
        if (k == 0) COPY16(&s[1][threadIdx.x * 4], x + threadIdx.x * 4 + 256);
        COMMIT();
        WAIT(1);
        __syncthreads();
        a += s[k][255 - threadIdx.x];
        __syncthreads();
    }
    y[threadIdx.x] = a;
}

extern "C" __global__ void divergent_barrier(float *y, const float *x, int n) {
    if (threadIdx.x & 1) {
        y[threadIdx.x] = 1;
        __syncthreads(); // FAULT barrier-divergence
        y[threadIdx.x] = 2;
    }
    y[threadIdx.x] += x[threadIdx.x];
}

extern "C" __global__ void half_the_warps(float *y, const float *x, int n) {
    if (threadIdx.x >= 32) return;
    y[threadIdx.x] = 1;
    __syncthreads(); // FAULT barrier-divergence
    y[threadIdx.x] += x[threadIdx.x];
}

extern "C" __global__ void early_return_fixed(float *y, const float *x, int n) {
    __shared__ float s[64];
    float v = 0;
    if (threadIdx.x < 50) {
        v = x[threadIdx.x];
        if (v > 3) v -= 1;
    }
    s[threadIdx.x] = v;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x / 2];
}

extern "C" __global__ void two_barriers(float *y, const float *x, int n) {
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory"); // FAULT deadlock
    else
        asm volatile("bar.sync 2, 64;" ::: "memory"); // FAULT deadlock
    y[threadIdx.x] = x[threadIdx.x];
}

extern "C" __global__ void waits_for_ever(float *y, const float *x, int n) {
    volatile float *flag = (volatile float *)x;
    while (*flag != -5.0f) // FAULT deadlock
        ;
    y[threadIdx.x] = 1;
}
