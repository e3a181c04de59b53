//go:build cgo

// variant_neon.c: the operators for 64-bit ARM.
#include "cpu.h"

const oi_variant *oi_neon = NULL;
