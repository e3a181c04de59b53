// Matrix products that CUTLASS writes: PTX by other people. D = alpha * A * B + beta * C.
#include <cutlass/gemm/device/gemm.h>
#include <cutlass/gemm/kernel/default_gemm.h>

template <class E, class Out, class Acc, int TM, int TN, int TK, int WM, int WN, int WK, int IK, int Stages, class LA, class LB>
using Kernel = typename cutlass::gemm::kernel::DefaultGemm<
    E, LA, 128 / cutlass::sizeof_bits<E>::value, E, LB, 128 / cutlass::sizeof_bits<E>::value, Out, cutlass::layout::RowMajor, Acc,
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80, cutlass::gemm::GemmShape<TM, TN, TK>, cutlass::gemm::GemmShape<WM, WN, WK>,
    cutlass::gemm::GemmShape<16, 8, IK>, cutlass::epilogue::thread::LinearCombination<Out, 128 / cutlass::sizeof_bits<Out>::value, Acc, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, Stages, false,
    typename cutlass::platform::conditional<(cutlass::sizeof_bits<E>::value == 8), cutlass::arch::OpMultiplyAddSaturate, cutlass::arch::OpMultiplyAdd>::type>::GemmKernel;

using Row = cutlass::layout::RowMajor;
using Col = cutlass::layout::ColumnMajor;
using F16 = Kernel<cutlass::half_t, float, float, 64, 64, 32, 32, 32, 32, 16, 3, Row, Row>;
using BF16 = Kernel<cutlass::bfloat16_t, float, float, 64, 64, 32, 32, 32, 32, 16, 4, Row, Col>;
using S8 = Kernel<int8_t, float, int32_t, 64, 64, 64, 32, 32, 64, 32, 3, Row, Col>;
using TF32 = Kernel<cutlass::tfloat32_t, float, float, 64, 64, 16, 32, 32, 16, 8, 3, Row, Col>;
using F16K8 = Kernel<cutlass::half_t, float, float, 64, 64, 32, 32, 32, 32, 8, 3, Row, Col>;

template <class K, class E, class LA, class LB>
__device__ void gemm(float *d, const E *a, const E *b, const float *c, int m, int n, int k, int lda, int ldb, float alpha, float beta) {
    extern __shared__ __align__(16) char smem[];
    cutlass::gemm::GemmCoord size(m, n, k);
    cutlass::gemm::GemmCoord tiled((m + K::Mma::Shape::kM - 1) / K::Mma::Shape::kM, (n + K::Mma::Shape::kN - 1) / K::Mma::Shape::kN, 1);
    typename K::Params p(size, tiled, {const_cast<E *>(a), LA(lda)}, {const_cast<E *>(b), LB(ldb)}, {const_cast<float *>(c), Row(n)}, {d, Row(n)}, {alpha, beta});
    K kernel;
    kernel(p, *reinterpret_cast<typename K::SharedStorage *>(smem));
}

extern "C" __global__ void gemm_f16(float *d, const cutlass::half_t *a, const cutlass::half_t *b, const float *c, int m, int n, int k, float alpha, float beta) {
    gemm<F16, cutlass::half_t, Row, Row>(d, a, b, c, m, n, k, k, n, alpha, beta);
}
extern "C" __global__ void gemm_bf16(float *d, const cutlass::bfloat16_t *a, const cutlass::bfloat16_t *b, const float *c, int m, int n, int k, float alpha, float beta) {
    gemm<BF16, cutlass::bfloat16_t, Row, Col>(d, a, b, c, m, n, k, k, k, alpha, beta);
}
extern "C" __global__ void gemm_s8(float *d, const int8_t *a, const int8_t *b, const float *c, int m, int n, int k, float alpha, float beta) {
    gemm<S8, int8_t, Row, Col>(d, a, b, c, m, n, k, k, k, alpha, beta);
}
extern "C" __global__ void gemm_tf32(float *d, const cutlass::tfloat32_t *a, const cutlass::tfloat32_t *b, const float *c, int m, int n, int k, float alpha, float beta) {
    gemm<TF32, cutlass::tfloat32_t, Row, Col>(d, a, b, c, m, n, k, k, k, alpha, beta);
}
extern "C" __global__ void gemm_f16_k8(float *d, const cutlass::half_t *a, const cutlass::half_t *b, const float *c, int m, int n, int k, float alpha, float beta) {
    gemm<F16K8, cutlass::half_t, Row, Col>(d, a, b, c, m, n, k, k, k, alpha, beta);
}
