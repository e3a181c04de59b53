package sched

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

func newScheduler(t *testing.T, lim Limits) (*Scheduler, *kvcache.Pool) {
	t.Helper()
	pool := kvcache.NewPool(50)
	s := New(pool, lim)
	for _, name := range []string{"a", "b"} {
		c, err := pool.NewCache(kvcache.Config{Model: name, BlocksPerPage: 2, Groups: []kvcache.Group{{BlockTokens: 16}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AddModel(Model{Name: name, Cache: c, MaxTokens: 200, MaxBatchTokens: 50, MaxSeqs: 4, MaxWaiting: 4}); err != nil {
			t.Fatal(err)
		}
	}
	return s, pool
}

func submit(t *testing.T, s *Scheduler, model string, prompt, maxTokens int) *Sequence {
	t.Helper()
	seq := &Sequence{Model: model, Prompt: make([]int32, prompt), MaxTokens: maxTokens}
	if err := s.Submit(time.Time{}, seq); err != nil {
		t.Fatal(err)
	}
	return seq
}

// finals returns how each sequence of the events ended.
func finals(s *Scheduler) map[*Sequence]Event {
	out := map[*Sequence]Event{}
	for _, e := range s.Events() {
		if e.Reason != None {
			out[e.Seq] = e
		}
	}
	return out
}

// TestBadOutput: an answer of a wrong shape fails the step's rows, and nobody else.
func TestBadOutput(t *testing.T) {
	for want, out := range map[string]Output{
		"no tokens for row 0":              {},
		"1 tokens, 0 stops":                {Tokens: [][]int32{{1}}},
		"2 tokens, 3 stops":                {Tokens: [][]int32{{1}, {1}}, Stop: make([]int, 3)},
		"2 tokens, 0 stops, 1 errors":      {Tokens: [][]int32{{1}, {1}}, Errs: make([]error, 1)},
		"2 tokens for row 1 of 1 samples":  {Tokens: [][]int32{{1}, {1, 2}}},
		"no tokens for row 0 of 2 samples": {},
	} {
		s, pool := newScheduler(t, Limits{})
		x, y, other := submit(t, s, "a", 5, 3), submit(t, s, "a", 5, 3), submit(t, s, "b", 5, 3)
		want = strings.TrimSuffix(want, " of 2 samples")
		s.Commit(s.Plan(time.Time{}), out, nil, time.Time{})
		got := finals(s)
		for _, seq := range []*Sequence{x, y} {
			if e := got[seq]; e.Reason != Failed || !strings.Contains(fmt.Sprint(e.Err), want) {
				t.Errorf("got %v %v, want failed with %q", e.Reason, e.Err, want)
			}
		}
		if other.Done() || pool.Stats().Models[0].Live != 0 {
			t.Error("others were hurt, or blocks are left")
		}
	}
}

// TestNoTokens: a device that never yields a token fails the sequence and does not spin for ever.
func TestNoTokens(t *testing.T) {
	s, _ := newScheduler(t, Limits{})
	seq := submit(t, s, "a", 5, 3)
	for range maxBarren {
		if seq.Done() {
			t.Fatal("failed too early")
		}
		s.Commit(s.Plan(time.Time{}), Output{Tokens: [][]int32{nil}}, nil, time.Time{})
	}
	if e := finals(s)[seq]; e.Reason != Failed || e.Err == nil {
		t.Fatalf("got %+v", e)
	}
}

// TestPromptOnly: MaxTokens 0 computes the prompt, samples nothing and ends.
func TestPromptOnly(t *testing.T) {
	s, _ := newScheduler(t, Limits{})
	seq := submit(t, s, "a", 70, 0)
	for range 2 {
		p := s.Plan(time.Time{})
		if p.Rows[0].Samples != 0 {
			t.Fatalf("row %+v", p.Rows[0])
		}
		s.Commit(p, Output{}, nil, time.Time{})
	}
	if e := finals(s)[seq]; e.Reason != Length || len(e.Tokens) != 0 {
		t.Fatalf("got %+v", e)
	}
}

// TestRemoveModel: its sequences fail, those in flight too, and its cache can be closed.
func TestRemoveModel(t *testing.T) {
	s, pool := newScheduler(t, Limits{})
	x, y := submit(t, s, "a", 60, 3), submit(t, s, "b", 5, 1)
	p := s.Plan(time.Time{})
	gone := errors.New("unloaded")
	cache := s.queue("a").Cache
	s.RemoveModel("a", gone)
	if e := finals(s)[x]; e.Reason != Failed || e.Err != gone || e.Row != -1 || !p.Void(0) {
		t.Fatalf("got %+v", e)
	}
	cache.Close()
	s.Commit(p, Output{}, nil, time.Time{})
	if err := s.Submit(time.Time{}, &Sequence{Model: "a", Prompt: []int32{1}}); !errors.Is(err, ErrUnknownModel) {
		t.Fatalf("got %v", err)
	}
	s.Commit(s.Plan(time.Time{}), Output{Tokens: [][]int32{{1}}}, nil, time.Time{})
	if e := finals(s)[y]; e.Reason != Length || pool.Verify() != nil || !s.Idle() {
		t.Fatalf("got %+v, %v", e, pool.Verify())
	}
}

func TestSubmitRefuses(t *testing.T) {
	s, _ := newScheduler(t, Limits{})
	used := submit(t, s, "a", 5, 3)
	for want, seqs := range map[string][]*Sequence{
		"submitted twice": {used},
		"no tokens":       {{Model: "a", MaxTokens: 3}},
		"negative":        {{Model: "a", Prompt: []int32{1}, MaxTokens: -1}},
		"a prompt of 1 tokens and max_tokens 9223372036854775807": {{Model: "a", Prompt: []int32{1}, MaxTokens: 1<<63 - 1}},
		"two models": {{Model: "a", Prompt: []int32{1}}, {Model: "b", Prompt: []int32{1}}},
	} {
		if err := s.Submit(time.Time{}, seqs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if n := len(s.queue("a").waiting); n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
}

// TestAllOrNone: a request whose last sequence has no place leaves none behind.
func TestAllOrNone(t *testing.T) {
	s, _ := newScheduler(t, Limits{})
	submit(t, s, "a", 5, 3)
	var seqs []*Sequence
	for range 8 {
		seqs = append(seqs, &Sequence{Model: "a", Prompt: []int32{1}, MaxTokens: 1})
	}
	if err := s.Submit(time.Time{}, seqs...); !errors.Is(err, ErrOverCapacity) || len(s.queue("a").waiting) != 1 {
		t.Fatalf("got %v, %d wait", err, len(s.queue("a").waiting))
	}
	if err := s.Submit(time.Time{}, seqs[1:]...); err != nil { // a refused sequence may come again
		t.Fatal(err)
	}
}

// TestRetryAfterGrows: callers refused one after another are told to come back one after another.
func TestRetryAfterGrows(t *testing.T) {
	s, _ := newScheduler(t, Limits{})
	now := time.Unix(0, 0)
	for range 8 {
		submit(t, s, "a", 5, 100)
	}
	for range 20 { // steps of 100 ms: the four that run take 8 s more
		p := s.Plan(now)
		out := Output{Tokens: make([][]int32, len(p.Rows))}
		for i := range out.Tokens {
			out.Tokens[i] = []int32{1}
		}
		now = now.Add(100 * time.Millisecond)
		s.Commit(p, out, nil, now)
	}
	var got []string
	for range 5 {
		var over *OverCapacity
		if err := s.Submit(now, &Sequence{Model: "a", Prompt: []int32{1}}); !errors.As(err, &over) {
			t.Fatal(err)
		}
		got = append(got, over.RetryAfter.Round(100*time.Millisecond).String())
	}
	if want := "[8s 10s 12s 14s 16s]"; fmt.Sprint(got) != want {
		t.Fatalf("got %v, want %s", got, want)
	}
}

// TestAwaitDraft: a sequence whose drafts come after the token in flight has no row until that has come, and then one with them; without
// drafts it goes on as any.
func TestAwaitDraft(t *testing.T) {
	s, _ := newScheduler(t, Limits{InFlight: 2})
	seq := submit(t, s, "a", 15, 40)
	seq.AwaitDraft() // nothing is in flight
	p := s.Plan(time.Time{})
	seq.AwaitDraft()
	seq.SetDraft([]int32{9}) // nor can it be said what follows what is not known
	if p := s.Plan(time.Time{}); p != nil {
		t.Fatalf("a row while drafts are awaited: %+v", p.Rows)
	}
	s.Commit(p, Output{Tokens: [][]int32{{1}}}, nil, time.Time{})
	seq.SetDraft([]int32{2, 3})
	p = s.Plan(time.Time{})
	if r := &p.Rows[0]; r.N != 3 || r.Drafts != 2 {
		t.Fatalf("row %+v", r)
	}
	seq.AwaitDraft() // no effect: a check of drafts is in flight
	s.Commit(p, Output{Tokens: [][]int32{{2, 3, 4}}}, nil, time.Time{})
	p = s.Plan(time.Time{})
	seq.AwaitDraft()
	s.Commit(p, Output{Tokens: [][]int32{{5}}}, nil, time.Time{})
	if p = s.Plan(time.Time{}); p == nil || p.Rows[0].N != 1 || p.Rows[0].Drafts != 0 {
		t.Fatalf("plan %+v", p)
	}
	if again := s.Plan(time.Time{}); again == nil || again.Rows[0].Start != p.Rows[0].Start+1 {
		t.Fatalf("plan %+v after one that had no drafts to wait for", again)
	}
}

// TestDrafts: a row yields as many tokens as were right, and the rest of its blocks come back.
func TestDrafts(t *testing.T) {
	s, pool := newScheduler(t, Limits{})
	seq := submit(t, s, "a", 15, 40)
	s.Commit(s.Plan(time.Time{}), Output{Tokens: [][]int32{{1}}}, nil, time.Time{})
	seq.SetDraft([]int32{2, 3, 4, 5, 6})
	p := s.Plan(time.Time{})
	r := &p.Rows[0]
	if id, known := r.Token(17); r.Start != 15 || r.N != 6 || r.Samples != 6 || r.Drafts != 5 || id != 3 || !known {
		t.Fatalf("row %+v", r)
	}
	if n := pool.Stats().Models[0].Live; n != 2 {
		t.Fatalf("%d live blocks for 21 positions", n)
	}
	s.Commit(p, Output{Tokens: [][]int32{{9}}}, nil, time.Time{})
	if n := pool.Stats().Models[0].Live; n != 1 || len(seq.Sampled()) != 2 {
		t.Fatalf("%d live blocks for 16 positions; sampled %v", n, seq.Sampled())
	}
	if p := s.Plan(time.Time{}); p.Rows[0].Start != 16 || p.Rows[0].N != 1 || p.Rows[0].Drafts != 0 {
		t.Fatalf("row %+v", p.Rows[0])
	}
}

func TestCommitOutOfOrder(t *testing.T) {
	s, _ := newScheduler(t, Limits{InFlight: 2})
	submit(t, s, "a", 80, 3)
	s.Plan(time.Time{})
	second := s.Plan(time.Time{})
	if second == nil || s.Plan(time.Time{}) != nil {
		t.Fatal("two plans may be in flight")
	}
	defer func() {
		if recover() == nil {
			t.Fatal("committed out of order")
		}
	}()
	s.Commit(second, Output{}, nil, time.Time{})
}

func TestBadModel(t *testing.T) {
	s, _ := newScheduler(t, Limits{})
	good := *s.queue("a")
	for want, change := range map[string]func(*Model){
		"added twice":      func(*Model) {},
		"no cache":         func(m *Model) { m.Name, m.Cache = "c", nil },
		"MaxSeqs 0":        func(m *Model) { m.Name, m.MaxSeqs = "c", 0 },
		"MaxBatchTokens 0": func(m *Model) { m.Name, m.MaxBatchTokens = "c", 0 },
		"Weight -1":        func(m *Model) { m.Name, m.Weight = "c", -1 },
	} {
		m := good.Model
		change(&m)
		if err := s.AddModel(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestNextDueWhileTheFirstIsSampled shows what the second token is due by before the first has come: nothing, when only
// the first was asked for in time.
func TestNextDueWhileTheFirstIsSampled(t *testing.T) {
	seq := &Sequence{sla: SLA{TTFT: time.Second}, came: time.Minute, pending: 1, soon: time.Minute + time.Second/2}
	if due := seq.nextDue(); due != never {
		t.Errorf("due at %s", due)
	}
	seq.sla.TPOT = time.Second / 4
	if due := seq.nextDue(); due != time.Minute+3*time.Second/4 {
		t.Errorf("due at %s", due)
	}
}
