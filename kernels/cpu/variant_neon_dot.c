//go:build cgo

// variant_neon_dot.c: the operators for 64-bit ARM with dot products of int8 (ARMv8.2 with FEAT_DotProd).
// clang cannot turn an instruction set on for part of a file: there it is compiled only when it is on for
// all of them, as it is for Apple's processors.
#include "cpu.h"
#include <string.h>

#if defined(__aarch64__) && !defined(__AARCH64EB__) && (!defined(__clang__) || defined(__ARM_FEATURE_DOTPROD))
#if !defined(__clang__)
#pragma GCC target("arch=armv8.2-a+dotprod")
#pragma GCC optimize("O3", "no-schedule-insns")
#endif
#define NEON_DOT 1
#include "vec_neon.h"
#include "operators.h"

static const oi_variant variant = OPERATORS("neon+dotprod");
const oi_variant *oi_neon_dot = &variant;
#else
const oi_variant *oi_neon_dot = NULL;
#endif
