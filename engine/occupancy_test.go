package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestOccupancy: the map agrees with Stats, every accepted sequence is there with its progress, and afterwards none is.
func TestOccupancy(t *testing.T) {
	gate := make(chan struct{})
	e := openFake(t, nil, func() error { <-gate; return nil })
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i, name := range fakeNames[:2] {
		prompt := make([]int32, 40)
		for k := range prompt {
			prompt[k] = int32('a' + i)
		}
		events, err := e.Generate(ctx, Request{ID: fmt.Sprint("r", i), Model: name, Prompt: prompt, N: 2, MaxTokens: 3000, IgnoreEOS: true,
			SLA: SLA{TPOT: time.Hour}, Priority: 3})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range events {
			}
		})
	}
	for range 30 {
		gate <- struct{}{}
	}
	var o Occupancy
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		o = e.Occupancy()
		sampled := 0
		for _, s := range o.Sequences {
			if s.Sampled > 0 {
				sampled++
			}
		}
		if sampled == 4 {
			break
		}
		select {
		case gate <- struct{}{}:
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", o.Sequences)
		}
	}
	st := e.Stats()
	free, live, all := 0, 0, 0
	models := map[string]bool{}
	for _, r := range o.Pages {
		all += r.Pages
		switch r.Use {
		case FreePage:
			free += r.Pages
		case LivePage:
			live += r.Pages
			models[r.Model] = true
		}
	}
	if all != st.PagesTotal || free != st.PagesFree || live < st.PagesLive || len(models) != 2 || !models[fakeNames[0]] || !models[fakeNames[1]] {
		t.Errorf("%+v, %d pages, %d free, %d live; Stats has %d, %d, %d", o.Pages, all, free, live, st.PagesTotal, st.PagesFree, st.PagesLive)
	}
	if o.Plan.Pages != st.PagesTotal+1 || o.Plan.PageBytes != st.PageBytes {
		t.Errorf("plan %+v", o.Plan)
	}
	for i, s := range o.Sequences {
		if s.Request != fmt.Sprint("r", i/2) || s.Index != i%2 || s.Model != fakeNames[i/2] || s.Prompt != 40 || s.MaxTokens != 3000 || s.Priority != 3 {
			t.Errorf("sequence %d: %+v", i, s)
		}
		if !s.Running || s.Late || s.Computed < 40 || s.SLA.TPOT != time.Hour || s.FirstToken <= 0 || s.FirstToken > s.Since || s.Due < time.Minute {
			t.Errorf("sequence %d: %+v", i, s)
		}
	}
	cancel()
	close(gate)
	wg.Wait()
	idle(t, e)
	o = e.Occupancy()
	for _, r := range o.Pages {
		if r.Use == LivePage {
			t.Errorf("%+v at rest", r)
		}
	}
	if len(o.Sequences) > 0 {
		t.Errorf("%+v at rest", o.Sequences)
	}
}
