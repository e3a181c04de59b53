// state.h: where a state lies on its pages (drawn in kernels/state.go), and CausalConv. Included by each
// variant_*.c. Letters: C channels, n columns before a token. reference: kernels/ref CausalConv.
//   A chunk takes some channels and all tokens of a chain of runs in order. Every output is computed by
// itself, in one order, from what was stored before the token, so it does not matter where runs are cut.

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
