// linear_end.cuh: what becomes of the sums of linear_decode: the operators that take its outputs one by one. Needs linear.cuh and row.cuh.
//
// Each gives the bits that it gives as a launch of its own: the same functions of the same float32 values.
#pragma once

enum Mode { STORE, ADD, GATE, CONV };

// Convolution is conv.cu's for tokens each of which is a run of its own, with a state of its own: n columns before a token, their place as there.
struct Convolution {
    float *dst; // [T,C]
    int stride;
    const float *w; // [C,n+1]
    int C, n;
    char *pages;
    long long pageBytes;
    const int *in, *out; // [T][statePages]
    int statePages, perPage, firstUnit, unitChannels;
    long long unitBytes;

    // step is channel c of token t, y being its value.
    __device__ void step(int t, int c, float y) const
    {
        int unit = firstUnit + c / unitChannels, page = t * statePages + unit / perPage;
        long long at = unit % perPage * unitBytes + (long long)(c % unitChannels) * n * 4;
        const float *before = (const float *)(pages + in[page] * pageBytes + at);
        float *left = (float *)(pages + out[page] * pageBytes + at); // may be before: a column is read before it is written
        const bool zeros = in[t * statePages] == 0;
        float sum = 0;
        if (n == 3) {
            float a = 0, b = 0, d = 0;
            if (!zeros) a = before[0], b = before[1], d = before[2];
            float4 f = load4(w + c * 4, 0, 4, aligned(w, 0));
            sum = fmaf(f.w, y, fmaf(f.z, d, fmaf(f.y, b, fmaf(f.x, a, sum))));
            left[0] = b, left[1] = d, left[2] = y;
        } else {
            const float *f = w + c * (n + 1);
            for (int j = 0; j < n; j++) {
                float v = zeros ? 0 : before[j];
                sum = fmaf(f[j], v, sum);
                if (j > 0) left[j - 1] = v;
            }
            left[n - 1] = y;
            sum = fmaf(f[n], y, sum);
        }
        dst[(long long)t * stride + c] = activate(sum, SiLU);
    }
};

// End is what a launch does with its sums.
struct End {
    int mode;
    int gate; // the function of GATE
    float *dst;
    int stride;
    int first; // channel of output 0
    Convolution conv;

    // strip is the one that is `local` of a block's `strips`, of N outputs; -1: there is none.
    __device__ int strip(int block, int local, int strips, int N) const
    {
        if (mode != GATE) {
            int s = block * strips + local;
            return s * 16 < N ? s : -1;
        }
        int half = strips / 2, s = block * half + local % half;
        return s * 32 >= N ? -1 : local < half ? s : s + N / 32;
    }

    // finish takes the sums of a block's outputs: sum(t, o) is that of output o of its strips for token t.
    template <class Sum>
    __device__ void finish(Sum sum, int block, int tokens, int strips, const float *bias, const float *inverse, int T, int N) const
    {
        const int outputs = mode == GATE ? strips * 8 : strips * 16, most = mode == GATE ? N / 2 : N;
        for (int i = threadIdx.x; i < tokens * outputs; i += blockDim.x) {
            int t = i / outputs, o = i % outputs, n = block * outputs + o;
            if (t >= T || n >= most) continue;
            float y = output(sum(t, o), inverse[t], bias, n);
            if (mode == GATE) {
                float up = output(sum(t, o + outputs), inverse[t], bias, n + most);
                y = up * activate(y, gate);
            }
            if (mode == CONV && first + n < conv.C) {
                conv.step(t, first + n, y);
                continue;
            }
            float *to = dst + (long long)t * stride + n;
            *to = mode == ADD ? __fadd_rn(*to, y) : y;
        }
    }
};
