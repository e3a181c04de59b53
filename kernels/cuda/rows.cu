// rows.cu: what works on one row of float32 at a time.
//   x, dst float32, any alignment of 4 bytes; stride in elements from row to row
//   a block takes one row; threads stride over its columns
//   reference: kernels/ref | cases: kernels/kerneltest/rows.go

// dst[i] = x[rows[i]]; grid (rows).
extern "C" __global__ void gather_rows(float *dst, int dstStride, const float *x, int xStride, const int *rows, int cols)
{
    const float *from = x + (long long)rows[blockIdx.x] * xStride;
    float *to = dst + (long long)blockIdx.x * dstStride;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) to[i] = from[i];
}
