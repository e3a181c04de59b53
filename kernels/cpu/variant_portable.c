//go:build cgo

// variant_portable.c: the operators for any machine with a C compiler.
#include "cpu.h"
#include <string.h>
#include "vec_portable.h"
#include "operators.h"

const oi_variant oi_portable = OPERATORS("portable");
