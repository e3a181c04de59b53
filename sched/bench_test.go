//go:build unix

package sched

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// cpuSeconds is what the process has used, which other processes change less than they do time.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkStep is Plan, Commit and Events of steps whose rows all decode, per step: of every three sequences one
// has a TPOT target, one a loose one, one none, and so have those that wait, of 50 keys. Their lengths differ, as they
// do in service: of equal ones all would fill a block in the same step, and their last tokens share a set of the cache. bare is the loop over a model's
// rows that any scheduler needs: a block for each that has none, a token appended, an event.
func BenchmarkStep(b *testing.B) {
	for _, rows := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("bare/rows=%d", rows), func(b *testing.B) { benchmarkBare(b, rows) })
	}
	for _, c := range []struct{ models, rows, waiting int }{
		{1, 1, 0}, {1, 16, 0}, {1, 64, 0}, {1, 256, 0}, {1, 256, 100}, {1, 256, 1000}, {1, 256, 10000},
		{16, 16, 0}, {16, 16, 100}, {16, 16, 1000}, {16, 16, 10000}, {4, 256, 0},
		{16, 256, 0}, {16, 256, 100}, {16, 256, 1000}, {16, 256, 10000},
	} {
		b.Run(fmt.Sprintf("models=%d/rows=%d/waiting=%d", c.models, c.rows, c.waiting), func(b *testing.B) { benchmarkStep(b, c.models, c.rows, c.waiting) })
	}
}

const benchContext = 4096

// benchPrompt is one of 1 to 64 tokens.
func benchPrompt(i int) []int32 {
	p := make([]int32, 1+i*7%64)
	for j := range p {
		p[j] = int32(i)
	}
	return p
}

func benchPool(b *testing.B, models, rows int) (*kvcache.Pool, []*kvcache.Cache) {
	pool := kvcache.NewPool(models*(benchContext+64)/16*rows/32 + 2)
	var caches []*kvcache.Cache
	for i := range models {
		c, err := pool.NewCache(kvcache.Config{Model: fmt.Sprint("m", i), BlocksPerPage: 32, Groups: []kvcache.Group{{BlockTokens: 16}}})
		if err != nil {
			b.Fatal(err)
		}
		caches = append(caches, c)
	}
	return pool, caches
}

func benchmarkBare(b *testing.B, rows int) {
	_, caches := benchPool(b, 1, rows)
	type sequence struct {
		blocks *kvcache.BlockTable
		tokens []int32
	}
	seqs := make([]*sequence, rows)
	var events []Event
	reset := func() {
		for i := range seqs {
			if seqs[i] != nil {
				caches[0].Release(seqs[i].blocks)
			}
			seqs[i] = &sequence{blocks: caches[0].NewTable(kvcache.Identity{}), tokens: slices.Grow(benchPrompt(i), benchContext)}
		}
	}
	reset()
	b.ReportAllocs()
	b.ResetTimer()
	spent, begin := 0.0, cpuSeconds()
	for i := range b.N {
		if i%2000 == 1999 {
			b.StopTimer()
			spent += cpuSeconds() - begin
			reset()
			begin = cpuSeconds()
			b.StartTimer()
		}
		events = events[:0]
		for _, s := range seqs {
			if !caches[0].Extend(s.blocks, len(s.tokens), 0) {
				b.Fatal("full")
			}
		}
		for _, s := range seqs {
			caches[0].Seal(s.blocks, s.tokens)
			s.tokens = append(s.tokens, 5)
			events = append(events, Event{Tokens: s.tokens[len(s.tokens)-1:], Index: len(s.tokens)})
		}
	}
	b.ReportMetric((spent+cpuSeconds()-begin)*1e6/float64(b.N), "cpu-us/op")
}

func benchmarkStep(b *testing.B, models, rows, waiting int) {
	pool, caches := benchPool(b, models, rows)
	s := New(pool, Limits{})
	now, ends := time.Unix(0, 0), []int32{1, 2}
	slas := []SLA{{}, {TTFT: time.Hour, TPOT: 100 * time.Millisecond}, {TTFT: 24 * time.Hour, TPOT: time.Second}}
	fill := func(q string, n int) {
		for i := range n {
			seq := &Sequence{Model: q, Prompt: benchPrompt(i), MaxTokens: benchContext - 64, EndTokens: ends, SLA: slas[i%3], Key: fmt.Sprint(i % 50)}
			if err := s.Submit(now, seq); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, c := range caches {
		if err := s.AddModel(Model{Name: c.Config().Model, Cache: c, MaxTokens: benchContext, MaxBatchTokens: 2048, MaxSeqs: rows, MaxWaiting: 10000}); err != nil {
			b.Fatal(err)
		}
	}
	out := Output{Tokens: make([][]int32, rows)}
	token := []int32{5}
	step := func() int {
		p := s.Plan(now)
		now = now.Add(time.Millisecond + time.Duration(p.Tokens)*time.Microsecond)
		o := out
		o.Tokens = o.Tokens[:len(p.Rows)]
		for i := range p.Rows {
			if o.Tokens[i] = token; p.Rows[i].Samples == 0 {
				o.Tokens[i] = nil
			}
		}
		s.Commit(p, o, nil, now)
		s.Events()
		return len(p.Rows)
	}
	refill := func() {
		for _, c := range caches {
			s.FailModel(c.Config().Model, nil)
		}
		for _, q := range s.queues {
			q.model = newPredictor(nil) // nothing is refused then
			fill(q.Name, rows+waiting/models)
		}
		for n := 0; n < models*rows; {
			step()
			n = s.runs()
		}
		for range 2 * models {
			step()
		}
	}
	refill()
	b.ReportAllocs()
	b.ResetTimer()
	spent := 0.0
	begin := cpuSeconds()
	for i := 0; i < b.N; i++ {
		if i%(2000*models) == 1999*models {
			b.StopTimer()
			spent += cpuSeconds() - begin
			refill()
			begin = cpuSeconds()
			b.StartTimer()
		}
		if n := step(); n != rows {
			b.Fatalf("%d rows", n)
		}
	}
	spent += cpuSeconds() - begin
	b.ReportMetric(spent*1e6/float64(b.N), "cpu-us/op")
}

// BenchmarkSubmit is a request with an SLA that is asked about, accepted and cancelled again, while so many wait.
func BenchmarkSubmit(b *testing.B) {
	for _, waiting := range []int{0, 100, 1000, 10000} {
		b.Run(fmt.Sprintf("models=16/waiting=%d", waiting), func(b *testing.B) {
			pool, caches := benchPool(b, 16, 16)
			s := New(pool, Limits{})
			now := time.Unix(0, 0)
			var prior []Observation
			for n := 1; n < 2048; n *= 2 {
				prior = append(prior, Observation{Work{Rows: 1, Tokens: n, Samples: 1}, 1e-3 + 1e-6*float64(n)})
			}
			for _, c := range caches {
				if err := s.AddModel(Model{Name: c.Config().Model, Cache: c, MaxTokens: benchContext, MaxBatchTokens: 2048, MaxSeqs: 16, MaxWaiting: 10000, Prior: prior}); err != nil {
					b.Fatal(err)
				}
			}
			sla := SLA{TTFT: 10 * time.Hour, TPOT: 10 * time.Second}
			for i := range 16*16 + waiting {
				if err := s.Submit(now, &Sequence{Model: fmt.Sprint("m", i%16), Prompt: []int32{int32(i), 2, 3}, MaxTokens: 100, SLA: sla}); err != nil {
					b.Fatal(err)
				}
			}
			seq := &Sequence{}
			b.ReportAllocs()
			for b.Loop() {
				*seq = Sequence{Model: "m3", Prompt: []int32{1, 2, 3}, MaxTokens: 100, SLA: sla}
				if err := s.Check(now, "m3", 1, 3, sla, ""); err != nil {
					b.Fatal(err)
				}
				if err := s.Submit(now, seq); err != nil {
					b.Fatal(err)
				}
				s.Cancel(seq)
				s.Events()
			}
		})
	}
}

// BenchmarkAdmit is a prompt of 20,000 tokens that the prefix cache holds: found, taken, let go.
func BenchmarkAdmit(b *testing.B) {
	pool := kvcache.NewPool(200)
	cache, err := pool.NewCache(kvcache.Config{Model: "m", BlocksPerPage: 32, Groups: []kvcache.Group{{BlockTokens: 16}}})
	if err != nil {
		b.Fatal(err)
	}
	prompt := make([]int32, 20000)
	for i := range prompt {
		prompt[i] = int32(i)
	}
	for i := 0; i < b.N; i++ {
		t := cache.NewTable(kvcache.Identity{})
		n := cache.Match(t, prompt)
		if i > 0 && n != len(prompt)-16 {
			b.Fatalf("hit of %d", n)
		}
		if !cache.Extend(t, len(prompt), 0) {
			b.Fatal("full")
		}
		cache.Seal(t, prompt[:len(prompt)-1])
		cache.Release(t)
	}
}
