// cache.h: how keys and values lie in a block, and RotaryStore, which puts them there. Included by each variant_*.c.
// A block's types and scales are those of kernels.CacheLayout, its layout is drawn in doc.go: what a device stores of
// a head has the same codes and scales everywhere.
//   qkv float32 [T, (H+G)*kdim + G*vdim], without values where those are the keys | q float32 [T, H*kdim]
// reference: kernels/ref RotaryStore, and its cache.go for codes and scales.

enum { TILE = 16 }; // tokens whose keys lie together

VEC int kv_size(const int type) { return type == OI_F32 ? 4 : type == OI_F16 || type == OI_BF16 ? 2 : 1; }
VEC int kv_scaled(const int type) { return type == OI_F8E4M3 || type == OI_I8; }

// load_kv returns values i to i+7 as stored: of types with scales, codes in units of code_scales.
VEC f8 load_kv(const uint8_t *p, int i, int type) {
	if (type == OI_I8)
		return f8_from_i8(p + i);
	if (type == OI_F8E4M3)
		return f8_from_e4m3(p + i);
	if (type == OI_F16)
		return f8_from_f16((const uint16_t *)p + i);
	if (type == OI_F32)
		return f8_load((const float *)p + i);
	return f8_from_bf16((const uint16_t *)p + i);
}

VEC float load_kv1(const uint8_t *p, int i, int type) {
	uint8_t one[32] = {0};
	memcpy(one, p + (size_t)i * kv_size(type), kv_size(type));
	return f8_first(load_kv(one, 0, type));
}

// code_scales returns what 8 positions' codes are multiplied by once they are loaded.
VEC f8 code_scales(const uint16_t *p, int type) {
	f8 scale = f8_from_bf16(p);
	return type == OI_F8E4M3 ? f8_mul(scale, f8_set(256)) : scale; // f8_from_e4m3 has 2^-8 of a code
}

VEC int64_t head_bytes(const oi_cache *c) {
	return (int64_t)c->block_tokens * ((c->kdim + c->vdim) * kv_size(c->type) + (kv_scaled(c->type) ? 2 * sizeof(uint16_t) : 0));
}

// head_block returns a head's part of a block: keys, then values, then scales of keys and of values.
VEC uint8_t *head_block(const oi_cache *c, int block, int g) {
	return c->pages + block / c->blocks_per_page * c->page_bytes + block % c->blocks_per_page * c->block_bytes +
		c->layer_offset + g * head_bytes(c);
}

// block_scales returns the scales of a head's part of a block, of a type that has them.
VEC uint16_t *block_scales(const oi_cache *c, const uint8_t *head) {
	return (uint16_t *)(head + (size_t)c->block_tokens * (c->kdim + c->vdim));
}

// to_halves writes 8 values.
VEC void to_halves(uint16_t *dst, f8 x, int type) { type == OI_F16 ? f8_to_f16(dst, x) : f8_to_bf16(dst, x); }

// to_codes writes 8 values, which are up to a type's largest code, to nearest, to even between two.
VEC void to_codes(uint8_t *dst, f8 x, int type) {
	if (type == OI_I8) {
		f8_to_i8((int8_t *)dst, x);
		return;
	}
	float v[8];
	f8_store(v, x);
	for (int i = 0; i < 8; i++) {
		uint32_t bits, small;
		memcpy(&bits, v + i, 4);
		uint32_t size = bits & 0x7fffffff;
		float sum;
		memcpy(&sum, &size, 4);
		sum += 16384.0f; // whose last bit is the step of subnormals, 2^-9
		memcpy(&small, &sum, 4);
		// Otherwise mantissas lose 20 bits, and exponents are 120 apart.
		uint32_t normal = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3);
		dst[i] = (size < 0x3c800000 ? small - 0x46800000 : normal) | (bits >> 24 & 0x80); // below 2^-6
	}
}

// cache_scale is the scale of a head of type OI_F8E4M3 or OI_I8, a bfloat16.
static uint16_t cache_scale(const float *x, int n, int type) {
	f8 top = f8_zero(), bad = f8_zero();
	for (int i = 0; i < n; i += 8) {
		float tail[8] = {0};
		if (i + 8 > n)
			memcpy(tail, x + i, (n - i) * sizeof(float));
		f8 v = f8_load(i + 8 > n ? tail : x + i);
		top = f8_max(top, f8_abs(v));
		bad = f8_fma(v, f8_zero(), bad); // NaN if any is not finite
	}
	if (f8_sum(bad) != 0)
		return 0x7fc0;
	float t[8], m = 0;
	f8_store(t, top);
	for (int i = 0; i < 8; i++)
		m = t[i] > m ? t[i] : m;
	m /= type == OI_I8 ? 127 : 448;
	uint32_t bits;
	memcpy(&bits, &m, 4);
	return (bits + 0xffff) >> 16;
}

// to_cache writes a head's values as stored and returns their scale, where the type has one.
static uint16_t to_cache(void *dst, const float *x, int n, int type) {
	if (type == OI_F32) {
		memcpy(dst, x, n * sizeof(float));
		return 0;
	}
	const int size = kv_size(type);
	uint16_t scale = 0;
	f8 by = f8_zero();
	if (kv_scaled(type)) {
		uint16_t all[8] = {0};
		all[0] = scale = cache_scale(x, n, type);
		float s = f8_first(f8_from_bf16(all));
		if (!(s > 0)) {
			memset(dst, 0, n);
			return scale;
		}
		by = f8_set(s);
	}
	for (int i = 0; i < n; i += 8) {
		float tail[8] = {0};
		uint16_t out[8];
		int rest = n - i < 8 ? n - i : 8;
		if (rest < 8)
			memcpy(tail, x + i, rest * sizeof(float));
		f8 v = f8_load(rest < 8 ? tail : x + i);
		uint8_t *to = (uint8_t *)dst + (size_t)i * size;
		void *whole = rest < 8 ? (void *)out : to;
		kv_scaled(type) ? to_codes(whole, f8_div(v, by), type) : to_halves(whole, v, type);
		if (rest < 8)
			memcpy(to, out, rest * size);
	}
	return scale;
}

// rotate turns the first rot values of a head and copies the others; dst may be x.
static void rotate(float *dst, const float *x, const float *cs, int rot, int n) {
	int h = rot / 2, i = 0;
	for (; i + 8 <= h; i += 8) {
		f8 c = f8_load(cs + i), s = f8_load(cs + h + i), a = f8_load(x + i), b = f8_load(x + h + i);
		f8_store(dst + i, f8_sub(f8_mul(a, c), f8_mul(b, s)));
		f8_store(dst + h + i, f8_add(f8_mul(b, c), f8_mul(a, s)));
	}
	for (; i < h; i++) {
		float a = x[i], b = x[h + i];
		dst[i] = a * cs[i] - b * cs[h + i];
		dst[h + i] = b * cs[i] + a * cs[h + i];
	}
	if (dst != x)
		memcpy(dst + rot, x + rot, (n - rot) * sizeof(float));
}

// turn norms a head where w is not NULL and rotates it.
static void turn(float *dst, const float *x, const float *w, const float *cs, const oi_rotary *a) {
	if (w) {
		rms_row(dst, x, w, a->cache.kdim, a->eps);
		x = dst;
	}
	rotate(dst, x, cs, a->rot, a->cache.kdim);
}

static void rotary(const void *arg, int chunk, oi_thread *th) {
	const oi_rotary *a = arg;
	const oi_cache *c = &a->cache;
	const int kd = c->kdim, vd = c->vdim, size = kv_size(c->type), scaled = kv_scaled(c->type);
	float *head = oi_scratch(th);
	void *packed = head + (kd > vd ? kd : vd);
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	for (int t = from; t < to; t++) {
		const float *x = a->qkv + t * a->qkv_stride, *cs = a->cossin + t * a->cs_stride;
		float *q = oi_out(th, a->q + t * a->q_stride, (size_t)a->H * kd * sizeof(float));
		for (int h = 0; h < a->H; h++, x += kd, q += kd)
			turn(q, x, a->qnorm, cs, a);
		int slot = a->slots[t];
		if (slot < 0)
			continue;
		int off = slot % c->block_tokens;
		const float *keys = x, *values = a->keys_as_values ? keys : keys + c->heads * kd;
		for (int g = 0; g < c->heads; g++) {
			uint8_t *base = head_block(c, slot / c->block_tokens, g);
			turn(head, keys + g * kd, a->knorm, cs, a);
			uint16_t *scale = block_scales(c, base) + off, one = to_cache(packed, head, kd, c->type);
			oi_scatter(th, base + ((size_t)(off / TILE) * TILE * kd + off % TILE) * size, packed, kd, size, TILE * size);
			const float *v = values + g * vd;
			if (a->vnorm) {
				rms_row(head, v, NULL, vd, a->eps);
				v = head;
			}
			uint8_t *to = base + ((size_t)c->block_tokens * kd + (size_t)off * vd) * size;
			uint16_t other = to_cache(oi_out(th, to, (size_t)vd * size), v, vd, c->type);
			if (scaled) {
				oi_scatter(th, scale, &one, 1, sizeof one, 0);
				oi_scatter(th, scale + c->block_tokens, &other, 1, sizeof other, 0);
			}
		}
	}
}
