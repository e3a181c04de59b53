// CUDA's own library functions, atomics and parameters by value; expectations in library_test.go.
#include <cuda_fp16.h>

extern "C" __global__ void maths(float *y, const float *a, int n) {
    int i = threadIdx.x;
    float x = a[i];
    float *o = y + 16 * i;
    o[0] = expf(x);
    o[1] = logf(x);
    o[2] = sinf(x);
    o[3] = cosf(x);
    o[4] = tanhf(x);
    o[5] = powf(x, 1.5f);
    o[6] = erff(x);
    o[7] = rsqrtf(x);
    o[8] = __expf(x);
    o[9] = __fdividef(x, 3.0f);
    o[10] = fmodf(x, 0.7f);
    o[11] = (float)pow((double)x, 0.3);
    o[12] = n / (i + 1) + n % (i + 3);
    o[13] = (float)((long long)n * n / (i + 7));
    o[14] = log1pf(x);
    o[15] = sinf(x * 1e6f); // the long way round: 2/pi in local memory
}

struct P {
    int a;
    float b[5];
    long c;
};
extern "C" __global__ void params(float *y, P p, char c, short s, double d, int k) {
    y[threadIdx.x] = p.a + p.b[(k + threadIdx.x) % 5] + p.c + c + s + d;
}

extern "C" __global__ void atomics(int *p, float *q, unsigned long long *r, half2 *h, double *d, int *y) {
    int t = threadIdx.x;
    atomicAdd(p, t);
    atomicMin(p + 1, t - 5);
    atomicMax((unsigned *)p + 2, t);
    atomicOr(p + 3, 1 << (t & 31));
    atomicXor(p + 4, t);
    atomicInc((unsigned *)p + 5, 9);
    atomicDec((unsigned *)p + 6, 9);
    atomicAnd(p + 7, ~(1 << (t & 3)));
    atomicAdd(q, 0.5f);
    atomicAdd(r, 3ull);
    atomicAdd(h, __floats2half2_rn(1, 2));
    atomicAdd(d, 0.25);
    __shared__ int s[4];
    if (t < 4) s[t] = 0;
    __syncthreads();
    atomicAdd(s + t % 4, 1);
    __syncthreads();
    y[t] = s[t % 4] + (atomicCAS(p + 8, 0, 7) == 0 ? 100 : 0);
}

extern "C" __global__ void halfs(half2 *y, const half2 *a, const half2 *b) {
    half2 u = a[threadIdx.x], v = b[threadIdx.x];
    half2 *o = y + 8 * threadIdx.x;
    o[0] = __hlt2(u, v);
    o[1] = __hmax2(u, v);
    o[2] = __h2div(u, v);
    o[3] = __hadd2_sat(u, v);
    o[4] = __habs2(__hneg2(u));
    o[5] = __hfma2_relu(u, v, u);
    o[6] = __halves2half2(htrunc(__low2half(u)), __high2half(v));
    o[7] = h2exp2(u);
}
