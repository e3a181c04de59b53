package sched

import (
	"reflect"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// TestSteadyStateAllocatesNothing: once all pages were cut and the index of blocks has its size, thousands of steps in which all rows
// decode leave nothing to the collector, with prompts waiting, and old blocks evicted for new ones.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for name, groups := range map[string][]kvcache.Group{
		"full":   {{BlockTokens: 16}},
		"window": {{BlockTokens: 16}, {Kind: kvcache.SlidingWindow, BlockTokens: 32, Window: 200}},
		"state":  {{BlockTokens: 16}, {Kind: kvcache.Recurrent, StatePages: 2}}, // without snapshots, which are new each time
	} {
		const rows, steps = 8, 4000 // a model's row in every second step
		pool := kvcache.NewPool(2000)
		s, now := New(pool, Limits{}), time.Unix(0, 0)
		for _, m := range []string{"a", "b"} {
			c, err := pool.NewCache(kvcache.Config{Model: m, BlocksPerPage: 8, Groups: groups})
			if err == nil {
				err = s.AddModel(Model{Name: m, Cache: c, MaxTokens: 4096, MaxBatchTokens: 512, MaxSeqs: rows, MaxWaiting: 100})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		out := Output{Tokens: make([][]int32, 2*rows)}
		token := []int32{0}
		step := func() {
			p := s.Plan(now)
			now = now.Add(10 * time.Millisecond)
			o := out
			o.Tokens = o.Tokens[:len(p.Rows)]
			for i := range p.Rows {
				token[0]++
				if o.Tokens[i] = token; p.Rows[i].Samples == 0 {
					o.Tokens[i] = nil
				}
			}
			s.Commit(p, o, nil, now)
			s.Events()
		}
		fill := func() {
			for i := range 2*rows + 20 {
				seq := &Sequence{Model: []string{"a", "b"}[i%2], Prompt: []int32{int32(i), 2, 3}, MaxTokens: 4000, SLA: SLA{TPOT: time.Duration(i%3) * time.Second}}
				if err := s.Submit(now, seq); err != nil {
					t.Fatal(err)
				}
			}
			for range 40 {
				step()
			}
		}
		for range 8 { // until all pages hold something
			fill()
			for range steps + 10 {
				step()
			}
			s.FailModel("a", nil)
			s.FailModel("b", nil)
			s.Events()
		}
		fill()
		if n := testing.AllocsPerRun(1, func() { // it runs twice, and counts the second time
			for range steps / 2 {
				step()
			}
		}); n > 0 {
			t.Errorf("%s: %g allocations in %d steps", name, n, steps/2)
		}
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
	}
}

// TestHotLines: what a step asks of a decoding sequence is in the first two lines of memory, and a Sequence in a size of which the
// allocator aligns all to lines, and a tail is a line.
func TestHotLines(t *testing.T) {
	const line = 64
	seq := reflect.TypeFor[Sequence]()
	for _, name := range []string{"tail", "length", "planned", "computed", "pending", "quiet", "limit", "prompt", "newest", "epoch", "drafts", "state", "fill",
		"late", "streaming", "prefilled", "drafting", "promised", "plain", "first", "last", "soon", "sla", "EndTokens"} {
		f, ok := seq.FieldByName(name)
		if end := f.Offset + f.Type.Size(); !ok || end > 2*line {
			t.Errorf("%s ends at %d", name, end)
		}
	}
	if n := reflect.TypeFor[tail]().Size(); n != line {
		t.Errorf("a tail is %d bytes", n)
	}
	if seq.Size() > 448 || seq.Size() <= 416 {
		t.Errorf("a Sequence is %d bytes", seq.Size())
	}
}
