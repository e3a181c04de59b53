//go:build cgo

// pack.c: codes into panels. The layout is drawn in doc.go; headers (scales, zero points,
// minima) are written apart from codes.
#include "cpu.h"
#include <string.h>
#include "vec_portable.h"

// word4 is 4 codes of a row.
static inline uint32_t word4(const uint8_t *c) {
	uint32_t w;
	memcpy(&w, c, 4);
	return w;
}

// pack_block packs 8 whole rows of a block, stride bytes apart, 4 codes at a time.
static void pack_block(uint8_t *dst, const uint8_t *codes, size_t stride, int bits) {
	for (int r = 0; r < 8; r++, codes += stride, dst += 4)
		for (int i = 0; i < 8; i++) {
			uint32_t w;
			if (bits == 8) {
				w = word4(codes + 4 * i) ^ 0x80808080u;
				memcpy(dst + i * 32, &w, 4);
			} else if (i % 2 == 0) {
				w = (word4(codes + 4 * i) & 0x0f0f0f0fu) | (word4(codes + 4 * i + 4) & 0x0f0f0f0fu) << 4;
				memcpy(dst + i / 2 * 32, &w, 4);
			}
		}
}

// oi_pack packs up to 8 rows of K codes; kpad inputs are stored, header bytes precede each group
// of gblocks blocks.
void oi_pack(uint8_t *dst, const uint8_t *codes, int rows, int K, int kpad, int gblocks, int header, int bits) {
	int blocks = kpad / 32;
	for (int b = 0; b < blocks;) {
		dst += header;
		int end = b + gblocks < blocks ? b + gblocks : blocks;
		for (; b < end; b++) {
			int k0 = b * 32, n = K - k0 < 32 ? K - k0 : 32;
			if (n == 32 && rows == 8) {
				pack_block(dst, codes + k0, K, bits);
			} else {
				uint8_t block[8][32];
				memset(block, bits == 8 ? 128 : 0, sizeof block);
				for (int r = 0; r < rows; r++)
					if (n > 0)
						memcpy(block[r], codes + (size_t)r * K + k0, n);
				pack_block(dst, block[0], 32, bits);
			}
			dst += bits == 8 ? 256 : 128;
		}
	}
}

// oi_pack_float packs up to 8 rows of float weights; values are exactly of the stored type.
void oi_pack_float(uint8_t *dst, const float *w, int rows, int K, int kpad, int kind) {
	if (kind == OI_WBF16 && rows == 8) { // embeddings of a large vocabulary are gigabytes
		uint16_t *d = (uint16_t *)dst;
		for (int k = 0; k < K; k++, d += 8)
			for (int r = 0; r < 8; r++) {
				uint32_t u;
				memcpy(&u, w + (size_t)r * K + k, 4);
				d[r] = (uint16_t)(u >> 16);
			}
		memset(d, 0, (size_t)(kpad - K) * 16);
		return;
	}
	for (int k = 0; k < kpad; k++)
		for (int r = 0; r < 8; r++) {
			float v = k < K && r < rows ? w[(size_t)r * K + k] : 0;
			size_t at = (size_t)k * 8 + r;
			uint32_t u;
			memcpy(&u, &v, 4);
			if (kind == OI_WF32)
				memcpy(dst + at * 4, &u, 4);
			else if (kind == OI_WF16)
				((uint16_t *)dst)[at] = float_f16(v);
			else
				((uint16_t *)dst)[at] = (uint16_t)(u >> 16);
		}
}

int oi_pack_scales(uint8_t *dst, const float *values, int rows, int groups, int first, int by, int64_t step,
	int type, float mul) {
	int fits = 1;
	for (int g = first; g < groups; g += by, dst += step)
		for (int r = 0; r < 8; r++) {
			float v = r < rows ? values[(size_t)r * groups + g] * mul : 0;
			uint32_t u;
			memcpy(&u, &v, 4);
			if (type == OI_F32) {
				memcpy(dst + r * 4, &u, 4);
				continue;
			}
			uint16_t h = type == OI_F16 ? float_f16(v) : (uint16_t)(u >> 16);
			memcpy(dst + r * 2, &h, 2);
			// Infinity in the file stays infinity; anything else must not become it.
			if (type == OI_F16 && (h & 0x7fff) == 0x7c00 && (u & 0x7fffffff) < 0x7f800000)
				fits = 0;
		}
	return fits;
}

void oi_pack_zeros(uint8_t *dst, const uint8_t *zeros, int rows, int groups, int first, int by, int64_t step) {
	for (int g = first; g < groups; g += by, dst += step)
		for (int r = 0; r < rows; r++)
			dst[r] = zeros[(size_t)r * groups + g];
}
