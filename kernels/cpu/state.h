// state.h: CausalConv and GatedDelta, whose state lies on pages (drawn in kernels/state.go). Included by
// each variant_*.c. Letters: C channels, n columns before a token, K x V a head's state, H value heads,
// G key heads. reference: kernels/ref CausalConv, GatedDelta.
//   A chunk takes some channels, or some columns of one head's state, and all tokens of a chain of runs in
// order. Every value of a state and every output is computed by itself, in one order, from what was
// stored before the token, so it does not matter where runs are cut.

// state_unit returns unit `unit` of the layer, in the state on these pages.
VEC float *state_unit(const oi_state *s, const int32_t *pages, int unit) {
	int u = s->first_unit + unit;
	return (float *)(s->pages + pages[u / s->per_page] * s->page_bytes + u % s->per_page * s->unit_bytes);
}

// columns_to_rows writes column j of cols channels, n values each, to row j of dst.
VEC void columns_to_rows(float *dst, int stride, const float *src, int cols, const int n) {
	for (int c = 0; c < cols; c++)
		for (int j = 0; j < n; j++)
			dst[(size_t)j * stride + c] = src[(size_t)c * n + j];
}

// conv_row is one token: r are the n+1 rows that it sees, w the weights in rows of wide values.
VEC void conv_row(float *out, const float *const *r, const float *w, int wide, int cols, const int n) {
	int c = 0;
	for (; c + 8 <= cols; c += 8) {
		f8 sum = f8_mul(f8_load(r[0] + c), f8_load(w + c));
		for (int j = 1; j <= n; j++)
			sum = f8_fma(f8_load(r[j] + c), f8_load(w + j * wide + c), sum);
		f8_store(out + c, f8_silu(sum));
	}
	for (; c < cols; c++) {
		f8 sum = f8_mul(f8_set(r[0][c]), f8_set(w[c]));
		for (int j = 1; j <= n; j++)
			sum = f8_fma(f8_set(r[j][c]), f8_set(w[j * wide + c]), sum);
		out[c] = f8_first(f8_silu(sum));
	}
}

static void conv(const void *arg, int chunk, oi_thread *th) {
	const oi_conv *a = arg;
	const oi_state *s = &a->state;
	const int n = s->columns, per = s->unit_channels, wide = a->chunk_cols;
	const int c0 = chunk % a->col_chunks * wide, cols = chunk_end(c0, wide, a->C) - c0;
	// Scratch: the weights and the columns before the run, both as rows.
	float *w = oi_scratch(th), *before = w + (n + 1) * wide;
	if (n == 3)
		columns_to_rows(w, wide, a->w + (size_t)c0 * 4, cols, 4);
	else
		columns_to_rows(w, wide, a->w + (size_t)c0 * (n + 1), cols, n + 1);
	for (int run = s->chain[chunk / a->col_chunks]; run >= 0; run = s->next[run]) {
		const int32_t *in = s->in + (size_t)run * s->state_pages, *out = s->out + (size_t)run * s->state_pages;
		int from = s->starts[run], T = s->starts[run + 1] - from;
		if (in[0] == 0)
			memset(before, 0, (size_t)n * wide * sizeof(float));
		for (int c = c0, m; in[0] != 0 && c < c0 + cols; c += m) {
			m = chunk_end(c, per - c % per, c0 + cols) - c;
			columns_to_rows(before + c - c0, wide, state_unit(s, in, s->heads + c / per) + c % per * n, m, n);
		}
		// Row i of the run, those before it negative.
#define CONV_ROW(i) ((i) < 0 ? before + (size_t)((i) + n) * wide : a->x + (from + (i)) * a->x_stride + c0)
		for (int t = 0; t < T; t++) {
			const float *r[OI_MAX_COLUMNS + 1];
			for (int j = 0; j <= n; j++)
				r[j] = CONV_ROW(t - n + j);
			float *to = oi_out(th, a->dst + (from + t) * a->dst_stride + c0, cols * sizeof(float));
			if (n == 3)
				conv_row(to, r, w, wide, cols, 3);
			else
				conv_row(to, r, w, wide, cols, n);
		}
		for (int c = c0, m; c < c0 + cols; c += m) {
			m = chunk_end(c, per - c % per, c0 + cols) - c;
			float *to = state_unit(s, out, s->heads + c / per) + c % per * n;
			to = oi_out(th, to, (size_t)m * n * sizeof(float));
			for (int j = 0; j < n; j++) {
				const float *x = CONV_ROW(T - n + j) + c - c0;
				for (int i = 0; i < m; i++)
					to[(size_t)i * n + j] = x[i];
			}
		}
#undef CONV_ROW
	}
}

// unit_length writes x / sqrt(sum of x^2 + eps) * scale.
static void unit_length(float *dst, const float *x, int n, float eps, float scale) {
	f8 s = f8_zero();
	int i = 0;
	for (; i + 8 <= n; i += 8) {
		f8 v = f8_load(x + i);
		s = f8_fma(v, v, s);
	}
	float sum = f8_sum(s);
	for (int j = i; j < n; j++)
		sum += x[j] * x[j];
	float r = scale / sqrtf(sum + eps);
	for (i = 0; i + 8 <= n; i += 8)
		f8_store(dst + i, f8_mul(f8_load(x + i), f8_set(r)));
	for (; i < n; i++)
		dst[i] = x[i] * r;
}

// delta_prep makes what all slabs of a head share of a token: unit keys and queries, decay and beta.
static void delta_prep(const void *arg, int chunk, oi_thread *th) {
	const oi_delta *a = arg;
	const int K = a->state.kdim, G = a->G, H = a->state.heads;
	int from = chunk * a->chunk_rows, to = chunk_end(from, a->chunk_rows, a->T);
	for (int t = from; t < to; t++) {
		const float *q = a->qkv + t * a->qkv_stride, *k = q + G * K;
		for (int g = 0; g < G; g++) {
			float *keys = oi_out(th, a->keys + ((size_t)g * a->T + t) * 2 * K, 2 * K * sizeof(float));
			unit_length(keys, k + g * K, K, a->eps, 1);
			unit_length(keys + K, q + g * K, K, a->eps, 1 / sqrtf(K));
		}
		float *gates = oi_out(th, a->gates + (size_t)t * 2 * H, 2 * H * sizeof(float));
		for (int h = 0; h < H; h++) {
			float x = a->a[t * a->a_stride + h] + a->bias[h];
			float softplus = x > 20 ? x : log1pf(expf(x));
			gates[2 * h] = expf(-a->rate[h] * softplus);
			gates[2 * h + 1] = f8_first(f8_sigmoid(f8_set(a->b[t * a->b_stride + h])));
		}
	}
}

enum { SLAB = 16 }; // columns of a state that are worked on together

// delta_pass decays the slab S, adds key times error, stores it at `to`, and multiplies it by the query
// and, where more, by the next token's key: one pass over the slab a token. Rows alternate between two
// sums, so that additions need not wait for each other.
VEC void delta_pass(const float *S, float *to, int step, const float *k, const float *q, const float *next, float decay,
	const f8 *error, f8 *out, f8 *known, int K, const int more) {
	f8 g = f8_set(decay), o[2][2], y[2][2];
	for (int r = 0; r < 2; r++)
		for (int w = 0; w < 2; w++)
			o[r][w] = y[r][w] = f8_zero();
#define DELTA_ROW(i, r)                                                          \
	{                                                                            \
		f8 k8 = f8_set(k[i]), q8 = f8_set(q[i]), n8 = f8_set(more ? next[i] : 0); \
UNROLL                                                                           \
		for (int w = 0; w < 2; w++) {                                            \
			f8 s = f8_fma(k8, error[w], f8_mul(g, f8_load(S + (i) * SLAB + 8 * w))); \
			f8_store(to + (size_t)(i) * step + 8 * w, s);                        \
			o[r][w] = f8_fma(q8, s, o[r][w]);                                    \
			if (more)                                                            \
				y[r][w] = f8_fma(n8, s, y[r][w]);                                \
		}                                                                        \
	}
	int i = 0;
	for (; i + 2 <= K; i += 2) {
		DELTA_ROW(i, 0)
		DELTA_ROW(i + 1, 1)
	}
	if (i < K)
		DELTA_ROW(i, 0)
	for (int w = 0; w < 2; w++) {
		out[w] = f8_add(o[0][w], o[1][w]);
		known[w] = f8_add(y[0][w], y[1][w]);
	}
}

// delta_load copies a slab of n columns into S and multiplies it by a key as delta_pass does. It fetches
// `ahead` bytes of each row of the state some rows on.
VEC void delta_load(float *S, const float *from, int V, int n, int ahead, const float *k, f8 *known, int K) {
	f8 y[2][2] = {{f8_zero(), f8_zero()}, {f8_zero(), f8_zero()}};
	for (int i = 0; i < K; i++, S += SLAB) {
		if (n == SLAB) {
			f8_store(S, f8_load(from + (size_t)i * V));
			f8_store(S + 8, f8_load(from + (size_t)i * V + 8));
		} else {
			memset(S, 0, SLAB * sizeof(float));
			memcpy(S, from + (size_t)i * V, n * sizeof(float));
		}
		for (int b = 0; b < ahead; b += 64)
			__builtin_prefetch((const char *)(from + (size_t)(i + 8) * V) + b, 0, 2);
		f8 k8 = f8_set(k[i]);
		for (int w = 0; w < 2; w++)
			y[i & 1][w] = f8_fma(k8, f8_load(S + 8 * w), y[i & 1][w]);
	}
	for (int w = 0; w < 2; w++)
		known[w] = f8_add(y[0][w], y[1][w]);
}

// delta_slab takes a slab of n <= SLAB columns, col of head h on, through the tokens of a run. in is NULL
// for zeros; out is where the run leaves the slab, in rows of out_step.
static void delta_slab(const oi_delta *a, int h, int col, int n, int from, int T, const float *in, int ahead, float *out,
	int out_step, float *const *y, float *S) {
	const int K = a->state.kdim, V = a->state.vdim, H = a->state.heads, g = h / (H / a->G);
	const float *keys = a->keys + ((size_t)g * a->T + from) * 2 * K;
	const float *value = a->qkv + from * a->qkv_stride + 2 * a->G * K + h * V + col;
	const float *gates = a->gates + ((size_t)from * H + h) * 2;
	f8 known[2] = {f8_zero(), f8_zero()}, error[2], sums[2];
	float tail[SLAB] = {0};
	if (in)
		delta_load(S, in, V, n, ahead, keys, known, K);
	else
		memset(S, 0, (size_t)K * SLAB * sizeof(float));
	for (int t = 0; t < T; t++, keys += 2 * K, value += a->qkv_stride, gates += 2 * H) {
		const float *v = value;
		__builtin_prefetch(value + 4 * a->qkv_stride, 0, 3); // one line of a row far away
		if (n < SLAB)
			v = memcpy(tail, value, n * sizeof(float));
		for (int w = 0; w < 2; w++) {
			f8 e = f8_sub(f8_load(v + 8 * w), f8_mul(f8_set(gates[0]), known[w]));
			error[w] = f8_mul(f8_set(gates[1]), e);
		}
		if (t + 1 < T)
			delta_pass(S, S, SLAB, keys, keys + K, keys + 2 * K, gates[0], error, sums, known, K, 1);
		else if (n == SLAB)
			delta_pass(S, out, out_step, keys, keys + K, NULL, gates[0], error, sums, known, K, 0);
		else
			delta_pass(S, S, SLAB, keys, keys + K, NULL, gates[0], error, sums, known, K, 0);
		float *to = y ? y[t] + col : a->dst + (from + t) * a->dst_stride + h * V + col;
		if (n == SLAB) {
			f8_store(to, sums[0]);
			f8_store(to + 8, sums[1]);
		} else {
			float all[SLAB];
			f8_store(all, sums[0]);
			f8_store(all + 8, sums[1]);
			memcpy(to, all, n * sizeof(float));
		}
	}
	for (int i = 0; n < SLAB && i < K; i++)
		memcpy(out + (size_t)i * out_step, S + i * SLAB, n * sizeof(float));
}

static void delta(const void *arg, int chunk, oi_thread *th) {
	const oi_delta *a = arg;
	const oi_state *s = &a->state;
	const int V = s->vdim, H = s->heads, head = chunk / a->head_chunks, h = head % H;
	const int first = chunk % a->head_chunks * a->chunk_slabs, last = chunk_end(first, a->chunk_slabs, a->slabs);
	const int end = chunk_end(first * SLAB, (last - first) * SLAB, V);
	float *S = oi_scratch(th), **y = (float **)(S + s->kdim * SLAB);
	for (int run = s->chain[head / H]; run >= 0; run = s->next[run]) {
		const int32_t *pages = s->in + (size_t)run * s->state_pages;
		const float *in = pages[0] ? state_unit(s, pages, h) : NULL;
		float *out = state_unit(s, s->out + (size_t)run * s->state_pages, h);
		int from = s->starts[run], T = s->starts[run + 1] - from;
		if (a->redo) { // the chunk is the whole head, and its chain one run
			out = oi_out(th, out, s->unit_bytes);
			for (int t = 0; t < T; t++)
				y[t] = oi_out(th, a->dst + (from + t) * a->dst_stride + h * V, V * sizeof(float));
		}
		for (int i = first; i < last; i++) {
			int col = i * SLAB, n = chunk_end(col, SLAB, end) - col;
			int ahead = i == first ? (end - col) * sizeof(float) : 0;
			delta_slab(a, h, col, n, from, T, in ? in + col : NULL, ahead, out + col, V, a->redo ? y : NULL, S);
		}
	}
}
