//go:build cgo

// pool.c: the threads and how they run a step.
//
// A step is a list of commands, a command a number of chunks. Every thread walks the list; at
// each command it takes chunks one by one, first those of its own range (so that it reads its
// weights in order and nobody else touches its counter), then those that others have not taken,
// and goes on when all chunks are done.
//
// A thread may lose its core in the middle of a chunk. Nobody waits for it: after a while
// the others compute its chunk again. A chunk writes to its thread's buffer; whoever changes the
// chunk's owner word from its own name to COMMIT copies the buffer to the destination, all
// others drop theirs. So a late thread changes nothing, and as results depend on the chunk alone
// it does not matter who won. A late thread still reads the step's arguments: a step is not
// reused while a thread is inside (oi_step_busy), and memory goes only after oi_quiesce. That
// does not wait for the step that runs: what goes is nothing of its own, or it could not go at all.
//
// While it waits, a thread fetches the start of its share of the next weights into its cache,
// so that memory is busy during the short commands between two matrix products.
#define _GNU_SOURCE
#include "cpu.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMMIT = 0xfffffffe, DONE = 0xffffffff };
enum {
	SPIN_NS = 60000,      // hot wait for the next step; then the thread parks
	YIELD_NS = 20000,     // waits for what cannot be redone
	AHEAD_BYTES = 160 << 10, // fetched while waiting: a third of a 512 KiB L2
};

typedef struct {
	void *dst;
	const void *src;
	int n, size, step;
} span;

struct oi_thread {
	oi_step *inside; // the step this thread reads; NULL outside
	char pad0[56];
	oi_pool *pool;
	int id, defer, spans;
	size_t used;
	char *out, *scratch;
	const char *ahead, *ahead_end; // still to fetch
	int ahead_cmd;
	pthread_t handle;
	span span[OI_OUT_SPANS];
};

struct oi_pool {
	oi_step *current;
	uint32_t seq;
	char pad[48];
	int threads, sleepers, stop;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	oi_thread *thread;
};

#define LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL)

static inline int cas(uint32_t *p, uint32_t old, uint32_t new) {
	return __atomic_compare_exchange_n(p, &old, new, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void *oi_out(oi_thread *t, void *dst, size_t bytes) {
	if (!t->defer)
		return dst;
	char *src = t->out + t->used;
	t->used += (bytes + 63) & ~(size_t)63;
	t->span[t->spans++] = (span){dst, src, (int)bytes, 0, 0};
	return src;
}

static void scatter(span s) {
	const char *src = s.src;
	char *dst = s.dst;
	if (s.size == 0)
		memcpy(dst, src, s.n);
	else if (s.size == 2)
		for (int i = 0; i < s.n; i++)
			memcpy(dst + (size_t)i * s.step, src + i * 2, 2);
	else
		for (int i = 0; i < s.n; i++)
			memcpy(dst + (size_t)i * s.step, src + (size_t)i * s.size, s.size);
}

void oi_scatter(oi_thread *t, void *dst, const void *src, int n, int size, int step) {
	span s = {dst, src, n, size, step};
	if (t->defer) {
		s.src = memcpy(t->out + t->used, src, (size_t)n * size);
		t->used += ((size_t)n * size + 63) & ~(size_t)63;
		t->span[t->spans++] = s;
	} else {
		scatter(s);
	}
}

void *oi_scratch(oi_thread *t) { return t->scratch; }

// run_chunk computes chunk i, which counts for range r, if its owner word is still `from`.
static void run_chunk(const oi_cmd *c, oi_range *r, int i, oi_thread *t, uint32_t from) {
	if (c->owner == NULL) {
		t->defer = 0;
		c->fn(c->arg, i, t);
		ADD(&r->done, 1);
		return;
	}
	uint32_t me = t->id + 1;
	if (!cas(&c->owner[i], from, me))
		return;
	t->defer = 1;
	t->used = 0;
	t->spans = 0;
	c->fn(c->arg, i, t);
	if (!cas(&c->owner[i], me, COMMIT))
		return;
	for (int k = 0; k < t->spans; k++)
		scatter(t->span[k]);
	__atomic_store_n(&c->owner[i], DONE, __ATOMIC_RELEASE);
	ADD(&r->done, 1);
}

static inline int complete(const oi_cmd *c, int threads) {
	for (int k = 0; k < threads; k++)
		if (LOAD(&c->range[k].done) < c->range[k].n)
			return 0;
	return 1;
}

// redo computes again what others took and have not finished.
static void redo(const oi_cmd *c, int threads, oi_thread *t) {
	for (int k = 0; k < threads; k++) {
		oi_range *r = &c->range[k];
		for (int i = r->from; i < r->from + r->n; i++) {
			if (LOAD(&r->done) == r->n)
				break;
			uint32_t s = LOAD(&c->owner[i]);
			if (s != COMMIT && s != DONE)
				run_chunk(c, r, i, t, s);
		}
	}
}

// find_ahead points t->ahead at this thread's share of the next weights after command j.
static void find_ahead(const oi_step *s, int j, oi_thread *t) {
	for (int k = j + 1; k < s->cmds && k < j + 8; k++) {
		const oi_cmd *c = &s->cmd[k];
		if (c->stream == NULL)
			continue;
		if (k == t->ahead_cmd)
			return;
		const oi_range *r = &c->range[t->id];
		int64_t n = r->n * c->stream_step;
		t->ahead_cmd = k;
		t->ahead = c->stream + r->from * c->stream_step;
		t->ahead_end = t->ahead + (n < AHEAD_BYTES ? n : AHEAD_BYTES);
		return;
	}
}

static void wait_command(const oi_step *s, int j, oi_thread *t) {
	const oi_cmd *c = &s->cmd[j];
	if (complete(c, s->threads))
		return;
	find_ahead(s, j, t);
	int64_t since = 0;
	for (int spins = 1; !complete(c, s->threads); spins++) {
		if (t->ahead < t->ahead_end) {
			for (int k = 0; k < 4; k++, t->ahead += 64)
				__builtin_prefetch(t->ahead, 0, 2);
			continue;
		}
		relax();
		if (spins % 32)
			continue;
		int64_t now = now_ns();
		if (since == 0)
			since = now;
		else if (c->owner != NULL && now - since > c->patience_ns) {
			redo(c, s->threads, t);
			if (now - since > 4 * (int64_t)c->patience_ns)
				sched_yield();
		} else if (now - since > YIELD_NS && c->owner == NULL)
			sched_yield();
	}
}

static void walk(const oi_step *s, oi_thread *t) {
	t->ahead = t->ahead_end = NULL;
	t->ahead_cmd = -1;
	for (int j = 0; j < s->cmds; j++) {
		const oi_cmd *c = &s->cmd[j];
		for (int k = 0; k < s->threads; k++) {
			int owner = t->id + k;
			if (owner >= s->threads)
				owner -= s->threads;
			oi_range *r = &c->range[owner];
			while (LOAD(&r->next) < r->n) {
				int i = ADD(&r->next, 1);
				if (i >= r->n)
					break;
				run_chunk(c, r, r->from + i, t, 0);
			}
		}
		wait_command(s, j, t);
	}
}

static void *worker(void *arg) {
	oi_thread *t = arg;
	oi_pool *p = t->pool;
	uint32_t seen = 0;
	for (;;) {
		int64_t until = now_ns() + SPIN_NS;
		for (int spins = 1; LOAD(&p->seq) == seen; spins++) {
			relax();
			if (spins % 64 || now_ns() < until)
				continue;
			pthread_mutex_lock(&p->lock);
			__atomic_fetch_add(&p->sleepers, 1, __ATOMIC_SEQ_CST);
			while (__atomic_load_n(&p->seq, __ATOMIC_SEQ_CST) == seen)
				pthread_cond_wait(&p->wake, &p->lock);
			__atomic_fetch_sub(&p->sleepers, 1, __ATOMIC_SEQ_CST);
			pthread_mutex_unlock(&p->lock);
		}
		seen = LOAD(&p->seq);
		if (LOAD(&p->stop))
			return NULL;
		oi_step *s = __atomic_load_n(&p->current, __ATOMIC_SEQ_CST);
		__atomic_store_n(&t->inside, s, __ATOMIC_SEQ_CST);
		// The step may have ended, and been reused, before the line above.
		if (s != NULL && __atomic_load_n(&p->current, __ATOMIC_SEQ_CST) == s && t->id < s->threads)
			walk(s, t);
		__atomic_store_n(&t->inside, NULL, __ATOMIC_SEQ_CST);
	}
}

oi_pool *oi_pool_new(int threads) {
	oi_pool *p = NULL;
	if (posix_memalign((void **)&p, 64, sizeof *p))
		return NULL;
	memset(p, 0, sizeof *p);
	p->threads = threads;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	if (posix_memalign((void **)&p->thread, 64, threads * sizeof(oi_thread)))
		return NULL;
	memset(p->thread, 0, threads * sizeof(oi_thread));
	// Go's signals are not for these threads.
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (int i = 0; i < threads; i++) {
		oi_thread *t = &p->thread[i];
		t->pool = p;
		t->id = i;
		if (posix_memalign((void **)&t->out, 4096, OI_OUT_BYTES + OI_SCRATCH_BYTES))
			abort();
		t->scratch = t->out + OI_OUT_BYTES;
		if (i > 0 && pthread_create(&t->handle, NULL, worker, t)) {
			p->threads = i;
			break;
		}
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return p;
}

static void publish(oi_pool *p, oi_step *s) {
	__atomic_store_n(&p->current, s, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->seq, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&p->sleepers, __ATOMIC_SEQ_CST)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->wake);
		pthread_mutex_unlock(&p->lock);
	}
}

void oi_pool_free(oi_pool *p) {
	__atomic_store_n(&p->stop, 1, __ATOMIC_SEQ_CST);
	publish(p, NULL);
	for (int i = 1; i < p->threads; i++)
		pthread_join(p->thread[i].handle, NULL);
	for (int i = 0; i < p->threads; i++)
		free(p->thread[i].out);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->wake);
	free(p->thread);
	free(p);
}

void oi_run(oi_pool *p, oi_step *s) {
	if (s->threads > 1)
		publish(p, s);
	walk(s, &p->thread[0]);
	__atomic_store_n(&p->current, NULL, __ATOMIC_SEQ_CST);
}

int oi_step_busy(oi_pool *p, const oi_step *s) {
	for (int i = 1; i < p->threads; i++)
		if (__atomic_load_n(&p->thread[i].inside, __ATOMIC_SEQ_CST) == s)
			return 1;
	return 0;
}

void oi_quiesce(oi_pool *p) {
	for (int i = 1; i < p->threads; i++)
		for (;;) {
			oi_step *s = __atomic_load_n(&p->thread[i].inside, __ATOMIC_SEQ_CST);
			if (s == NULL || s == __atomic_load_n(&p->current, __ATOMIC_SEQ_CST))
				break;
			sched_yield();
		}
}

float oi_largest(const oi_variant *v, const float *x, int n, int *nan) { return v->largest(x, n, nan); }
int oi_find(const oi_variant *v, const float *x, int n, float value) { return v->find(x, n, value); }
double oi_sumexp(const oi_variant *v, const float *x, int n, float max, float scale) { return v->sumexp(x, n, max, scale); }
int oi_greater(const oi_variant *v, const float *x, int n, float than) { return v->greater(x, n, than); }
int oi_select(const oi_variant *v, const float *x, int n, float least, int32_t *id) { return v->select(x, n, least, id); }

static void read_chunk(const void *arg, int chunk, oi_thread *t) {
	typedef uint64_t v __attribute__((vector_size(32), aligned(64)));
	const v *p = (const v *)((const char *)arg + ((size_t)chunk << 18));
	v a = {0}, b = {0};
	for (int i = 0; i < 1 << 13; i += 4) {
		__builtin_prefetch((const char *)(p + i) + 4096, 0, 3);
		__builtin_prefetch((const char *)(p + i) + 4160, 0, 3);
		a ^= p[i] ^ p[i + 1];
		b ^= p[i + 2] ^ p[i + 3];
	}
	a ^= b;
	memcpy(t->scratch, &a, sizeof a);
}

const oi_fn oi_read = read_chunk;
