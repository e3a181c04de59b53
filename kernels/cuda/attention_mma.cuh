// attention_mma.cuh: tensor core, ldmatrix and cp.async instructions of sm_80, one function each.
// Fragments of m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"), r = lane/4, c = lane%4, pairs in one register:
//   A [16 rows][16 k]: a0 (r, 2c..), a1 (r+8, 2c..), a2 (r, 2c+8..), a3 (r+8, 2c+8..)
//   B [16 k][8 columns]: b0 (2c.., r), b1 (2c+8.., r)
//   C [16 rows][8 columns]: c0, c1 (r, 2c..), c2, c3 (r+8, 2c..)
#pragma once

// c += a b, of fp16.
__device__ inline void mmaF16(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c += a b, of bf16.
__device__ inline void mmaBF16(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c += a b, of fp16, summed in fp16: twice as fast on GeForce cards. c0 holds what is C's c0 and c1, c1 its c2 and c3.
__device__ inline void mmaF16Half(unsigned c[2], const unsigned a[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
        : "+r"(c[0]), "+r"(c[1]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 rows of 16 bytes; lane i gives the address of row i%8 of matrix i/8.
__device__ inline void ldmatrix4(unsigned d[4], unsigned addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(addr) : "memory");
}
__device__ inline void ldmatrix4t(unsigned d[4], unsigned addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(addr) : "memory");
}
__device__ inline void ldmatrix2t(unsigned d[2], unsigned addr)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "r"(addr) : "memory");
}

// copyAsync copies n bytes, of which those after the first `have` become zeros.
template <int n> __device__ void copyAsync(unsigned dst, const void *src, int have)
{
    if (n == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(have) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(dst), "l"(src), "r"(have), "n"(n) : "memory");
}
__device__ inline void commitAsync() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups> __device__ void waitAsync() { asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory"); }

__device__ inline unsigned packF16(float low, float high)
{
    unsigned p;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(high), "f"(low));
    return p;
}
__device__ inline unsigned packBF16(float low, float high)
{
    unsigned p;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(high), "f"(low));
    return p;
}
__device__ inline float2 unpackF16(unsigned p)
{
    float2 f;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(f.x), "=f"(f.y) : "r"(p));
    return f;
}
__device__ inline float2 unpackBF16(unsigned p) { return make_float2(__uint_as_float(p << 16), __uint_as_float(p & 0xffff0000)); }
