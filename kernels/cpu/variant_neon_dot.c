//go:build cgo

// variant_neon_dot.c: the operators for 64-bit ARM with dot products of int8 (ARMv8.2 with FEAT_DotProd).
#include "cpu.h"
#include <string.h>

#if defined(__aarch64__) && !defined(__AARCH64EB__)
#if defined(__clang__)
#include <arm_neon.h>
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#pragma GCC optimize("O3", "no-schedule-insns") // scheduling early takes more registers than there are
#endif
#define NEON_DOT 1
#include "vec_neon.h"
#include "operators.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif

static const oi_variant variant = OPERATORS("neon+dotprod");
const oi_variant *oi_neon_dot = &variant;
#else
const oi_variant *oi_neon_dot = NULL;
#endif
