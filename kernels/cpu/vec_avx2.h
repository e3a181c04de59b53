// vec_avx2.h: the vector words that the operators are written in, for AVX2, FMA and F16C.
// f8 is 8 float32; b32 is 8 rows x 4 inputs of codes; x4 is 4 int8 activations in every lane.
// udot collects products of codes 0..15 in 16 bits: a pair is at most 2*15*127 = 3,810, so the
// 8 steps of a block reach 30,480 and cannot overflow. sdot takes codes -128..127: a pair
// reaches 32,512 and is widened at once.
#include <immintrin.h>

// SHARED_TILES compiles tiles that share unpacked weights among tokens.
#define SHARED_TILES 1
#define UNROLL _Pragma("GCC unroll 4")
#define VEC static inline __attribute__((always_inline))
typedef __m256 f8;
typedef __m256i b32, x4, uacc, sacc;

VEC f8 f8_zero(void) { return _mm256_setzero_ps(); }
VEC f8 f8_set(float x) { return _mm256_set1_ps(x); }
VEC f8 f8_load(const float *p) { return _mm256_loadu_ps(p); }
VEC void f8_store(float *p, f8 a) { _mm256_storeu_ps(p, a); }
VEC f8 f8_add(f8 a, f8 b) { return _mm256_add_ps(a, b); }
VEC f8 f8_sub(f8 a, f8 b) { return _mm256_sub_ps(a, b); }
VEC f8 f8_mul(f8 a, f8 b) { return _mm256_mul_ps(a, b); }
VEC f8 f8_div(f8 a, f8 b) { return _mm256_div_ps(a, b); }
VEC f8 f8_fma(f8 a, f8 b, f8 c) { return _mm256_fmadd_ps(a, b, c); }
VEC f8 f8_max(f8 a, f8 b) { return _mm256_max_ps(a, b); } // b where either is NaN
VEC f8 f8_min(f8 a, f8 b) { return _mm256_min_ps(a, b); } // b where either is NaN
VEC f8 f8_abs(f8 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
VEC f8 f8_round(f8 a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
VEC f8 f8_from_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
VEC f8 f8_from_bf16(const uint16_t *p) {
	__m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
	return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}
VEC void f8_to_f16(uint16_t *p, f8 a) {
	_mm_storeu_si128((void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
VEC void f8_to_bf16(uint16_t *p, f8 a) {
	__m256i v = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(v, 16), _mm256_set1_epi32(1));
	v = _mm256_srli_epi32(_mm256_add_epi32(v, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
	v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
	_mm_storeu_si128((void *)p, _mm256_castsi256_si128(v));
}
VEC f8 f8_from_u8(const uint8_t *p) {
	return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
}
VEC f8 f8_from_i8(const uint8_t *p) {
	return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}
// f8_from_e4m3 is OCP E4M3 times 2^-8, also of subnormals: exponent and mantissa are moved to where fp16 has
// them. It is not for NaNs.
VEC f8 f8_from_e4m3(const uint8_t *p) {
	__m128i v = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const void *)p)), 7);
	return _mm256_cvtph_ps(_mm_and_si128(v, _mm_set1_epi16((short)0xbfff)));
}
// f8_to_i8 rounds to nearest; |a| <= 127.
VEC void f8_to_i8(int8_t *p, f8 a) {
	__m256i v = _mm256_cvtps_epi32(a);
	__m128i w = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
	_mm_storel_epi64((void *)p, _mm_packs_epi16(w, w));
}
// f8_pick is yes where a > b, else no.
VEC f8 f8_pick(f8 a, f8 b, f8 yes, f8 no) {
	return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
VEC int f8_greater(f8 a, f8 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
VEC int f8_nan(f8 a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
// f8_pow2 is 2^n for whole n in -126..127.
VEC f8 f8_pow2(f8 n) {
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
VEC float f8_sum(f8 a) {
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
VEC float f8_first(f8 a) { return _mm256_cvtss_f32(a); }

VEC b32 b32_load(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
VEC b32 b32_low(b32 v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
VEC b32 b32_high(b32 v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
VEC x4 x4_load(const int8_t *q) {
	int32_t v;
	memcpy(&v, q, 4);
	return _mm256_set1_epi32(v);
}
VEC uacc uacc_zero(void) { return _mm256_setzero_si256(); }
VEC uacc udot(uacc a, b32 w, x4 x) { return _mm256_add_epi16(a, _mm256_maddubs_epi16(w, x)); }
// IN_ORDER keeps GCC from turning a chain of udot into a tree, whose leaves do not fit the registers
// of a tile of four tokens: 55 operations a cycle become 82.
#define IN_ORDER(a) __asm__("" : "+x"(a))
VEC f8 uacc_f8(uacc a) { return _mm256_cvtepi32_ps(_mm256_madd_epi16(a, _mm256_set1_epi16(1))); }
VEC sacc sacc_zero(void) { return _mm256_setzero_si256(); }
VEC sacc sdot(sacc a, b32 w, x4 x) {
	__m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
	return _mm256_add_epi32(a, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
}
VEC f8 sacc_f8(sacc a) { return _mm256_cvtepi32_ps(a); }
// b32_ufloat and b32_sfloat are input j of the 4 of every row.
VEC f8 b32_ufloat(b32 v, int j) {
	return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(v, 8 * j), _mm256_set1_epi32(255)));
}
VEC f8 b32_sfloat(b32 v, int j) {
	return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(v, 24 - 8 * j), 24));
}
