//go:build cgo

// variant_neon.c: the operators for 64-bit ARM with dot product instructions.
#include "cpu.h"
#include <string.h>

#if defined(__aarch64__)
#pragma GCC target("arch=armv8.2-a+dotprod")
#pragma GCC optimize("O3")
#include "vec_neon.h"
#include "operators.h"

static const oi_variant variant = OPERATORS("neon+dotprod");
const oi_variant *oi_neon = &variant;
#else
const oi_variant *oi_neon = NULL;
#endif
