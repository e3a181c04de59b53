// linear.cuh: what the matrix products share: how weights and activations lie in memory, and how one tile is multiplied.
//
// Letters: T tokens, N outputs, K inputs. A strip is 16 outputs; a tile is 64 inputs of a strip; a step is 16 inputs of a
// tile, one mma.m16n8k16: weights are its 16 rows (A), 8 tokens its columns (B). K is padded to whole tiles (padded inputs
// have activations of 0), N to whole strips (padded outputs are computed and not stored).
//
// Lane l of a warp has outputs g = l/4 and g+8 of a strip and, of each step, inputs 4q to 4q+3 with q = l%4. mma's own order
// of k (2q, 2q+1, 2q+8, 2q+9) is another, but a sum does not mind as long as A and B agree.
//
//   weights   [strip][tile][piece][lane] of 16 bytes; 4 bits: 1 piece a tile, 8 bits: 2, 16 bits: 4
//     4 bits  word j of the piece is step j:      bits  0-3   4-7   8-11  12-15  16-19 20-23  24-27 28-31
//                                          (output,k)  g,0  g+8,0  g,2  g+8,2    g,1  g+8,1   g,3  g+8,3
//             so w & 0x000f000f and w & 0x00f000f0 are pairs of inputs, ready to become half2
//     8 bits  words 2j and 2j+1 are step j: inputs 0 to 3 of output g, and of g+8, a byte each
//     16 bits words 4j to 4j+3 are step j: (g: 0,1) (g+8: 0,1) (g: 2,3) (g+8: 2,3)
//   scales    [strip][group][16 outputs], a record each: a scale (2 or 4 bytes) and, unless symmetric, an offset of the
//             same size; a group is G inputs, a multiple of 16
//   x         [8 tokens][tile][2][lane] of 16 bytes: words 0, 1 are step 2i's inputs 4q to 4q+3 of token l/4; words 2, 3 step
//             2i+1's. bf16 has another such tile behind it: what the first one's rounding left over
//   sums      [8 tokens][tile][step][token] float32: sums of x over a step, for offsets
//   inverse   [T] float32: what undoes the row's power of two; NaN for a row with a NaN or an infinity
//
// Everything is copied as it lies, 16 bytes a lane, and read back as it lies: no access to shared memory conflicts, and no
// ldmatrix is needed, for x is stored in the order in which ldmatrix would deliver it.
//
// The sum over K: a code's distance from the middle code is an exact fp16, so a step's products and their sum in the tensor
// core are float32; then acc = fma(scale, step, acc), step by step, and after a tile's steps fma(offset, sum of x, acc) for each.
// K is cut in `parts` parts of whole tiles; parts are added in ascending order. Both depend on the weight alone, not on T
// or the kernel.
#pragma once
#include <cuda_fp16.h>
#include <cuda_bf16.h>

typedef unsigned int u32;

enum Kind { W4 = 4, W8 = 8, WF16 = 16, WBF16 = 17 };

// Bits of a scale record's form.
enum Form { WIDE = 1, BFLOAT = 2, ZEROS = 4, MINS = 8 };

__host__ __device__ constexpr int pieces(int kind) { return kind == W4 ? 1 : kind == W8 ? 2 : 4; }
__host__ __device__ constexpr int xBytes(int kind) { return kind == WBF16 ? 2048 : 1024; } // of 8 tokens and a tile

__device__ __forceinline__ void copy16(void *shared, const void *global)
{
    u32 s = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(s), "l"(global) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// waitFor waits until at most stages-2 groups are on their way.
__device__ __forceinline__ void waitFor(int stages)
{
    if (stages == 4) asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (stages == 3) asm volatile("cp.async.wait_group 1;" ::: "memory");
    else asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// (w & mask) | top
__device__ __forceinline__ u32 pick(u32 w, u32 mask, u32 top)
{
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(w), "r"(mask), "r"(top));
    return r;
}
__device__ __forceinline__ u32 sub2(u32 a, u32 b)
{
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 fma2(u32 a, u32 b, u32 c)
{
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

// weights turns step j of a tile into A. w has the piece that holds it. Codes become their distance from the middle code:
// 0x6400 | c is 1024 + c, and 0x6400 | 16c is 1024 + 16c, of which a sixteenth is 64 + c.
template <int KIND> __device__ __forceinline__ void weights(u32 a[4], const uint4 &w, int j)
{
    if (KIND == W4) {
        u32 v = j == 0 ? w.x : j == 1 ? w.y : j == 2 ? w.z : w.w;
        a[0] = sub2(pick(v, 0x000f000f, 0x64006400), 0x64086408);
        a[1] = fma2(pick(v, 0x00f000f0, 0x64006400), 0x2c002c00, 0xd480d480);
        v >>= 8;
        a[2] = sub2(pick(v, 0x000f000f, 0x64006400), 0x64086408);
        a[3] = fma2(pick(v, 0x00f000f0, 0x64006400), 0x2c002c00, 0xd480d480);
    } else if (KIND == W8) {
        u32 lo = j % 2 ? w.z : w.x, hi = j % 2 ? w.w : w.y;
        a[0] = sub2(__byte_perm(lo, 0x64646464, 0x4140), 0x64806480);
        a[1] = sub2(__byte_perm(hi, 0x64646464, 0x4140), 0x64806480);
        a[2] = sub2(__byte_perm(lo, 0x64646464, 0x4342), 0x64806480);
        a[3] = sub2(__byte_perm(hi, 0x64646464, 0x4342), 0x64806480);
    } else {
        a[0] = w.x, a[1] = w.y, a[2] = w.z, a[3] = w.w;
    }
}

// product is one step: d[0], d[1] are output g's for tokens 2q and 2q+1, d[2], d[3] output g+8's.
__device__ __forceinline__ void product(float d[4], const u32 a[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}
__device__ __forceinline__ void productBF16(float d[4], const u32 a[4], u32 b0, u32 b1, u32 r0, u32 r1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(r0), "r"(r1), "f"(0.f));
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// productHalf accumulates a step in fp16, which GeForce cards do at twice the rate.
__device__ __forceinline__ void productHalf(float d[4], const u32 a[4], u32 b0, u32 b1)
{
    u32 lo, hi;
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%8};"
        : "=r"(lo), "=r"(hi)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
    float2 l = __half22float2(*(__half2 *)&lo), h = __half22float2(*(__half2 *)&hi);
    d[0] = l.x, d[1] = l.y, d[2] = h.x, d[3] = h.y;
}

// Scheme is how a weight's scales are stored, the same for all of a launch.
struct Scheme {
    int form;       // of Form
    int record;     // bytes of a scale record; 0: no scales
    int slots;      // 1, 2 or 4: pieces of a tile that can have a scale of their own
    u32 magic;      // of a slot, the group: (2*slot+1) * magic >> 32
    int groups;     // of an output, those of padding included
};

__device__ __forceinline__ float narrow(u32 bits, int form)
{
    return form & BFLOAT ? __uint_as_float(bits << 16) : __half2float(__ushort_as_half((unsigned short)bits));
}

// scaleAt reads the scale of a record.
__device__ __forceinline__ float scaleAt(const char *at, int form)
{
    return form & WIDE ? *(const float *)at : narrow(*(const unsigned short *)at, form);
}

// offsetAt reads a record's o, where w = scale * (code - middle code) + o.
__device__ __forceinline__ float offsetAt(const char *at, int form, float middle)
{
    if (form & WIDE) return *(const float *)(at + 4);
    float s = narrow(*(const unsigned short *)at, form), o = narrow(*(const unsigned short *)(at + 2), form);
    return form & ZEROS ? __fmul_rn(s, o) : __fmaf_rn(s, middle, o);
}

// slotOf is where step j's record of output g lies in a tile's slots.
__device__ __forceinline__ const char *slotOf(const char *slots, int j, int g, const Scheme &m)
{
    return slots + ((j * m.slots >> 2) * 16 + g) * m.record;
}

// Scale are the scales of one step for a lane's two outputs.
struct Scale {
    float lower, upper;
};

// scaleOf reads step j's when they are not those of the step before.
__device__ __forceinline__ void scaleOf(Scale &c, const char *slots, int j, int g, const Scheme &m)
{
    if (j != 0 && m.slots != 4 && !(m.slots == 2 && j == 2)) return;
    const char *at = slotOf(slots, j, g, m);
    c.lower = scaleAt(at, m.form), c.upper = scaleAt(at + 8 * m.record, m.form);
}

// scalePiece is where 16-byte piece i of the slots of tile t comes from.
__device__ __forceinline__ const char *scalePiece(const char *strip, int i, int t, const Scheme &m)
{
    u32 group = __umulhi(2 * (u32)(t * m.slots + i / m.record) + 1, m.magic);
    return strip + (long long)group * 16 * m.record + i % m.record * 16;
}

// step adds step j to acc: tokens 2q and 2q+1 of outputs g and g+8. b: x's words of the step; r: what their rounding left.
template <int KIND, bool HALF>
__device__ __forceinline__ void step(float acc[4], const u32 a[4], u32 b0, u32 b1, u32 r0, u32 r1, const Scale &c)
{
    float d[4];
    if (KIND == WBF16) productBF16(d, a, b0, b1, r0, r1);
    else if (HALF) productHalf(d, a, b0, b1);
    else product(d, a, b0, b1);
    if (KIND == WF16 || KIND == WBF16) {
        for (int i = 0; i < 4; i++) acc[i] = __fadd_rn(acc[i], d[i]);
        return;
    }
    acc[0] = __fmaf_rn(c.lower, d[0], acc[0]);
    acc[1] = __fmaf_rn(c.lower, d[1], acc[1]);
    acc[2] = __fmaf_rn(c.upper, d[2], acc[2]);
    acc[3] = __fmaf_rn(c.upper, d[3], acc[3]);
}

// offsetStep adds step j's offsets, after a tile's products. sums: of x over the steps of the tile, of 8 tokens.
__device__ __forceinline__ void offsetStep(float acc[4], const Scale &o, const float *sums, int j, int q)
{
    float2 x = *(const float2 *)(sums + j * 8 + 2 * q);
    acc[0] = __fmaf_rn(o.lower, x.x, acc[0]);
    acc[1] = __fmaf_rn(o.lower, x.y, acc[1]);
    acc[2] = __fmaf_rn(o.upper, x.x, acc[2]);
    acc[3] = __fmaf_rn(o.upper, x.y, acc[3]);
}

template <int KIND> __device__ __forceinline__ Scale offsetOf(const char *slots, int j, int g, const Scheme &m)
{
    const float middle = KIND == W4 ? 8 : 128;
    const char *at = slotOf(slots, j, g, m);
    return Scale{offsetAt(at, m.form, middle), offsetAt(at + 8 * m.record, m.form, middle)};
}

// finish stores the sum of output n for token t, whose power of two inverse undoes.
__device__ __forceinline__ void finish(float *dst, float sum, float inverse, const float *bias, int n, int add)
{
    float y = __fmul_rn(sum, inverse);
    if (bias) y = __fadd_rn(y, bias[n]);
    *dst = add ? __fadd_rn(*dst, y) : y;
}
