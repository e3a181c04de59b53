// elementary.h: exp and tanh on vectors.

// f8_exp is e^a to 1e-7 relative; 0 below -87.3 (so that minus infinity gives an exact 0), at
// most e^88.3; NaN stays.
VEC f8 f8_exp(f8 a) {
	f8 x = f8_min(f8_set(88.3f), f8_max(f8_set(-87.3f), a));
	f8 n = f8_round(f8_mul(x, f8_set(1.44269504f)));
	f8 r = f8_fma(n, f8_set(-0.693359375f), x);
	r = f8_fma(n, f8_set(2.12194440e-4f), r);
	f8 p = f8_set(1.9875691500e-4f);
	p = f8_fma(p, r, f8_set(1.3981999507e-3f));
	p = f8_fma(p, r, f8_set(8.3334519073e-3f));
	p = f8_fma(p, r, f8_set(4.1665795894e-2f));
	p = f8_fma(p, r, f8_set(1.6666665459e-1f));
	p = f8_fma(p, r, f8_set(5.0000001201e-1f));
	p = f8_add(f8_fma(p, f8_mul(r, r), r), f8_set(1));
	return f8_pick(f8_set(-87.3f), a, f8_zero(), f8_mul(p, f8_pow2(n)));
}

// f8_sigmoid is 1 / (1 + e^-a); 0 below -87, where it is smaller than 2e-38.
VEC f8 f8_sigmoid(f8 a) {
	f8 s = f8_div(f8_set(1), f8_add(f8_set(1), f8_exp(f8_sub(f8_zero(), a))));
	return f8_pick(f8_set(-87), a, f8_zero(), s);
}

// f8_silu is a / (1 + e^-a); 0 below -87, where it is smaller than 1e-35.
VEC f8 f8_silu(f8 a) {
	f8 s = f8_div(a, f8_add(f8_set(1), f8_exp(f8_sub(f8_zero(), a))));
	return f8_pick(f8_set(-87), a, f8_zero(), s);
}

// f8_gelu is GELU in its tanh form: (1 + tanh u) / 2 is 1 / (1 + e^-2u). 0 where 2u is below -87.
VEC f8 f8_gelu(f8 a) {
	f8 c = f8_fma(f8_mul(a, a), f8_set(2 * 0.7978845608f * 0.044715f), f8_set(2 * 0.7978845608f));
	f8 u = f8_mul(a, c);
	f8 s = f8_div(a, f8_add(f8_set(1), f8_exp(f8_sub(f8_zero(), u))));
	return f8_pick(f8_set(-87), u, f8_zero(), s);
}

// f8_tanh is to 2e-7 relative: a series below 0.625, and 1 - 2/(e^2a + 1) beyond.
VEC f8 f8_tanh(f8 a) {
	f8 x = f8_abs(a), s = f8_mul(a, a);
	f8 p = f8_set(-5.70498872745e-3f);
	p = f8_fma(p, s, f8_set(2.06390887954e-2f));
	p = f8_fma(p, s, f8_set(-5.37397155531e-2f));
	p = f8_fma(p, s, f8_set(1.33314422036e-1f));
	p = f8_fma(p, s, f8_set(-3.33332819422e-1f));
	f8 low = f8_fma(f8_mul(p, s), a, a);
	f8 e = f8_exp(f8_add(x, x));
	f8 high = f8_sub(f8_set(1), f8_div(f8_set(2), f8_add(e, f8_set(1))));
	high = f8_pick(f8_zero(), a, f8_sub(f8_zero(), high), high);
	return f8_pick(f8_set(0.625f), x, low, high);
}
