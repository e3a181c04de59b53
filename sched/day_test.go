package sched

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

// A card of 24 GB: bytes and operations a second that it reaches, what its weights and its pages may take, and how fast
// weights come to it.
const (
	cardBytes   = 0.75 * 936e9
	cardOps     = 70e12
	cardWeights = 16e9
	cardPage    = 8 << 20
	cardPages   = 3 << 29 / cardPage
	cardLoad    = 25e9
	launchTime  = 500 * time.Microsecond
)

// dayModel is a model of the fleet in INT4, with a cache of 8 bits.
type dayModel struct {
	name       string
	weights    float64 // bytes
	share      float64 // of the requests
	tokenBytes int     // of the cache that is read at each step
	state      int     // bytes of recurrent state
	perPage    int
	groups     []kvcache.Group
	phase      float64 // hours after midnight of its least load
}

func (d *dayModel) cost(w Work) time.Duration {
	bytes := d.weights + float64(w.Context+w.PromptContext/64)*float64(d.tokenBytes) + float64(2*w.Rows*d.state)
	ops := 4 * d.weights * float64(w.Tokens) // two for each parameter of half a byte
	return launchTime + time.Duration(max(bytes/cardBytes, ops/cardOps)*1e9)
}

func dayModels() []dayModel {
	full := func(tokens int) kvcache.Group { return kvcache.Group{BlockTokens: tokens} }
	state := func(bytes int) kvcache.Group {
		return kvcache.Group{Kind: kvcache.Recurrent, StatePages: bytes / cardPage}
	}
	const mib = 1 << 20
	return []dayModel{
		{"Qwen3.5-27B", 13.8e9, 0.09, 32 << 10, 144 * mib, 16, []kvcache.Group{full(16), state(144 * mib)}, 4},
		{"Qwen3.5-9B", 4.6e9, 0.09, 16 << 10, 48 * mib, 32, []kvcache.Group{full(16), state(48 * mib)}, 5},
		{"Phi-4-14B", 7.5e9, 0.24, 100 << 10, 0, 5, []kvcache.Group{full(16)}, 3},
		{"Gemma4-12B-IT", 6.6e9, 0.07, 168 << 10, 0, 3, []kvcache.Group{full(320), {Kind: kvcache.SlidingWindow, BlockTokens: 16, Window: 1024}}, 12},
		{"Qwen3-1.7B", 1.0e9, 0.24, 56 << 10, 0, 9, []kvcache.Group{full(16)}, 2},
		{"Llama-3.2-1B", 0.8e9, 0.27, 16 << 10, 0, 32, []kvcache.Group{full(16)}, 4},
	}
}

// day is a machine with the six models, and counts of its own.
type day struct {
	*machine
	t      *testing.T
	rng    *rand.Rand
	models []dayModel
	rate   float64 // requests a second at noon
	quiet  bool

	counts map[string]*dayCounts
	alive  map[*Sequence]bool
	total  time.Duration // of steps
}

type dayCounts struct {
	submitted, refused, steps, sampled, loads uint64
	ended                                     [Failed + 1]uint64
	device                                    time.Duration
	wait                                      time.Duration // the longest for a first token
}

var errDay = errors.New("something broke")

func newDay(t *testing.T, rate float64) *day {
	limits := Limits{InFlight: 2, WeightBytes: cardWeights, MaxWaiting: 400}
	d := &day{t: t, machine: newMachine(t, kvcache.NewPool(cardPages), limits), rng: rand.New(rand.NewPCG(1, 2)), models: dayModels(),
		rate: rate, counts: map[string]*dayCounts{}, alive: map[*Sequence]bool{}}
	d.verify = false
	byName := map[string]*dayModel{}
	left := float64(cardWeights)
	for i := range d.models {
		m := &d.models[i]
		c, err := d.s.pool.NewCache(kvcache.Config{Model: m.name, BlocksPerPage: m.perPage, Groups: m.groups,
			Snapshots: 8, SnapshotTokens: 4096, Weight: m.weights / float64(m.tokenBytes) / 1e5})
		if err != nil {
			t.Fatal(err)
		}
		model := Model{Name: m.name, Cache: c, MaxTokens: 16384, MaxBatchTokens: 2048, MaxSeqs: 32, MaxWaiting: 200,
			WeightBytes: int64(m.weights), LoadTime: loadTime(m), Parked: m.weights > left, SLA: SLA{TTFT: 10 * time.Second, TPOT: 200 * time.Millisecond}}
		if i%3 == 1 {
			model.KeepAlive = 10 * time.Minute
		}
		if !model.Parked {
			left -= m.weights
		}
		if err := d.s.AddModel(model); err != nil {
			t.Fatal(err)
		}
		byName[m.name], d.counts[m.name] = m, &dayCounts{}
	}
	d.cost = func(p *Plan) time.Duration {
		n := d.counts[p.Model]
		took := byName[p.Model].cost(p.Work())
		n.steps++
		n.device += took
		d.total += took
		return took
	}
	d.load = func(name string) (time.Duration, error) {
		if d.rng.IntN(200) == 0 {
			return loadTime(byName[name]) / 2, errDay
		}
		d.counts[name].loads++
		return loadTime(byName[name]), nil
	}
	d.spoil = func(p *Plan, out *Output) error {
		switch d.rng.IntN(20000) {
		case 0:
			return errDay
		case 1:
			out.Errs = make([]error, len(p.Rows))
			out.Errs[d.rng.IntN(len(p.Rows))] = errDay
		}
		return nil
	}
	d.event = func(e Event) {
		n := d.counts[e.Seq.Model]
		n.sampled += uint64(len(e.Tokens))
		if len(e.Tokens) > 0 && e.Index == 0 {
			n.wait = max(n.wait, d.now.Sub(d.s.epoch.Add(e.Seq.came)))
		}
		if e.Reason == None {
			return
		}
		n.ended[e.Reason]++
		if !d.alive[e.Seq] {
			t.Fatal("a final event for a sequence that is not alive")
		}
		delete(d.alive, e.Seq)
	}
	d.after(0, d.arrive)
	return d
}

func loadTime(m *dayModel) time.Duration { return time.Duration(m.weights / cardLoad * 1e9) }

// load of a model at a time of day, from 0.1 to 1.
func (m *dayModel) at(hours float64) float64 {
	x := math.Sin(math.Pi * (hours - m.phase) / 24)
	return 0.1 + 0.9*x*x
}

// arrive is one request of an open loop whose rate follows the time of day, and when the next one comes.
func (d *day) arrive() {
	since := d.now.Sub(start)
	d.after(since+time.Duration(d.rng.ExpFloat64()/d.rate*1e9), d.arrive)
	if d.quiet {
		return
	}
	x := d.rng.Float64()
	i := 0
	for ; i < len(d.models)-1 && x > d.models[i].share; i++ {
		x -= d.models[i].share
	}
	m := &d.models[i]
	if d.rng.Float64() > m.at(since.Hours()) {
		return
	}
	switch d.rng.IntN(3000) {
	case 0:
		d.check(d.s.Park(m.name, nil, d.now))
	case 1:
		d.check(d.s.Park(m.name, errDay, d.now))
	case 2:
		d.check(d.s.Load(m.name, d.now))
	}
	seq := &Sequence{Model: m.name, Prompt: d.prompt(), MaxTokens: 20 + d.rng.IntN(360)}
	seq.Identity.Salt = []string{"", "a", "b"}[d.rng.IntN(3)]
	if d.rng.IntN(4) == 0 {
		seq.SLA = SLA{TTFT: time.Duration(1+d.rng.IntN(30)) * time.Second}
	}
	n := d.counts[m.name]
	switch err := d.s.Submit(d.now, seq); {
	case err == nil:
		n.submitted++
		d.alive[seq] = true
	case errors.Is(err, ErrOverCapacity):
		n.refused++
		return
	default:
		d.t.Fatal(err)
	}
	if d.rng.IntN(12) == 0 { // the client goes away
		d.after(since+time.Duration(d.rng.Float64()*20e9), func() { d.s.Cancel(seq) })
	}
}

// prompt has one of a few beginnings and an end of its own.
func (d *day) prompt() []int32 {
	out := make([]int32, 20+int(math.Exp(4.5+1.1*d.rng.NormFloat64())))
	out = out[:min(len(out), 8000)]
	system, stem := min(len(out), 16*d.rng.IntN(20)), int32(d.rng.IntN(6))
	for i := range out {
		if i < system {
			out[i] = stem<<16 + int32(i)
		} else {
			out[i] = int32(d.rng.Uint32() >> 4)
		}
	}
	return out
}

func (d *day) check(err error) {
	if err != nil {
		d.t.Fatal(err)
	}
}

// audit compares counts with those of the scheduler.
func (d *day) audit() {
	d.t.Helper()
	d.check(d.s.Verify())
	for _, st := range d.s.Stats() {
		n := d.counts[st.Model]
		ended := uint64(0)
		for _, k := range st.Finished {
			ended += k
		}
		if st.Submitted != n.submitted || st.Refused != n.refused || st.Finished != n.ended || st.SampledTokens != n.sampled ||
			st.Submitted != ended+uint64(st.Waiting+st.Running) {
			d.t.Fatalf("%s: %+v, counted %+v", st.Model, st, *n)
		}
		flying, device := uint64(0), time.Duration(0)
		for _, u := range d.steps {
			if u.plan.Model == st.Model {
				flying++
			}
		}
		device = st.DeviceTime
		for i, u := range d.steps {
			if u.plan.Model == st.Model {
				begin := u.plan.Start
				if i > 0 {
					begin = d.steps[i-1].end
				} else if d.s.lastStep.After(begin) {
					begin = d.s.lastStep
				}
				device += u.end.Sub(begin)
			}
		}
		loading := uint64(0)
		if d.change != nil && d.change.Load == st.Model && d.changeErr == nil {
			loading = 1
		}
		if st.Steps+flying != n.steps || device != n.device || st.Loads+loading != n.loads {
			d.t.Fatalf("%s: %d steps and %d in flight of %d, %s of %s, %d loads of %d", st.Model, st.Steps, flying, n.steps, device, n.device, st.Loads, n.loads)
		}
	}
	if passed := d.now.Sub(start); d.total > passed+time.Minute {
		d.t.Fatalf("steps of %s in %s", d.total, passed)
	}
}

// rest lets nobody come until all is done, checks that nothing is left, and returns the size of the heap.
func (d *day) rest(until time.Duration) uint64 {
	d.t.Helper()
	d.quiet = true
	d.run(until)
	d.quiet = false
	if !d.s.Idle() || len(d.alive) > 0 {
		d.t.Fatalf("%d sequences left at rest: %s", len(d.alive), d.residencies())
	}
	d.audit()
	for _, m := range d.s.pool.Stats().Models {
		if m.Live+m.States != 0 {
			d.t.Fatalf("%s: %d live blocks, %d states at rest", m.Model, m.Live, m.States)
		}
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return mem.HeapAlloc
}

// TestDay runs the six models of a fleet on one card that holds the weights of some, for a day of virtual time in the
// long form and for minutes in the short one: requests by the time of day, deadlines, clients that go away, steps and loads
// that fail, models unloaded by hand. Each quarter of an hour nobody comes until all is done. Then all counts are compared with
// those kept here, nothing is live, and the heap has not grown.
func TestDay(t *testing.T) {
	hours, rate, quarter := 1, 4.0, 2*time.Minute
	if os.Getenv("OPENINFER_SOAK") == "1" {
		hours, quarter = 24, 15*time.Minute
	}
	d := newDay(t, rate)
	begun := time.Now()
	var heap, least uint64
	quarters := hours * 4
	if hours == 1 {
		quarters = 3
	}
	for k := range quarters {
		from := time.Duration(k) * quarter
		for at := from + time.Minute; at < from+quarter*4/5; at += time.Minute {
			d.run(at)
			d.audit()
		}
		heap = d.rest(from + quarter)
		if k == quarters/4 {
			least = heap
		}
	}
	if heap > least+least/2+4<<20 {
		t.Fatalf("%d bytes in the heap, %d after a quarter of the time", heap, least)
	}
	var sum dayCounts
	for _, st := range d.s.Stats() {
		n := d.counts[st.Model]
		sum.submitted += n.submitted
		sum.refused += n.refused
		sum.steps += n.steps
		sum.sampled += n.sampled
		if n.ended[Length] == 0 || n.loads == 0 && quarters > 4 {
			t.Errorf("%s: %d sequences ended well, %d loads", st.Model, n.ended[Length], n.loads)
		}
		row(t, st.Model, st.DeviceTime, "%d accepted, %d refused, %d late, %d failed, %d cancelled, %d steps, %d tokens, %d preemptions, %d loads in %.0f s, longest wait for a first token %s",
			st.Submitted, st.Refused, st.Late, st.Finished[Failed], st.Finished[Cancelled], st.Steps, st.SampledTokens, st.Preemptions, st.Loads, st.LoadSeconds, n.wait.Round(time.Millisecond))
	}
	virtual, took := d.now.Sub(start), time.Since(begun)
	row(t, "a fleet in virtual time", took, "%s, %.0f s a second; %d accepted, %d refused, %d steps, %d tokens, %d switches, device busy for %s; heap %d KiB, %d KiB after a quarter of it",
		virtual, virtual.Seconds()/took.Seconds(), sum.submitted, sum.refused, sum.steps, sum.sampled, d.switches, d.total.Round(time.Second), heap>>10, least>>10)
}
