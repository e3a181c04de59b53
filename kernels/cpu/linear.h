// linear.h: y[T,N] = x[T,K] w[N,K]^T (+ bias), or added to y. Included by each variant_*.c.
//   x   int8 blocks (4- and 8-bit codes) or float32 blocks (float weights; all when exact)
//   w   panels of 8 rows, a vector lane is a row (drawn in doc.go)
// One formula for every number of tokens. int8, per block of 32 (or 16) inputs, in order of K:
//   y += float(sum code*q) * xs * scale;  y += min * sum of x
// where the integer sum is exact and min is -zero*scale when the format has zero points.
// float32, per block: y += (sum over inputs in two interleaved chains) * scale, and the same min.
// A panel is multiplied by four tokens at a time, so that unpacking is shared; fewer when fewer
// are left. 98 vector operations for 8 rows x 32 inputs x 4 tokens of 4-bit codes.
// reference: kernels/ref Linear.

// load_scale reads 8 scales of a storage type.
VEC f8 load_scale(const uint8_t *p, int type) {
	if (type == OI_F16)
		return f8_from_f16((const uint16_t *)p);
	if (type == OI_F32)
		return f8_load((const float *)p);
	return f8_from_bf16((const uint16_t *)p);
}

// group_min is what every input of a group adds to a row's weights.
VEC f8 group_min(const oi_part *p, const uint8_t *zeros, f8 scale, int w8) {
	if (p->ztype == OI_ZCONST)
		return f8_mul(f8_set(-p->z0), scale);
	if (p->ztype == OI_ZMIN) {
		f8 m = load_scale(zeros, p->stype);
		return w8 ? f8_fma(f8_set(128), scale, m) : m;
	}
	f8 z = f8_from_u8(zeros);
	if (w8)
		z = f8_sub(z, f8_set(128));
	return f8_mul(f8_sub(f8_zero(), z), scale);
}

VEC int scale_bytes(const oi_part *p) { return p->stype == OI_F32 ? 32 : 16; }
VEC int zero_bytes(const oi_part *p) {
	return p->ztype == OI_ZCONST ? 0 : p->ztype == OI_ZMIN ? scale_bytes(p) : 8;
}

enum { AHEAD = 3072 }; // bytes the next weights are fetched ahead; HINT

// tile_int8 multiplies a panel by nt tokens. w8, half, hasmin and nt are constants.
VEC void tile_int8(const oi_part *p, const uint8_t *w, const oi_qblock *const *x, int blocks, f8 *y,
	const int w8, const int half, const int hasmin, const int nt) {
	const int sb = scale_bytes(p), zb = zero_bytes(p), parts = half ? 2 : 1;
	const int gblocks = half ? 1 : p->gblocks;
	f8 acc[4];
UNROLL
	for (int t = 0; t < nt; t++)
		acc[t] = f8_zero();
	for (int b = 0; b < blocks;) {
		const uint8_t *scales = w, *zeros = w + parts * sb;
		w = zeros + parts * zb;
		f8 s[2], m[2];
		for (int h = 0; h < parts; h++) {
			s[h] = load_scale(scales + h * sb, p->stype);
			if (hasmin)
				m[h] = group_min(p, zeros + h * zb, s[h], w8);
		}
		const int end = b + gblocks < blocks ? b + gblocks : blocks;
		for (; b < end; b++) {
			if (nt == 1)
				for (int k = 0; k < (w8 ? 320 : 160); k += 64)
					__builtin_prefetch(w + AHEAD + k, 0, 3);
			for (int h = 0; h < parts; h++) {
				uacc u[4];
				sacc v[4];
				for (int t = 0; t < nt; t++) {
					u[t] = uacc_zero();
					v[t] = sacc_zero();
				}
				const int steps = half ? 4 : 8; // of 4 inputs
UNROLL
				for (int i = 0; i < steps; i += 2) {
					const int k = h * 16 + i * 4;
					if (w8) {
						b32 lo = b32_load(w + k * 8), hi = b32_load(w + k * 8 + 32);
UNROLL
						for (int t = 0; t < nt; t++) {
							v[t] = sdot(v[t], lo, x4_load(x[t][b].q + k));
							v[t] = sdot(v[t], hi, x4_load(x[t][b].q + k + 4));
						}
					} else {
						b32 c = b32_load(w + k * 4), lo = b32_low(c), hi = b32_high(c);
UNROLL
						for (int t = 0; t < nt; t++) {
							u[t] = udot(u[t], lo, x4_load(x[t][b].q + k));
							if (nt > 1)
								IN_ORDER(u[t]);
							u[t] = udot(u[t], hi, x4_load(x[t][b].q + k + 4));
							if (nt > 1)
								IN_ORDER(u[t]);
						}
					}
				}
UNROLL
				for (int t = 0; t < nt; t++) {
					f8 d = w8 ? sacc_f8(v[t]) : uacc_f8(u[t]);
					acc[t] = f8_fma(f8_mul(d, f8_set(x[t][b].xs)), s[h], acc[t]);
					if (hasmin)
						acc[t] = f8_fma(m[h], f8_set(half ? x[t][b].half[h] : x[t][b].sum), acc[t]);
				}
			}
			w += w8 ? 256 : 128;
		}
	}
UNROLL
	for (int t = 0; t < nt; t++)
		y[t] = acc[t];
}

// weights_f8 reads input k of a block of float weights.
VEC f8 weights_f8(const uint8_t *w, int k, int kind) {
	if (kind == OI_WF32)
		return f8_load((const float *)w + 8 * k);
	if (kind == OI_WF16)
		return f8_from_f16((const uint16_t *)w + 8 * k);
	return f8_from_bf16((const uint16_t *)w + 8 * k);
}

// tile_float is tile_int8 for float32 activations; kind, half and nt are constants.
VEC void tile_float(const oi_part *p, const uint8_t *w, const oi_fblock *const *x, int blocks, f8 *y,
	const int kind, const int half, const int nt) {
	const int coded = kind == OI_W4 || kind == OI_W8, w8 = kind == OI_W8, parts = half ? 2 : 1;
	const int sb = coded ? scale_bytes(p) : 0, zb = coded ? zero_bytes(p) : 0;
	const int gblocks = half ? 1 : coded ? p->gblocks : blocks;
	const int sub = coded && p->ztype != OI_ZMIN; // zero points are taken off the codes, exactly
	f8 acc[4];
UNROLL
	for (int t = 0; t < nt; t++)
		acc[t] = f8_zero();
	for (int b = 0; b < blocks;) {
		const uint8_t *scales = w, *zeros = w + parts * sb;
		w = zeros + parts * zb;
		f8 s[2], z[2];
		for (int h = 0; h < parts && coded; h++) {
			s[h] = load_scale(scales + h * sb, p->stype);
			if (p->ztype == OI_ZMIN)
				z[h] = load_scale(zeros + h * zb, p->stype);
			else if (p->ztype == OI_ZGROUP)
				z[h] = f8_sub(f8_from_u8(zeros + h * zb), f8_set(w8 ? 128 : 0));
			else
				z[h] = f8_set(p->z0);
			if (!sub)
				z[h] = w8 ? f8_fma(f8_set(128), s[h], z[h]) : z[h];
		}
		const int end = b + gblocks < blocks ? b + gblocks : blocks;
		for (; b < end; b++) {
			for (int h = 0; h < parts; h++) {
				f8 even[4], odd[4];
				for (int t = 0; t < nt; t++)
					even[t] = odd[t] = f8_zero();
				for (int i = 0; i < (half ? 4 : 8); i += 2) {
					const int k = h * 16 + i * 4;
					b32 lo, hi;
					if (w8) {
						lo = b32_load(w + k * 8);
						hi = b32_load(w + k * 8 + 32);
					} else if (coded) {
						b32 c = b32_load(w + k * 4);
						lo = b32_low(c);
						hi = b32_high(c);
					}
UNROLL
					for (int j = 0; j < 4; j++) {
						f8 a, c;
						if (coded) {
							a = w8 ? b32_sfloat(lo, j) : b32_ufloat(lo, j);
							c = w8 ? b32_sfloat(hi, j) : b32_ufloat(hi, j);
							if (sub) {
								a = f8_sub(a, z[h]);
								c = f8_sub(c, z[h]);
							}
						} else {
							a = weights_f8(w, k + j, kind);
							c = weights_f8(w, k + 4 + j, kind);
						}
UNROLL
						for (int t = 0; t < nt; t++) {
							even[t] = f8_fma(a, f8_set(x[t][b].x[k + j]), even[t]);
							odd[t] = f8_fma(c, f8_set(x[t][b].x[k + 4 + j]), odd[t]);
						}
					}
				}
				for (int t = 0; t < nt; t++) {
					f8 d = f8_add(even[t], odd[t]);
					acc[t] = coded ? f8_fma(d, s[h], acc[t]) : f8_add(d, acc[t]);
					if (coded && !sub)
						acc[t] = f8_fma(z[h], f8_set(half ? x[t][b].half[h] : x[t][b].sum), acc[t]);
				}
			}
			w += w8 ? 256 : coded ? 128 : kind == OI_WF32 ? 1024 : 512;
		}
	}
UNROLL
	for (int t = 0; t < nt; t++)
		y[t] = acc[t];
}

// A tile_fn multiplies a panel by 1 to 4 tokens: a compiled instance of the two above.
typedef void (*tile_fn)(const oi_part *p, const uint8_t *w, const void *const *x, int blocks, f8 *y, int nt);

#if SHARED_TILES
#define TILES(tile, nt) \
	if (nt == 4) {      \
		tile(0, 4);     \
		return;         \
	}                   \
	if (nt >= 2)        \
		tile(0, 2);     \
	if (nt != 2)        \
		tile(nt - 1, 1);
#else
#define TILES(tile, nt)          \
	for (int t = 0; t < nt; t++) \
		tile(t, 1);
#endif

#define INT8_TILE(name)                                                                   \
	static void name(const oi_part *p, const uint8_t *w, const void *const *x, int blocks, f8 *y, int nt) { \
		const oi_qblock *const *q = (const oi_qblock *const *)x;                                            \
		TILES(name##_at, nt)                                                                                \
	}
#define w4_plain_at(t, n) tile_int8(p, w, q + (t), blocks, y + (t), 0, 0, 0, n)
INT8_TILE(w4_plain)
#define w4_min_at(t, n) tile_int8(p, w, q + (t), blocks, y + (t), 0, 0, 1, n)
INT8_TILE(w4_min)
#define w4_half_at(t, n) tile_int8(p, w, q + (t), blocks, y + (t), 0, 1, 1, n)
INT8_TILE(w4_half)
#define w8_plain_at(t, n) tile_int8(p, w, q + (t), blocks, y + (t), 1, 0, 0, n)
INT8_TILE(w8_plain)
#define w8_min_at(t, n) tile_int8(p, w, q + (t), blocks, y + (t), 1, 0, 1, n)
INT8_TILE(w8_min)
#define w8_half_at(t, n) tile_int8(p, w, q + (t), blocks, y + (t), 1, 1, 0, n)
INT8_TILE(w8_half)
#define w8_half_min_at(t, n) tile_int8(p, w, q + (t), blocks, y + (t), 1, 1, 1, n)
INT8_TILE(w8_half_min)

#define FLOAT_TILE(name)                                                                        \
	static void name(const oi_part *p, const uint8_t *w, const void *const *x, int blocks, f8 *y, int nt) { \
		const oi_fblock *const *f = (const oi_fblock *const *)x;                                            \
		TILES(name##_at, nt)                                                                                \
	}
#define f4_at(t, n) tile_float(p, w, f + (t), blocks, y + (t), OI_W4, 0, n)
FLOAT_TILE(f4)
#define f4_half_at(t, n) tile_float(p, w, f + (t), blocks, y + (t), OI_W4, 1, n)
FLOAT_TILE(f4_half)
#define f8__at(t, n) tile_float(p, w, f + (t), blocks, y + (t), OI_W8, 0, n)
FLOAT_TILE(f8_)
#define f8_half_at(t, n) tile_float(p, w, f + (t), blocks, y + (t), OI_W8, 1, n)
FLOAT_TILE(f8_half)
#define f32__at(t, n) tile_float(p, w, f + (t), blocks, y + (t), OI_WF32, 0, n)
FLOAT_TILE(f32_)
#define f16__at(t, n) tile_float(p, w, f + (t), blocks, y + (t), OI_WF16, 0, n)
FLOAT_TILE(f16_)
#define bf16__at(t, n) tile_float(p, w, f + (t), blocks, y + (t), OI_WBF16, 0, n)
FLOAT_TILE(bf16_)

static tile_fn find_tile(const oi_part *p, int exact) {
	int plain = p->ztype == OI_ZCONST && p->z0 == 0;
	switch (p->kind) {
	case OI_W4:
		if (exact)
			return p->half ? f4_half : f4;
		return p->half ? w4_half : plain ? w4_plain : w4_min;
	case OI_W8:
		if (exact)
			return p->half ? f8_half : f8_;
		if (p->half)
			return plain ? w8_half : w8_half_min;
		return plain ? w8_plain : w8_min;
	case OI_WF32:
		return f32_;
	case OI_WF16:
		return f16_;
	}
	return bf16_;
}

// put writes a panel's results for one token: y*post (+ bias) (+ what is there).
VEC void put(const oi_linear *a, const oi_part *p, int panel, f8 y, float *out, const float *old) {
	int row = panel * 8, n = p->n - row < 8 ? p->n - row : 8;
	y = f8_mul(y, f8_set(p->post));
	if (n == 8) {
		if (p->bias)
			y = f8_add(y, f8_load(p->bias + row));
		if (a->add)
			y = f8_add(y, f8_load(old));
		f8_store(out, y);
		return;
	}
	float v[8];
	f8_store(v, y);
	for (int i = 0; i < n; i++) {
		if (p->bias)
			v[i] += p->bias[row + i];
		out[i] = a->add ? v[i] + old[i] : v[i];
	}
}

static void linear(const void *arg, int chunk, oi_thread *th) {
	const oi_linear *a = arg;
	int from = chunk / a->token_chunks * a->chunk_panels, to = from + a->chunk_panels;
	int t0 = chunk % a->token_chunks * a->chunk_tokens, nt = a->T - t0;
	if (nt > a->chunk_tokens)
		nt = a->chunk_tokens;
	if (to > a->panels)
		to = a->panels;
	// The chunk's columns run on over the border between parts.
	const oi_part *p = a->part;
	int before = 0;
	while (from - before >= p->panels)
		before += p++->panels;
	int c0 = p->col + (from - before) * 8;
	const oi_part *last = p;
	int b = before;
	while (to - b > last->panels)
		b += last++->panels;
	int c1 = last->col + ((to - b) * 8 < last->n ? (to - b) * 8 : last->n);

	float *out[OI_OUT_SPANS];
	for (int t = 0; t < nt; t++)
		out[t] = oi_out(th, a->dst + (t0 + t) * a->dst_stride + c0, (c1 - c0) * sizeof(float));
	for (int i = from; i < to; i++) {
		while (i - before >= p->panels)
			before += p++->panels;
		int panel = i - before, col = p->col + panel * 8 - c0;
		int exact = a->exact || p->kind >= OI_WF32;
		tile_fn tile = find_tile(p, exact);
		const uint8_t *w = p->data + panel * p->panel_bytes;
		for (int t = 0; t < nt; t += 4) {
			const void *x[4];
			f8 y[4];
			int n = nt - t < 4 ? nt - t : 4;
			for (int k = 0; k < n; k++) {
				size_t row = (size_t)(t0 + t + k) * a->blocks;
				x[k] = exact ? (const void *)(a->f + row) : (const void *)(a->q + row);
			}
			tile(p, w, x, a->blocks, y, n);
			for (int k = 0; k < n; k++)
				put(a, p, panel, y[k], out[t + k] + col, a->dst + (t0 + t + k) * a->dst_stride + c0 + col);
		}
	}
}
