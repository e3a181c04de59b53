// attention.h: causal attention over paged keys and values. Included by each variant_*.c.
// Letters: H query heads, G key/value heads, R query rows worked on together.
//   q float32 [T, H*kdim] | cache of any type of cache.h, drawn in doc.go | dst float32 [T, H*vdim]
// Scales of a cache's codes stay out of the inner loops: a position's score is multiplied by its key's, its weight,
// once it has been summed, by its value's.
// The context is cut into partitions of 256 positions counted from 0. Within one, a row's scores
// are sums over the head's values in ascending order, its weights are e^(score - largest score of
// the partition), summed in 8 lanes; its output is a sum over positions in ascending order.
// Partitions are merged in ascending order by merge_row. Positions that a row does not see weigh an exact
// 0, which changes no sum, so rows of different length share a tile.
// A chunk is one partition of a short row group (decode; merged by the next command), or all
// partitions for a tile of query tokens (prefill). reference: kernels/ref Attention.

enum { PARTITION = 256, ROWS = 4 };

// row is one query head of one token and what of the context it sees.
typedef struct {
	const float *q;
	int from, to;
} row;

// part_row is a row's result over one partition: o holds unnormalised sums.
typedef struct {
	float m, l;
} part_row;

// keys writes R rows' scores of the 16 positions of each of N tiles; next is what comes after the tiles, scales
// are the keys'.
// Few rows take two tiles at a time, so that there are sums enough to add to while others wait.
VEC void keys(const oi_attn *a, const row *r, const uint8_t *const *k, const uint8_t *next, const uint16_t *const *scales,
	float (*s)[PARTITION], int at, const int type, const int R, const int N) {
	f8 lo[ROWS][2], hi[ROWS][2];
	for (int i = 0; i < R; i++)
		for (int t = 0; t < N; t++)
			lo[i][t] = hi[i][t] = f8_zero();
	for (int d = 0; d < a->cache.kdim; d++) {
		f8 k0[2], k1[2];
		for (int t = 0; t < N; t++) {
			__builtin_prefetch(next + (N * d + t) * TILE * kv_size(type), 0, 3);
			k0[t] = load_kv(k[t], d * TILE, type);
			k1[t] = load_kv(k[t], d * TILE + 8, type);
		}
UNROLL
		for (int i = 0; i < R; i++) {
			f8 q = f8_set(r[i].q[d]);
			for (int t = 0; t < N; t++) {
				lo[i][t] = f8_fma(q, k0[t], lo[i][t]);
				hi[i][t] = f8_fma(q, k1[t], hi[i][t]);
			}
		}
	}
	for (int i = 0; i < R; i++)
		for (int t = 0; t < N; t++) {
			f8 x = lo[i][t], y = hi[i][t], scale = f8_set(a->scale);
			if (kv_scaled(type)) {
				x = f8_mul(x, code_scales(scales[t], type));
				y = f8_mul(y, code_scales(scales[t] + 8, type));
			}
			x = f8_mul(x, scale);
			y = f8_mul(y, scale);
			if (a->soft_cap > 0) {
				f8 c = f8_set(a->soft_cap);
				x = cap8(x, c);
				y = cap8(y, c);
			}
			f8_store(s[i] + at + t * TILE, x);
			f8_store(s[i] + at + t * TILE + 8, y);
		}
}

// weigh turns scores [0, n) of a row into weights; those outside [from, to) become 0.
static part_row weigh(float *s, int n, int from, int to) {
	for (int i = 0; i < from && i < n; i++)
		s[i] = -INFINITY;
	for (int i = to < 0 ? 0 : to; i < n; i++)
		s[i] = -INFINITY;
	f8 top = f8_set(-INFINITY);
	for (int i = 0; i < n; i += 8)
		top = f8_max(f8_load(s + i), top);
	float v[8], m = -INFINITY;
	f8_store(v, top);
	for (int i = 0; i < 8; i++)
		m = v[i] > m ? v[i] : m;
	if (from >= to || from >= n || to <= 0)
		m = 0; // nothing to see here: all weights are 0
	f8 l = f8_zero();
	for (int i = 0; i < n; i += 8) {
		f8 e = f8_exp(f8_sub(f8_load(s + i), f8_set(m)));
		f8_store(s + i, e);
		l = f8_add(l, e);
	}
	return (part_row){m, f8_sum(l)};
}

// scale_weights multiplies a row's weights of positions [from, to) by their values' scales, which are there for each tile.
// The others are 0 and stay so, whatever a scale that the row does not see may be.
VEC void scale_weights(float *s, const uint16_t *const *scales, int from, int to, const int type) {
	for (int p = from; p < to;) {
		const uint16_t *scale = scales[p / TILE] + p % TILE;
		if (p % 8 == 0 && p + 8 <= to) {
			f8_store(s + p, f8_mul(f8_load(s + p), code_scales(scale, type)));
			p += 8;
		} else {
			uint16_t one[8] = {*scale};
			s[p++] *= f8_first(code_scales(one, type));
		}
	}
}

// values adds R rows' weighted values of positions [p, n) of a tile, for `wide` vectors of the head, to o.
// A tile at a time, so that values are read as a stream; s are the tile's weights, next is the next tile.
VEC void values(const uint8_t *v, const uint8_t *next, int p, int n, int d, int vdim, float (*s)[PARTITION], int at,
	float *const *o, const int type, const int R, const int wide) {
	f8 acc[ROWS][4];
	for (int i = 0; i < R; i++)
		for (int w = 0; w < wide; w++)
			acc[i][w] = f8_load(o[i] + d + 8 * w);
	for (; p < n; p++) {
		int from = p * vdim + d;
		f8 x[4];
		__builtin_prefetch(next + (size_t)from * kv_size(type), 0, 3);
		for (int w = 0; w < wide; w++)
			x[w] = load_kv(v, from + 8 * w, type);
UNROLL
		for (int i = 0; i < R; i++) {
			f8 e = f8_set(s[i][at + p]);
			for (int w = 0; w < wide; w++)
				acc[i][w] = f8_fma(e, x[w], acc[i][w]);
		}
	}
	for (int i = 0; i < R; i++)
		for (int w = 0; w < wide; w++)
			f8_store(o[i] + d + 8 * w, acc[i][w]);
}

// partition computes R rows over positions [256 part, ...) of a sequence's context.
VEC void partition_rows(const oi_attn *a, const int32_t *table, int g, const row *r, int part, part_row *out,
	float *const *o, const int type, const int R) {
	const oi_cache *c = &a->cache;
	const int size = kv_size(type), vdim = c->vdim;
	int base = part * PARTITION, from = base + PARTITION, to = base;
	for (int i = 0; i < R; i++) {
		from = r[i].from < from ? r[i].from : from;
		to = r[i].to > to ? r[i].to : to;
	}
	from = (from > base ? from : base) - base;
	to = (to < base + PARTITION ? to : base + PARTITION) - base;
	if (from >= to)
		from = to = 0;
	float s[ROWS][PARTITION] __attribute__((aligned(64)));
	const uint8_t *k[PARTITION / TILE + 2], *v[PARTITION / TILE + 1];
	const uint16_t *ks[PARTITION / TILE], *vs[PARTITION / TILE];
	const int t0 = from / TILE, t1 = (to + TILE - 1) / TILE;
	for (int t = t0; t < t1; t++) {
		int pos = base + t * TILE, in = pos % c->block_tokens;
		const uint8_t *head = head_block(c, table[pos / c->block_tokens], g);
		k[t] = head + (size_t)in * c->kdim * size;
		v[t] = head + ((size_t)c->block_tokens * c->kdim + (size_t)in * vdim) * size;
		if (kv_scaled(type)) {
			ks[t] = block_scales(c, head) + in;
			vs[t] = ks[t] + c->block_tokens;
		}
	}
	// After the last keys come the first values, after the last values nothing.
	k[t1] = k[t1 + 1] = t1 > t0 ? v[t0] : NULL;
	v[t1] = t1 > t0 ? v[t1 - 1] : NULL;
	int t = t0;
	if (R <= 2)
		for (; t + 2 <= t1; t += 2)
			keys(a, r, k + t, k[t + 2], ks + t, s, t * TILE, type, R, 2);
	for (; t < t1; t++)
		keys(a, r, k + t, k[t + 1], ks + t, s, t * TILE, type, R, 1);
	for (int i = 0; i < R; i++) {
		// Lanes count from the partition's start, so that a tile shared with other rows adds in the same order.
		int skip = t0 * TILE;
		out[i] = weigh(s[i] + skip, t1 * TILE - skip, r[i].from - base - skip, r[i].to - base - skip);
		if (kv_scaled(type)) {
			int first = r[i].from - base, end = r[i].to - base;
			scale_weights(s[i], vs, first > 0 ? first : 0, end < PARTITION ? end : PARTITION, type);
		}
		memset(o[i], 0, vdim * sizeof(float));
	}
	for (t = t0; t < t1; t++) {
		int at = t * TILE, p = from > at ? from - at : 0, n = to < at + TILE ? to - at : TILE, d = 0;
		if (R <= 2)
			for (; d + 32 <= vdim; d += 32)
				values(v[t], v[t + 1], p, n, d, vdim, s, at, o, type, R, 4);
		for (; d + 16 <= vdim; d += 16)
			values(v[t], v[t + 1], p, n, d, vdim, s, at, o, type, R, 2);
		for (; d + 8 <= vdim; d += 8)
			values(v[t], v[t + 1], p, n, d, vdim, s, at, o, type, R, 1);
		for (; d < vdim; d++)
			for (int i = 0; i < R; i++)
				for (int j = p; j < n; j++)
					o[i][d] += s[i][at + j] * load_kv1(v[t], j * vdim + d, type);
	}
}

#define PARTITION_FN(name, type, R)                                                                                  \
	static void name(const oi_attn *a, const int32_t *table, int g, const row *r, int part, part_row *out,           \
		float *const *o) {                                                                                           \
		partition_rows(a, table, g, r, part, out, o, type, R);                                                       \
	}
PARTITION_FN(part16_1, OI_F16, 1)
PARTITION_FN(part32_1, OI_F32, 1)
PARTITION_FN(partb16_1, OI_BF16, 1)
PARTITION_FN(parte4m3_1, OI_F8E4M3, 1)
PARTITION_FN(parti8_1, OI_I8, 1)
#if SHARED_TILES
PARTITION_FN(part16_2, OI_F16, 2)
PARTITION_FN(part16_3, OI_F16, 3)
PARTITION_FN(part16_4, OI_F16, 4)
PARTITION_FN(part32_4, OI_F32, 4)
PARTITION_FN(partb16_4, OI_BF16, 4)
PARTITION_FN(parte4m3_2, OI_F8E4M3, 2)
PARTITION_FN(parte4m3_3, OI_F8E4M3, 3)
PARTITION_FN(parte4m3_4, OI_F8E4M3, 4)
PARTITION_FN(parti8_2, OI_I8, 2)
PARTITION_FN(parti8_3, OI_I8, 3)
PARTITION_FN(parti8_4, OI_I8, 4)
#else
#define part16_2 NULL
#define part16_3 NULL
#define part16_4 NULL
#define part32_4 NULL
#define partb16_4 NULL
#define parte4m3_2 NULL
#define parte4m3_3 NULL
#define parte4m3_4 NULL
#define parti8_2 NULL
#define parti8_3 NULL
#define parti8_4 NULL
#endif

// partition computes n <= ROWS rows.
static void partition(const oi_attn *a, const int32_t *table, int g, const row *r, int n, int part, part_row *out,
	float *const *o) {
	typedef void (*fn)(const oi_attn *, const int32_t *, int, const row *, int, part_row *, float *const *);
	static const fn all[][ROWS] = {
		[OI_F32] = {part32_1, NULL, NULL, part32_4},
		[OI_F16] = {part16_1, part16_2, part16_3, part16_4},
		[OI_BF16] = {partb16_1, NULL, NULL, partb16_4},
		[OI_F8E4M3] = {parte4m3_1, parte4m3_2, parte4m3_3, parte4m3_4},
		[OI_I8] = {parti8_1, parti8_2, parti8_3, parti8_4},
	};
	const fn *f = all[a->cache.type];
	if (f[n - 1])
		f[n - 1](a, table, g, r, part, out, o);
	else
		for (int i = 0; i < n; i++)
			f[0](a, table, g, r + i, part, out + i, o + i);
}

// merge_row adds partition (m, l, o) to what (M, L, O) holds of the partitions before it.
static void merge_row(part_row *M, float *O, part_row m, const float *o, int vdim) {
	if (m.l == 0)
		return; // the row saw nothing of it
	if (M->l == 0) {
		*M = m;
		memcpy(O, o, vdim * sizeof(float));
		return;
	}
	float top = M->m > m.m ? M->m : m.m;
	float a = f8_first(f8_exp(f8_set(M->m - top))), b = f8_first(f8_exp(f8_set(m.m - top)));
	f8 a8 = f8_set(a), b8 = f8_set(b);
	int d = 0;
	for (; d + 8 <= vdim; d += 8)
		f8_store(O + d, f8_fma(f8_load(O + d), a8, f8_mul(f8_load(o + d), b8)));
	for (; d < vdim; d++)
		O[d] = f8_first(f8_fma(f8_set(O[d]), a8, f8_mul(f8_set(o[d]), b8)));
	M->m = top;
	M->l = f8_first(f8_fma(f8_set(M->l), a8, f8_mul(f8_set(m.l), b8)));
}

static void finish_row(float *dst, part_row M, const float *O, int vdim) {
	float inverse = M.l == 0 ? 0 : 1 / M.l;
	for (int d = 0; d < vdim; d++)
		dst[d] = M.l == 0 ? 0 : O[d] * inverse;
}

// see sets what query head h of token tok of an item's sequence sees.
static row see(const oi_attn *a, const oi_attn_item *it, int tok, int h) {
	int end = a->starts[it->seq + 1], to = a->contexts[it->seq] - (end - 1 - tok);
	int from = a->window > 0 && to > a->window ? to - a->window : 0;
	return (row){a->q + tok * a->q_stride + (size_t)h * a->cache.kdim, from, to};
}

static void attn(const void *arg, int chunk, oi_thread *th) {
	const oi_attn *a = arg;
	const oi_attn_item *it = &a->item[chunk];
	const int vdim = a->cache.vdim, per = a->H / a->cache.heads, rows = it->n * per;
	const int32_t *table = a->tables + (size_t)it->seq * a->table_stride;
	if (it->part >= 0) {
		// One partition alone: rows of partial sums, for merge.
		float *out = a->partial + (size_t)it->slot * per * (vdim + 2);
		out = oi_out(th, out, (size_t)rows * (vdim + 2) * sizeof(float));
		for (int i = 0; i < rows; i += ROWS) {
			row r[ROWS];
			part_row m[ROWS];
			float *o[ROWS];
			int n = rows - i < ROWS ? rows - i : ROWS;
			for (int k = 0; k < n; k++) {
				r[k] = see(a, it, it->tok + (i + k) / per, it->g * per + (i + k) % per);
				o[k] = out + (size_t)(i + k) * (vdim + 2);
			}
			partition(a, table, it->g, r, n, it->part, m, o);
			for (int k = 0; k < n; k++) {
				o[k][vdim] = m[k].m;
				o[k][vdim + 1] = m[k].l;
			}
		}
		return;
	}
	// Scratch: running sums of all rows, then one group's sums over a partition.
	part_row *M = oi_scratch(th);
	float *O = (float *)(M + rows), *o4 = O + (size_t)rows * vdim;
	for (int i = 0; i < rows; i++)
		M[i] = (part_row){0, 0};
	int first = see(a, it, it->tok, 0).from / PARTITION;
	int last = (see(a, it, it->tok + it->n - 1, 0).to - 1) / PARTITION;
	for (int part = first; part <= last; part++) {
		for (int i = 0; i < rows; i += ROWS) {
			row r[ROWS];
			part_row m[ROWS];
			float *o[ROWS];
			int n = rows - i < ROWS ? rows - i : ROWS;
			for (int k = 0; k < n; k++) {
				r[k] = see(a, it, it->tok + (i + k) / per, it->g * per + (i + k) % per);
				o[k] = o4 + k * vdim;
			}
			if (r[n - 1].to <= part * PARTITION)
				continue; // the group's tokens end before this partition
			partition(a, table, it->g, r, n, part, m, o);
			for (int k = 0; k < n; k++)
				merge_row(&M[i + k], O + (size_t)(i + k) * vdim, m[k], o[k], vdim);
		}
	}
	for (int t = 0; t < it->n; t++) {
		int tok = it->tok + t, col = it->g * per * vdim;
		float *out = oi_out(th, a->dst + tok * a->dst_stride + col, (size_t)per * vdim * sizeof(float));
		for (int h = 0; h < per; h++)
			finish_row(out + h * vdim, M[t * per + h], O + (size_t)(t * per + h) * vdim, vdim);
		if (a->prep.q || a->prep.f)
			prepare(&a->prep, tok, col, out, per * vdim, th);
	}
}

// merge reduces the partitions of the item whose number is the chunk's: items with part 0 of
// a run of slots, `first` of them.
static void merge(const void *arg, int chunk, oi_thread *th) {
	const oi_attn *a = arg;
	const oi_attn_item *it = &a->item[chunk];
	const int vdim = a->cache.vdim, per = a->H / a->cache.heads, rows = it->n * per;
	const size_t slot = (size_t)rows * (vdim + 2);
	const float *partial = a->partial + (size_t)it->slot * per * (vdim + 2);
	float *O = oi_scratch(th);
	for (int t = 0; t < it->n; t++) {
		int tok = it->tok + t, col = it->g * per * vdim;
		float *out = oi_out(th, a->dst + tok * a->dst_stride + col, (size_t)per * vdim * sizeof(float));
		for (int h = 0; h < per; h++) {
			part_row M = {0, 0};
			for (int i = 0; i < it->first; i++) {
				const float *o = partial + i * slot + (size_t)(t * per + h) * (vdim + 2);
				merge_row(&M, O, (part_row){o[vdim], o[vdim + 1]}, o, vdim);
			}
			finish_row(out + h * vdim, M, O, vdim);
		}
		if (a->prep.q || a->prep.f)
			prepare(&a->prep, tok, col, out, per * vdim, th);
	}
}
