package engine

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
)

// A step that fails or panics fails the sequences it ran and nobody else.
func TestStepFailureFailsItsRowsOnly(t *testing.T) {
	for name, f := range map[string]func() error{
		"error": func() error { return errFault },
		"panic": func() error { panic("index out of range") },
	} {
		t.Run(name, func(t *testing.T) {
			flt := &fault{at: 9, f: f}
			e := openFake(t, nil, flt.before)
			var wg sync.WaitGroup
			answers := make([]answer, 12)
			for i := range answers {
				wg.Go(func() {
					answers[i] = gather(t, e, Request{Model: fakeNames[i%3], Prompt: []int32{int32(i), 7}, MaxTokens: 30, IgnoreEOS: true})[0]
				})
			}
			wg.Wait()
			models := map[int]int{}
			for i, a := range answers {
				want := fakeAnswer(uint64(i%3+1), []int32{int32(i), 7}, 30, true)
				if a.final.Finish == FinishError {
					models[i%3]++
					if !errors.Is(a.final.Err, ErrStep) {
						t.Errorf("stream %d: %v", i, a.final.Err)
					}
					want = want[:len(a.tokens)]
				}
				if !slices.Equal(a.tokens, want) {
					t.Errorf("stream %d: %v, want %v", i, a.tokens, want)
				}
			}
			if len(models) != 1 {
				t.Errorf("one step failed sequences of %d models: %v", len(models), models)
			}
			idle(t, e)
			if st := e.Stats(); st.StepErrors != 1 {
				t.Errorf("%d step errors counted", st.StepErrors)
			}
			if a := gather(t, e, Request{Model: "a", Prompt: []int32{5}, MaxTokens: 5, IgnoreEOS: true})[0]; !slices.Equal(a.tokens, fakeAnswer(1, []int32{5}, 5, true)) {
				t.Errorf("afterwards: %v", a.tokens)
			}
		})
	}
}

// A broken invariant of the scheduler fails every sequence, once each, and serving goes on.
func TestSchedulerPanicFailsAllAndRebuilds(t *testing.T) {
	var e *Engine
	accepted, steps := make(chan struct{}), 0
	e = openFake(t, nil, func() error {
		switch steps++; steps {
		case 1:
			<-accepted // so that the loop has all of them at step 2
		case 5:
			e.mu.Lock()
			e.sched = nil // Commit meets nothing
			e.mu.Unlock()
		}
		return nil
	})
	var open []iter.Seq[Event]
	for i := range 9 {
		events, err := e.Generate(context.Background(), Request{Model: fakeNames[i%3], Prompt: []int32{int32(i)}, MaxTokens: 300, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, events)
	}
	close(accepted)
	for i, events := range open {
		var tokens []int32
		var last Event
		finals := 0
		for ev := range events {
			for _, tok := range ev.Tokens {
				tokens = append(tokens, tok.ID)
			}
			if last = ev; ev.Finish != FinishNone {
				finals++
			}
		}
		if finals != 1 || last.Finish != FinishError || !errors.Is(last.Err, ErrStep) {
			t.Errorf("stream %d ended %d times, with %v, %v", i, finals, last.Finish, last.Err)
		}
		if want := fakeAnswer(uint64(i%3+1), []int32{int32(i)}, 300, true); !slices.Equal(tokens, want[:len(tokens)]) || len(tokens) != last.Usage.Completion {
			t.Errorf("stream %d: %v of %d counted, want %v", i, tokens, last.Usage.Completion, want[:len(tokens)])
		}
	}
	idle(t, e)
	if a := gather(t, e, Request{Model: "c", Prompt: []int32{5}, MaxTokens: 50})[0]; !slices.Equal(a.tokens, fakeAnswer(3, []int32{5}, 50, false)) {
		t.Errorf("afterwards: %v", a.tokens)
	}
}

// While the loop is blocked its heartbeat ages and Health says no; refusals still come at once.
func TestHealthWhenTheLoopIsBlocked(t *testing.T) {
	blocked, hold := make(chan struct{}), make(chan struct{})
	flt := &fault{at: 1, f: func() error { close(blocked); <-hold; return nil }}
	e := openFake(t, func(o *Options) { o.HeartbeatLimit = 20 * time.Millisecond }, flt.before)
	ctx, cancel := context.WithCancel(context.Background())
	events, err := e.Generate(ctx, Request{Model: "a", Prompt: []int32{1}})
	if err != nil {
		t.Fatal(err)
	}
	<-blocked
	for h := e.Health(); h.OK; h = e.Health() {
		time.Sleep(time.Millisecond)
	}
	if h := e.Health(); h.Reason == "" || h.Ready {
		t.Errorf("blocked: %+v", h)
	}
	cancel() // the caller of a blocked engine is not held
	finals := 0
	for ev := range events {
		if ev.Finish == FinishCancelled {
			finals++
		}
	}
	if finals != 1 {
		t.Errorf("%d final events", finals)
	}
	close(hold)
	idle(t, e)
	for h := e.Health(); !h.OK; h = e.Health() {
		e.signal()
		time.Sleep(time.Millisecond)
	}
}

func TestCloseAndDrain(t *testing.T) {
	e := openFake(t, nil, nil)
	long := Request{Model: "a", Prompt: []int32{1}, MaxTokens: 200, IgnoreEOS: true}
	events, err := e.Generate(context.Background(), long)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Drain(context.Background()); err != nil {
		t.Errorf("Drain: %v", err)
	}
	if _, err := e.Generate(context.Background(), long); !errors.Is(err, ErrClosed) {
		t.Errorf("after Drain: %v", err)
	}
	tokens := 0
	for ev := range events {
		tokens += len(ev.Tokens)
	}
	if tokens != 200 {
		t.Errorf("a drained request had %d of 200 tokens", tokens)
	}

	hold := make(chan struct{})
	flt := &fault{at: 3, f: func() error { <-hold; return nil }}
	e = openFake(t, nil, flt.before)
	var open []iter.Seq[Event]
	for range 5 {
		events, err := e.Generate(context.Background(), long)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, events)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain with an ended context: %v", err)
	}
	go close(hold)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for i, events := range open {
		finals := 0
		for ev := range events {
			if ev.Finish != FinishNone {
				finals++
				if ev.Finish != FinishError || !errors.Is(ev.Err, ErrClosed) {
					t.Errorf("stream %d ended with %v, %v", i, ev.Finish, ev.Err)
				}
			}
		}
		if finals != 1 {
			t.Errorf("stream %d: %d final events", i, finals)
		}
	}
	if _, err := e.Generate(context.Background(), long); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Logits that are not numbers fail their sequence and no other, not even of the same step.
func TestNaNFailsItsSequenceOnly(t *testing.T) {
	prompts := [][]int32{[]int32("one"), []int32("two"), []int32("three")}
	whole := fakeAnswer(1, prompts[1], 40, true)
	bad := fakeHash(1, append(slices.Clone(prompts[1]), whole[:20]...))
	e := openFake(t, func(o *Options) {
		load := o.loadModel
		o.loadModel = func(d kernels.Device, m *model) error {
			err := load(d, m)
			m.impl.(*fakeModel).nan = map[uint64]bool{bad: true}
			return err
		}
	}, nil)
	var wg sync.WaitGroup
	for i, prompt := range prompts {
		wg.Go(func() {
			a := gather(t, e, Request{Model: "a", Prompt: prompt, MaxTokens: 40, IgnoreEOS: true})[0]
			want, reason := fakeAnswer(1, prompt, 40, true), FinishLength
			if i == 1 {
				want, reason = whole[:20], FinishError
			}
			if !slices.Equal(a.tokens, want) || a.final.Finish != reason || (a.final.Err != nil) != (i == 1) {
				t.Errorf("stream %d: %d tokens, %v, %v", i, len(a.tokens), a.final.Finish, a.final.Err)
			}
		})
	}
	wg.Wait()
	idle(t, e)
}
