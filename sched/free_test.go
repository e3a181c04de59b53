package sched

import (
	"math/rand/v2"
	"testing"
	"time"
)

// four models of which one stream takes a fifth of the device.
func fourModels(t *testing.T) *server {
	v := newServer(t, 8000, Limits{})
	for _, m := range []string{"a", "b", "c", "busy"} {
		v.model(Model{Name: m, MaxTokens: 8192, MaxBatchTokens: 2048, MaxSeqs: 64, MaxWaiting: 1000}, roofline(0.02, 1e-4, 2e-8, 0.001), 1)
	}
	return v
}

// What other models were asked for keeps nothing from the one that is in use now: not a single request long ago, and not a
// wave that has just passed.
func TestPassedDemand(t *testing.T) {
	sla := SLA{TTFT: 2 * time.Second, TPOT: 100 * time.Millisecond}
	served := func(before func(v *server, r *rand.Rand)) int {
		v := fourModels(t)
		before(v, rand.New(rand.NewPCG(5, 6)))
		clients := v.chat(rand.New(rand.NewPCG(7, 8)), "busy", 25, 20, sla)
		for _, c := range clients {
			c.at = c.at.Add(40 * time.Second)
		}
		v.run(200)
		n := 0
		for _, c := range clients {
			if c.met(sla) {
				n++
			}
		}
		return n
	}
	alone := served(func(*server, *rand.Rand) {})
	once := served(func(v *server, r *rand.Rand) {
		for _, m := range []string{"a", "b", "c"} {
			v.add(0, &Sequence{Model: m, Prompt: make([]int32, 50), MaxTokens: 20, SLA: sla})
		}
	})
	wave := served(func(v *server, r *rand.Rand) {
		for _, m := range []string{"a", "b", "c"} {
			for range 200 { // short answers: they have ended when the next model's begin
				v.add(34*r.Float64(), &Sequence{Model: m, Prompt: make([]int32, 50), MaxTokens: 30, SLA: sla})
			}
		}
	})
	t.Logf("in time: %d alone, %d after a request of each other model, %d after their waves", alone, once, wave)
	if once < alone*98/100 || wave < alone*90/100 {
		t.Errorf("in time: %d alone, %d after a request of each other model, %d after their waves", alone, once, wave)
	}
}

// Room is about how many requests are accepted at once, and nothing is free behind them.
func TestRoom(t *testing.T) {
	v := fourModels(t)
	sla := SLA{TTFT: 4 * time.Second, TPOT: 100 * time.Millisecond}
	ask := func(model string) error {
		return v.s.Submit(v.now, &Sequence{Model: model, Prompt: []int32{int32(len(v.clients)), 2, 3, 4}, MaxTokens: 50, SLA: sla})
	}
	for range 3 { // what comes is known by those that came
		v.add(0, &Sequence{Model: "busy", Prompt: make([]int32, 50), MaxTokens: 20, SLA: sla})
	}
	v.run(100)
	held, room, free, err := v.s.Room("busy", v.now)
	if err != nil || held != 0 || room < 1 || free < 0.5 {
		t.Fatalf("of an idle device: %d held, room for %d, %.2f free, %v", held, room, free, err)
	}
	accepted := 0
	for ask("busy") == nil {
		accepted++
	}
	after, left, _, _ := v.s.Room("busy", v.now)
	t.Logf("room for %d, %d accepted; %d held, room for %d", room, accepted, after, left)
	if room < accepted/2 || room > accepted*3/2+1 {
		t.Errorf("room for %d, %d accepted", room, accepted)
	}
	if after != accepted || left > 0 {
		t.Errorf("%d held, room for %d when the next was refused after %d", after, left, accepted)
	}
	if _, _, _, err := v.s.Room("nobody", v.now); err == nil {
		t.Error("a model that there is not has room")
	}
	v.s.Drain()
	if _, room, free, _ := v.s.Room("busy", v.now); room != 0 || free != 0 {
		t.Errorf("while draining: room for %d, %.2f free", room, free)
	}
}
