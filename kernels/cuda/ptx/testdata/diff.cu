// Runs diff.h on the card: out[i] is the row of results for input i (five words).
#include "diff.h"

extern "C" __global__ void results(uint64_t *out, const uint64_t *in, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const uint64_t *w = in + 5 * i;
    compute(out + (int64_t)i * width, w[0], w[1], w[2], w[3], w[4]);
}
