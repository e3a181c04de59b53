// sample.cu: one token from each row of logits, and its log probability.
//   x float32 [S, >= V], any stride, V <= 2^18; what is drawn is defined by kernels/sampling, number by number
//   S rows; V ids; a stretch is 1,024 ids; sample.cuh has the records, keys and weights
//
//   sample_peaks  grid (stretches, S)     the changed copy of rows that change; the largest of each stretch
//   sample_weigh  grid (stretches, jobs)  V > WINDOW only: weights of each stretch, or of each of 256 bins below the largest
//   sample_pick   grid (S)                the token, its log probability and rank, the most likely ids
//
// A decision is a place in the order of keys: the K-th, the first with a share of all weights, the one that a uniform number
// falls on. A window is a run of that order, sorted in shared memory. The bins say which run holds a place; one pass over
// those stretches whose largest reaches so far down fetches it. Should a bin hold more than a window (a row of equals),
// further passes count digits of keys. Without cuts the order is that of ids, and a window is a stretch.
//
// Greedy rows are read once; others twice, and those stretches again that hold what can be drawn.
//   reference: kernels/sampling | cases: kernels/kerneltest/sample.go, sample_test.go | numbers: kernels/KERNELS.md
#include "sample.cuh"

constexpr int WINDOW = 1024; // elements; a stretch at least

// --- over a block -------------------------------------------------------------------------------------------------

__shared__ u64 scratch[32]; // one for each warp

__device__ u64 least(u64 a, u64 b) { return a < b ? a : b; }
__device__ u64 sum(u64 a, u64 b) { return a + b; }

// Every thread gets the whole.
template <u64 op(u64, u64)> __device__ u64 reduce(u64 v)
{
    for (int o = 16; o > 0; o /= 2) v = op(v, __shfl_xor_sync(~0u, v, o));
    if (blockDim.x == 32) return v;
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = scratch[threadIdx.x % (blockDim.x / 32)];
    for (int o = blockDim.x / 64; o > 0; o /= 2) v = op(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

__device__ u64 sum(u64 v) { return reduce<sum>(v); }

// The sum of v of the threads before this one; *all gets that of all.
__device__ u64 before(u64 v, u64 *all)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = v;
    for (int o = 1; o < 32; o *= 2) {
        u64 w = __shfl_up_sync(~0u, sum, o);
        if (lane >= o) sum += w;
    }
    __syncthreads();
    if (lane == 31) scratch[warp] = sum;
    __syncthreads();
    u64 from = 0;
    *all = 0;
    for (int i = 0; i < blockDim.x / 32; i++) {
        if (i == warp) from = *all;
        *all += scratch[i];
    }
    return from + sum - v;
}

// The key of the row's largest.
__device__ u64 least(const u64 *peaks, int vocab)
{
    u64 k = ~0ull;
    for (int i = threadIdx.x; i < stretches(vocab); i += blockDim.x) k = least(k, peaks[i]);
    return reduce<least>(k);
}

// weight, for where it is needed too seldom to stand in several places.
__device__ __noinline__ u64 weightOnce(float v, float largest, float scale) { return weight(v, largest, scale); }

// --- passes over all rows -----------------------------------------------------------------------------------------

// bins[0, words) become zero.
extern "C" __global__ void __launch_bounds__(128) sample_peaks(const Row *rows, int vocab, u32 *bins, int words)
{
    __shared__ float copy[STRETCH];
    for (int i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += gridDim.x * gridDim.y * blockDim.x)
        bins[i] = 0;
    const Row &r = rows[blockIdx.y];
    const float *x = r.score.x;
    float *y = r.changed;
    int from = blockIdx.x * STRETCH, end = min(from + STRETCH, vocab);
    u64 k = ~0ull;
#pragma unroll 8
    for (int i = from + threadIdx.x; i < end; i += blockDim.x) k = least(k, x[i] == x[i] ? key(x[i], i) : 0);
    k = reduce<least>(k);
    if (threadIdx.x == 0) const_cast<u64 *>(r.score.peaks)[blockIdx.x] = k;
    if (!y) return;

#pragma unroll 4
    for (int i = from + threadIdx.x; i < end; i += blockDim.x) copy[i - from] = allowed(r, i) ? x[i] : -INFINITY;
    __syncthreads();
    for (int i = r.starts[blockIdx.x] + threadIdx.x; i < r.starts[blockIdx.x + 1]; i += blockDim.x) {
        Edit e = r.edits[i];
        if (allowed(r, e.id)) copy[e.id - from] = edited(x[e.id], e, r);
    }
    __syncthreads();
    k = ~0ull;
#pragma unroll 4
    for (int i = from + threadIdx.x; i < end; i += blockDim.x) {
        float v = y[i] = copy[i - from];
        k = least(k, v == v ? key(v, i) : 0);
    }
    k = reduce<least>(k);
    if (threadIdx.x == 0) const_cast<u64 *>(r.draw.peaks)[blockIdx.x] = k;
}

// Weighs a stretch of each job: its elements by bin, or all together. What a row that fails has is not read.
extern "C" __global__ void __launch_bounds__(128) sample_weigh(const Job *jobs, int vocab)
{
    __shared__ Bins bins;
    const Job j = jobs[blockIdx.y];
    float largest = logit(least(j.peaks, vocab));
    if (!(fabsf(largest) < INFINITY)) return; // sample_pick fails the row
    int from = blockIdx.x * STRETCH, end = min(from + STRETCH, vocab);
    if (j.bins)
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) bins.weight[i] = bins.count[i] = 0;
    __syncthreads();
    float low = cutoff(largest, j), next = from + threadIdx.x < end ? j.x[from + threadIdx.x] : 0;
    u64 mine = 0;
#pragma unroll 1 // exp is long; the next load is under way instead
    for (int i = from + threadIdx.x; i < end; i += blockDim.x) {
        float v = next;
        if (i + blockDim.x < end) next = j.x[i + blockDim.x];
        if (v < low) continue;
        u64 w = weight(v, largest, j.scale);
        mine += w;
        if (!j.bins) continue;
        int b = bin(v, largest, j.scale);
        atomicAdd(&bins.count[b], 1);
        if (w) atomicAdd(&bins.weight[b], w);
    }
    if (!j.bins) {
        u64 all = sum(mine);
        if (threadIdx.x == 0) j.sums[blockIdx.x] = all;
        return;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x)
        if (bins.count[i]) {
            atomicAdd(&j.bins->count[i], bins.count[i]);
            atomicAdd(&j.bins->weight[i], bins.weight[i]);
        }
}

// --- decisions in one row -----------------------------------------------------------------------------------------

// What a block of sample_pick knows together.
__shared__ struct {
    u64 items[WINDOW]; // keys of the run at hand
    int n;             // of them
    u64 countBefore, weightBefore; // of the elements before the run
    Bins bins;
    // what locate and select found
    int digit;
    u32 count;
    u64 counts, weights, item;
} s;

// A place in the order: the element with n before it, or the first whose weight, with all before it, exceeds n.
struct Place {
    bool byWeight;
    u64 n;
    // Whether the place is among count elements after counts, of weight after weights.
    __device__ bool in(u64 counts, u64 count, u64 weights, u64 weight) const
    {
        return byWeight ? n >= weights && n - weights < weight : n >= counts && n - counts < count;
    }
};

// The elements of a row that are not cut by MinP.
struct Source {
    const Job *j;
    int vocab;
    float largest, low;

    __device__ Source(const Job &j, int vocab, float largest) : j(&j), vocab(vocab), largest(largest), low(cutoff(largest, j)) {}
    __device__ u64 weigh(u64 key) const { return weightOnce(logit(key), largest, j->scale); }
    __device__ int bin(float v) const { return ::bin(v, largest, j->scale); }
    // Where bin b begins, but for rounding.
    __device__ float logitAt(int b) const { return b < 0 ? largest : b >= BINS ? LOWEST : fmaxf(largest - b * 0.125f / j->scale, LOWEST); }

    // Calls f(logit, id) for the elements of stretches that may hold bin last or one before it. A warp takes a stretch.
    template <class F> __device__ void visit(int last, F f) const
    {
        for (int st = threadIdx.x / 32; st < stretches(vocab); st += blockDim.x / 32) {
            if (bin(logit(j->peaks[st])) > last) continue;
            int end = min((st + 1) * STRETCH, vocab);
            for (int i = st * STRETCH + threadIdx.x % 32; i < end; i += 32 * 8) {
                float v[8]; // eight loads under way
#pragma unroll
                for (int u = 0; u < 8; u++) v[u] = i + 32 * u < end ? j->x[i + 32 * u] : -INFINITY;
#pragma unroll
                for (int u = 0; u < 8; u++)
                    if (v[u] >= low) f(v[u], i + 32 * u);
            }
        }
    }
};

// Sorts the run: bitonic, over the next power of two.
__device__ __noinline__ void sort()
{
    int n = s.n, size = 1;
    while (size < n) size *= 2;
    for (int i = n + threadIdx.x; i < size; i += blockDim.x) s.items[i] = ~0ull;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int d = run / 2; d > 0; d /= 2) {
            for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
                int a = 2 * i - (i & (d - 1)), b = a + d;
                u64 p = s.items[a], q = s.items[b];
                if ((p > q) == !(a & run)) s.items[a] = q, s.items[b] = p;
            }
            __syncthreads();
        }
}

// Begins a run of n items so far.
__device__ void begin(int n)
{
    __syncthreads();
    if (threadIdx.x == 0) s.n = n, s.countBefore = s.weightBefore = 0;
    __syncthreads();
}

// The digit of s.bins that holds p, which counts from the first of them; -1: none.
__device__ void locate(Place p)
{
    if (threadIdx.x == 0) s.digit = -1;
    __syncthreads();
    if (threadIdx.x < 32) {
        const int each = BINS / 32;
        int lane = threadIdx.x;
        u64 w = 0, c = 0;
        for (int i = each * lane; i < each * (lane + 1); i++) w += s.bins.weight[i], c += s.bins.count[i];
        u64 ws = w, cs = c;
        for (int o = 1; o < 32; o *= 2) {
            u64 a = __shfl_up_sync(~0u, ws, o), b = __shfl_up_sync(~0u, cs, o);
            if (lane >= o) ws += a, cs += b;
        }
        ws -= w, cs -= c;
        for (int i = each * lane; i < each * (lane + 1); i++) {
            w = s.bins.weight[i], c = s.bins.count[i];
            if (p.in(cs, c, ws, w)) s.digit = i, s.count = c, s.counts = cs, s.weights = ws;
            ws += w, cs += c;
        }
    }
    __syncthreads();
}

// Fetches a sorted run with p in it: of the elements in bins [first, last] whose keys are in [lo, hi].
__device__ __noinline__ void find(Source from, Place p)
{
    int first = 0, last = BINS - 1, shift = -1; // of digits of keys from lo on; bins come before them
    u64 lo = 0, hi = ~0ull;
    begin(0);
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) s.bins.weight[i] = from.j->bins->weight[i], s.bins.count[i] = from.j->bins->count[i];
    for (;;) {
        __syncthreads();
        locate(p);
        int d = s.digit;
        if (d < 0) return;
        u32 count = s.count;
        bool fits = s.counts + count <= WINDOW; // with the digits before
        if (shift < 0) {
            last = d;
            if (!fits) first = d, lo = key(from.logitAt(d - 1), 0), hi = key(from.logitAt(d + 2), (1 << ID_BITS) - 1);
        } else {
            hi = lo + ((u64)(d + 1) << shift) - 1;
            if (!fits) lo += (u64)d << shift;
        }
        if (!fits) {
            p.n -= p.byWeight ? s.weights : s.counts;
            if (threadIdx.x == 0) s.countBefore += s.counts, s.weightBefore += s.weights;
        }
        if (fits || count <= WINDOW) break;

        shift = max(0, shift < 0 ? 56 - __clzll(hi - lo) : shift - 8);
        __syncthreads();
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) s.bins.weight[i] = s.bins.count[i] = 0;
        __syncthreads();
        from.visit(last, [&](float v, int id) {
            u64 k = key(v, id);
            if (from.bin(v) != last || k < lo || k > hi) return;
            int digit = (int)(k - lo >> shift);
            atomicAdd(&s.bins.count[digit], 1);
            if (u64 w = from.weigh(k)) atomicAdd(&s.bins.weight[digit], w);
        });
    }
    from.visit(last, [&](float v, int id) {
        u64 k = key(v, id);
        if (from.bin(v) >= first && from.bin(v) <= last && k >= lo && k <= hi) s.items[atomicAdd(&s.n, 1)] = k;
    });
    __syncthreads();
    sort();
}

// The run at hand, of which each thread has weighed a part.
struct Window {
    Source from;
    u64 weight;           // of the run
    u64 mine, mineBefore; // of this thread's items, and of those before them in the run

    __device__ Window(Source from) : from(from), weight(0), mine(0), mineBefore(0) { begin(0); }

    __device__ int each() const { return (s.n + blockDim.x - 1) / blockDim.x; } // items of a thread

    __device__ void open()
    {
        mine = 0;
        for (int i = threadIdx.x * each(); i < min(s.n, (threadIdx.x + 1) * each()); i++) mine += from.weigh(s.items[i]);
        mineBefore = before(mine, &weight);
    }

    // Ids in [first, end) in their order, after weightBefore.
    __device__ void range(int first, int end, u64 weightBefore)
    {
        begin(end - first);
        if (threadIdx.x == 0) s.weightBefore = weightBefore;
        for (int i = first + threadIdx.x; i < end; i += blockDim.x) s.items[i - first] = key(from.j->x[i], i);
        __syncthreads();
        open();
    }

    // All of a row that fits.
    __device__ void all()
    {
        begin(0);
        for (int i = threadIdx.x; i < from.vocab; i += blockDim.x)
            if (from.j->x[i] >= from.low) s.items[atomicAdd(&s.n, 1)] = key(from.j->x[i], i);
        __syncthreads();
        sort();
        open();
    }

    // Makes p a place in the run.
    __device__ void reach(Place p)
    {
        if (p.in(s.countBefore, s.n, s.weightBefore, weight) || !from.j->bins) return;
        find(from, p);
        open();
    }

    // The element at p, and in *sum its weight with all before it. ~0: there is none.
    __device__ u64 select(Place p, u64 *sum)
    {
        reach(p);
        __syncthreads();
        if (threadIdx.x == 0) s.item = ~0ull;
        __syncthreads();
        int i = threadIdx.x * each(), end = min(s.n, i + each());
        u64 w = s.weightBefore + mineBefore;
        if (p.in(s.countBefore + i, max(end - i, 0), w, mine))
            for (;; i++) {
                w += from.weigh(s.items[i]);
                if (p.byWeight ? w > p.n : s.countBefore + i == p.n) {
                    s.item = s.items[i], s.weights = w;
                    break;
                }
            }
        __syncthreads();
        if (s.item != ~0ull) *sum = s.weights;
        return s.item;
    }
};

// The token of a row whose largest logit is finite; -1: none.
__device__ int draw(const Row &r, int vocab, float largest)
{
    Window w(Source(r.draw, vocab, largest));
    u64 n = 0, all = 0; // of what is left
    if (r.cut && vocab <= WINDOW) {
        w.all();
        n = s.n, all = w.weight;
    } else if (r.cut) {
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) {
            all += r.draw.bins->weight[i];
            if (i < BINS - 1) n += r.draw.bins->count[i]; // the last bin weighs nothing: a cut there changes nothing
        }
        n = sum(n), all = sum(all);
    } else if (vocab <= WINDOW) {
        w.range(0, vocab, 0);
        all = w.weight;
    } else {
        // The stretch that the number falls on.
        u64 mine = threadIdx.x < stretches(vocab) ? r.draw.sums[threadIdx.x] : 0;
        u64 from = before(mine, &all), at = __umul64hi(r.random, all);
        if (at >= from && at - from < mine) s.digit = threadIdx.x, s.weights = from;
        __syncthreads();
        w.range(s.digit * STRETCH, min((s.digit + 1) * STRETCH, vocab), s.weights);
    }
    u64 k = ~0ull;
#pragma unroll 1
    for (int cut = 0; cut < 3; cut++) {
        Place p = {true, __umul64hi(r.random, all)};
        if (cut == 0) {
            if (r.topK <= 0 || r.topK >= n) continue;
            p = {false, (u64)r.topK - 1};
        } else if (cut == 1) {
            if (!r.topP) continue;
            p.n = __umul64hi(r.topP, all) + (r.topP * all != 0) - 1; // its share rounded up, less 1
        }
        k = w.select(p, &all);
    }
    return k == ~0ull ? -1 : id(k);
}

// Fills in what is asked about token out.id; false: the row has no distribution.
__device__ bool score(const Row &r, int vocab, float largest, Result &out)
{
    if (!(largest > -INFINITY)) return false;
    Window w(Source(r.score, vocab, largest));
    u64 n = 0, all = 0;
    if (vocab <= WINDOW) {
        w.all();
        n = s.n, all = w.weight;
    } else if (r.score.bins) {
        for (int i = threadIdx.x; i < BINS; i += blockDim.x) n += r.score.bins->count[i], all += r.score.bins->weight[i];
        n = sum(n), all = sum(all);
    } else {
        for (int i = threadIdx.x; i < stretches(vocab); i += blockDim.x) all += r.score.sums[i];
        all = sum(all);
    }
    double norm = largest + log(all * (1.0 / UNIT));
    float v = r.score.x[out.id];
    out.logprob = (float)(v - norm);

    u64 greater = 0;
    for (int st = threadIdx.x / 32; st < stretches(vocab); st += blockDim.x / 32) {
        if (!(logit(r.score.peaks[st]) > v)) continue;
#pragma unroll 8
        for (int i = st * STRETCH + threadIdx.x % 32; i < min((st + 1) * STRETCH, vocab); i += 32) greater += r.score.x[i] > v;
    }
    out.rank = (int)sum(greater) + 1;

    out.tops = (int)min((u64)r.logprobs, n);
    for (u64 at = 0; at < out.tops;) {
        w.reach({false, at});
        u64 first = s.countBefore, end = min(first + s.n, (u64)out.tops);
        for (u64 i = at + threadIdx.x; i < end; i += blockDim.x) {
            u64 k = s.items[i - first];
            r.top[i] = {id(k), (float)(logit(k) - norm)};
        }
        at = end;
    }
    return true;
}

// Blocks of 32 to 512 threads, a power of two; at least one for each stretch where a row of more than WINDOW ids is drawn from.
extern "C" __global__ void __launch_bounds__(512, 1) sample_pick(const Row *rows, Result *results, int vocab)
{
    const Row &r = rows[blockIdx.x];
    Result out = {-1, 0, 0, 0};
    float raw = logit(least(r.score.peaks, vocab));
    if (raw < INFINITY) { // nor NaN
        if (r.given >= 0) {
            out.id = r.given < vocab ? r.given : -1;
        } else {
            u64 k = least(r.draw.peaks, vocab);
            float largest = logit(k);
            if (fabsf(largest) < INFINITY) out.id = r.draw.scale > 0 ? draw(r, vocab, largest) : id(k);
        }
        if (out.id >= 0 && r.logprobs >= 0 && !score(r, vocab, raw, out)) out = {-1, 0, 0, 0};
    }
    if (threadIdx.x == 0) results[blockIdx.x] = out;
}
