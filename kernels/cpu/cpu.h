// cpu.h: what Go and C share: packed weights, operator arguments, the command list of a step and
// the threads that run it. Letters as in package kernels: T tokens, K inputs, N outputs.
//
// An operator is a function of (arguments, chunk number): chunks of one command are independent
// and may run in any order on any thread. Everything a chunk writes goes through oi_out or
// oi_scatter, so that a chunk can be computed twice and written once (pool.c).
#ifndef OI_CPU_H
#define OI_CPU_H

#include <stddef.h>
#include <stdint.h>

enum { OI_F32, OI_F16, OI_BF16, OI_F8E4M3, OI_I8 }; // as kernels.DType
enum { OI_W4, OI_W8, OI_WF32, OI_WF16, OI_WBF16 };  // oi_part.kind
enum { OI_ZCONST, OI_ZGROUP, OI_ZMIN };            // oi_part.ztype
enum { OI_SILU, OI_GELU, OI_SIGMOID };             // as kernels.Activation

// oi_part is one packed matrix; doc.go draws its panels.
typedef struct {
	const uint8_t *data;
	int64_t panel_bytes;
	int32_t n, col;     // rows, and the first one's place in the stacked weight
	int32_t panels;     // n/8, rounded up
	int32_t kind;       // OI_W4 ...
	int32_t gblocks;    // blocks of 32 inputs in a scale group
	int32_t half;       // groups of 16: two scales a block
	int32_t stype;      // of scales and minima: OI_F32, OI_F16, OI_BF16
	int32_t ztype;      // OI_ZCONST, OI_ZGROUP, OI_ZMIN
	float z0;           // the zero point of OI_ZCONST, of the codes as stored
	float post;         // power of two that takes stored scales to real ones
	const float *bias;  // [n] or NULL
	const int32_t *perm; // [K] input that is stored at k, or NULL: k itself
} oi_part;

// oi_qblock is 32 activations as int8: x = xs*q. fsum are the sums of x as quantised.
typedef struct {
	float xs, sum, half[2];
	int8_t q[32];
} oi_qblock;

// oi_fblock is 32 activations as float32.
typedef struct {
	float sum, half[2], pad;
	float x[32];
} oi_fblock;

// oi_prep says where an operator leaves its rows as blocks for the next matrix product.
typedef struct {
	oi_qblock *q; // [T, blocks], or NULL
	oi_fblock *f; // [T, blocks], or NULL
	int32_t blocks;
} oi_prep;

typedef struct oi_thread oi_thread;
typedef void (*oi_fn)(const void *arg, int chunk, oi_thread *t);

// oi_range is a run of a command's chunks: the first ones of one thread, on a line of its own.
typedef struct {
	int32_t next, done, from, n;
	char pad[48];
} oi_range;

typedef struct {
	oi_fn fn;
	const void *arg;
	oi_range *range;     // [threads of the step]
	uint32_t *owner;     // [chunks], NULL: chunks write in place and are computed once
	const char *stream;  // weights read in chunk order, to fetch while waiting; or NULL
	int64_t stream_step; // bytes of them a chunk
	int32_t chunks;
	int32_t patience_ns; // before others compute a chunk again: some times what it takes
} oi_cmd;

// oi_step is the command list of a step. It is reused when no thread is inside.
typedef struct {
	oi_cmd *cmd;
	int32_t cmds, threads;
} oi_step;

typedef struct oi_pool oi_pool;
oi_pool *oi_pool_new(int threads);
void oi_pool_free(oi_pool *p);
void oi_run(oi_pool *p, oi_step *s);           // runs all of s; the caller is thread 0
int oi_step_busy(oi_pool *p, const oi_step *s); // a late thread is still inside s
void oi_quiesce(oi_pool *p);                    // waits until no thread is inside a step that has ended

// oi_out returns where to write bytes that belong at dst.
void *oi_out(oi_thread *t, void *dst, size_t bytes);
// oi_scatter writes n elements of size bytes from src to dst, step bytes apart.
void oi_scatter(oi_thread *t, void *dst, const void *src, int n, int size, int step);
// oi_scratch is memory of the thread for the chunk.
void *oi_scratch(oi_thread *t);
enum { OI_OUT_BYTES = 1 << 20, OI_OUT_SPANS = 1024, OI_SCRATCH_BYTES = 1 << 20 };
enum { OI_MAX_COLUMNS = 63 }; // of a convolution before a token
// Tokens that the chunked delta rule takes together, and the floats of what its slabs share of them (delta.h).
enum { OI_DELTA_CHUNK = 16, OI_DELTA_MIX = (2 * OI_DELTA_CHUNK + 3) * OI_DELTA_CHUNK };

// Operator arguments. Strides are in elements.

typedef struct {
	float *dst;
	int64_t dst_stride;
	const oi_part *part;
	const oi_qblock *q; // [T, blocks]
	const oi_fblock *f; // [T, blocks]
	int32_t parts, T, blocks, add;
	int32_t panels, chunk_panels; // of all parts; of a chunk
	int32_t chunk_tokens, token_chunks;
	int32_t exact, pad;
} oi_linear;

typedef struct {
	float *dst;
	const float *x, *w;
	int64_t dst_stride, x_stride;
	oi_prep prep;
	int32_t T, D, chunk_rows;
	float eps;
	const int32_t *perm; // preparation: of oi_part
	const float *gate;   // NormGate, over heads of `head` values
	int64_t gate_stride;
	int32_t head;
	float scale; // RMSNormAdd
} oi_norm; // also plain preparation of x (w, dst NULL)

typedef struct {
	float *dst;
	const float *gate, *x;
	int64_t dst_stride, gate_stride, x_stride;
	oi_prep prep;
	int32_t T, F, chunk_cols, col_chunks, chunk_rows;
	int32_t f;  // OI_SILU ...
	float cap;  // SoftCap, which has no gate
	int32_t pad;
} oi_gate;

typedef struct {
	float *dst;
	int64_t dst_stride;
	const float *x; // GatherRows
	int64_t x_stride;
	const oi_part *part; // EmbedRows
	const int32_t *ids;
	int32_t parts, T, D, chunk_rows;
	float scale; // EmbedRows
	int32_t pad;
} oi_rows;

typedef struct {
	float *dst;
	int64_t dst_stride;
	const float *inv_freq;
	const int32_t *positions;
	int32_t T, half, chunk_rows;
	float scale;
} oi_cossin;

// oi_cache is one layer's part of the pages; doc.go draws a block.
typedef struct {
	uint8_t *pages;
	int64_t page_bytes, block_bytes, layer_offset;
	int32_t blocks_per_page, block_tokens, type, heads, kdim, vdim;
} oi_cache;

typedef struct {
	oi_cache cache;
	float *q;
	const float *qkv, *qnorm, *knorm, *cossin;
	int64_t q_stride, qkv_stride, cs_stride;
	const int32_t *slots;
	int32_t T, H, rot, chunk_rows; // rot: rotated values of a head
	float eps;
	int32_t vnorm, keys_as_values, pad;
} oi_rotary;

// oi_attn_item is the work of a chunk: tokens [tok, tok+n) of sequence seq for key/value head
// g, over partition part alone (-1: all of them, to the end).
typedef struct {
	int32_t seq, tok, n, g, part, first, slot, pad;
} oi_attn_item;

typedef struct {
	oi_cache cache;
	float *dst;
	const float *q;
	int64_t dst_stride, q_stride;
	const int32_t *tables, *starts, *contexts;
	const oi_attn_item *item;
	float *partial; // [slot][heads/G][vdim+2]: sums, largest score, weight
	oi_prep prep;
	int32_t items, table_stride, H, window;
	float scale, soft_cap;
} oi_attn;

// oi_state is one layer's recurrent state (kernels.StateLayout) and a step's runs. Runs that depend on
// each other are a chain; runs without tokens are in none.
typedef struct {
	uint8_t *pages;
	int64_t page_bytes, unit_bytes;
	int32_t per_page, first_unit, state_pages; // units on a page; of the layer; pages of a state
	int32_t heads, kdim, vdim, columns, unit_channels;
	const int32_t *starts, *in, *out;
	const int32_t *chain, *next; // a chain's first run; the run after a run in its chain, or -1
} oi_state;

typedef struct {
	oi_state state;
	float *dst;
	const float *x, *w;
	int64_t dst_stride, x_stride;
	int32_t C, chunk_cols, col_chunks, pad; // channels
} oi_conv;

typedef struct {
	oi_state state;
	float *dst;
	const float *qkv, *a, *b, *rate, *bias;
	int64_t dst_stride, qkv_stride, a_stride, b_stride;
	float *keys;  // [G][T][2*kdim]: a token's key and query of a head, of unit length
	float *gates; // [T][H][2]: decay and beta
	float *mix;   // [H][chunks][OI_DELTA_MIX]
	const int32_t *chunk_at, *chunk_first; // a chunk's first token; [runs+1]: a run's first chunk
	int32_t T, G, chunk_rows, chunks;      // chunks of OI_DELTA_CHUNK tokens; 0: token by token
	int32_t slabs, chunk_slabs, head_chunks; // of a head, of a chunk; chunks of a head
	int32_t redo; // chunks may be computed twice
	float eps;
} oi_delta;

// oi_variant is the operators compiled for one instruction set. The last five scan logits.
typedef struct {
	const char *name;
	oi_fn linear, norm, norm_add, norm_gate, prep, gate, soft_cap, embed, gather, cossin, rotary, attn, merge, conv, delta_prep, delta_mix, delta;
	float (*largest)(const float *x, int n, int *nan);
	int (*find)(const float *x, int n, float v);
	double (*sumexp)(const float *x, int n, float max, float scale);
	int (*greater)(const float *x, int n, float than);              // how many are > than
	int (*select)(const float *x, int n, float least, int32_t *id); // ids with x >= least
} oi_variant;

float oi_largest(const oi_variant *v, const float *x, int n, int *nan);
int oi_find(const oi_variant *v, const float *x, int n, float value);
double oi_sumexp(const oi_variant *v, const float *x, int n, float max, float scale);
int oi_greater(const oi_variant *v, const float *x, int n, float than);
int oi_select(const oi_variant *v, const float *x, int n, float least, int32_t *id);

extern const oi_variant oi_portable;
extern const oi_variant *oi_avx2, *oi_neon, *oi_neon_dot; // NULL where not compiled

// oi_read reads chunk `chunk` of 256 KiB of arg, to measure memory.
extern const oi_fn oi_read;

// Packing (pack.c): 8 rows at a time.
void oi_pack(uint8_t *dst, const uint8_t *codes, int rows, int K, int kpad, int gblocks, int header, int bits);
void oi_pack_float(uint8_t *dst, const float *w, int rows, int K, int kpad, int kind);
// oi_pack_scales writes values[row][first], values[row][first+by], ... of up to 8 rows as a storage
// type, times mul, step bytes apart; 0 when one does not fit the type.
int oi_pack_scales(uint8_t *dst, const float *values, int rows, int groups, int first, int by, int64_t step,
	int type, float mul);
void oi_pack_zeros(uint8_t *dst, const uint8_t *zeros, int rows, int groups, int first, int by, int64_t step);

#endif
