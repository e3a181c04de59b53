// vec_neon.h: the words of vec_avx2.h for 64-bit ARM with the dot product instructions. A
// vector of 8 lanes is two registers.
#include <arm_neon.h>

#define SHARED_TILES 1
#define UNROLL _Pragma("GCC unroll 4")
#define VEC static inline __attribute__((always_inline))
typedef struct {
	float32x4_t a, b;
} f8;
typedef struct {
	int8x16_t a, b;
} b32;
typedef struct {
	int32x4_t a, b;
} sacc;
typedef sacc uacc;
typedef int8x16_t x4;

VEC f8 f8_set(float x) { return (f8){vdupq_n_f32(x), vdupq_n_f32(x)}; }
VEC f8 f8_zero(void) { return f8_set(0); }
VEC f8 f8_load(const float *p) { return (f8){vld1q_f32(p), vld1q_f32(p + 4)}; }
VEC void f8_store(float *p, f8 x) {
	vst1q_f32(p, x.a);
	vst1q_f32(p + 4, x.b);
}
VEC f8 f8_add(f8 x, f8 y) { return (f8){vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
VEC f8 f8_sub(f8 x, f8 y) { return (f8){vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
VEC f8 f8_mul(f8 x, f8 y) { return (f8){vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
VEC f8 f8_div(f8 x, f8 y) { return (f8){vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
VEC f8 f8_fma(f8 x, f8 y, f8 z) { return (f8){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
// f8_pick is yes where x > y, else no.
VEC f8 f8_pick(f8 x, f8 y, f8 yes, f8 no) {
	return (f8){vbslq_f32(vcgtq_f32(x.a, y.a), yes.a, no.a), vbslq_f32(vcgtq_f32(x.b, y.b), yes.b, no.b)};
}
VEC f8 f8_max(f8 x, f8 y) { return f8_pick(x, y, x, y); }
VEC f8 f8_min(f8 x, f8 y) { return f8_pick(y, x, x, y); }
VEC f8 f8_abs(f8 x) { return (f8){vabsq_f32(x.a), vabsq_f32(x.b)}; }
VEC f8 f8_round(f8 x) { return (f8){vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
VEC f8 f8_from_f16(const uint16_t *p) {
	float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
	return (f8){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
VEC void f8_to_f16(uint16_t *p, f8 x) {
	vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
}
VEC f8 f8_from_bf16(const uint16_t *p) {
	uint16x8_t h = vld1q_u16(p);
	return (f8){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
		vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))};
}
VEC uint32x4_t bf16_round(float32x4_t x) {
	uint32x4_t v = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(v, 16), vdupq_n_u32(1));
	return vaddq_u32(v, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
}
VEC void f8_to_bf16(uint16_t *p, f8 x) {
	vst1q_u16(p, vshrn_high_n_u32(vshrn_n_u32(bf16_round(x.a), 16), bf16_round(x.b), 16));
}
VEC f8 f8_from_u8(const uint8_t *p) {
	uint16x8_t h = vmovl_u8(vld1_u8(p));
	return (f8){vcvtq_f32_u32(vmovl_u16(vget_low_u16(h))), vcvtq_f32_u32(vmovl_high_u16(h))};
}
VEC void f8_to_i8(int8_t *p, f8 x) {
	vst1_s8(p, vmovn_s16(vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.a)), vmovn_s32(vcvtnq_s32_f32(x.b)))));
}
VEC int mask4(uint32x4_t m) {
	static const uint32_t bit[4] = {1, 2, 4, 8};
	return (int)vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}
VEC int f8_greater(f8 x, f8 y) { return mask4(vcgtq_f32(x.a, y.a)) | mask4(vcgtq_f32(x.b, y.b)) << 4; }
VEC int f8_nan(f8 x) { return 255 & ~(mask4(vceqq_f32(x.a, x.a)) | mask4(vceqq_f32(x.b, x.b)) << 4); }
VEC float32x4_t pow2_4(float32x4_t n) {
	return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
VEC f8 f8_pow2(f8 n) { return (f8){pow2_4(n.a), pow2_4(n.b)}; }
VEC float f8_sum(f8 x) {
	float32x4_t s = vaddq_f32(x.a, x.b);
	float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
	return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
}
VEC float f8_first(f8 x) { return vgetq_lane_f32(x.a, 0); }

VEC b32 b32_load(const uint8_t *p) { return (b32){vreinterpretq_s8_u8(vld1q_u8(p)), vreinterpretq_s8_u8(vld1q_u8(p + 16))}; }
VEC int8x16_t low4(int8x16_t v) { return vandq_s8(v, vdupq_n_s8(15)); }
VEC int8x16_t high4(int8x16_t v) { return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(v), 4)); }
VEC b32 b32_low(b32 v) { return (b32){low4(v.a), low4(v.b)}; }
VEC b32 b32_high(b32 v) { return (b32){high4(v.a), high4(v.b)}; }
VEC x4 x4_load(const int8_t *q) {
	int32_t v;
	memcpy(&v, q, 4);
	return vreinterpretq_s8_s32(vdupq_n_s32(v));
}
VEC sacc sacc_zero(void) { return (sacc){vdupq_n_s32(0), vdupq_n_s32(0)}; }
VEC sacc sdot(sacc s, b32 w, x4 x) { return (sacc){vdotq_s32(s.a, w.a, x), vdotq_s32(s.b, w.b, x)}; }
VEC f8 sacc_f8(sacc s) { return (f8){vcvtq_f32_s32(s.a), vcvtq_f32_s32(s.b)}; }
VEC uacc uacc_zero(void) { return sacc_zero(); }
VEC uacc udot(uacc s, b32 w, x4 x) { return sdot(s, w, x); }
VEC f8 uacc_f8(uacc s) { return sacc_f8(s); }
#define IN_ORDER(a)
VEC float32x4_t byte_u(int8x16_t v, int j) {
	uint32x4_t w = vshlq_u32(vreinterpretq_u32_s8(v), vdupq_n_s32(-8 * j));
	return vcvtq_f32_u32(vandq_u32(w, vdupq_n_u32(255)));
}
VEC float32x4_t byte_s(int8x16_t v, int j) {
	int32x4_t w = vshlq_s32(vreinterpretq_s32_s8(v), vdupq_n_s32(24 - 8 * j));
	return vcvtq_f32_s32(vshrq_n_s32(w, 24));
}
VEC f8 b32_ufloat(b32 v, int j) { return (f8){byte_u(v.a, j), byte_u(v.b, j)}; }
VEC f8 b32_sfloat(b32 v, int j) { return (f8){byte_s(v.a, j), byte_s(v.b, j)}; }
