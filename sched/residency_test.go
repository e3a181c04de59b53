package sched

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// residencies is where each model is, by the first letter; R resident, P parked, l loading, p parking.
func (m *machine) residencies() string {
	var b strings.Builder
	for _, q := range m.s.queues {
		b.WriteString(q.Name + [...]string{"R", "p", "P", "l"}[q.weights.state] + " ")
	}
	return strings.TrimSpace(b.String())
}

func (m *machine) expect(want string) {
	m.t.Helper()
	m.settle()
	if got := m.residencies(); got != want {
		m.t.Fatalf("at %s: %s, want %s", since(m.now), got, want)
	}
}

func parked(d *Model) { d.Parked = true }

// TestPingPong has two models that do not fit together asked for alternately for two minutes: by a client that waits
// for each answer, and by clients that do not.
func TestPingPong(t *testing.T) {
	const stay = 2 * time.Second
	names := [...]string{"a", "b"}
	for _, inFlight := range []int{1, 2} {
		for _, open := range []time.Duration{0, 30 * time.Millisecond, 400 * time.Millisecond} {
			t.Run(fmt.Sprint(open, " in flight ", inFlight), func(t *testing.T) {
				m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10, MinResident: stay, InFlight: inFlight})
				m.verify = open != 30*time.Millisecond // long queues
				m.model("a", 10, nil)
				m.model("b", 10, parked)
				var ended [2]int
				n := 0
				next := func() { m.submit(names[n%2], 20, 12); n++ }
				m.event = func(e Event) {
					if e.Reason == None {
						return
					}
					if e.Reason != Length {
						t.Fatalf("%s: %v", e.Reason, e.Err)
					}
					ended[slices.Index(names[:], e.Seq.Model)]++
					if open == 0 && m.now.Before(start.Add(2*time.Minute)) {
						next()
					}
				}
				if open == 0 {
					m.after(0, next)
				}
				for d := open; open > 0 && d < 2*time.Minute; d += open {
					m.after(d, next)
				}
				for k := range 12 {
					before := ended
					m.run(time.Duration(k+1) * 10 * time.Second)
					if ended[0] == before[0] || ended[1] == before[1] {
						t.Fatalf("no progress from %d to %d s: %v after %v", 10*k, 10*k+10, ended, before)
					}
				}
				if most := int(2*time.Minute/stay) + 2; m.switches > most {
					t.Fatalf("%d switches, more than %d", m.switches, most)
				}
				m.run(time.Hour)
				if ended[0]+ended[1] != n || !m.s.Idle() {
					t.Fatalf("%v of %d requests ended", ended, n)
				}
			})
		}
	}
}

// TestIdleModelsGoFirst shows who makes room, and that one that is not needed stays.
func TestIdleModelsGoFirst(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
	for i, bytes := range []int64{2, 3, 5} {
		m.model(string(rune('a'+i)), bytes, nil)
	}
	m.model("d", 2, parked)
	m.model("e", 5, parked)
	m.model("f", 10, parked)
	for i, name := range []string{"c", "b", "a"} { // a was used last
		m.after(time.Duration(i)*time.Second, func() { m.submit(name, 4, 2) })
	}
	m.run(10 * time.Second)
	m.submit("d", 4, 2)
	m.expect("aR bR cp dl eP fP")
	m.run(20 * time.Second)
	m.expect("aR bR cP dR eP fP")
	m.submit("e", 4, 2) // b alone, used before a, is enough with what is free
	m.expect("aR bp cP dR el fP")
	m.run(30 * time.Second)
	m.submit("f", 4, 2)
	m.expect("ap bP cP dp ep fl")
	m.run(40 * time.Second)
	m.submit("c", 4, 2)
	m.submit("a", 4, 2)
	m.run(50 * time.Second)
	m.expect("aR bP cR dP eP fP")
	if !m.s.Idle() {
		t.Fatal("not idle")
	}
}

// TestNobodyIsCut shows that a busy model stays until its answers are complete, takes no new ones meanwhile, and that
// those come with its next turn.
func TestNobodyIsCut(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10, MinResident: time.Second})
	m.model("a", 10, nil)
	m.model("b", 10, parked)
	var order []string
	label := map[*Sequence]string{}
	m.event = func(e Event) {
		if e.Reason != None {
			order = append(order, fmt.Sprint(label[e.Seq], " ", since(m.now)))
		}
	}
	label[m.submit("a", 10, 300)] = "long" // 3 s
	m.after(500*time.Millisecond, func() { label[m.submit("b", 10, 5)] = "other" })
	m.after(600*time.Millisecond, func() { label[m.submit("a", 10, 5)] = "late" })
	m.run(time.Minute)
	// A step takes 10 ms, a load 100. b stays for a second, less the one that is had in advance; then its caller is
	// given an eighth of one, from its last step on, to ask again.
	want := []string{"long 3.000", "other 3.150", "late 3.415"}
	if !slices.Equal(order, want) {
		t.Fatalf("got %v, want %v", order, want)
	}
}

// TestFailedLoad shows that those who wait fail once, with the error, and that the next one tries again.
func TestFailedLoad(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
	m.model("a", 10, nil)
	m.model("b", 10, parked)
	broken := errors.New("disk")
	loads := map[string]int{}
	m.load = func(name string) (time.Duration, error) {
		loads[name]++
		if name == "b" && loads[name] == 1 {
			return 100 * time.Millisecond, broken
		}
		return 100 * time.Millisecond, nil
	}
	final := map[*Sequence]Event{}
	m.event = func(e Event) {
		if e.Reason == None {
			return
		}
		if _, twice := final[e.Seq]; twice {
			t.Fatal("two final events")
		}
		final[e.Seq] = e
	}
	x := m.submit("b", 4, 3)
	var y, z *Sequence
	m.after(50*time.Millisecond, func() { y = m.submit("b", 4, 3) }) // while it is loading
	m.after(60*time.Millisecond, func() { z = m.submit("a", 4, 3) })
	m.run(10 * time.Second)
	m.expect("aR bP")
	for _, seq := range []*Sequence{x, y} {
		if e := final[seq]; e.Reason != Failed || !errors.Is(e.Err, broken) {
			t.Fatalf("%+v", e)
		}
	}
	if final[z].Reason != Length {
		t.Fatalf("%+v", final[z])
	}
	w := m.submit("b", 4, 3)
	m.run(20 * time.Second)
	if final[w].Reason != Length || loads["b"] != 2 {
		t.Fatalf("%+v after %d loads", final[w], loads["b"])
	}
	for _, st := range m.s.Stats() {
		if want := map[string][2]uint64{"a": {1, 2}, "b": {1, 0}}[st.Model]; st.Loads != want[0] || st.Parks != want[1] {
			t.Errorf("%s: %d loads, %d parks, want %v", st.Model, st.Loads, st.Parks, want)
		}
		if want := map[string]float64{"a": 0.1, "b": 0.2}[st.Model]; st.LoadSeconds < want-1e-6 || st.LoadSeconds > want+1e-6 {
			t.Errorf("%s: loading for %g s, want %g", st.Model, st.LoadSeconds, want)
		}
	}
}

// TestIdleTimeOut shows when a model without work is parked, and that Load begins the time anew.
func TestIdleTimeOut(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{})
	m.model("a", 10, func(d *Model) { d.KeepAlive = 5 * time.Second })
	m.model("b", 10, nil)
	m.submit("a", 4, 100) // ends at 1 s
	m.submit("b", 4, 1)
	m.run(500 * time.Millisecond) // a is at work: its time has not begun
	if at := m.s.ParkAt("a", m.now); !at.Equal(m.now.Add(5*time.Second)) || !m.s.ParkAt("b", m.now).IsZero() {
		t.Errorf("a is parked at %v, now it is %v; b %v", at, m.now, m.s.ParkAt("b", m.now))
	}
	m.run(5990 * time.Millisecond)
	m.expect("aR bR")
	if left := m.s.ParkAt("a", m.now).Sub(m.now); left <= 0 || left > 30*time.Millisecond {
		t.Errorf("a is parked in %v", left)
	}
	m.run(6020 * time.Millisecond)
	m.expect("aP bR")
	if at := m.s.ParkAt("a", m.now); !at.IsZero() {
		t.Errorf("a, which is parked, is parked at %v", at)
	}
	if err := m.s.Load("a", m.now); err != nil {
		t.Fatal(err)
	}
	m.run(7 * time.Second)
	m.expect("aR bR")
	if err := m.s.Load("a", m.now); err != nil { // at 7 s
		t.Fatal(err)
	}
	m.run(11990 * time.Millisecond)
	m.expect("aR bR")
	m.run(13 * time.Second)
	m.expect("aP bR")
	if err := m.s.KeepAlive("b", 0); err != nil {
		t.Fatal(err)
	}
	m.expect("aP bp")
	m.submit("b", 4, 1)
	m.run(14 * time.Second)
	m.expect("aP bP")
	if err := m.s.KeepAlive("b", -1); err != nil {
		t.Fatal(err)
	}
	seq := m.submit("b", 4, 1)
	m.run(time.Hour)
	m.expect("aP bR")
	if !seq.Done() {
		t.Fatal("not done")
	}
}

// TestTurnedAwayComesAgain has a request refused as its model is parked, which is loaded for who comes again and is there
// a moment later, although its idle time is 0. So it is when it was loaded by hand.
func TestTurnedAwayComesAgain(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
	m.model("a", 10, nil)
	m.model("b", 10, func(d *Model) {
		d.Parked = true
		for _, n := range []int{1, 16, 64, 256} {
			d.Prior = append(d.Prior, Observation{Work{Rows: 1, Tokens: n, Samples: 1}, 0.01})
		}
	})
	if err := m.s.KeepAlive("b", 0); err != nil {
		t.Fatal(err)
	}
	sla := SLA{TTFT: 90 * time.Millisecond} // a load takes 100
	var over *OverCapacity
	if err := m.s.Check(m.now, "b", 1, 4, sla, ""); !errors.As(err, &over) || over.Predicted < over.Target {
		t.Fatal(err)
	}
	m.run(over.RetryAfter + 200*time.Millisecond)
	m.expect("aP bR")
	if err := m.s.Check(m.now, "b", 1, 4, sla, ""); err != nil {
		t.Error(err)
	}
	m.run(5 * time.Second)
	m.expect("aP bP")
	if err := m.s.Load("b", m.now); err != nil {
		t.Fatal(err)
	}
	m.run(6500 * time.Millisecond)
	m.expect("aP bR")
	m.run(10 * time.Second)
	m.expect("aP bP")
}

// TestPark shows the two ways of unloading by hand.
func TestPark(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 20})
	m.model("a", 10, func(d *Model) { d.MaxSeqs = 1 })
	m.model("b", 10, nil)
	var ends []string
	m.event = func(e Event) {
		if e.Reason != None {
			ends = append(ends, fmt.Sprint(e.Seq.Model, " ", e.Reason, " ", since(m.now)))
		}
	}
	m.submit("a", 4, 100)
	m.submit("a", 4, 10)
	m.after(500*time.Millisecond, func() {
		if err := m.s.Park("a", nil, m.now); err != nil {
			t.Fatal(err)
		}
	})
	m.run(1005 * time.Millisecond)
	m.expect("al bR") // parked, and the one that waits brings it back
	m.run(10 * time.Second)
	m.expect("aR bR")
	gone := errors.New("unloaded")
	m.submit("b", 4, 100)
	m.submit("b", 4, 100)
	m.run(10100 * time.Millisecond)
	if err := m.s.Park("b", gone, m.now); err != nil {
		t.Fatal(err)
	}
	m.run(11 * time.Second)
	m.expect("aR bP")
	want := []string{"a length 1.000", "a length 1.200", "b failed 10.100", "b failed 10.100"}
	if !slices.Equal(ends, want) {
		t.Fatalf("got %v, want %v", ends, want)
	}
	if err := m.s.Park("c", nil, m.now); !errors.Is(err, ErrUnknownModel) {
		t.Fatal(err)
	}
	if err := m.s.Load("c", m.now); !errors.Is(err, ErrUnknownModel) {
		t.Fatal(err)
	}
	if err := m.s.KeepAlive("c", 0); !errors.Is(err, ErrUnknownModel) {
		t.Fatal(err)
	}
}

// TestLoadWaitsForRoom shows that a load by hand lets busy models be.
func TestLoadWaitsForRoom(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
	m.model("a", 10, nil)
	m.model("b", 10, parked)
	m.submit("a", 4, 3000)
	if err := m.s.Load("b", m.now); err != nil {
		t.Fatal(err)
	}
	m.run(20 * time.Second)
	m.expect("aR bP")
	m.run(40 * time.Second)
	m.expect("aP bR")
}

// TestLoadBeside shows that a small model does not wait behind a big one for which there is no room yet, when it
// fits beside it.
func TestLoadBeside(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
	m.model("a", 6, nil)
	m.model("big", 7, parked)
	m.model("small", 3, parked)
	m.model("less", 4, parked)
	m.submit("a", 4, 3000)
	m.expect("aR bigP smallP lessP")
	m.submit("big", 4, 30)
	m.expect("aR bigP smallP lessP")
	m.submit("less", 4, 3) // fits now, but then big would not
	m.expect("aR bigP smallP lessP")
	m.submit("small", 4, 3)
	m.expect("aR bigP smalll lessP")
	m.run(29 * time.Second)
	m.expect("aR bigP smallR lessP")
	m.run(30200 * time.Millisecond)
	m.expect("aP bigR smallR lessP")
	m.run(time.Minute)
	if !m.s.Idle() {
		t.Fatal(m.residencies())
	}
}

// TestDeadlinesChoose shows that of two models the one with less time is brought first, and that it is passed by
// such a number of times at most.
func TestDeadlinesChoose(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10, MinResident: time.Second})
	m.model("a", 10, nil)
	m.model("b", 10, parked)
	for i := range maxPassed + 2 {
		m.model(fmt.Sprint("u", i), 10, func(d *Model) { d.Parked, d.SLA = true, SLA{TTFT: time.Minute} })
	}
	var firsts []string
	m.event = func(e Event) {
		if e.Reason != None {
			firsts = append(firsts, e.Seq.Model)
		}
	}
	m.submit("a", 4, 100)
	m.settle()
	m.submit("b", 4, 1)
	m.settle()
	for i := range maxPassed + 2 {
		m.after(time.Duration(i+1)*time.Millisecond, func() { m.submit(fmt.Sprint("u", i), 4, 1) })
	}
	// room for b is being made already; without that the others would come before it
	m.run(time.Minute)
	if want := []string{"a", "b", "u0", "u1", "u2", "u3", "u4", "u5"}; !slices.Equal(firsts, want) {
		t.Fatalf("%v", firsts)
	}
	firsts = nil
	m.after(time.Minute, func() {
		m.submit("b", 4, 1)
		for i := range maxPassed + 2 {
			m.submit(fmt.Sprint("u", i), 4, 1)
		}
	})
	m.run(2 * time.Minute)
	if want := []string{"u5", "u0", "u1", "u2", "u3", "b", "u4"}; !slices.Equal(firsts, want) {
		t.Fatalf("%v", firsts)
	}
}

// TestLoadEarnsNoCredit shows that a model that comes back shares the device at once, and does not make up for the time
// that it was away.
func TestLoadEarnsNoCredit(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
	m.model("a", 5, nil)
	m.model("b", 5, parked)
	m.submit("a", 4, 4000)
	m.after(30*time.Second, func() { m.submit("b", 4, 500) })
	m.run(32 * time.Second)
	st := m.s.Stats()
	if b := st[1].DeviceTime; b < 900*time.Millisecond || b > 1000*time.Millisecond {
		t.Fatalf("b had %s of the 1.9 s that it shared", b)
	}
}

// TestHoldLeavesWithItsModel shows that nobody waits for a sequence whose model is not there.
func TestHoldLeavesWithItsModel(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(17), Limits{WeightBytes: 10, MaxOvertakes: 1}) // 64 blocks
	m.model("a", 5, nil)
	m.model("b", 5, nil)
	m.model("c", 5, parked)
	m.submit("a", 600, 400) // 38 blocks, and later all but one
	m.run(100 * time.Millisecond)
	big := m.submit("b", 800, 1) // 51 blocks
	m.submit("b", 4, 600)
	m.run(200 * time.Millisecond)
	if m.s.hold != big && m.s.queue("b").blocked != big {
		t.Fatal("nobody is blocked")
	}
	small := m.submit("a", 4, 1)
	if err := m.s.Park("b", nil, m.now); err != nil {
		t.Fatal(err)
	}
	m.run(300 * time.Millisecond)
	if !small.Done() {
		t.Fatal("a small sequence waits for a model that takes nobody")
	}
	m.run(time.Minute)
	if !big.Done() || big.Sampled() == nil || !m.s.Idle() {
		t.Fatal("the big one was forgotten")
	}
}

// TestOwed shows that a model does not leave before the sequence that it was brought for has begun.
func TestOwed(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(17), Limits{WeightBytes: 10, MinResident: 100 * time.Millisecond}) // 64 blocks
	m.model("a", 4, nil)
	m.model("b", 6, parked)
	m.model("c", 6, parked)
	m.submit("a", 600, 400) // for 4 s
	m.run(50 * time.Millisecond)
	big := m.submit("b", 800, 1)
	other := m.submit("c", 4, 1)
	m.run(2 * time.Second)
	m.expect("aR bR cP")
	m.run(time.Minute)
	if !big.Done() || !other.Done() || m.switches != 2 {
		t.Fatalf("%d switches", m.switches)
	}
}

// TestLoadWait compares what loadWait says with what then happens.
func TestLoadWait(t *testing.T) {
	for _, c := range []struct {
		name   string
		busy   int // tokens that the resident model has left
		ahead  bool
		within time.Duration
	}{
		{"room", -1, false, 0},
		{"idle", 0, false, 0},
		{"busy", 500, false, 300 * time.Millisecond},
		{"behind another", 500, true, 1200 * time.Millisecond},
	} {
		m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
		if c.busy >= 0 {
			m.model("a", 10, nil)
			if c.busy > 0 {
				m.submit("a", 4, c.busy)
			}
		}
		m.model("b", 10, parked)
		m.model("c", 10, parked)
		m.run(time.Second)
		if c.ahead {
			m.submit("c", 4, 300)
			m.run(1100 * time.Millisecond)
		}
		said := m.s.loadWait(m.s.queue("b"), m.now)
		var began time.Time
		seq := m.submit("b", 4, 1)
		at := m.now
		m.event = func(e Event) {
			if e.Seq == seq && began.IsZero() {
				began = m.now.Add(-10 * time.Millisecond)
			}
		}
		m.run(time.Minute)
		if took := began.Sub(at); (said - took).Abs() > c.within {
			t.Errorf("%s: said %s, took %s", c.name, said, took)
		}
		if w := m.s.loadWait(m.s.queue("b"), m.now); w != 0 {
			t.Errorf("%s: %s for a model that is there", c.name, w)
		}
	}
}

// TestWeightsThatDoNotFit shows what AddModel says.
func TestWeightsThatDoNotFit(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
	m.model("a", 6, nil)
	for _, d := range []Model{{Name: "b", WeightBytes: 5}, {Name: "b", WeightBytes: 11, Parked: true}, {Name: "b", WeightBytes: -1}} {
		c, err := m.s.pool.NewCache(kvcache.Config{Model: d.Name, BlocksPerPage: 1, Groups: []kvcache.Group{{BlockTokens: 16}}})
		if err != nil {
			t.Fatal(err)
		}
		d.Cache, d.MaxTokens, d.MaxBatchTokens, d.MaxSeqs = c, 10, 10, 10
		if err := m.s.AddModel(d); err == nil || !strings.Contains(err.Error(), "WeightBytes") {
			t.Errorf("%+v: %v", d.WeightBytes, err)
		}
		c.Close()
	}
	if n := len(m.s.queues); n != 1 {
		t.Fatal(n)
	}
}

// TestPrefixOutlivesParking shows that blocks computed before a model was parked are found after it came back.
func TestPrefixOutlivesParking(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(80), Limits{})
	m.model("a", 10, nil)
	first := m.submit("a", 100, 1)
	m.run(time.Second)
	if err := m.s.Park("a", nil, m.now); err != nil {
		t.Fatal(err)
	}
	m.expect("ap")
	m.run(2 * time.Second)
	m.expect("aP")
	again := &Sequence{Model: "a", Prompt: first.Prompt, MaxTokens: 1}
	if err := m.s.Submit(m.now, again); err != nil {
		t.Fatal(err)
	}
	m.run(3 * time.Second)
	if again.CachedTokens() != 96 {
		t.Fatalf("%d cached tokens", again.CachedTokens())
	}
}

// TestLeastOf takes no more than it needs.
func TestLeastOf(t *testing.T) {
	for _, c := range []struct {
		bytes []int64
		need  int64
		want  []int64
	}{
		{[]int64{1, 10}, 10, []int64{10}},
		{[]int64{3, 1, 2}, 5, []int64{3, 2}},
		{[]int64{3, 1, 2}, 4, []int64{3, 1}},
		{[]int64{3}, 4, nil},
		{nil, 0, nil},
	} {
		var out []*queue
		for _, b := range c.bytes {
			out = append(out, &queue{Model: Model{WeightBytes: b}})
		}
		out, ok := leastOf(out, c.need)
		var got []int64
		for _, q := range out {
			got = append(got, q.WeightBytes)
		}
		if !reflect.DeepEqual(got, c.want) || ok != (c.want != nil || c.need == 0) {
			t.Errorf("%v for %d: got %v %t, want %v", c.bytes, c.need, got, ok, c.want)
		}
	}
}

// TestVerifyFindsWeights shows that Verify recounts where weights are.
func TestVerifyFindsWeights(t *testing.T) {
	for want, tamper := range map[string]func(s *Scheduler){
		"bytes of weights":  func(s *Scheduler) { s.queue("b").weights.state = Resident },
		"is parked with 1":  func(s *Scheduler) { s.queue("a").weights.state = Parked },
		"is being moved":    func(s *Scheduler) { s.queue("b").weights.state = Loading },
		"leaves for nobody": func(s *Scheduler) { s.queue("a").weights.leaving = true },
		"but admits nobody": func(s *Scheduler) { s.queue("a").weights.unload, s.queue("a").blocked = true, &Sequence{} },
	} {
		m := newMachine(t, kvcache.NewPool(80), Limits{WeightBytes: 10})
		m.model("a", 10, nil)
		m.model("b", 10, parked)
		m.submit("a", 4, 10)
		m.run(20 * time.Millisecond)
		tamper(m.s)
		if err := m.s.verifyResidency(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestPreemptedWhileLeaving shows that a sequence preempted while its model makes room comes back with it, before those that
// came later, with the tokens that it has.
func TestPreemptedWhileLeaving(t *testing.T) {
	m := newMachine(t, kvcache.NewPool(9), Limits{WeightBytes: 10, MinResident: 100 * time.Millisecond}) // 32 blocks
	m.model("a", 10, nil)
	m.model("b", 10, parked)
	var order []string
	names := map[*Sequence]string{}
	submit := func(name, model string, prompt, max int) *Sequence {
		seq := m.submit(model, prompt, max)
		names[seq] = name
		return seq
	}
	m.event = func(e Event) {
		if e.Reason != None {
			order = append(order, names[e.Seq]+" "+e.Reason.String())
		}
	}
	submit("old", "a", 160, 320) // 30 blocks in the end
	young := submit("young", "a", 160, 200)
	m.run(200 * time.Millisecond)
	submit("other", "b", 4, 5)
	submit("late", "a", 4, 5)
	m.run(500 * time.Millisecond)
	if m.expect("aR bP"); !m.s.queue("a").weights.leaving || !young.Running() {
		t.Fatal("a does not make room")
	}
	m.run(3 * time.Second)
	if young.Running() || len(young.Sampled()) == 0 {
		t.Fatalf("not preempted, with %d tokens", len(young.Sampled()))
	}
	m.run(time.Minute)
	if want := []string{"old length", "other length", "late length", "young length"}; !slices.Equal(order, want) {
		t.Fatalf("got %v, want %v", order, want)
	}
	if st := m.s.Stats()[0]; st.Preemptions == 0 || st.Loads != 1 {
		t.Fatalf("%+v", st)
	}
}
