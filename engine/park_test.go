package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// oneAtATime leaves room for the weights of one fake model.
func oneAtATime(o *Options) { o.WeightMemory, o.minResident = 1500, 20*time.Millisecond }

func states(e *Engine) (all []string) {
	for _, m := range e.Models() {
		all = append(all, m.State)
	}
	return all
}

// What a parked model is asked waits for it, and is answered as if it had been there; others' answers go on
// and are not cut; nobody sees a step of a model whose weights are gone.
func TestModelsTakeTurns(t *testing.T) {
	for _, overlapped := range []bool{false, true} {
		var loads atomic.Int64
		e := openFake(t, func(o *Options) {
			oneAtATime(o)
			o.Overlap = &overlapped
			load := o.loadWeights
			o.loadWeights = func(d kernels.Device, m *model) (models.Model, error) {
				loads.Add(1)
				return load(d, m)
			}
		}, nil)
		if s := states(e); !slices.Equal(s, []string{"resident", "parked", "parked"}) {
			t.Fatalf("at first: %v", s)
		}
		if p := e.Plan(); p.WeightLimit != 1500 || p.Models[0].Parked || !p.Models[1].Parked || !strings.Contains(p.String(), "parked") {
			t.Errorf("%v", p)
		}
		var wg sync.WaitGroup
		for i, prompt := range randomPrompts(rand.New(rand.NewPCG(3, 1)), 12, 60) {
			wg.Go(func() {
				m := i % 3
				a := gather(t, e, Request{Model: fakeNames[m], Prompt: prompt, MaxTokens: 50, IgnoreEOS: true})[0]
				if want := fakeAnswer(uint64(m+1), prompt, 50, true); !slices.Equal(a.tokens, want) {
					t.Errorf("stream %d: %v, %v, want %v", i, a.tokens, a.final.Err, want)
				}
			})
		}
		wg.Wait()
		idle(t, e)
		if n := loads.Load(); n < 2 || n > 6 {
			t.Errorf("%d loads for three models that are asked for once each", n)
		}
		counted := int64(0)
		for _, m := range e.Stats().Models {
			counted += m.Loads
		}
		if counted != loads.Load() {
			t.Errorf("%d loads counted, %d were made", counted, loads.Load())
		}
	}
}

// A model that cannot be brought back fails those that wait for it, by its name, and nobody else; who comes
// later tries again.
func TestLoadFails(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	e := openFake(t, func(o *Options) {
		oneAtATime(o)
		load := o.loadWeights
		o.loadWeights = func(d kernels.Device, m *model) (models.Model, error) {
			if m.name() == "b" && broken.Load() {
				panic("a hostile file")
			}
			return load(d, m)
		}
	}, nil)
	ask := func(name string) answer {
		return gather(t, e, Request{Model: name, Prompt: []int32{7}, MaxTokens: 5, IgnoreEOS: true})[0]
	}
	if a := ask("b"); a.final.Finish != FinishError || !errors.Is(a.final.Err, ErrLoad) || !strings.Contains(a.final.Err.Error(), "model b") {
		t.Errorf("%v, %v", a.final.Finish, a.final.Err)
	}
	if err := e.LoadModel(t.Context(), "b"); !errors.Is(err, ErrLoad) {
		t.Errorf("LoadModel: %v", err)
	}
	for _, name := range []string{"a", "c"} {
		if a := ask(name); a.final.Finish != FinishLength {
			t.Errorf("%s beside it: %v, %v", name, a.final.Finish, a.final.Err)
		}
	}
	broken.Store(false)
	if a := ask("b"); !slices.Equal(a.tokens, fakeAnswer(2, []int32{7}, 5, true)) {
		t.Errorf("afterwards: %v, %v", a.tokens, a.final.Err)
	}
	idle(t, e)
}

// Models are loaded and unloaded on demand: when what runs has ended, or by force.
func TestLoadAndUnload(t *testing.T) {
	hold := make(chan struct{}, 1000)
	e := openFake(t, nil, func() error { <-hold; return nil })
	if s := states(e); !slices.Equal(s, []string{"resident", "resident", "resident"}) {
		t.Errorf("all fit: %v", s)
	}
	state := func(name string) string { m, _ := e.Model(name); return m.State }
	if err := e.UnloadModel(t.Context(), "b", false); err != nil || state("b") != "parked" {
		t.Errorf("unload: %v, %s", err, state("b"))
	}
	if err := e.UnloadModel(t.Context(), "b", true); err != nil || state("b") != "parked" {
		t.Errorf("unload again: %v, %s", err, state("b"))
	}
	if err := e.LoadModel(t.Context(), "b"); err != nil || state("b") != "resident" {
		t.Errorf("load: %v, %s", err, state("b"))
	}
	for _, f := range []func(string) error{
		func(n string) error { return e.LoadModel(t.Context(), n) },
		func(n string) error { return e.UnloadModel(t.Context(), n, true) },
	} {
		if err := f("nobody"); !errors.Is(err, ErrUnknownModel) {
			t.Errorf("%v", err)
		}
	}

	req := Request{Model: "a", Prompt: []int32{1}, MaxTokens: 20, IgnoreEOS: true}
	want := fakeAnswer(1, req.Prompt, 20, true)
	answers := make(chan answer, 2)
	go func() { answers <- gather(t, e, req)[0] }()
	hold <- struct{}{}
	unloaded := make(chan error, 1)
	for e.Stats().Models[0].GeneratedTokens == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { unloaded <- e.UnloadModel(t.Context(), "a", false) }()
	for range 100 {
		hold <- struct{}{}
	}
	if a := <-answers; !slices.Equal(a.tokens, want) {
		t.Errorf("an answer that ran was cut: %v, %v", a.tokens, a.final.Err)
	}
	if err := <-unloaded; err != nil || state("a") != "parked" {
		t.Errorf("unload beside an answer: %v, %s", err, state("a"))
	}
	if a := gather(t, e, req)[0]; !slices.Equal(a.tokens, want) || state("a") != "resident" {
		t.Errorf("a request brings it back: %v, %v", a.tokens, a.final.Err)
	}
	for len(hold) > 0 {
		<-hold
	}
	steps := e.Stats().Models[0].Steps
	go func() { answers <- gather(t, e, req)[0] }()
	for e.Stats().Models[0].Running == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { unloaded <- e.UnloadModel(t.Context(), "a", true) }()
	for e.Stats().Models[0].Running > 0 {
		time.Sleep(time.Millisecond)
	}
	for range 100 {
		hold <- struct{}{}
	}
	if a := <-answers; a.final.Finish != FinishError || !errors.Is(a.final.Err, ErrUnloaded) {
		t.Errorf("by force: %v, %v", a.final.Finish, a.final.Err)
	}
	if err := <-unloaded; err != nil || state("a") != "parked" {
		t.Errorf("by force: %v, %s", err, state("a"))
	}
	if n := e.Stats().Models[0].Steps - steps; n > 2 {
		t.Errorf("%d steps were made for an answer that was ended", n)
	}
	idle(t, e)
}

// A request says how long its model stays, until the next one.
func TestKeepAlive(t *testing.T) {
	forever := time.Duration(-1)
	now := time.Duration(0)
	e := openFake(t, func(o *Options) { o.Models[1].KeepAlive = &now }, nil)
	state := func(i int) string { return states(e)[i] }
	await := func(i int, want string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); state(i) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("model %d is %s, want %s", i, state(i), want)
			}
		}
	}
	await(1, "parked") // at once: nobody asked
	ask := func(i int, d *time.Duration) {
		gather(t, e, Request{Model: fakeNames[i], Prompt: []int32{1}, MaxTokens: 2, IgnoreEOS: true, KeepAlive: d})
	}
	ask(0, &now)
	await(0, "parked")
	ask(0, nil)
	ask(1, &forever)
	ask(2, nil)
	idle(t, e)
	if s := states(e); !slices.Equal(s, []string{"resident", "resident", "resident"}) {
		t.Errorf("%v", s)
	}
	ask(1, nil)
	await(1, "parked")

	// nor does it take a request to say so
	if err := e.KeepAlive(fakeNames[0], now); err != nil {
		t.Error(err)
	}
	await(0, "parked")
	if err := e.KeepAlive("none", now); !errors.Is(err, ErrUnknownModel) {
		t.Error(err)
	}
	ask(0, nil) // which says nothing of it
	idle(t, e)
	if state(0) != "resident" {
		t.Error(state(0))
	}

	// Loaded by hand it leaves soon as well, but who asked for that has an answer, and a request finds it.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.LoadModel(ctx, "b"); err != nil || state(1) != "resident" {
		t.Errorf("load: %v, %s", err, state(1))
	}
	await(1, "parked")
}

// A load that waits for room ends when the model is unloaded, as does the other way round, and outlives a scheduler that breaks.
func TestLoadWaitsForRoom(t *testing.T) {
	hold := make(chan struct{}, 1000)
	e := openFake(t, oneAtATime, func() error { <-hold; return nil })
	defer func() { // whatever runs has steps enough to end
		for len(hold) < cap(hold) {
			hold <- struct{}{}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answers := make(chan answer, 1)
	busy := func() {
		t.Helper()
		go func() {
			answers <- gather(t, e, Request{Model: "a", Prompt: []int32{1}, MaxTokens: 300, IgnoreEOS: true})[0]
		}()
		for e.Stats().Models[0].Running == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	loaded := make(chan error, 1)
	load := func() {
		t.Helper()
		go func() { loaded <- e.LoadModel(ctx, "b") }()
		for asked := false; !asked; time.Sleep(time.Millisecond) {
			_ = e.under(func() { asked = e.byName["b"].loading })
		}
	}
	busy()
	load()
	if err := e.UnloadModel(ctx, "b", false); err != nil {
		t.Errorf("unload: %v", err)
	}
	if err := <-loaded; err != nil || states(e)[1] != "parked" {
		t.Errorf("a load that was taken back: %v, %v", err, states(e))
	}
	go func() { loaded <- e.UnloadModel(ctx, "a", false) }()
	for asked := false; !asked; time.Sleep(time.Millisecond) {
		_ = e.under(func() { asked = e.byName["a"].unloading })
	}
	if err := e.LoadModel(ctx, "a"); err != nil {
		t.Errorf("load: %v", err)
	}
	if err := <-loaded; err != nil || states(e)[0] != "resident" {
		t.Errorf("an unload that was taken back: %v, %v", err, states(e))
	}
	load()
	_ = e.under(func() { panic("broken") })
	hold <- struct{}{} // the step that runs
	hold <- struct{}{}
	if a := <-answers; !errors.Is(a.final.Err, ErrStep) {
		t.Errorf("%v", a.final.Err)
	}
	if err := <-loaded; err != nil {
		t.Errorf("a load beside a scheduler that broke: %v", err)
	}
}

// While weights move, a client may go, the engine may close and the scheduler may break.
func TestWhileWeightsMove(t *testing.T) {
	open := func(t *testing.T) (e *Engine, loading, proceed chan struct{}) {
		loading, proceed = make(chan struct{}, 100), make(chan struct{})
		e = openFake(t, func(o *Options) {
			oneAtATime(o)
			load := o.loadWeights
			o.loadWeights = func(d kernels.Device, m *model) (models.Model, error) {
				loading <- struct{}{}
				<-proceed
				return load(d, m)
			}
		}, nil)
		return e, loading, proceed
	}
	b := Request{Model: "b", Prompt: []int32{9}, MaxTokens: 4, IgnoreEOS: true}
	want := fakeAnswer(2, b.Prompt, 4, true)
	t.Run("gone", func(t *testing.T) {
		e, loading, proceed := open(t)
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			events, err := e.Generate(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 { // from then on it is loading
				<-loading
			}
			cancel()
			for ev := range events {
				if ev.Finish != FinishCancelled {
					t.Errorf("%+v", ev)
				}
			}
		}
		close(proceed)
		if a := gather(t, e, b)[0]; !slices.Equal(a.tokens, want) {
			t.Errorf("%v, %v", a.tokens, a.final.Err)
		}
		idle(t, e)
		if st := e.Stats().Models[1]; st.PromptTokens != 1 || st.Finished[FinishCancelled] != 20 {
			t.Errorf("%d prompt tokens ran, %d cancelled", st.PromptTokens, st.Finished[FinishCancelled])
		}
	})
	t.Run("closed", func(t *testing.T) {
		e, loading, proceed := open(t)
		answers := make(chan answer, 1)
		go func() { answers <- gather(t, e, b)[0] }()
		<-loading
		closed := make(chan error, 1)
		go func() { closed <- e.Close() }()
		if a := <-answers; !errors.Is(a.final.Err, ErrClosed) {
			t.Errorf("%v", a.final.Err)
		}
		close(proceed)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
	t.Run("scheduler panic", func(t *testing.T) {
		e, loading, proceed := open(t)
		answers := make(chan answer, 1)
		go func() { answers <- gather(t, e, b)[0] }()
		<-loading
		_ = e.under(func() { panic("broken") })
		if a := <-answers; !errors.Is(a.final.Err, ErrStep) {
			t.Errorf("%v", a.final.Err)
		}
		close(proceed)
		for i, name := range []string{"c", "b", "a"} {
			a := gather(t, e, Request{Model: name, Prompt: []int32{9}, MaxTokens: 4, IgnoreEOS: true})[0]
			if !slices.Equal(a.tokens, fakeAnswer(uint64(3-i), []int32{9}, 4, true)) {
				t.Errorf("%s afterwards: %v, %v", name, a.tokens, a.final.Err)
			}
		}
		idle(t, e)
	})
}

// One runs and two wait, also when their model is parked: of ten at once seven are refused while its weights
// are still on their way, and every caller has an answer.
func TestQueueLimitOfAParkedModel(t *testing.T) {
	proceed := make(chan struct{})
	e := openFake(t, func(o *Options) {
		oneAtATime(o)
		o.MaxNumSeqs, o.MaxWaiting = 1, 2
		load := o.loadWeights
		o.loadWeights = func(d kernels.Device, m *model) (models.Model, error) {
			<-proceed
			return load(d, m)
		}
	}, nil)
	var accepted, refused atomic.Int64
	var all, decided sync.WaitGroup
	for range 10 {
		decided.Add(1)
		all.Go(func() {
			events, err := e.Generate(t.Context(), Request{Model: "b", Prompt: []int32{1, 2}, MaxTokens: 2, IgnoreEOS: true})
			decided.Done()
			var over *OverCapacityError
			switch {
			case err == nil:
				accepted.Add(1)
				for ev := range events {
					if ev.Finish == FinishError {
						t.Errorf("%v", ev.Err)
					}
				}
			case errors.As(err, &over) && over.RetryAfter >= time.Second:
				refused.Add(1)
			default:
				t.Errorf("%v", err)
			}
		})
	}
	decided.Wait() // nobody's answer waits for the weights
	if err := e.Admit(Request{Model: "b"}); !errors.Is(err, ErrOverCapacity) {
		t.Errorf("before tokenising: %v", err)
	}
	if err := e.Admit(Request{Model: "a"}); err != nil {
		t.Errorf("another model's queue is its own: %v", err)
	}
	close(proceed)
	all.Wait()
	if accepted.Load() != 3 || refused.Load() != 7 || e.Stats().Models[1].RefusedFull != 8 {
		t.Errorf("%d accepted, %d refused, %d counted, want 3, 7 and one probe more", accepted.Load(), refused.Load(), e.Stats().Models[1].RefusedFull)
	}
	idle(t, e)
}

// A request whose first token is predicted to come too late is refused at once, with the prediction, while the
// step that it would wait for still runs; one that asks for nothing waits.
func TestRefusedForItsSLA(t *testing.T) {
	hold := make(chan struct{}, 1)
	e := openFake(t, nil, func() error { <-hold; time.Sleep(5 * time.Millisecond); return nil })
	req := Request{Model: "a", Prompt: make([]int32, 200), MaxTokens: 20, IgnoreEOS: true}
	answered := make(chan answer, 2)
	go func() { answered <- gather(t, e, req)[0] }() // what is seen of steps' times
	for range 30 {
		select {
		case hold <- struct{}{}:
		case a := <-answered:
			answered <- a
		}
	}
	<-answered
	for len(hold) > 0 {
		<-hold
	}
	go func() { answered <- gather(t, e, req)[0] }()
	for e.Stats().Models[0].Running == 0 {
		time.Sleep(time.Millisecond)
	}
	late := req
	late.SLA.TTFT = time.Millisecond
	_, err := e.Generate(t.Context(), late)
	var over *OverCapacityError
	if !errors.As(err, &over) || over.Target != time.Millisecond || over.Predicted <= over.Target || over.RetryAfter < time.Second || over.Model != "a" {
		t.Errorf("%v, %+v", err, over)
	}
	tight := req
	tight.SLA.TPOT = time.Microsecond
	_, err = e.Generate(t.Context(), tight)
	if !errors.As(err, &over) || over.Target != 0 || over.Predicted <= 0 || !strings.Contains(err.Error(), "time per token") {
		t.Errorf("%v, %+v", err, over)
	}
	if st := e.Stats().Models[0]; st.RefusedSLA != 2 || st.RefusedFull != 0 {
		t.Errorf("%d refused for their SLA, %d for the queue", st.RefusedSLA, st.RefusedFull)
	}
	late.SLA.TTFT = time.Hour
	go func() { answered <- gather(t, e, late)[0] }()
	for range 2 {
		for done := false; !done; {
			select {
			case hold <- struct{}{}:
			case a := <-answered:
				if done = true; a.final.Finish != FinishLength {
					t.Errorf("%v, %v", a.final.Finish, a.final.Err)
				}
			}
		}
	}
	late.SLA.TTFT = -1
	if _, err := e.Generate(t.Context(), late); !errors.Is(err, ErrInvalid) {
		t.Errorf("a negative target: %v", err)
	}
}
