// rows.cu: what works on one row of float32 at a time.
//   x, dst, gate float32, w float32 of one row; any alignment of 4 bytes, 16 bytes at once where all of an operator's rows
//   have it; stride in elements from row to row
//   rms_norm, rms_norm_add: a block takes a row; sums are those of rowScale, whatever the block and the alignment
//   norm_gate: a warp takes a head | others: a thread takes four neighbours
//   reference: kernels/ref | cases: kernels/kerneltest/rows.go, gates.go
#include "row.cuh"

// dst[t] = x[t] / rms * w, dst may be x; grid (rows).
extern "C" __global__ void rms_norm(float *dst, int dstStride, const float *x, int xStride, const float *w, int cols, float eps)
{
    dst += (long long)blockIdx.x * dstStride, x += (long long)blockIdx.x * xStride;
    bool vec = aligned(dst, dstStride) && aligned(x, xStride) && aligned(w, 0);
    float scale = rowScale([&](int p, int i) { return load4(x, inputOf(p) + 16 * i, cols, vec); }, cols, eps);
    for (int i = threadIdx.x * 4; i < cols; i += blockDim.x * 4)
        store4(dst, i, cols, vec, normed(load4(x, i, cols, vec), scale, load4(w, i, cols, vec)));
}

// dst[t] = (dst[t] + x[t] / rms * w) * by; grid (rows).
extern "C" __global__ void rms_norm_add(float *dst, int dstStride, const float *x, int xStride, const float *w, int cols, float eps,
                                        float by)
{
    dst += (long long)blockIdx.x * dstStride, x += (long long)blockIdx.x * xStride;
    bool vec = aligned(dst, dstStride) && aligned(x, xStride) && aligned(w, 0);
    float scale = rowScale([&](int p, int i) { return load4(x, inputOf(p) + 16 * i, cols, vec); }, cols, eps);
    for (int i = threadIdx.x * 4; i < cols; i += blockDim.x * 4) {
        float4 v = load4(x, i, cols, vec), f = load4(w, i, cols, vec), y = load4(dst, i, cols, vec);
        y.x = (y.x + v.x * scale * f.x) * by;
        y.y = (y.y + v.y * scale * f.y) * by;
        y.z = (y.z + v.z * scale * f.z) * by;
        y.w = (y.w + v.w * scale * f.w) * by;
        store4(dst, i, cols, vec, y);
    }
}

// Over each head of n values: dst[t] = x[t] / rms * w * silu(gate[t]), dst may be x; grid (ceil(rows * heads / warps of a block)).
extern "C" __global__ void norm_gate(float *dst, int dstStride, const float *x, int xStride, const float *gate, int gateStride,
                                     const float *w, int rows, int heads, int n, float eps)
{
    int head = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32 * 4;
    if (head >= rows * heads) return;
    int t = head / heads;
    head -= t * heads;
    bool vec = aligned(dst, dstStride) && aligned(x, xStride) && aligned(gate, gateStride) && aligned(w, n);
    dst += (long long)t * dstStride + head * n, x += (long long)t * xStride + head * n, gate += (long long)t * gateStride + head * n;
    float scale = headScale([&](int i) { return load4(x, i, n, vec); }, n, eps);
    for (int i = lane; i < n; i += 128)
        store4(dst, i, n, vec, gated(normed(load4(x, i, n, vec), scale, load4(w, i, n, vec)), load4(gate, i, n, vec), SiLU));
}

// dst[t] = f(gate[t]) * x[t], dst may be x; grid (rows, ceil(cols / 4 / threads)).
template <int F>
__device__ void gateMul(float *dst, int dstStride, const float *gate, int gateStride, const float *x, int xStride, int cols)
{
    int i = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    if (i >= cols) return;
    bool vec = aligned(dst, dstStride) && aligned(x, xStride) && aligned(gate, gateStride);
    float4 g = load4(gate + (long long)blockIdx.x * gateStride, i, cols, vec), v = load4(x + (long long)blockIdx.x * xStride, i, cols, vec);
    store4(dst + (long long)blockIdx.x * dstStride, i, cols, vec, gated(v, g, F));
}

extern "C" __global__ void gate_mul_silu(float *dst, int dstStride, const float *gate, int gateStride, const float *x, int xStride, int cols)
{
    gateMul<SiLU>(dst, dstStride, gate, gateStride, x, xStride, cols);
}

extern "C" __global__ void gate_mul_gelu(float *dst, int dstStride, const float *gate, int gateStride, const float *x, int xStride, int cols)
{
    gateMul<GELUTanh>(dst, dstStride, gate, gateStride, x, xStride, cols);
}

extern "C" __global__ void gate_mul_sigmoid(float *dst, int dstStride, const float *gate, int gateStride, const float *x, int xStride,
                                            int cols)
{
    gateMul<Sigmoid>(dst, dstStride, gate, gateStride, x, xStride, cols);
}

// x[t] = c * tanh(x[t] / c); grid (rows, ceil(cols / 4 / threads)).
extern "C" __global__ void soft_cap(float *x, int xStride, int cols, float c)
{
    int i = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    if (i >= cols) return;
    bool vec = aligned(x, xStride);
    x += (long long)blockIdx.x * xStride;
    float4 v = load4(x, i, cols, vec);
    store4(x, i, cols, vec, {c * tanhf(v.x / c), c * tanhf(v.y / c), c * tanhf(v.z / c), c * tanhf(v.w / c)});
}

// dst[i] = x[rows[i]]; grid (rows, ceil(cols / 4 / threads)).
extern "C" __global__ void gather_rows(float *dst, int dstStride, const float *x, int xStride, const int *rows, int cols)
{
    int i = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    if (i >= cols) return;
    bool vec = aligned(dst, dstStride) && aligned(x, xStride);
    float4 v = load4(x + (long long)rows[blockIdx.x] * xStride, i, cols, vec);
    store4(dst + (long long)blockIdx.x * dstStride, i, cols, vec, v);
}
