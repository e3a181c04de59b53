// scan.h: passes over a row of logits, for kernels/sampling. Included by each variant_*.c.

// largest returns the largest value; *nan says whether any is NaN.
static float largest(const float *x, int n, int *nan) {
	f8 m0 = f8_set(-INFINITY), m1 = m0, bad = f8_zero();
	int i = 0, found = 0;
	for (; i + 16 <= n; i += 16) {
		f8 p = f8_load(x + i), q = f8_load(x + i + 8);
		m0 = f8_max(p, m0);
		m1 = f8_max(q, m1);
		bad = f8_fma(f8_add(p, q), f8_zero(), bad); // NaN from NaN, and from infinities
	}
	float v[8], max = -INFINITY;
	f8_store(v, f8_max(m0, m1));
	for (int k = 0; k < 8; k++)
		max = v[k] > max ? v[k] : max;
	for (; i < n; i++) {
		max = x[i] > max ? x[i] : max;
		found |= x[i] != x[i];
	}
	if (f8_nan(bad))
		for (i = 0; i < n; i++)
			found |= x[i] != x[i];
	*nan = found;
	return max;
}

// find returns the place of the first value equal to v, or -1.
static int find(const float *x, int n, float v) {
	int i = 0;
	f8 w = f8_set(v);
	for (; i + 8 <= n; i += 8) {
		f8 a = f8_load(x + i);
		if ((f8_greater(w, a) | f8_greater(a, w) | f8_nan(a)) != 255)
			break;
	}
	for (; i < n; i++)
		if (x[i] == v)
			return i;
	return -1;
}

// sumexp is the sum of e^((x - max) * scale).
static double sumexp(const float *x, int n, float max, float scale) {
	double sum = 0;
	f8 m = f8_set(max), c = f8_set(scale);
	for (int i = 0; i < n;) {
		// Partial sums of 1,024 values keep the error of 150,000 additions down.
		f8 s = f8_zero();
		int end = i + 1024 < n ? i + 1024 : n;
		for (; i + 8 <= end; i += 8)
			s = f8_add(s, f8_exp(f8_mul(f8_sub(f8_load(x + i), m), c)));
		sum += f8_sum(s);
		for (; i < end; i++)
			sum += f8_first(f8_exp(f8_set((x[i] - max) * scale)));
	}
	return sum;
}

static int greater(const float *x, int n, float than) {
	int count = 0, i = 0;
	for (; i + 8 <= n; i += 8)
		count += __builtin_popcount(f8_greater(f8_load(x + i), f8_set(than)));
	for (; i < n; i++)
		count += x[i] > than;
	return count;
}

static int select_ids(const float *x, int n, float least, int32_t *id) {
	int count = 0, i = 0;
	for (; i + 8 <= n; i += 8) {
		int less = f8_greater(f8_set(least), f8_load(x + i)) | f8_nan(f8_load(x + i));
		for (int m = ~less & 255; m; m &= m - 1)
			id[count++] = i + __builtin_ctz(m);
	}
	for (; i < n; i++)
		if (x[i] >= least)
			id[count++] = i;
	return count;
}
