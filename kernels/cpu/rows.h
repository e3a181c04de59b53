// rows.h: operators on rows of activations: preparation for a matrix product, RMSNorm, RMSNormAdd,
// NormGate, GateMul, SoftCap, EmbedRows, GatherRows, CosSin. Included by each variant_*.c. A row's sums run over 8 lanes and are
// then added across: nothing depends on how many rows a chunk has.
// reference: kernels/ref.

// quantise writes n columns of x as blocks of 32: xs = max|x|/127, q rounded to nearest.
static void quantise(oi_qblock *q, const float *x, int n) {
	float tail[32];
	for (; n > 0; q++, x += 32, n -= 32) {
		if (n < 32) {
			memset(tail, 0, sizeof tail);
			memcpy(tail, x, n * sizeof(float));
			x = tail;
		}
		f8 v[4], top = f8_zero(), bad = f8_zero();
		for (int i = 0; i < 4; i++) {
			v[i] = f8_load(x + 8 * i);
			top = f8_max(top, f8_abs(v[i]));
			bad = f8_fma(v[i], f8_zero(), bad); // NaN if any input is not finite
		}
		float t[8], m = 0;
		f8_store(t, top);
		for (int i = 0; i < 8; i++)
			m = t[i] > m ? t[i] : m;
		float poison = f8_sum(bad), inverse = m > 1e-35f && poison == 0 ? 127.0f / m : 0;
		f8 s[4];
		for (int i = 0; i < 4; i++) {
			f8 r = inverse == 0 ? f8_zero() : f8_round(f8_mul(v[i], f8_set(inverse)));
			f8_to_i8(q->q + 8 * i, r);
			s[i] = r;
		}
		q->xs = m / 127.0f + poison; // a NaN or infinity spoils its row, as it would in float32
		q->half[0] = q->xs * f8_sum(f8_add(s[0], s[1]));
		q->half[1] = q->xs * f8_sum(f8_add(s[2], s[3]));
		q->sum = q->xs * f8_sum(f8_add(f8_add(s[0], s[1]), f8_add(s[2], s[3])));
	}
}

static void float_blocks(oi_fblock *f, const float *x, int n) {
	for (; n > 0; f++, x += 32, n -= 32) {
		memset(f->x, 0, sizeof f->x);
		memcpy(f->x, x, (n < 32 ? n : 32) * sizeof(float));
		f8 a = f8_add(f8_load(f->x), f8_load(f->x + 8)), b = f8_add(f8_load(f->x + 16), f8_load(f->x + 24));
		f->half[0] = f8_sum(a);
		f->half[1] = f8_sum(b);
		f->sum = f8_sum(f8_add(a, b));
		f->pad = 0;
	}
}

// prepare leaves columns [col, col+n) of row t as blocks; col is a multiple of 32.
static void prepare(const oi_prep *p, int t, int col, const float *x, int n, oi_thread *th) {
	size_t at = (size_t)t * p->blocks + col / 32, blocks = (n + 31) / 32;
	if (p->q)
		quantise(oi_out(th, p->q + at, blocks * sizeof(oi_qblock)), x, n);
	if (p->f)
		float_blocks(oi_out(th, p->f + at, blocks * sizeof(oi_fblock)), x, n);
}

VEC int chunk_end(int from, int rows, int T) { return from + rows < T ? from + rows : T; }

static void prep(const void *arg, int chunk, oi_thread *th) {
	const oi_norm *a = arg;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	for (int t = from; t < to; t++) {
		const float *x = a->x + t * a->x_stride;
		if (a->perm) {
			float *stored = oi_scratch(th);
			for (int k = 0; k < a->D; k++)
				stored[k] = x[a->perm[k]];
			x = stored;
		}
		prepare(&a->prep, t, 0, x, a->D, th);
	}
}

// rms_scale is 1 / sqrt(mean(x^2) + eps).
static float rms_scale(const float *x, int n, float eps) {
	f8 s0 = f8_zero(), s1 = f8_zero();
	int i = 0;
	for (; i + 16 <= n; i += 16) {
		f8 a = f8_load(x + i), b = f8_load(x + i + 8);
		s0 = f8_fma(a, a, s0);
		s1 = f8_fma(b, b, s1);
	}
	float s = f8_sum(f8_add(s0, s1));
	for (; i < n; i++)
		s += x[i] * x[i];
	return 1.0f / sqrtf(s / n + eps);
}

// rms_row is the norm of a row times w, or without weight where w is NULL.
static void rms_row(float *dst, const float *x, const float *w, int n, float eps) {
	float r = rms_scale(x, n, eps);
	f8 r8 = f8_set(r);
	int i = 0;
	if (!w) {
		for (; i + 8 <= n; i += 8)
			f8_store(dst + i, f8_mul(f8_load(x + i), r8));
		for (; i < n; i++)
			dst[i] = x[i] * r;
		return;
	}
	for (; i + 8 <= n; i += 8)
		f8_store(dst + i, f8_mul(f8_mul(f8_load(x + i), r8), f8_load(w + i)));
	for (; i < n; i++)
		dst[i] = x[i] * r * w[i];
}

static void norm(const void *arg, int chunk, oi_thread *th) {
	const oi_norm *a = arg;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	for (int t = from; t < to; t++) {
		float *out = oi_out(th, a->dst + t * a->dst_stride, a->D * sizeof(float));
		rms_row(out, a->x + t * a->x_stride, a->w, a->D, a->eps);
		prepare(&a->prep, t, 0, out, a->D, th);
	}
}

static void norm_add(const void *arg, int chunk, oi_thread *th) {
	const oi_norm *a = arg;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	f8 scale = f8_set(a->scale);
	for (int t = from; t < to; t++) {
		float *dst = a->dst + t * a->dst_stride, *out = oi_out(th, dst, a->D * sizeof(float));
		const float *x = a->x + t * a->x_stride;
		float r = rms_scale(x, a->D, a->eps);
		f8 r8 = f8_set(r);
		int i = 0;
		for (; i + 8 <= a->D; i += 8) {
			f8 y = f8_mul(f8_mul(f8_load(x + i), r8), f8_load(a->w + i));
			f8_store(out + i, f8_mul(f8_add(f8_load(dst + i), y), scale));
		}
		for (; i < a->D; i++)
			out[i] = (dst[i] + x[i] * r * a->w[i]) * a->scale;
		prepare(&a->prep, t, 0, out, a->D, th);
	}
}

static void norm_gate(const void *arg, int chunk, oi_thread *th) {
	const oi_norm *a = arg;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T), n = a->head;
	for (int t = from; t < to; t++) {
		float *out = oi_out(th, a->dst + t * a->dst_stride, a->D * sizeof(float));
		for (int h = 0; h < a->D; h += n) {
			const float *x = a->x + t * a->x_stride + h, *gate = a->gate + t * a->gate_stride + h;
			float r = rms_scale(x, n, a->eps);
			f8 r8 = f8_set(r);
			int i = 0;
			for (; i + 8 <= n; i += 8) {
				f8 y = f8_mul(f8_mul(f8_load(x + i), r8), f8_load(a->w + i));
				f8_store(out + h + i, f8_mul(y, f8_silu(f8_load(gate + i))));
			}
			for (; i < n; i++)
				out[h + i] = x[i] * r * a->w[i] * f8_first(f8_silu(f8_set(gate[i])));
		}
		prepare(&a->prep, t, 0, out, a->D, th);
	}
}

// activate is f, a constant of package kernels' Activation.
VEC f8 activate(f8 x, const int f) { return f == OI_SILU ? f8_silu(x) : f == OI_GELU ? f8_gelu(x) : f8_sigmoid(x); }

VEC void gate_row(float *out, const float *gate, const float *x, int n, const int f) {
	int i = 0;
	for (; i + 8 <= n; i += 8)
		f8_store(out + i, f8_mul(activate(f8_load(gate + i), f), f8_load(x + i)));
	for (; i < n; i++)
		out[i] = f8_first(activate(f8_set(gate[i]), f)) * x[i];
}

static void gate(const void *arg, int chunk, oi_thread *th) {
	const oi_gate *a = arg;
	int from = chunk / a->col_chunks * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	int c = chunk % a->col_chunks * a->chunk_cols, n = chunk_end(c, a->chunk_cols, a->F) - c;
	for (int t = from; t < to; t++) {
		const float *g = a->gate + t * a->gate_stride + c, *x = a->x + t * a->x_stride + c;
		float *out = oi_out(th, a->dst + t * a->dst_stride + c, n * sizeof(float));
		if (a->f == OI_SILU)
			gate_row(out, g, x, n, OI_SILU);
		else if (a->f == OI_GELU)
			gate_row(out, g, x, n, OI_GELU);
		else
			gate_row(out, g, x, n, OI_SIGMOID);
		prepare(&a->prep, t, c, out, n, th);
	}
}

// cap8 is c * tanh(x / c).
VEC f8 cap8(f8 x, f8 c) { return f8_mul(c, f8_tanh(f8_div(x, c))); }

static void soft_cap(const void *arg, int chunk, oi_thread *th) {
	const oi_gate *a = arg;
	int from = chunk / a->col_chunks * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	int c = chunk % a->col_chunks * a->chunk_cols, n = chunk_end(c, a->chunk_cols, a->F) - c;
	f8 cap = f8_set(a->cap);
	for (int t = from; t < to; t++) {
		const float *x = a->x + t * a->x_stride + c;
		float *out = oi_out(th, a->dst + t * a->dst_stride + c, n * sizeof(float));
		int i = 0;
		for (; i + 8 <= n; i += 8)
			f8_store(out + i, cap8(f8_load(x + i), cap));
		for (; i < n; i++)
			out[i] = f8_first(cap8(f8_set(x[i]), cap));
	}
}

static void gather(const void *arg, int chunk, oi_thread *th) {
	const oi_rows *a = arg;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	for (int t = from; t < to; t++) {
		float *out = oi_out(th, a->dst + t * a->dst_stride, a->D * sizeof(float));
		memcpy(out, a->x + a->ids[t] * a->x_stride, a->D * sizeof(float));
	}
}

static float half_float(const uint8_t *p, int type) {
	uint16_t v[8] = {0};
	float f;
	if (type == OI_F32) {
		memcpy(&f, p, 4);
		return f;
	}
	memcpy(v, p, 2);
	return f8_first(type == OI_F16 ? f8_from_f16(v) : f8_from_bf16(v));
}

// embed_row writes row `row` of a packed matrix.
static void embed_row(float *dst, const oi_part *p, int row, int K) {
	const uint8_t *w = p->data + (row / 8) * p->panel_bytes;
	int lane = row % 8;
	if (p->kind >= OI_WF32) {
		int type = p->kind - OI_WF32, size = type == OI_F32 ? 4 : 2;
		for (int k = 0; k < K; k++)
			dst[k] = half_float(w + (k * 8 + lane) * size, type);
		return;
	}
	int w8 = p->kind == OI_W8, size = p->stype == OI_F32 ? 4 : 2;
	int sb = scale_bytes(p), zb = zero_bytes(p), parts = p->half ? 2 : 1, blocks = (K + 31) / 32;
	for (int b = 0; b < blocks;) {
		const uint8_t *scales = w, *zeros = w + parts * sb;
		w = zeros + parts * zb;
		int end = chunk_end(b, p->gblocks, blocks);
		for (; b < end; b++, w += w8 ? 256 : 128) {
			for (int k = b * 32; k < K && k < b * 32 + 32; k++) {
				int i = k % 32, h = p->half ? i / 16 : 0;
				float s = half_float(scales + h * sb + lane * size, p->stype) * p->post, z = p->z0, m = 0;
				int code;
				if (w8)
					code = (int8_t)w[i / 4 * 32 + lane * 4 + i % 4];
				else
					code = w[i / 8 * 32 + lane * 4 + i % 4] >> (i / 4 % 2 * 4) & 15;
				if (p->ztype == OI_ZGROUP)
					z = zeros[h * zb + lane] - (w8 ? 128.0f : 0);
				if (p->ztype == OI_ZMIN) {
					m = half_float(zeros + h * zb + lane * size, p->stype) * p->post;
					z = w8 ? -128 : 0;
				}
				dst[k] = s * ((float)code - z) + m;
			}
		}
	}
}

static void embed(const void *arg, int chunk, oi_thread *th) {
	const oi_rows *a = arg;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	for (int t = from; t < to; t++) {
		const oi_part *p = a->part;
		int row = a->ids[t];
		while (row >= p->n)
			row -= p++->n;
		float *out = oi_out(th, a->dst + t * a->dst_stride, a->D * sizeof(float));
		float *stored = p->perm ? oi_scratch(th) : out;
		embed_row(stored, p, row, a->D);
		for (int k = 0; p->perm && k < a->D; k++)
			out[p->perm[k]] = stored[k];
		for (int k = 0; k < a->D; k++)
			out[k] *= a->scale;
	}
}

static void cossin(const void *arg, int chunk, oi_thread *th) {
	const oi_cossin *a = arg;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	for (int t = from; t < to; t++) {
		float *out = oi_out(th, a->dst + t * a->dst_stride, 2 * a->half * sizeof(float));
		for (int i = 0; i < a->half; i++) {
			float angle = (float)a->positions[t] * a->inv_freq[i];
			out[i] = cosf(angle) * a->scale;
			out[a->half + i] = sinf(angle) * a->scale;
		}
	}
}
