// sample.cuh: what drawing means for one value, and the records that the host writes (sample.go has the same structs).
//
// An element of a row is its key: 50 bits that sort ascending as kernels/sampling orders ids, the largest logit first,
// equals by id:
//     49                  18 17            0
//     [ ~(logit, ordered)   | id            ]      zeros of both signs are one; 0 is a row that holds a NaN
//
// Its weight, exp((x - largest) * scale), is an integer: units of 2^-45, to the nearest. So a sum has no order, 2^18
// weights fit 64 bits, and a decision does not depend on how a row is cut. What is 31.875 nats below the largest weighs 0.
#pragma once

typedef unsigned long long u64;
typedef unsigned int u32;

constexpr int STRETCH = 1024; // ids that a block takes at a time
constexpr int ID_BITS = 18;
constexpr int BINS = 256;
constexpr float UNIT = 0x1p45f;
constexpr float LOWEST = -3.402823466e38f; // below it is only -Inf, which cannot be drawn

// Weight and number of the elements whose logits are b/8 to (b+1)/8 nats below the largest; the last bin holds the rest.
struct Bins {
    u64 weight[BINS];
    u32 count[BINS];
};

// A row of logits that is drawn from or scored.
struct Job {
    const float *x;
    const u64 *peaks; // least key of each stretch
    Bins *bins;       // filled when not null
    u64 *sums;        // else the weights of each stretch
    float scale;      // 1 / temperature; 0: nothing is drawn
    float logMinP;    // above 0: no cut
};

// What changes the logit of one id; an id has one Edit at most.
struct Edit {
    int id;
    int times;     // in the output
    int kind;      // REPEAT | BAN
    int from, end; // its biases
};
constexpr int REPEAT = 1, BAN = 2;

struct Token {
    int id;
    float logprob;
};

// One row of the call.
struct Row {
    Job draw;           // from raw logits or a changed copy
    Job score;          // raw logits
    float *changed;     // the copy; null: nothing changes
    const u32 *allowed; // null: all
    const Edit *edits;  // by stretch
    const int *starts;  // [stretches + 1] in edits
    const float *biases;
    Token *top;
    u64 random; // uniform below 2^64
    u64 topP;   // of 2^64; 0: no cut
    int allowedWords;
    int given;    // below 0: drawn
    int topK;     // 0: no cut
    int cut;      // 1: draw in the order of keys, else of ids
    int logprobs; // entries of top; below 0: no scores
    float repetition, presence, frequency;
};

struct Result {
    int id; // -1: failed
    float logprob;
    int rank;
    int tops; // entries of top that are filled
};

__device__ inline int stretches(int vocab) { return (vocab + STRETCH - 1) / STRETCH; }

__device__ inline u64 key(float v, int id)
{
    u32 b = __float_as_uint(__fadd_rn(v, 0.0f)); // -0 becomes 0
    b ^= (int)b < 0 ? ~0u : 1u << 31;
    return (u64)~b << ID_BITS | (u32)id;
}
__device__ inline int id(u64 key) { return (int)(key & ((1u << ID_BITS) - 1)); }
__device__ inline float logit(u64 key)
{
    u32 b = ~(u32)(key >> ID_BITS);
    return __uint_as_float((int)b < 0 ? b ^ 1u << 31 : ~b);
}

// Never ascends as v does.
__device__ inline int bin(float v, float largest, float scale)
{
    float t = __fmul_rn(__fsub_rn(v, largest), scale);
    return t > -31.875f ? (int)(t * -8) : BINS - 1;
}

// exp of the exact product of x - largest, rounded to float32, and scale. Float32 is exact enough where a weight has few
// units: its error there is below half of one. Float64 takes 1/64 of the rate on sm_86, and few elements need it.
__device__ inline u64 weight(float v, float largest, float scale)
{
    float d = __fsub_rn(v, largest), t = __fmul_rn(d, scale);
    if (!(t > -31.875f)) return 0;
    if (t > -17) return __double2ull_rn(exp(__dmul_rn(d, scale)) * UNIT);
    float e = expf(t), rest = __fmaf_rn(d, scale, -t);
    return __float2uint_rn(__fmaf_rn(e, rest, e) * UNIT);
}

// The least logit that MinP leaves.
__device__ inline float cutoff(float largest, const Job &j)
{
    return j.logMinP > 0 ? LOWEST : fmaxf(__fadd_rn(largest, __fdiv_rn(j.logMinP, j.scale)), LOWEST);
}

__device__ inline bool allowed(const Row &r, int i)
{
    return !r.allowed || (i / 32 < r.allowedWords && r.allowed[i / 32] >> i % 32 & 1);
}

// In the order of kernels/sampling, each operation rounded on its own.
__device__ inline float edited(float v, const Edit &e, const Row &r)
{
    if (e.kind & REPEAT) {
        if (v > 0) {
            float q = __fdiv_rn(v, r.repetition), most = fmaxf(v, 1e30f);
            v = q > most ? most : q;
        } else {
            v = __fmul_rn(v, r.repetition);
        }
    }
    if (e.times) v = __fsub_rn(v, __fadd_rn(__fmul_rn(r.frequency, (float)e.times), r.presence));
    for (int i = e.from; i < e.end; i++) v = __fadd_rn(v, r.biases[i]);
    return e.kind & BAN ? -INFINITY : v;
}
