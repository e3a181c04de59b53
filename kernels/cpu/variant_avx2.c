//go:build cgo

// variant_avx2.c: the operators for x86 with AVX2, FMA and F16C.
#include "cpu.h"
#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#include <immintrin.h>
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,popcnt,bmi"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,popcnt,bmi")
#pragma GCC optimize("O3")
#endif
#include "vec_avx2.h"
#include "operators.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif

static const oi_variant variant = OPERATORS("avx2+fma+f16c");
const oi_variant *oi_avx2 = &variant;
#else
const oi_variant *oi_avx2 = NULL;
#endif
