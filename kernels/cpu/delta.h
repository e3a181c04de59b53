// delta.h: GatedDelta, whose state lies on pages (state.h). Included by each variant_*.c. Letters: K x V a
// head's state S, H value heads, G key heads, C = OI_DELTA_CHUNK tokens.
//   A chunk of work takes some columns of one head's state, SLAB at a time, and all tokens of a chain of runs
// in order. Columns do not meet, so it does not matter how they are shared out.
//   Token by token, every value of a state is computed in one order from what was stored before the token,
// so it does not matter either where runs are cut. When chunked, each C tokens of a run, from its start, are
// taken together and only the rest token by token; then the cuts show in the last bits.
// reference: kernels/ref GatedDelta | cases: kernels/kerneltest/state.go, delta.go | numbers: kernels/KERNELS.md

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

enum {
	SLAB = 16,      // columns of a state that are worked on together
	DELTA_TILE = 4, // tokens of a chunk, or rows of a state, that share what is loaded
	// What all slabs of a head share of C tokens (delta_mix), in floats.
	MIX_ERRORS = 0,                                       // [C][C], below the diagonal: -beta[t] d[t,i] k[t].k[i]
	MIX_OUTS = OI_DELTA_CHUNK * OI_DELTA_CHUNK,           // [C][C], to the diagonal: d[t,i] q[t].k[i]
	MIX_BETA = 2 * MIX_OUTS,                              // [C]
	MIX_BEFORE = MIX_BETA + OI_DELTA_CHUNK,               // [C]: product of the decays of tokens 0 to t
	MIX_AFTER = MIX_BEFORE + OI_DELTA_CHUNK,              // [C]: d[C-1,t]
	MIX_FLOATS = MIX_AFTER + OI_DELTA_CHUNK,
};
_Static_assert((int)MIX_FLOATS == (int)OI_DELTA_MIX, "a chunk's products");
_Static_assert(OI_DELTA_CHUNK % SLAB == 0, "keys of a chunk are multiplied in slabs");

// tile_product: y[r] = x[r] S for DELTA_TILE rows x of K values, step apart.
VEC void tile_product(f8 y[][2], const float *x, int step, const float *S, int K) {
	const float *x1 = x + step, *x2 = x1 + step, *x3 = x2 + step;
	for (int r = 0; r < DELTA_TILE; r++)
		y[r][0] = y[r][1] = f8_zero();
UNROLL
	for (int i = 0; i < K; i++, S += SLAB) {
		f8 s0 = f8_load(S), s1 = f8_load(S + 8), v[DELTA_TILE] = {f8_set(x[i]), f8_set(x1[i]), f8_set(x2[i]), f8_set(x3[i])};
UNROLL
		for (int r = 0; r < DELTA_TILE; r++) {
			y[r][0] = f8_fma(v[r], s0, y[r][0]);
			y[r][1] = f8_fma(v[r], s1, y[r][1]);
		}
	}
}

// tile_add: y[r] += m[r][i] * x[i] over i < n, for DELTA_TILE rows of m; x in rows of SLAB.
VEC void tile_add(f8 y[][2], const float *m, const float *x, int n) {
	for (int i = 0; i < n; i++, x += SLAB) {
		f8 x0 = f8_load(x), x1 = f8_load(x + 8);
UNROLL
		for (int r = 0; r < DELTA_TILE; r++) {
			f8 v = f8_set(m[r * OI_DELTA_CHUNK + i]);
			y[r][0] = f8_fma(v, x0, y[r][0]);
			y[r][1] = f8_fma(v, x1, y[r][1]);
		}
	}
}

// delta_mix makes the products of a chunk's keys and queries with its keys, once for each key head, and
// mixes in the decays and betas of each value head. d[t,i] is the product of the decays of tokens i+1 to t:
// multiplied up, so that it can only vanish, never overflow, and small decays count beside large ones.
static void delta_mix(const void *arg, int chunk, oi_thread *th) {
	enum { C = OI_DELTA_CHUNK };
	const oi_delta *a = arg;
	const int K = a->state.kdim, H = a->state.heads, each = H / a->G, j = chunk % a->chunks, g = chunk / a->chunks;
	const float *keys = a->keys + ((size_t)g * a->T + a->chunk_at[j]) * 2 * K;
	float *columns = oi_scratch(th), kk[C][C], qk[C][C]; // kk and qk to the diagonal, and somewhat beyond
	for (int i = 0; i < C; i += SLAB) {
		for (int c = 0; c < SLAB; c++) {
			const float *row = keys + (size_t)(i + c) * 2 * K;
			for (int x = 0; x < 2 * K; x += 16)
				__builtin_prefetch(row + C * 2 * K + x, 0, 2); // of the next chunk
			for (int x = 0; x < K; x++)
				columns[x * SLAB + c] = row[x];
		}
		for (int t = i; t < C; t += DELTA_TILE) {
			f8 y[2][DELTA_TILE][2];
			tile_product(y[0], keys + (size_t)t * 2 * K, 2 * K, columns, K);
			tile_product(y[1], keys + (size_t)t * 2 * K + K, 2 * K, columns, K);
			for (int r = 0; r < DELTA_TILE; r++)
				for (int w = 0; w < 2; w++) {
					f8_store(kk[t + r] + i + 8 * w, y[0][r][w]);
					f8_store(qk[t + r] + i + 8 * w, y[1][r][w]);
				}
		}
	}
	for (int h = g * each; h < (g + 1) * each; h++) {
		const float *gates = a->gates + ((size_t)a->chunk_at[j] * H + h) * 2;
		float *m = oi_out(th, a->mix + ((size_t)h * a->chunks + j) * MIX_FLOATS, MIX_FLOATS * sizeof(float));
		float d[C], before = 1;
		for (int t = 0; t < C; t++, gates += 2 * H) {
			const float decay = gates[0], beta = gates[1];
			for (int i = 0; i < t; i++) {
				d[i] *= decay;
				m[MIX_ERRORS + t * C + i] = -beta * (d[i] * kk[t][i]);
				m[MIX_OUTS + t * C + i] = d[i] * qk[t][i];
			}
			d[t] = 1;
			m[MIX_OUTS + t * C + t] = qk[t][t];
			m[MIX_BETA + t] = beta;
			m[MIX_BEFORE + t] = before *= decay;
		}
		memcpy(m + MIX_AFTER, d, sizeof d);
	}
}

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

// delta_rows is the last step of delta_chunk for some rows of a slab, a constant. It fetches what lies `next`
// values on, the next slab.
VEC void delta_rows(float *S, const float *k, int step, const float *e, f8 all, int next, const int rows) {
	f8 s[DELTA_TILE][2];
UNROLL
	for (int r = 0; r < rows; r++)
		for (int w = 0; w < 2; w++)
			s[r][w] = f8_mul(all, f8_load(S + r * SLAB + 8 * w));
	for (int r = 0; r < rows; r++)
		__builtin_prefetch(S + r * SLAB + next, 0, 3);
	for (int t = 0; t < OI_DELTA_CHUNK; t++, k += step, e += SLAB) {
		f8 e0 = f8_load(e), e1 = f8_load(e + 8);
UNROLL
		for (int r = 0; r < rows; r++) {
			s[r][0] = f8_fma(f8_set(k[r]), e0, s[r][0]);
			s[r][1] = f8_fma(f8_set(k[r]), e1, s[r][1]);
		}
	}
UNROLL
	for (int r = 0; r < rows; r++)
		for (int w = 0; w < 2; w++)
			f8_store(S + r * SLAB + 8 * w, s[r][w]);
}

// delta_chunk takes a slab S through C tokens; x are their values and becomes what they give. With e[t] what
// token t adds to the state along k[t], b[t] and d[t,i] the products of decays before and between tokens:
//
//	e[t] = beta[t] (v[t] - b[t] k[t] S) - sum over i < t of beta[t] d[t,i] (k[t].k[i]) e[i]
//	y[t] = b[t] q[t] S + sum over i <= t of d[t,i] (q[t].k[i]) e[i]
//	S    = b[C-1] S + sum over t of k[t] (d[C-1,t] e[t])^T
//
// No sum takes in a later token, not even times 0, which would spread what is not a number.
static void delta_chunk(float *S, const float *keys, const float *mix, float *x, int K) {
	enum { C = OI_DELTA_CHUNK };
	const int step = 2 * K;
	float e[C * SLAB];
#define LINE(p, t, w) ((p) + (t) * SLAB + 8 * (w))
// Token t+r takes in what token t+i of its tile added.
#define TAKE(r, i)                                                                                \
	for (int w = 0; w < 2; w++)                                                                   \
		y[r][w] = f8_fma(f8_set(m[(r) * C + t + (i)]), f8_load(LINE(e, t + (i), w)), y[r][w]);
	for (int t = 0; t < C; t += DELTA_TILE) {
		const float *m = mix + MIX_ERRORS + t * C, *before = mix + MIX_BEFORE + t, *beta = mix + MIX_BETA + t;
		f8 y[DELTA_TILE][2];
		tile_product(y, keys + (size_t)t * step, step, S, K);
UNROLL
		for (int r = 0; r < DELTA_TILE; r++)
			for (int w = 0; w < 2; w++)
				y[r][w] = f8_mul(f8_set(beta[r]), f8_sub(f8_load(LINE(x, t + r, w)), f8_mul(f8_set(before[r]), y[r][w])));
		tile_add(y, m, e, t);
#define PUT(r)                  \
	for (int w = 0; w < 2; w++) \
		f8_store(LINE(e, t + (r), w), y[r][w]);
		PUT(0)
		TAKE(1, 0) PUT(1)
		TAKE(2, 0) TAKE(2, 1) PUT(2)
		TAKE(3, 0) TAKE(3, 1) TAKE(3, 2) PUT(3)
#undef PUT
	}
	for (int t = 0; t < C; t += DELTA_TILE) {
		const float *m = mix + MIX_OUTS + t * C, *before = mix + MIX_BEFORE + t;
		f8 y[DELTA_TILE][2];
		tile_product(y, keys + (size_t)t * step + K, step, S, K);
UNROLL
		for (int r = 0; r < DELTA_TILE; r++)
			for (int w = 0; w < 2; w++)
				y[r][w] = f8_mul(f8_set(before[r]), y[r][w]);
		tile_add(y, m, e, t);
		TAKE(0, 0)
		TAKE(1, 0) TAKE(1, 1)
		TAKE(2, 0) TAKE(2, 1) TAKE(2, 2)
		TAKE(3, 0) TAKE(3, 1) TAKE(3, 2) TAKE(3, 3)
UNROLL
		for (int r = 0; r < DELTA_TILE; r++)
			for (int w = 0; w < 2; w++)
				f8_store(LINE(x, t + r, w), y[r][w]);
	}
	for (int t = 0; t < C; t++)
		for (int w = 0; w < 2; w++)
			f8_store(LINE(e, t, w), f8_mul(f8_set(mix[MIX_AFTER + t]), f8_load(LINE(e, t, w))));
	const f8 all = f8_set(mix[MIX_BEFORE + C - 1]);
	int i = 0;
	for (; i + DELTA_TILE <= K; i += DELTA_TILE)
		delta_rows(S + i * SLAB, keys + i, step, e, all, K * SLAB, DELTA_TILE);
	for (; i < K; i++)
		delta_rows(S + i * SLAB, keys + i, step, e, all, K * SLAB, 1);
#undef LINE
#undef TAKE
}

// delta_known multiplies a slab by a key.
VEC void delta_known(const float *S, const float *k, f8 *known, int K) {
	known[0] = known[1] = f8_zero();
	for (int i = 0; i < K; i++)
		for (int w = 0; w < 2; w++)
			known[w] = f8_fma(f8_set(k[i]), f8_load(S + i * SLAB + 8 * w), known[w]);
}

// columns_in and columns_out copy n columns of a token, SLAB but in a head's last slab.
VEC const float *columns_in(float *all, const float *from, int n) {
	if (n == SLAB) {
		f8_store(all, f8_load(from));
		f8_store(all + 8, f8_load(from + 8));
	} else {
		memset(all, 0, SLAB * sizeof(float));
		memcpy(all, from, n * sizeof(float));
	}
	return all;
}

VEC void columns_out(float *to, const float *all, int n) {
	if (n == SLAB) {
		f8_store(to, f8_load(all));
		f8_store(to + 8, f8_load(all + 8));
	} else {
		memcpy(to, all, n * sizeof(float));
	}
}

// delta_head is some slabs of a head in a run: columns [col, end), T tokens, from on; y are where the rows of
// the head's outputs are, NULL: in dst.
typedef struct {
	const oi_delta *a;
	int h, col, end, from, T;
	float *const *y;
} delta_head;

VEC float *delta_output(const delta_head *d, int t) {
	const oi_delta *a = d->a;
	return d->y ? d->y[t] : a->dst + (d->from + t) * a->dst_stride + d->h * a->state.vdim;
}

VEC const float *delta_values(const delta_head *d, int t) {
	const oi_delta *a = d->a;
	return a->qkv + (d->from + t) * a->qkv_stride + 2 * a->G * a->state.kdim + d->h * a->state.vdim;
}

VEC const float *delta_keys(const delta_head *d, int t) {
	const oi_delta *a = d->a;
	return a->keys + ((size_t)(d->h / (a->state.heads / a->G)) * a->T + d->from + t) * 2 * a->state.kdim;
}

// delta_chunks takes the slabs, one behind the other in S, through the tokens of the chunks whose products
// begin at mix. Keys stay in the L1 cache and slabs come from the L2. x is scratch for a chunk's values.
static void delta_chunks(const delta_head *d, float *S, const float *mix, int chunks, float *x) {
	enum { C = OI_DELTA_CHUNK };
	const int K = d->a->state.kdim, width = d->end - d->col;
	for (int t = 0; t < chunks * C; t += C, mix += MIX_FLOATS) {
		// Rows are far apart, so all that is needed of one is taken at once.
		for (int i = 0; i < C; i++)
			for (int col = d->col, at = i * SLAB; col < d->end; col += SLAB, at += C * SLAB)
				columns_in(x + at, delta_values(d, t + i) + col, chunk_end(col, SLAB, d->end) - col);
		float *slab = S, *values = x;
		for (int col = d->col, row = 0; col < d->end; col += SLAB, slab += K * SLAB, values += C * SLAB) {
			// Meanwhile fetch some rows: of the next values, and of where outputs go.
			for (int rows = (C * (col + SLAB - d->col) + width - 1) / width; row < C && row < rows; row++)
				for (int c = d->col; c < d->end; c += SLAB) {
					__builtin_prefetch(delta_values(d, t + C + row) + c, 0, 2);
					__builtin_prefetch(delta_output(d, t + row) + c, 1, 2);
				}
			delta_chunk(slab, delta_keys(d, t), mix, values, K);
		}
		for (int i = 0; i < C; i++)
			for (int col = d->col, at = i * SLAB; col < d->end; col += SLAB, at += C * SLAB)
				columns_out(delta_output(d, t + i) + col, x + at, chunk_end(col, SLAB, d->end) - col);
	}
}

// delta_slab takes columns [col, col+n) through tokens t on, one by one, and leaves them at out, in rows of
// out_step. They are in S, or where held is 0 at in, in rows of as many; in is NULL for zeros.
static void delta_slab(const delta_head *d, int col, int n, int t, const float *in, int held, int ahead, float *out, int out_step,
	float *S) {
	const oi_delta *a = d->a;
	const int K = a->state.kdim, H = a->state.heads, T = d->T;
	const float *keys = delta_keys(d, t), *value = delta_values(d, t) + col;
	const float *gates = a->gates + ((size_t)(d->from + t) * H + d->h) * 2;
	f8 known[2] = {f8_zero(), f8_zero()}, error[2], sums[2];
	float all[SLAB];
	if (held && t < T)
		delta_known(S, keys, known, K);
	else if (!held && in)
		delta_load(S, in, out_step, n, ahead, keys, known, K);
	else if (!held)
		memset(S, 0, (size_t)K * SLAB * sizeof(float));
	const int direct = n == SLAB && t < T; // the last token's pass over the slab writes to out
	for (; t < T; t++, keys += 2 * K, value += a->qkv_stride, gates += 2 * H) {
		__builtin_prefetch(value + 4 * a->qkv_stride, 0, 3); // one line of a row far away
		const float *v = n == SLAB ? value : columns_in(all, value, n);
		for (int w = 0; w < 2; w++) {
			f8 e = f8_sub(f8_load(v + 8 * w), f8_mul(f8_set(gates[0]), known[w]));
			error[w] = f8_mul(f8_set(gates[1]), e);
		}
		if (t + 1 < T)
			delta_pass(S, S, SLAB, keys, keys + K, keys + 2 * K, gates[0], error, sums, known, K, 1);
		else if (direct)
			delta_pass(S, out, out_step, keys, keys + K, NULL, gates[0], error, sums, known, K, 0);
		else
			delta_pass(S, S, SLAB, keys, keys + K, NULL, gates[0], error, sums, known, K, 0);
		float *to = n == SLAB ? delta_output(d, t) + col : all;
		f8_store(to, sums[0]);
		f8_store(to + 8, sums[1]);
		if (n < SLAB)
			columns_out(delta_output(d, t) + col, all, n);
	}
	for (int i = 0; !direct && i < K; i++)
		columns_out(out + (size_t)i * out_step, S + i * SLAB, n);
}

static void delta(const void *arg, int chunk, oi_thread *th) {
	const oi_delta *a = arg;
	const oi_state *s = &a->state;
	const int K = s->kdim, V = s->vdim, H = s->heads, head = chunk / a->head_chunks, h = head % H;
	const int first = chunk % a->head_chunks * a->chunk_slabs, last = chunk_end(first, a->chunk_slabs, a->slabs);
	delta_head d = {.a = a, .h = h, .col = first * SLAB, .end = chunk_end(first * SLAB, (last - first) * SLAB, V)};
	float *S = oi_scratch(th), *x = S + (size_t)a->chunk_slabs * K * SLAB;
	float **y = (float **)(x + a->chunk_slabs * OI_DELTA_CHUNK * SLAB);
	for (int run = s->chain[head / H]; run >= 0; run = s->next[run]) {
		const int32_t *pages = s->in + (size_t)run * s->state_pages;
		const float *in = pages[0] ? state_unit(s, pages, h) : NULL;
		float *out = state_unit(s, s->out + (size_t)run * s->state_pages, h);
		const int chunks = a->chunks > 0 ? a->chunk_first[run + 1] - a->chunk_first[run] : 0;
		d.from = s->starts[run];
		d.T = s->starts[run + 1] - d.from;
		if (a->redo) { // the chunk is the whole head, and its chain one run
			out = oi_out(th, out, s->unit_bytes);
			for (int t = 0; t < d.T; t++)
				y[t] = oi_out(th, a->dst + (d.from + t) * a->dst_stride + h * V, V * sizeof(float));
			d.y = y;
		}
		if (chunks > 0) {
			float *slab = S;
			for (int col = d.col; col < d.end; col += SLAB)
				for (int i = 0; i < K; i++, slab += SLAB)
					if (in)
						columns_in(slab, in + (size_t)i * V + col, chunk_end(col, SLAB, d.end) - col);
					else
						memset(slab, 0, SLAB * sizeof(float));
			delta_chunks(&d, S, a->mix + ((size_t)h * a->chunks + a->chunk_first[run]) * MIX_FLOATS, chunks, x);
		}
		float *slab = S;
		for (int col = d.col; col < d.end; col += SLAB) {
			int ahead = col == d.col ? (d.end - col) * sizeof(float) : 0;
			delta_slab(&d, col, chunk_end(col, SLAB, d.end) - col, chunks * OI_DELTA_CHUNK, in ? in + col : NULL, chunks > 0, ahead,
				out + col, V, slab);
			slab += chunks > 0 ? K * SLAB : 0;
		}
	}
}
