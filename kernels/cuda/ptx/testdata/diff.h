// The same arithmetic twice: as a card's instructions for nvcc, and as plain C++ for g++. Each line
// is OP(name, for the card, for the host) on random 32-bit words a b c and 64-bit words A B.
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define FN __device__ static inline
#else
#include <cfenv>
#include <cmath>
#define FN static inline
#endif

FN float f(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
FN double d(uint64_t x) { double y; memcpy(&y, &x, 8); return y; }
FN uint64_t F(float x) { uint32_t y; memcpy(&y, &x, 4); return x != x ? 0x7fffffff : y; }
FN uint64_t D(double x) { uint64_t y; memcpy(&y, &x, 8); return x != x ? 0x7ff8000000000000 : y; }
#define U(x) ((uint64_t)(uint32_t)(x))

#ifdef __CUDACC__
FN half h(uint32_t x) { return __ushort_as_half((unsigned short)x); }
FN uint64_t H(half x) { return __hisnan(x) ? 0x7fff : __half_as_ushort(x); }
FN __nv_bfloat16 bf(uint32_t x) { return __ushort_as_bfloat16((unsigned short)x); }
FN uint64_t B16(__nv_bfloat16 x) { unsigned short u = __bfloat16_as_ushort(x); return (u & 0x7fff) > 0x7f80 ? 0x7fff : u; }
#define OP(name, card, host) out[n++] = card;
#else
typedef _Float16 half;
static half h(uint32_t x) { uint16_t u = x; half y; memcpy(&y, &u, 2); return y; }
static uint64_t H(half x) { uint16_t y; memcpy(&y, &x, 2); return x != x ? 0x7fff : y; }
// bfloat16 by hand: the upper half of a float, rounded to nearest even.
static float bf(uint32_t x) { return f(x << 16); }
static uint64_t B16(__float128 q) {
    double x = q;
    if (x != x) return 0x7fff;
    // The value is rounded from its exact form: first to odd in float, then to nearest.
    float r = (float)q;
    uint32_t u; memcpy(&u, &r, 4);
    if ((__float128)r != q && !std::isinf(r)) {
        bool larger = (r < 0 ? -(__float128)r : (__float128)r) > (q < 0 ? -q : q);
        if (larger) u--;
        u |= 1;
    }
    uint32_t top = u >> 16, rest = u & 0xffff;
    if (rest > 0x8000 || (rest == 0x8000 && (top & 1))) top++;
    return top;
}
template <class T, class G> static T with(int mode, G g) { fesetround(mode); volatile T r = g(); fesetround(FE_TONEAREST); return r; }
#define RD FE_DOWNWARD
#define RU FE_UPWARD
#define RZ FE_TOWARDZERO
#define RN FE_TONEAREST
#define IN(mode, T, ...) with<T>(mode, [&] { volatile float fa = f(a), fb = f(b), fc = f(c); volatile double da = d(A), db = d(B); volatile int64_t sA = A; volatile uint64_t uA = A; volatile int32_t sa = a; (void)fa; (void)fb; (void)fc; (void)da; (void)db; (void)sA; (void)uA; (void)sa; return __VA_ARGS__; })
template <class T> static T clampTo(double x) {
    if (x != x) return sizeof(T) == 8 ? (T)0x8000000000000000ull : 0;
    if (x >= 2.0 * (double)((T)1 << (sizeof(T) * 8 - 2)) * ((T)-1 > 0 ? 2 : 1)) return (T)-1 > 0 ? (T)-1 : (T) ~((T)1 << (sizeof(T) * 8 - 1));
    if ((T)-1 > 0 && x <= 0) return 0;
    if ((T)-1 < 0 && x <= -2.0 * (double)((uint64_t)1 << (sizeof(T) * 8 - 2))) return (T)((uint64_t)1 << (sizeof(T) * 8 - 1));
    return (T)x;
}
static uint32_t prmt(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t x = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) r |= (uint32_t)(x >> (8 * (c >> (4 * i) & 7)) & 255) << (8 * i);
    return r;
}
static int dp4a(uint32_t a, uint32_t b, int c) { for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i); return c; }
static uint32_t bfe(uint32_t a, uint32_t p, uint32_t n) { return (uint64_t)a >> p & ((1ull << n) - 1); }
static uint32_t brev(uint32_t a) { uint32_t r = 0; for (int i = 0; i < 32; i++) r |= (a >> i & 1) << (31 - i); return r; }
static float low(float x, float y) { return x != x ? y : y != y ? x : x == y ? (std::signbit(x) ? x : y) : x < y ? x : y; }
static float high(float x, float y) { return x != x ? y : y != y ? x : x == y ? (std::signbit(x) ? y : x) : x > y ? x : y; }
#define OP(name, card, host) out[n++] = host;
#endif

#ifdef __CUDACC__
FN uint32_t bfe(uint32_t a, uint32_t p, uint32_t n) { uint32_t r; asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(p), "r"(n)); return r; }
FN int32_t bfes(uint32_t a, uint32_t p, uint32_t n) { int32_t r; asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(p), "r"(n)); return r; }
FN uint32_t bfi(uint32_t a, uint32_t b, uint32_t p, uint32_t n) { uint32_t r; asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(p), "r"(n)); return r; }
FN uint32_t lop(uint32_t a, uint32_t b, uint32_t c) { uint32_t r; asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
FN float addftz(float a, float b) { float r; asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
FN float fmasat(float a, float b, float c) { float r; asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c)); return r; }
FN uint32_t tf32(float a) { uint32_t r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(a)); return r; }
#else
static int32_t bfes(uint32_t a, uint32_t p, uint32_t n) { return n == 0 ? 0 : (int32_t)((int64_t)((uint64_t)(int64_t)(int32_t)a >> p << (64 - n)) >> (64 - n)); }
static uint32_t bfi(uint32_t a, uint32_t b, uint32_t p, uint32_t n) { uint64_t m = ((1ull << n) - 1) << p; return (b & ~m) | ((uint64_t)a << p & m); }
static uint32_t lop(uint32_t a, uint32_t b, uint32_t c) { uint32_t r = 0; for (int i = 0; i < 32; i++) r |= (0x6au >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i; return r; }
static float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
static float addftz(float a, float b) { return flush(flush(a) + flush(b)); }
static float fmasat(float a, float b, float c) { float r = std::fma(a, b, c); return !(r > 0) ? 0 : r > 1 ? 1 : r; }
static uint32_t tf32(float a) { uint32_t u; memcpy(&u, &a, 4); if (a != a) return 0x7fffe000; return (u + 0x1000) & ~0x1fffu; }
#endif

FN int compute(uint64_t *out, uint32_t a, uint32_t b, uint32_t c, uint64_t A, uint64_t B) {
    int n = 0;
    OP(add, U(a + b), U(a + b))
    OP(mulhi, U(__umulhi(a, b)), U((uint64_t)a * b >> 32))
    OP(mulhis, U(__mulhi((int)a, (int)b)), U((int64_t)(int)a * (int)b >> 32))
    OP(mad, U(a * b + c), U(a * b + c))
    OP(wide, (uint64_t)((int64_t)(int)a * (int)b), (uint64_t)((int64_t)(int)a * (int)b))
    OP(div, U(b ? a / b : 0), U(b ? a / b : 0))
    OP(divs, U(b + 1 > 1 ? (int)a / (int)b : 0), U(b + 1 > 1 ? (int)a / (int)b : 0))
    OP(rems, U(b + 1 > 1 ? (int)a % (int)b : 0), U(b + 1 > 1 ? (int)a % (int)b : 0))
    OP(div64, B ? A / B : 0, B ? A / B : 0)
    OP(rem64, B + 1 > 1 ? (uint64_t)((int64_t)A % (int64_t)B) : 0, B + 1 > 1 ? (uint64_t)((int64_t)A % (int64_t)B) : 0)
    OP(mulhi64, __umul64hi(A, B), (uint64_t)((unsigned __int128)A * B >> 64))
    OP(mulhi64s, (uint64_t)__mul64hi(A, B), (uint64_t)((__int128)(int64_t)A * (int64_t)B >> 64))
    OP(wide128, (uint64_t)(((unsigned __int128)A * B + ((unsigned __int128)B << 64 | A)) >> 64), (uint64_t)(((unsigned __int128)A * B + ((unsigned __int128)B << 64 | A)) >> 64))
    OP(sub128, (uint64_t)((((unsigned __int128)A << 64 | B) - ((unsigned __int128)B << 64 | A)) >> 64), (uint64_t)((((unsigned __int128)A << 64 | B) - ((unsigned __int128)B << 64 | A)) >> 64))
    OP(shl, U(a << (b & 31)), U(a << (b & 31)))
    OP(shr, U((int)a >> (b & 31)), U((int)a >> (b & 31)))
    OP(shr64, (uint64_t)((int64_t)A >> (b & 63)), (uint64_t)((int64_t)A >> (b & 63)))
    OP(mins, U(min((int)a, (int)b)), U((int)a < (int)b ? a : b))
    OP(maxu, U(max(a, b)), U(a > b ? a : b))
    OP(abs, U(abs((int)a)), U((int)a < 0 ? 0u - a : a))
    OP(sad, U(__sad((int)a, (int)b, c)), U(c + ((int)a > (int)b ? a - b : b - a)))
    OP(popc, U(__popc(a)), U(__builtin_popcount(a)))
    OP(popc64, U(__popcll(A)), U(__builtin_popcountll(A)))
    OP(clz, U(__clz(a)), U(a ? __builtin_clz(a) : 32))
    OP(clz64, U(__clzll(A)), U(A ? __builtin_clzll(A) : 64))
    OP(ffs, U(__ffs(a)), U(__builtin_ffs(a)))
    OP(brev, U(__brev(a)), U(brev(a)))
    OP(prmt, U(__byte_perm(a, b, c)), U(prmt(a, b, c)))
    OP(shf, U(__funnelshift_l(a, b, c)), U((((uint64_t)b << 32 | a) << (c & 31)) >> 32))
    OP(shfc, U(__funnelshift_rc(a, b, c & 63)), U(((uint64_t)b << 32 | a) >> ((c & 63) > 32 ? 32 : (c & 63))))
    OP(dp4a, U(__dp4a((int)a, (int)b, (int)c)), U(dp4a(a, b, c)))
    OP(bfe, U(bfe(a, b & 31, c & 31)), U(bfe(a, b & 31, c & 31)))
    OP(bfes, U(bfes(a, b & 31, c & 31)), U(bfes(a, b & 31, c & 31)))
    OP(bfi, U(bfi(a, b, c & 31, A & 31)), U(bfi(a, b, c & 31, A & 31)))
    OP(lop, U(lop(a, b, c)), U(lop(a, b, c)))
    OP(short, U((short)((short)a * (short)b)), U((short)((short)a * (short)b)))
    OP(byte, U((signed char)a + (unsigned char)b), U((signed char)a + (unsigned char)b))
    OP(fadd, F(f(a) + f(b)), F(f(a) + f(b)))
    OP(fsub, F(f(a) - f(b)), F(f(a) - f(b)))
    OP(fmul, F(f(a) * f(b)), F(f(a) * f(b)))
    OP(fdiv, F(f(a) / f(b)), F(f(a) / f(b)))
    OP(fsqrt, F(sqrtf(f(a))), F(std::sqrt(f(a))))
    OP(frcp, F(__frcp_rn(f(a))), F(1 / f(a)))
    OP(ffma, F(fmaf(f(a), f(b), f(c))), F(std::fma(f(a), f(b), f(c))))
    OP(fmasat, F(fmasat(f(a), f(b), f(c))), F(fmasat(f(a), f(b), f(c))))
    OP(faddz, F(__fadd_rz(f(a), f(b))), F(IN(RZ, float, fa + fb)))
    OP(faddd, F(__fadd_rd(f(a), f(b))), F(IN(RD, float, fa + fb)))
    OP(faddu, F(__fadd_ru(f(a), f(b))), F(IN(RU, float, fa + fb)))
    OP(fmulz, F(__fmul_rz(f(a), f(b))), F(IN(RZ, float, fa * fb)))
    OP(fmuld, F(__fmul_rd(f(a), f(b))), F(IN(RD, float, fa * fb)))
    OP(fdivu, F(__fdiv_ru(f(a), f(b))), F(IN(RU, float, fa / fb)))
    OP(fdivz, F(__fdiv_rz(f(a), f(b))), F(IN(RZ, float, fa / fb)))
    OP(fsqrtd, F(__fsqrt_rd(f(a))), F(IN(RD, float, std::sqrt(fa))))
    OP(ffmad, F(__fmaf_rd(f(a), f(b), f(c))), F(IN(RD, float, std::fma(fa, fb, fc))))
    OP(ffmaz, F(__fmaf_rz(f(a), f(b), f(c))), F(IN(RZ, float, std::fma(fa, fb, fc))))
    OP(addftz, F(addftz(f(a), f(b))), F(addftz(f(a), f(b))))
    OP(fmin, F(fminf(f(a), f(b))), F(low(f(a), f(b))))
    OP(fmax, F(fmaxf(f(a), f(b))), F(high(f(a), f(b))))
    OP(floor, F(floorf(f(a))), F(std::floor(f(a))))
    OP(rint, F(rintf(f(a))), F(std::rint(f(a))))
    OP(trunc, F(truncf(f(a))), F(std::trunc(f(a))))
    OP(dadd, D(d(A) + d(B)), D(d(A) + d(B)))
    OP(dmul, D(d(A) * d(B)), D(d(A) * d(B)))
    OP(ddiv, D(d(A) / d(B)), D(d(A) / d(B)))
    OP(dfma, D(fma(d(A), d(B), (double)f(c))), D(std::fma(d(A), d(B), (double)f(c))))
    OP(daddd, D(__dadd_rd(d(A), d(B))), D(IN(RD, double, da + db)))
    OP(daddz, D(__dadd_rz(d(A), d(B))), D(IN(RZ, double, da + db)))
    OP(dmulu, D(__dmul_ru(d(A), d(B))), D(IN(RU, double, da * db)))
    OP(ddivz, D(__ddiv_rz(d(A), d(B))), D(IN(RZ, double, da / db)))
    OP(dsqrtd, D(__dsqrt_rd(d(A))), D(IN(RD, double, std::sqrt(da))))
    OP(dfmau, D(__fma_ru(d(A), d(B), (double)f(c))), D(IN(RU, double, std::fma(da, db, (double)fc))))
    OP(d2f, F((float)d(A)), F((float)d(A)))
    OP(d2fz, F(__double2float_rz(d(A))), F(IN(RZ, float, (float)da)))
    OP(d2fu, F(__double2float_ru(d(A))), F(IN(RU, float, (float)da)))
    OP(f2d, D((double)f(a)), D((double)f(a)))
    OP(f2i, U(__float2int_rz(f(a))), U(clampTo<int32_t>(std::trunc(f(a)))))
    OP(f2id, U(__float2int_rd(f(a))), U(clampTo<int32_t>(std::floor(f(a)))))
    OP(f2in, U(__float2int_rn(f(a))), U(clampTo<int32_t>(std::rint(f(a)))))
    OP(f2u, U(__float2uint_ru(f(a))), U(clampTo<uint32_t>(std::ceil(f(a)))))
    OP(f2ll, (uint64_t)__float2ll_rz(f(a)), (uint64_t)clampTo<int64_t>(std::trunc(f(a))))
    OP(d2ll, (uint64_t)__double2ll_rn(d(A)), (uint64_t)clampTo<int64_t>(std::rint(d(A))))
    OP(d2ull, (uint64_t)__double2ull_rz(d(A)), (uint64_t)clampTo<uint64_t>(std::trunc(d(A))))
    OP(i2f, F((float)(int)a), F((float)(int)a))
    OP(i2fz, F(__int2float_rz((int)a)), F(IN(RZ, float, (float)sa)))
    OP(ll2f, F((float)(int64_t)A), F((float)(int64_t)A))
    OP(ll2fu, F(__ll2float_ru((int64_t)A)), F(IN(RU, float, (float)sA)))
    OP(ull2f, F((float)A), F((float)A))
    OP(ll2d, D((double)(int64_t)A), D((double)(int64_t)A))
    OP(ll2dd, D(__ll2double_rd((int64_t)A)), D(IN(RD, double, (double)sA)))
    OP(ull2dz, D(__ull2double_rz(A)), D(IN(RZ, double, (double)uA)))
    OP(f2h, H(__float2half_rn(f(a))), H((half)f(a)))
    OP(h2f, F(__half2float(h(a))), F((float)h(a)))
    OP(hadd, H(__hadd(h(a), h(b))), H((half)((__float128)h(a) + (__float128)h(b))))
    OP(hmul, H(__hmul(h(a), h(b))), H((half)((__float128)h(a) * (__float128)h(b))))
    OP(hfma, H(__hfma(h(a), h(b), h(c))), H((half)((__float128)h(a) * (__float128)h(b) + (__float128)h(c))))
    OP(hfma2, H(__high2half(__hfma2(__halves2half2(h(c), h(a)), __halves2half2(h(a), h(b)), __halves2half2(h(b), h(c))))), H((half)((__float128)h(a) * (__float128)h(b) + (__float128)h(c))))
    OP(hlt, U(__hlt(h(a), h(b))), U(h(a) < h(b)))
    OP(h2i, U(__half2int_rz(h(a))), U(clampTo<int32_t>(std::trunc((float)h(a)))))
    OP(f2bf, B16(__float2bfloat16_rn(f(a))), B16(f(a)))
    OP(bffma, B16(__hfma(bf(a), bf(b), bf(c))), B16((__float128)bf(a) * bf(b) + (__float128)bf(c)))
    OP(tf32, U(tf32(f(a))), U(tf32(f(a))))
    OP(lt, U(f(a) < f(b)), U(f(a) < f(b)))
    OP(nle, U(!(f(a) <= f(b))), U(!(f(a) <= f(b))))
    OP(ne, U(f(a) != f(b)), U(f(a) != f(b)))
    OP(dge, U(d(A) >= d(B)), U(d(A) >= d(B)))
    return n;
}
