// operators.h: the operators' code in the words of the vec_*.h that was included before it.
#include <math.h>
#include "elementary.h"
#include "linear.h"
#include "rows.h"
#include "cache.h"
#include "attention.h"
#include "state.h"
#include "delta.h"
#include "scan.h"

#define OPERATORS(variant)                                                                        \
	{                                                                                             \
		variant, linear, norm, norm_add, norm_gate, prep, gate, soft_cap, embed, gather, cossin,  \
			rotary, attn, merge, conv, delta_prep, delta_mix, delta, largest, find, sumexp, greater, select_ids \
	}
