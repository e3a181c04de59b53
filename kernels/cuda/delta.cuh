// delta.cuh: the gated delta rule token by token, by warps. Included by delta.cu and delta_chunk.cu.
//   A warp takes SLAB = 16 columns of one head's state S [K,V] through the tokens of a run. Columns do not meet, so warps
//   never do, but for the keys and queries of a tile of tokens that a block makes together.
//   lane = 8 g + p holds columns 4g to 4g+3 of rows 4 (p + 8 i) + j, i < R/4, j < 4, in S[4i+j][]; so a load of a row's four
//   columns takes 64 bytes from each of 8 rows, and keys come from shared memory 16 bytes a lane without a conflict.
//   Sums over K go up the lane's rows, then over p in three shuffles which leave column 4g + p/2 with lane 8 g + p.
//   Every value is computed in one order from the float32 state that the token before left, so runs can be cut anywhere.
//   Arithmetic is spelled out with intrinsics: both kernels must give the same bits.

enum {
    SLAB = 16, // columns of a warp
    TILE = 4,  // tokens: twice as many would take 20 registers more ahead, and spill
};

// Where a layer's states lie (kernels.StateLayout) and what its runs are (kernels.Runs).
struct DeltaState {
    char *pages;
    long long pageBytes;
    const int *in, *out; // [runs, statePages]
    int perPage, firstUnit, statePages, H, K, V;

    // Where a run's list has the page with a head's state, and where the state is on it.
    __device__ const int *entry(const int *list, int run, int h) const { return list + (long long)run * statePages + (firstUnit + h) / perPage; }
    __device__ float *head(long long page, int h) const
    {
        return (float *)(pages + page * pageBytes + (long long)((firstUnit + h) % perPage) * K * V * 4);
    }
};

// A layer's inputs, and one head's part of them.
struct DeltaInputs {
    const float *qkv, *a, *b;
    float *dst;
    long long qkvStride, aStride, bStride, dstStride;
    float rate, bias, eps;
    int q, k, v, y, h; // columns of qkv where the head's query, key and value begin, of dst where its output does, of a and b
};

__device__ inline DeltaInputs deltaInputs(float *dst, int dstStride, const float *qkv, int qkvStride, const float *a, int aStride,
    const float *b, int bStride, float rate, float bias, float eps, int G, int h, int H, int K, int V)
{
    int g = h / (H / G);
    return {qkv, a, b, dst, qkvStride, aStride, bStride, dstStride, rate, bias, eps, g * K, (G + g) * K, 2 * G * K + h * V,
        h * V, h};
}

__device__ inline float sumLanes(float x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

// lengthOf returns what a key or query, of which a warp's lane l holds elements l + 32 i, is multiplied by to have length `scale`.
template <int N> __device__ inline float lengthOf(const float (&x)[N], float eps, float scale)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < N; i++) s = __fmaf_rn(x[i], x[i], s);
    return __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(sumLanes(s), eps)));
}

template <int N> __device__ inline void unitLength(float (&x)[N], float eps, float scale)
{
    float r = lengthOf(x, eps, scale);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = __fmul_rn(x[i], r);
}

// What S is multiplied by before a token: exp(-rate * softplus(a + bias)).
__device__ inline float deltaDecay(float a, float rate, float bias)
{
    float x = __fadd_rn(a, bias);
    float softplus = x > 20 ? x : log1pf(expf(x));
    return expf(__fmul_rn(-rate, softplus));
}

__device__ inline float deltaBeta(float b) { return __fdiv_rn(1, __fadd_rn(1, expf(-b))); }

// spread sums four columns over the 8 lanes of equal g; lane 8 g + p gets column p/2.
__device__ inline float spread(const float (&x)[4], int p)
{
    bool hi = p & 4, odd = p & 2;
    float a = __fadd_rn(hi ? x[2] : x[0], __shfl_xor_sync(~0u, hi ? x[0] : x[2], 4));
    float b = __fadd_rn(hi ? x[3] : x[1], __shfl_xor_sync(~0u, hi ? x[1] : x[3], 4));
    float s = __fadd_rn(odd ? b : a, __shfl_xor_sync(~0u, odd ? a : b, 2));
    return __fadd_rn(s, __shfl_xor_sync(~0u, s, 1));
}

// The keys and queries of some tokens, unit length, zeros from K on, and their decays and betas.
template <int R> struct DeltaTile {
    float key[TILE][8 * R], query[TILE][8 * R], decay[TILE], beta[TILE];
};

// DeltaAhead is what a thread fetches of a tile before it is its turn: raw keys and queries of the tokens that its warp
// makes, the gates of one token, and the values of its column in all.
template <int R, int Warps> struct DeltaAhead {
    enum { N = R / 4, EACH = TILE / Warps };
    float k[EACH][N], q[EACH][N], a, b, v[TILE];

    __device__ void fetch(const DeltaInputs &x, long long from, int T, int K, int col, bool mine)
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            int t = warp + m * Warps;
            const float *row = x.qkv + (from + t) * x.qkvStride;
#pragma unroll
            for (int i = 0; i < N; i++) {
                int e = lane + 32 * i;
                bool there = t < T && e < K;
                k[m][i] = there ? row[x.k + e] : 0;
                q[m][i] = there ? row[x.q + e] : 0;
            }
        }
        a = b = 0;
        if (threadIdx.x < TILE && threadIdx.x < T) {
            a = x.a[(from + threadIdx.x) * x.aStride + x.h];
            b = x.b[(from + threadIdx.x) * x.bStride + x.h];
        }
#pragma unroll
        for (int t = 0; t < TILE; t++) v[t] = mine && t < T ? x.qkv[(from + t) * x.qkvStride + x.v + col] : 0;
    }

    __device__ void put(DeltaTile<R> &tile, const DeltaInputs &x, int T, int K)
    {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float scale = __fdiv_rn(1, __fsqrt_rn((float)K));
#pragma unroll
        for (int m = 0; m < EACH; m++) {
            int t = warp + m * Warps;
            if (t >= T) break;
            unitLength(k[m], x.eps, 1);
            unitLength(q[m], x.eps, scale);
#pragma unroll
            for (int i = 0; i < N; i++) {
                tile.key[t][lane + 32 * i] = k[m][i];
                tile.query[t][lane + 32 * i] = q[m][i];
            }
        }
        if (threadIdx.x < TILE) {
            tile.decay[threadIdx.x] = deltaDecay(a, x.rate, x.bias);
            tile.beta[threadIdx.x] = deltaBeta(b);
        }
    }
};

// deltaStep takes the warp's columns through one token and returns the lane's column of S^T q; v is its value there.
template <int R> __device__ inline float deltaStep(float (&S)[R][4], const float *key, const float *query, float decay, float beta, float v)
{
    int lane = threadIdx.x % 32, p = lane % 8;
    float known[4] = {0, 0, 0, 0}, out[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < R / 4; i++) {
        float4 k4 = ((const float4 *)key)[p + 8 * i];
        float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) known[c] = __fmaf_rn(S[4 * i + j][c], k[j], known[c]);
    }
    float mine = __fmul_rn(beta, __fmaf_rn(-decay, spread(known, p), v));
    float e[4];
#pragma unroll
    for (int c = 0; c < 4; c++) e[c] = __shfl_sync(~0u, mine, (lane & 24) + 2 * c);
#pragma unroll
    for (int i = 0; i < R / 4; i++) {
        float4 k4 = ((const float4 *)key)[p + 8 * i], q4 = ((const float4 *)query)[p + 8 * i];
        float k[4] = {k4.x, k4.y, k4.z, k4.w}, q[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float &s = S[4 * i + j][c];
                s = __fmaf_rn(k[j], e[c], __fmul_rn(decay, s));
                out[c] = __fmaf_rn(s, q[j], out[c]);
            }
    }
    return spread(out, p);
}

// deltaSteps takes the warp's columns, from `slab` on, through T tokens from token `from` on. All threads of the block call it.
template <int R, int Warps>
__device__ inline void deltaSteps(float (&S)[R][4], DeltaTile<R> (&tiles)[2], const DeltaInputs &x, long long from, int T, int slab, int K, int V)
{
    int lane = threadIdx.x % 32;
    int col = slab + lane / 8 * 4 + lane % 8 / 2; // whose sums the lane ends with
    bool mine = col < V;
    DeltaAhead<R, Warps> ahead;
    ahead.fetch(x, from, T, K, col, mine);
    for (int at = 0, n = 0; at < T; at += TILE, n ^= 1) {
        DeltaTile<R> &tile = tiles[n];
        ahead.put(tile, x, T - at, K);
        float v[TILE];
#pragma unroll
        for (int t = 0; t < TILE; t++) v[t] = ahead.v[t];
        // One barrier a tile: who is past it has left the tile before, which is overwritten next.
        __syncthreads();
        if (at + TILE < T) ahead.fetch(x, from + at + TILE, T - at - TILE, K, col, mine);
        if (slab >= V) continue;
#pragma unroll
        for (int t = 0; t < TILE; t++) {
            if (at + t >= T) break;
            float y = deltaStep<R>(S, tile.key[t], tile.query[t], tile.decay[t], tile.beta[t], v[t]);
            if (mine && lane % 2 == 0) x.dst[(from + at + t) * x.dstStride + x.y + col] = y;
        }
    }
    __syncthreads(); // the next run's first tile may be the one that was read last
}

// loadState fills the warp's columns from a head's state, or with zeros where from is null. Whole: K = 8 R, V % 16 == 0 and
// states lie on multiples of 16 bytes.
template <int R, bool Whole> __device__ inline void loadState(float (&S)[R][4], const float *from, int slab, int K, int V)
{
    int lane = threadIdx.x % 32, col = slab + lane / 8 * 4;
#pragma unroll
    for (int i = 0; i < R; i++) {
        int row = 4 * (lane % 8 + i / 4 * 8) + i % 4;
        float4 s = {0, 0, 0, 0};
        if (from && Whole) s = *(const float4 *)(from + row * V + col);
        S[i][0] = s.x, S[i][1] = s.y, S[i][2] = s.z, S[i][3] = s.w;
        if (from && !Whole && row < K)
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (col + c < V) S[i][c] = from[row * V + col + c];
    }
}

template <int R, bool Whole> __device__ inline void storeState(const float (&S)[R][4], float *to, int slab, int K, int V)
{
    int lane = threadIdx.x % 32, col = slab + lane / 8 * 4;
#pragma unroll
    for (int i = 0; i < R; i++) {
        int row = 4 * (lane % 8 + i / 4 * 8) + i % 4;
        if (Whole)
            // nvcc would take a store of a float4 apart.
            asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + row * V + col), "f"(S[i][0]), "f"(S[i][1]), "f"(S[i][2]),
                "f"(S[i][3]) : "memory");
        else if (row < K)
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (col + c < V) to[row * V + col + c] = S[i][c];
    }
}

#define DELTA_PARAMETERS                                                                                                          \
    float *dst, int dstStride, const float *qkv, int qkvStride, const float *a, int aStride, const float *b, int bStride,         \
        const float *rate, const float *bias, float eps, int G, char *pages, long long pageBytes, const int *starts, const int *in, \
        const int *out, const int *chains, int perPage, int firstUnit, int statePages, int H, int K, int V
#define DELTA_STATE DeltaState{pages, pageBytes, in, out, perPage, firstUnit, statePages, H, K, V}
#define DELTA_INPUTS(h, rate, bias) deltaInputs(dst, dstStride, qkv, qkvStride, a, aStride, b, bStride, rate, bias, eps, G, h, H, K, V)
