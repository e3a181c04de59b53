// vec_neon.h: the vector words that the operators are written in, for 64-bit ARM: two registers of 4
// lanes for 8. NEON_DOT says whether the dot-product instructions may be used; integers are the same
// with and without. Without them:
// udot collects products of codes 0..15, each at most 15*127 = 1,905, in lanes of 16 bits for each input
// of a row: 8 steps of a block reach 15,240, and a pair of them, which is added last, 30,480.
// sdot takes codes -128..127: a pair of products reaches 32,512 and is widened at once.
#include <arm_neon.h>

// SHARED_TILES compiles tiles that share unpacked weights among tokens.
#define SHARED_TILES 1
#define UNROLL _Pragma("GCC unroll 4")
#define VEC static inline __attribute__((always_inline))
typedef struct {
	float32x4_t l, h;
} f8;
typedef struct {
	int8x16_t l, h;
} b32;
typedef struct {
	int32x4_t l, h;
} sacc;
typedef int8x16_t x4;

VEC f8 f8_set(float x) { return (f8){vdupq_n_f32(x), vdupq_n_f32(x)}; }
VEC f8 f8_zero(void) { return f8_set(0); }
VEC f8 f8_load(const float *p) { return (f8){vld1q_f32(p), vld1q_f32(p + 4)}; }
VEC void f8_store(float *p, f8 a) {
	vst1q_f32(p, a.l);
	vst1q_f32(p + 4, a.h);
}
VEC f8 f8_add(f8 a, f8 b) { return (f8){vaddq_f32(a.l, b.l), vaddq_f32(a.h, b.h)}; }
VEC f8 f8_sub(f8 a, f8 b) { return (f8){vsubq_f32(a.l, b.l), vsubq_f32(a.h, b.h)}; }
VEC f8 f8_mul(f8 a, f8 b) { return (f8){vmulq_f32(a.l, b.l), vmulq_f32(a.h, b.h)}; }
VEC f8 f8_div(f8 a, f8 b) { return (f8){vdivq_f32(a.l, b.l), vdivq_f32(a.h, b.h)}; }
VEC f8 f8_fma(f8 a, f8 b, f8 c) { return (f8){vfmaq_f32(c.l, a.l, b.l), vfmaq_f32(c.h, a.h, b.h)}; }
// f8_pick is yes where a > b, else no.
VEC f8 f8_pick(f8 a, f8 b, f8 yes, f8 no) {
	return (f8){vbslq_f32(vcgtq_f32(a.l, b.l), yes.l, no.l), vbslq_f32(vcgtq_f32(a.h, b.h), yes.h, no.h)};
}
// The instructions for these would give NaN where either is.
VEC f8 f8_max(f8 a, f8 b) { return f8_pick(a, b, a, b); } // b where either is NaN
VEC f8 f8_min(f8 a, f8 b) { return f8_pick(b, a, a, b); } // b where either is NaN
VEC f8 f8_abs(f8 a) { return (f8){vabsq_f32(a.l), vabsq_f32(a.h)}; }
VEC f8 f8_round(f8 a) { return (f8){vrndnq_f32(a.l), vrndnq_f32(a.h)}; }
VEC f8 f8_from_f16(const uint16_t *p) {
	float16x8_t v = vreinterpretq_f16_u16(vld1q_u16(p));
	return (f8){vcvt_f32_f16(vget_low_f16(v)), vcvt_high_f32_f16(v)};
}
VEC f8 f8_from_bf16(const uint16_t *p) {
	uint16x8_t v = vld1q_u16(p);
	return (f8){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(v, 16))};
}
VEC void f8_to_f16(uint16_t *p, f8 a) {
	vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.l), a.h)));
}
VEC uint32x4_t bf16_round(float32x4_t a) {
	uint32x4_t v = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(v, 16), vdupq_n_u32(1));
	return vaddq_u32(v, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
}
VEC void f8_to_bf16(uint16_t *p, f8 a) {
	vst1q_u16(p, vshrn_high_n_u32(vshrn_n_u32(bf16_round(a.l), 16), bf16_round(a.h), 16));
}
VEC f8 f8_from_u8(const uint8_t *p) {
	uint16x8_t v = vmovl_u8(vld1_u8(p));
	return (f8){vcvtq_f32_u32(vmovl_u16(vget_low_u16(v))), vcvtq_f32_u32(vmovl_high_u16(v))};
}
VEC f8 f8_from_i8(const uint8_t *p) {
	int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
	return (f8){vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v))};
}
// f8_from_e4m3 is OCP E4M3 times 2^-8, also of subnormals: exponent and mantissa are moved to where fp16 has
// them. It is not for NaNs.
VEC f8 f8_from_e4m3(const uint8_t *p) {
	int16x8_t v = vandq_s16(vshll_n_s8(vreinterpret_s8_u8(vld1_u8(p)), 7), vdupq_n_s16((int16_t)0xbfff));
	float16x8_t h = vreinterpretq_f16_s16(v);
	return (f8){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
// f8_to_i8 rounds to nearest; |a| <= 127.
VEC void f8_to_i8(int8_t *p, f8 a) {
	int16x8_t v = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(a.l)), vcvtnq_s32_f32(a.h));
	vst1_s8(p, vqmovn_s16(v));
}
// lane_bits is bit i for lane i.
VEC int lane_bits(uint32x4_t l, uint32x4_t h) {
	static const uint32_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
	return vaddvq_u32(vorrq_u32(vandq_u32(l, vld1q_u32(bit)), vandq_u32(h, vld1q_u32(bit + 4))));
}
VEC int f8_greater(f8 a, f8 b) { return lane_bits(vcgtq_f32(a.l, b.l), vcgtq_f32(a.h, b.h)); }
VEC int f8_nan(f8 a) { return lane_bits(vceqq_f32(a.l, a.l), vceqq_f32(a.h, a.h)) ^ 255; }
// f8_pow2 is 2^n for whole n in -126..127.
VEC float32x4_t pow2(float32x4_t n) {
	return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
VEC f8 f8_pow2(f8 n) { return (f8){pow2(n.l), pow2(n.h)}; }
VEC float f8_sum(f8 a) {
	float32x4_t v = vaddq_f32(a.l, a.h);
	return vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)));
}
VEC float f8_first(f8 a) { return vgetq_lane_f32(a.l, 0); }

VEC b32 b32_load(const uint8_t *p) { return (b32){vreinterpretq_s8_u8(vld1q_u8(p)), vreinterpretq_s8_u8(vld1q_u8(p + 16))}; }
VEC b32 b32_low(b32 v) { return (b32){vandq_s8(v.l, vdupq_n_s8(15)), vandq_s8(v.h, vdupq_n_s8(15))}; }
VEC int8x16_t high4(int8x16_t v) { return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(v), 4)); }
VEC b32 b32_high(b32 v) { return (b32){high4(v.l), high4(v.h)}; }
VEC x4 x4_load(const int8_t *q) {
	int32_t v;
	memcpy(&v, q, 4);
	return vreinterpretq_s8_s32(vdupq_n_s32(v));
}
#define IN_ORDER(a) // GCC does not reorder these instructions
VEC sacc sacc_zero(void) { return (sacc){vdupq_n_s32(0), vdupq_n_s32(0)}; }
VEC f8 sacc_f8(sacc a) { return (f8){vcvtq_f32_s32(a.l), vcvtq_f32_s32(a.h)}; }
#if NEON_DOT
typedef sacc uacc;
VEC sacc sdot(sacc a, b32 w, x4 x) { return (sacc){vdotq_s32(a.l, w.l, x), vdotq_s32(a.h, w.h, x)}; }
VEC uacc uacc_zero(void) { return sacc_zero(); }
VEC uacc udot(uacc a, b32 w, x4 x) { return sdot(a, w, x); }
VEC f8 uacc_f8(uacc a) { return sacc_f8(a); }
#else
// A register of uacc is 2 rows x 4 inputs.
typedef struct {
	int16x8_t a, b, c, d;
} uacc;
VEC int32x4_t sdot4(int32x4_t a, int8x16_t w, x4 x) {
	return vpadalq_s16(a, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x)));
}
VEC sacc sdot(sacc a, b32 w, x4 x) { return (sacc){sdot4(a.l, w.l, x), sdot4(a.h, w.h, x)}; }
VEC uacc uacc_zero(void) { return (uacc){vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0)}; }
VEC uacc udot(uacc a, b32 w, x4 x) {
	return (uacc){vmlal_s8(a.a, vget_low_s8(w.l), vget_low_s8(x)), vmlal_high_s8(a.b, w.l, x),
		vmlal_s8(a.c, vget_low_s8(w.h), vget_low_s8(x)), vmlal_high_s8(a.d, w.h, x)};
}
VEC f8 uacc_f8(uacc a) {
	return (f8){vcvtq_f32_s32(vpaddlq_s16(vpaddq_s16(a.a, a.b))), vcvtq_f32_s32(vpaddlq_s16(vpaddq_s16(a.c, a.d)))};
}
#endif
// b32_ufloat and b32_sfloat are input j of the 4 of every row.
VEC float32x4_t ufloat(int8x16_t v, int j) { return vcvtq_f32_u32((vreinterpretq_u32_s8(v) >> 8 * j) & 255); }
VEC float32x4_t sfloat(int8x16_t v, int j) { return vcvtq_f32_s32((vreinterpretq_s32_s8(v) << (24 - 8 * j)) >> 24); }
VEC f8 b32_ufloat(b32 v, int j) { return (f8){ufloat(v.l, j), ufloat(v.h, j)}; }
VEC f8 b32_sfloat(b32 v, int j) { return (f8){sfloat(v.l, j), sfloat(v.h, j)}; }
