//go:build cgo

// variant_neon.c: the operators for 64-bit ARM as it has been since its first processors.
#include "cpu.h"
#include <string.h>

#if defined(__aarch64__) && !defined(__AARCH64EB__)
#if !defined(__clang__)
#pragma GCC optimize("O3", "no-schedule-insns") // scheduling early takes more registers than there are
#endif
#define NEON_DOT 0
#include "vec_neon.h"
#include "operators.h"

static const oi_variant variant = OPERATORS("neon");
const oi_variant *oi_neon = &variant;
#else
const oi_variant *oi_neon = NULL;
#endif
