//go:build unix

package sched

import (
	"fmt"
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

// BenchmarkStep is Plan, Commit and Events of steps whose rows all decode, per step.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct{ models, rows, waiting int }{{1, 1, 0}, {1, 256, 0}, {1, 256, 10000}, {16, 256, 0}} {
		b.Run(fmt.Sprintf("models=%d/rows=%d/waiting=%d", c.models, c.rows, c.waiting), func(b *testing.B) {
			const context = 4096
			per := (context + 64) / 16 * c.rows
			pool := kvcache.NewPool(c.models*per/32 + 2)
			s := New(pool, Limits{})
			now := time.Unix(0, 0)
			fill := func(q string, n, maxTokens int) {
				for i := range n {
					prompt := []int32{int32(i), 2, 3}
					if err := s.Submit(now, &Sequence{Model: q, Prompt: prompt, MaxTokens: maxTokens}); err != nil {
						b.Fatal(err)
					}
				}
			}
			for i := range c.models {
				name := fmt.Sprint("m", i)
				cache, err := pool.NewCache(kvcache.Config{Model: name, BlocksPerPage: 32, Groups: []kvcache.Group{{BlockTokens: 16}}})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.AddModel(Model{Name: name, Cache: cache, MaxTokens: context, MaxBatchTokens: 2048, MaxSeqs: c.rows, MaxWaiting: 10000}); err != nil {
					b.Fatal(err)
				}
			}
			out := Output{Tokens: make([][]int32, c.rows)}
			token := []int32{5}
			for i := range out.Tokens {
				out.Tokens[i] = token
			}
			step := func() int {
				now = now.Add(time.Millisecond)
				p := s.Plan(now)
				o := out
				o.Tokens = o.Tokens[:len(p.Rows)]
				s.Commit(p, o, nil, now)
				s.Events()
				return len(p.Rows)
			}
			refill := func() {
				for i := range c.models {
					name := fmt.Sprint("m", i)
					s.FailModel(name, nil)
					fill(name, c.rows+c.waiting/c.models, context-3)
				}
				for range c.models {
					step()
				}
			}
			refill()
			b.ReportAllocs()
			b.ResetTimer()
			spent := 0.0
			begin := cpuSeconds()
			for i := 0; i < b.N; i++ {
				if i%(2000*c.models) == 1999*c.models {
					b.StopTimer()
					spent += cpuSeconds() - begin
					refill()
					begin = cpuSeconds()
					b.StartTimer()
				}
				if n := step(); n != c.rows {
					b.Fatalf("%d rows", n)
				}
			}
			spent += cpuSeconds() - begin
			b.ReportMetric(spent*1e6/float64(b.N), "cpu-us/op")
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
