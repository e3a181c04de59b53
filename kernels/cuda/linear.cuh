// linear.cuh: what the matrix products share: how weights and activations lie in memory, and how one tile is multiplied.
//
// Letters: T tokens, N outputs, K inputs. A strip is 16 outputs; a tile is 64 inputs of a strip; a step is 16 inputs of a
// tile, one mma.m16n8k16: weights are its 16 rows (A), 8 tokens its columns (B). K is padded to whole tiles (padded inputs
// have activations of 0), N to whole strips (padded outputs are computed and not stored).
//
// Lane l of a warp has outputs g = l/4 and g+8 of a strip and, of each step, inputs 4q to 4q+3 with q = l%4. mma's own order
// of k (2q, 2q+1, 2q+8, 2q+9) is another, but a sum does not mind as long as A and B agree.
//
//   weights   [strip][tile][half][lane], a half being two steps
//     4 bits  2 words, one a step:                bits  0-3   4-7   8-11  12-15  16-19 20-23  24-27 28-31
//                                          (output,k)  g,0  g+8,0  g,2  g+8,2    g,1  g+8,1   g,3  g+8,3
//             so w & 0x000f000f and w & 0x00f000f0 are pairs of inputs, ready to become half2
//     8 bits  4 words, two a step: inputs 0 to 3 of output g, and of g+8, a byte each
//     16 bits [step][lane] of 4 words: (g: 0,1) (g+8: 0,1) (g: 2,3) (g+8: 2,3)
//   scales    [strip][group][16 outputs], a record each: a scale (2 or 4 bytes) and, unless symmetric, an offset of the
//             same size; a group is G inputs, a multiple of 16
//   x         [tile][8 tokens][half][lane] of 4 words: inputs 4q to 4q+3 of token l/4, of the first step, then of the second. bf16 has
//             another such tile behind it: what the first one's rounding left over
//   sums      [tile][8 tokens][step][token] float32: sums of x over a step, for offsets
//   inverse   [T] float32: what undoes the row's power of two; NaN for a row with a NaN or an infinity
//
// Everything is copied as it lies, 16 bytes a lane, and read back as it lies, 8 or 16 bytes a lane: no access to shared memory
// conflicts, and no ldmatrix is needed, for x is stored in the order in which ldmatrix would deliver it.
//
// The sum over K: a code's distance from the middle code is an exact fp16, so a step's products and their sum in the tensor
// core are float32 (fp16 of two steps in the kernels that say so); then acc = fma(scale, step, acc), step by step, and after a tile's steps fma(offset, sum of x, acc) for each.
// K is cut in `parts` parts of whole tiles; parts are added in ascending order. Both depend on the weight alone, not on T
// or the kernel.
#pragma once
#include <cuda_fp16.h>
#include <cuda_bf16.h>

typedef unsigned int u32;

enum Kind { W4 = 4, W8 = 8, WF16 = 16, WBF16 = 17 };

// Bits of a scale record's form.
enum Form { WIDE = 1, BFLOAT = 2, ZEROS = 4, MINS = 8 };

__host__ __device__ constexpr int tileBytes(int kind) { return kind == W4 ? 512 : kind == W8 ? 1024 : 2048; }
__host__ __device__ constexpr int xBytes(int kind) { return kind == WBF16 ? 2048 : 1024; } // of 8 tokens and a tile

// Shared memory is addressed with 32 bits, and read with the width that is written here: a compiler that splits a wide read
// makes its parts conflict.
__device__ __forceinline__ u32 sharedAddress(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint4 read16(u32 at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ uint2 read8(u32 at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ uint4 read16If(u32 at, u32 wanted) // else zeros
{
    uint4 v = make_uint4(0, 0, 0, 0);
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4]; }"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "r"(at), "r"(wanted) : "memory");
    return v;
}
__device__ __forceinline__ u32 read4(u32 at)
{
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ u32 read2(u32 at)
{
    unsigned short v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
    return v;
}

// kept is v, computed once: without it the compiler would rather compute it anew for each tile than give it a register.
__device__ __forceinline__ u32 kept(u32 v)
{
    asm volatile("mov.u32 %0, %0;" : "+r"(v));
    return v;
}
__device__ __forceinline__ const char *kept(const char *v)
{
    asm volatile("mov.u64 %0, %0;" : "+l"(v));
    return v;
}

__device__ __forceinline__ void copy16(u32 shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
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

// Half is what a lane has of half a tile.
template <int KIND> struct Half {
    u32 w[KIND == W4 ? 2 : KIND == W8 ? 4 : 8];
};

// halfAt reads half h of the tile whose first of this lane is at `at`.
template <int KIND> __device__ __forceinline__ Half<KIND> halfAt(u32 at, int h)
{
    Half<KIND> v;
    if constexpr (KIND == W4) {
        uint2 a = read8(at + h * 256);
        v.w[0] = a.x, v.w[1] = a.y;
    } else if constexpr (KIND == W8) {
        uint4 a = read16(at + h * 512);
        v.w[0] = a.x, v.w[1] = a.y, v.w[2] = a.z, v.w[3] = a.w;
    } else {
        uint4 a = read16(at + h * 1024), b = read16(at + h * 1024 + 512);
        v.w[0] = a.x, v.w[1] = a.y, v.w[2] = a.z, v.w[3] = a.w;
        v.w[4] = b.x, v.w[5] = b.y, v.w[6] = b.z, v.w[7] = b.w;
    }
    return v;
}

// weights turns step i of a half into A. Codes become their distance from the middle code: 0x6400 | c is 1024 + c, and
// 0x6400 | 16c is 1024 + 16c, of which a sixteenth is 64 + c.
template <int KIND> __device__ __forceinline__ void weights(u32 a[4], const Half<KIND> &half, int i)
{
    const u32 *w = half.w;
    if constexpr (KIND == W4) {
        u32 v = w[i];
        a[0] = sub2(pick(v, 0x000f000f, 0x64006400), 0x64086408);
        a[1] = fma2(pick(v, 0x00f000f0, 0x64006400), 0x2c002c00, 0xd480d480);
        v >>= 8;
        a[2] = sub2(pick(v, 0x000f000f, 0x64006400), 0x64086408);
        a[3] = fma2(pick(v, 0x00f000f0, 0x64006400), 0x2c002c00, 0xd480d480);
    } else if constexpr (KIND == W8) {
        a[0] = sub2(__byte_perm(w[2 * i], 0x64646464, 0x4140), 0x64806480);
        a[1] = sub2(__byte_perm(w[2 * i + 1], 0x64646464, 0x4140), 0x64806480);
        a[2] = sub2(__byte_perm(w[2 * i], 0x64646464, 0x4342), 0x64806480);
        a[3] = sub2(__byte_perm(w[2 * i + 1], 0x64646464, 0x4342), 0x64806480);
    } else {
        for (int e = 0; e < 4; e++) a[e] = w[4 * i + e];
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

// productHalf is two steps, accumulated in fp16, which GeForce cards do at twice the rate: at most 32 * 128 * 15.99, which fp16 holds.
__device__ __forceinline__ void productHalf(float d[4], const u32 a0[4], const u32 a1[4], const uint4 &b)
{
    u32 lo, hi;
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%8};"
        : "=r"(lo), "=r"(hi)
        : "r"(a0[0]), "r"(a0[1]), "r"(a0[2]), "r"(a0[3]), "r"(b.x), "r"(b.y), "r"(0));
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(lo), "+r"(hi)
        : "r"(a1[0]), "r"(a1[1]), "r"(a1[2]), "r"(a1[3]), "r"(b.z), "r"(b.w));
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

// scaleAt reads the scale of a record in shared memory.
__device__ __forceinline__ float scaleAt(u32 at, int form)
{
    return form & WIDE ? __uint_as_float(read4(at)) : narrow(read2(at), form);
}

// offset is a record's o, where w = scale * (code - middle code) + o. second: what the record has besides its scale.
__device__ __forceinline__ float offset(u32 scale, u32 second, int form, float middle)
{
    if (form & WIDE) return __uint_as_float(second);
    float s = narrow(scale, form), o = narrow(second, form);
    return form & ZEROS ? __fmul_rn(s, o) : __fmaf_rn(s, middle, o);
}
__device__ __forceinline__ float offsetAt(u32 at, int form, float middle)
{
    if (form & WIDE) return __uint_as_float(read4(at + 4));
    u32 v = read4(at);
    return offset(v & 0xffff, v >> 16, form, middle);
}

// Scale are the scales, or the offsets, of one step for a lane's two outputs.
struct Scale {
    float lower, upper;
};

// scaleOf reads step i of half h's when they are not those of the step before. at: output g's record of the tile's first slot.
__device__ __forceinline__ void scaleOf(Scale &c, u32 at, int h, int i, const Scheme &m)
{
    if (i == 1 ? m.slots != 4 : h == 1 && m.slots == 1) return;
    at += ((2 * h + i) * m.slots >> 2) * 16 * m.record;
    c.lower = scaleAt(at, m.form), c.upper = scaleAt(at + 8 * m.record, m.form);
}

// scalePiece is where a piece of the slots of tile t comes from: `rest` bytes into the records of a slot.
__device__ __forceinline__ const char *scalePiece(const char *strip, int slot, int rest, int t, const Scheme &m)
{
    u32 group = __umulhi(2 * (u32)(t * m.slots + slot) + 1, m.magic);
    return strip + (long long)group * (16 * m.record) + rest;
}

__device__ __forceinline__ void scaled(float acc[4], const float d[4], const Scale &c)
{
    acc[0] = __fmaf_rn(c.lower, d[0], acc[0]);
    acc[1] = __fmaf_rn(c.lower, d[1], acc[1]);
    acc[2] = __fmaf_rn(c.upper, d[2], acc[2]);
    acc[3] = __fmaf_rn(c.upper, d[3], acc[3]);
}

// steps adds the two steps of a half to acc: tokens 2q and 2q+1 of outputs g and g+8. b: x of the half; r: what its rounding left.
// HALF wants one scale for both.
template <int KIND, bool HALF>
__device__ __forceinline__ void steps(float acc[4], const u32 a0[4], const u32 a1[4], const uint4 &b, const uint4 &r, const Scale &c0, const Scale &c1)
{
    float d[4];
    if constexpr (HALF) {
        productHalf(d, a0, a1, b);
        scaled(acc, d, c0);
    } else if constexpr (KIND == WF16) {
        product(d, a0, b.x, b.y);
        for (int i = 0; i < 4; i++) acc[i] = __fadd_rn(acc[i], d[i]);
        product(d, a1, b.z, b.w);
        for (int i = 0; i < 4; i++) acc[i] = __fadd_rn(acc[i], d[i]);
    } else if constexpr (KIND == WBF16) {
        productBF16(d, a0, b.x, b.y, r.x, r.y);
        for (int i = 0; i < 4; i++) acc[i] = __fadd_rn(acc[i], d[i]);
        productBF16(d, a1, b.z, b.w, r.z, r.w);
        for (int i = 0; i < 4; i++) acc[i] = __fadd_rn(acc[i], d[i]);
    } else {
        product(d, a0, b.x, b.y);
        scaled(acc, d, c0);
        product(d, a1, b.z, b.w);
        scaled(acc, d, c1);
    }
}

// offsetStep adds a step's offsets, after a tile's products. x and y: sums of x over the step, of the lane's two tokens.
__device__ __forceinline__ void offsetStep(float acc[4], const Scale &o, float x, float y)
{
    acc[0] = __fmaf_rn(o.lower, x, acc[0]);
    acc[1] = __fmaf_rn(o.lower, y, acc[1]);
    acc[2] = __fmaf_rn(o.upper, x, acc[2]);
    acc[3] = __fmaf_rn(o.upper, y, acc[3]);
}

// sums: where they lie in shared memory.
__device__ __forceinline__ void offsetStep(float acc[4], const Scale &o, u32 sums)
{
    uint2 v = read8(sums);
    offsetStep(acc, o, __uint_as_float(v.x), __uint_as_float(v.y));
}

template <int KIND> __device__ __forceinline__ Scale offsetOf(u32 at, int j, const Scheme &m)
{
    const float middle = KIND == W4 ? 8 : 128;
    at += (j * m.slots >> 2) * 16 * m.record;
    return Scale{offsetAt(at, m.form, middle), offsetAt(at + 8 * m.record, m.form, middle)};
}

// output is output n for a token whose power of two inverse undoes.
__device__ __forceinline__ float output(float sum, float inverse, const float *bias, int n)
{
    float y = __fmul_rn(sum, inverse);
    return bias ? __fadd_rn(y, bias[n]) : y;
}

// finish stores it, or adds it to what is there.
__device__ __forceinline__ void finish(float *dst, float sum, float inverse, const float *bias, int n, int add)
{
    float y = output(sum, inverse, bias, n);
    *dst = add ? __fadd_rn(*dst, y) : y;
}
