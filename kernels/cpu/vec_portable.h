// vec_portable.h: the words of vec_avx2.h in plain C with the compiler's vector types, for any
// machine. Integer results are equal to the other variants'; float32 ones are rounded twice where
// those fuse.
#include <math.h>

// Tiles that share unpacked weights need more registers than this has.
#define SHARED_TILES 0
#define UNROLL
#define VEC static inline __attribute__((always_inline))
typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8v __attribute__((vector_size(32)));
typedef uint32_t u8v __attribute__((vector_size(32)));
typedef i8v b32, x4, uacc, sacc;

VEC f8 f8_set(float x) { return (f8){x, x, x, x, x, x, x, x}; }
VEC f8 f8_zero(void) { return f8_set(0); }
VEC f8 f8_load(const float *p) {
	f8 a;
	memcpy(&a, p, 32);
	return a;
}
VEC void f8_store(float *p, f8 a) { memcpy(p, &a, 32); }
VEC f8 f8_add(f8 a, f8 b) { return a + b; }
VEC f8 f8_sub(f8 a, f8 b) { return a - b; }
VEC f8 f8_mul(f8 a, f8 b) { return a * b; }
VEC f8 f8_div(f8 a, f8 b) { return a / b; }
VEC f8 f8_fma(f8 a, f8 b, f8 c) { return a * b + c; }
VEC f8 f8_choose(i8v m, f8 yes, f8 no) { return (f8)(((i8v)yes & m) | ((i8v)no & ~m)); }
VEC f8 f8_max(f8 a, f8 b) { return f8_choose(a > b, a, b); }
VEC f8 f8_min(f8 a, f8 b) { return f8_choose(a < b, a, b); }
VEC f8 f8_abs(f8 a) { return (f8)((i8v)a & 0x7fffffff); }
VEC f8 f8_round(f8 a) {
	f8 big = f8_set(12582912.0f); // 1.5 * 2^23
	return f8_choose(f8_abs(a) < 4194304.0f, a + big - big, a);
}
VEC uint16_t float_f16(float f) {
	uint32_t u;
	memcpy(&u, &f, 4);
	uint32_t sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
	if (a > 0x7f800000)
		return sign | 0x7e00;
	if (a >= 0x477ff000)
		return sign | 0x7c00;
	if (a < 0x38800000) {
		float g;
		memcpy(&g, &a, 4);
		return sign | (uint16_t)lrintf(g * 0x1p24f);
	}
	a += 0xfff + (a >> 13 & 1);
	return sign | (uint16_t)((a - 0x38000000) >> 13);
}
typedef uint16_t h8v __attribute__((vector_size(16)));
VEC u8v u8v_load16(const uint16_t *p) {
	h8v h;
	memcpy(&h, p, 16);
	return __builtin_convertvector(h, u8v);
}
VEC f8 f8_from_f16(const uint16_t *p) {
	u8v h = u8v_load16(p);
	// Exponents are 112 apart, which also makes subnormals right; infinities and NaNs are not.
	f8 a = (f8)((h & 0x7fff) << 13) * 0x1p112f;
	u8v special = (u8v)((h & 0x7c00) == 0x7c00) & 0x7f800000;
	return (f8)((u8v)a | special | (h & 0x8000) << 16);
}
VEC f8 f8_from_bf16(const uint16_t *p) { return (f8)(u8v_load16(p) << 16); }
VEC void f8_to_f16(uint16_t *p, f8 a) {
	for (int i = 0; i < 8; i++)
		p[i] = float_f16(a[i]);
}
VEC void f8_to_bf16(uint16_t *p, f8 a) {
	u8v v = (u8v)a;
	v = (v + 0x7fff + (v >> 16 & 1)) >> 16;
	for (int i = 0; i < 8; i++)
		p[i] = (uint16_t)v[i];
}
VEC f8 f8_from_u8(const uint8_t *p) {
	f8 a;
	for (int i = 0; i < 8; i++)
		a[i] = p[i];
	return a;
}
typedef int8_t b8v __attribute__((vector_size(8)));
VEC i8v i8v_load8(const uint8_t *p) {
	b8v b;
	memcpy(&b, p, 8);
	return __builtin_convertvector(b, i8v);
}
VEC f8 f8_from_i8(const uint8_t *p) { return __builtin_convertvector(i8v_load8(p), f8); }
// f8_from_e4m3 is OCP E4M3 times 2^-8, also of subnormals: exponents are 120 apart. It is not for NaNs.
VEC f8 f8_from_e4m3(const uint8_t *p) {
	return (f8)((u8v)i8v_load8(p) << 20 & 0x87f00000) * 0x1p112f;
}
VEC void f8_to_i8(int8_t *p, f8 a) {
	a = f8_round(a);
	for (int i = 0; i < 8; i++)
		p[i] = (int8_t)a[i];
}
VEC f8 f8_pick(f8 a, f8 b, f8 yes, f8 no) { return f8_choose(a > b, yes, no); }
VEC int f8_greater(f8 a, f8 b) {
	int m = 0;
	for (int i = 0; i < 8; i++)
		m |= (a[i] > b[i]) << i;
	return m;
}
VEC int f8_nan(f8 a) {
	int m = 0;
	for (int i = 0; i < 8; i++)
		m |= (a[i] != a[i]) << i;
	return m;
}
VEC f8 f8_pow2(f8 n) {
	// NaN to int is undefined: the caller's other factor carries it.
	n = f8_choose(n == n, n, f8_zero());
	return (f8)((__builtin_convertvector(n, i8v) + 127) << 23);
}
VEC float f8_sum(f8 a) { return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])); }
VEC float f8_first(f8 a) { return a[0]; }

VEC b32 b32_load(const uint8_t *p) {
	b32 v;
	memcpy(&v, p, 32);
	return v;
}
VEC b32 b32_low(b32 v) { return v & 0x0f0f0f0f; }
VEC b32 b32_high(b32 v) { return (v >> 4) & 0x0f0f0f0f; }
VEC x4 x4_load(const int8_t *q) {
	int32_t v;
	memcpy(&v, q, 4);
	return (x4){v, v, v, v, v, v, v, v};
}
#define IN_ORDER(a)
VEC uacc uacc_zero(void) { return (uacc){0}; }
VEC sacc sacc_zero(void) { return (sacc){0}; }
VEC uacc udot(uacc a, b32 w, x4 x) {
	for (int j = 0; j < 4; j++)
		a += ((w << (24 - 8 * j)) >> 24) * ((x << (24 - 8 * j)) >> 24);
	return a;
}
VEC sacc sdot(sacc a, b32 w, x4 x) { return udot(a, w, x); }
VEC f8 uacc_f8(uacc a) { return __builtin_convertvector(a, f8); }
VEC f8 sacc_f8(sacc a) { return __builtin_convertvector(a, f8); }
VEC f8 b32_ufloat(b32 v, int j) { return __builtin_convertvector((v >> (8 * j)) & 255, f8); }
VEC f8 b32_sfloat(b32 v, int j) { return __builtin_convertvector((v << (24 - 8 * j)) >> 24, f8); }
