package sim_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/sim"
)

func TestCards(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range sim.Cards() {
		if seen[c.Name] || c.Source == "" || !strings.HasPrefix(c.Description, "NVIDIA ") {
			t.Errorf("%+v: twice, or without source or description", c)
		}
		seen[c.Name] = true
		found, err := sim.Find(c.Name)
		if err != nil || found != c {
			t.Errorf("%s: found %+v, %v", c.Name, found, err)
		}
		gb, flops := float64(c.MemoryBytes)/1e9, c.Rates[sim.Acc32]
		// Every card of these generations lies within: a number with a wrong unit does not.
		if gb < 20 || gb > 160 || c.Bandwidth < 250e9 || c.Bandwidth > 5e12 || flops < 50e12 || flops > 1.2e15 {
			t.Errorf("%s: %.0f GB, %.0f GB/s, %.0f TFLOP/s", c.Name, gb, c.Bandwidth/1e9, flops/1e12)
		}
		if c.Rates[sim.Acc16] < flops || math.Abs(c.Rates[sim.Int8]/c.Rates[sim.Acc16]-2) > 0.03 {
			t.Errorf("%s: rates %v: fp16 sums are no slower than fp32 sums, and int8 twice as fast", c.Name, c.Rates)
		}
		for _, share := range []float64{c.BandwidthShare, c.ProductShare, c.AttentionShare} {
			if share <= 0.3 || share > 0.95 {
				t.Errorf("%s: share %v", c.Name, share)
			}
		}
		if d := sim.NewDevice(c).Info(); !strings.HasPrefix(d.Description, "simulated "+c.Description) || d.MemoryBytes != c.MemoryBytes-sim.ReserveBytes {
			t.Errorf("%s: %+v", c.Name, d)
		}
	}
	stock, _ := sim.Find("rtx3090")
	unlocked, _ := sim.Find("rtx3090-unlocked")
	if unlocked.Rates[sim.Acc32] != 2*stock.Rates[sim.Acc32] || unlocked.Bandwidth != stock.Bandwidth {
		t.Errorf("unlocked: %v", unlocked)
	}
	_, err := sim.Open("rtx9999")
	for _, name := range append(sim.Names(), "rtx9999") {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("an unknown card: %v, want %s in it", err, name)
		}
	}
}

func TestMemory(t *testing.T) {
	d, err := sim.Open("rtx3090")
	if err != nil {
		t.Fatal(err)
	}
	usable := int64(24<<30) - sim.ReserveBytes
	a, err := d.Alloc(usable - 100)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(100)
	if err != nil || b.Host != nil || b.Addr < a.Addr+uint64(a.Len) {
		t.Fatalf("%+v after %+v, %v", b, a, err)
	}
	_, err = d.Alloc(2_500_000_000)
	for _, s := range []string{"2.500 GB asked for", "0.000 of 25.233 GB free"} {
		if !errors.Is(err, sim.ErrOutOfMemory) || !strings.Contains(err.Error(), s) {
			t.Errorf("%v, want %q in it", err, s)
		}
	}
	d.Free(a)
	m := kernels.Matrix{Name: "q", N: 1000, K: 1024, Bits: 4, Group: 128, Symmetric: true, ScaleType: kernels.F16,
		Read: func(*kernels.Rows, int, int) error { return errors.New("was read") }}
	half := m
	half.Bits, half.Group, half.Type = 0, 0, kernels.BF16
	table := half
	table.LookedUp = true
	asym, eight := m, m
	asym.Symmetric = false
	eight.Bits, eight.Group = 8, 1024
	for i, c := range []struct {
		m    kernels.Matrix
		want int64
	}{{m, 512_000 + 16_000}, {asym, 512_000 + 16_000 + 4_000}, {eight, 1_024_000 + 2_000}, {half, 2_048_000}, {table, 0}} {
		w, err := d.Load(c.m, c.m)
		if err != nil || w.Bytes != 2*c.want || w.N != 2000 || w.K != 1024 {
			t.Errorf("case %d: %+v, %v; want %d bytes", i, w, err, 2*c.want)
			continue
		}
		d.Unload(w)
	}
	big := m
	big.N = 100_000_000
	if _, err := d.Load(big); !errors.Is(err, sim.ErrOutOfMemory) || !strings.Contains(err.Error(), "q") {
		t.Errorf("%v", err)
	}
	if _, err := d.Alloc(usable - 100); err != nil {
		t.Errorf("what was given back is not there: %v", err)
	}
}

// round is a card on which a byte takes a second and so do a thousand operations, and nothing else takes time.
func round() sim.Spec {
	s := sim.Host("round", 1, 1000, 1000)
	s.Launch = 0
	return s
}

func tensor(rows, cols int) kernels.Tensor {
	return kernels.NewCarver(kernels.Buffer{}).Tensor(kernels.F32, rows, cols)
}

// TestAttentionCounts compares what attention is charged with a count of every pair of a query and a key.
func TestAttentionCounts(t *testing.T) {
	const heads, groups, dim, layers = 6, 2, 64, 3
	layout := kernels.CacheLayout{DType: kernels.F16, Layers: layers, Heads: groups, KDim: dim, VDim: dim}
	for _, window := range []int{0, 1, 5, 16, 1000} {
		for _, rows := range [][][2]int{{{0, 1}}, {{40, 1}}, {{0, 20}}, {{3, 20}}, {{13, 4}}, {{100, 50}, {7, 1}, {0, 0}, {0, 16}}} {
			starts, contexts := []int32{0}, []int32{}
			bytes, pairs := 0.0, 0.0
			for _, r := range rows {
				starts, contexts = append(starts, starts[len(starts)-1]+int32(r[1])), append(contexts, int32(r[0]+r[1]))
				seen := map[int]bool{}
				for pos := r[0]; pos < r[0]+r[1]; pos++ {
					for k := range pos + 1 {
						if window == 0 || k > pos-window {
							pairs++
							seen[k] = true
						}
					}
				}
				bytes += float64(len(seen) * groups * 2 * dim * 2)
			}
			T := int(starts[len(rows)])
			bytes += float64(2 * T * heads * dim * 2)
			for name, want := range map[string]float64{"bytes": bytes, "operations": pairs * heads * dim * 4 / 1e6} {
				s := round()
				if name == "bytes" {
					s.Rates[sim.Acc32] = math.Inf(1)
				} else {
					s.Bandwidth, s.Rates[sim.Acc32] = math.Inf(1), 1e6
				}
				m := sim.NewMeter(s)
				m.Begin()
				m.Attention(tensor(T, heads*dim), tensor(T, heads*dim), kernels.KV{Layout: &layout, Layer: 1},
					kernels.Ragged{Starts: kernels.Ints{Host: starts}, Contexts: kernels.Ints{Host: contexts}}, kernels.AttentionParams{Window: window})
				if got := m.Elapsed(); math.Abs(got-want) > 1e-9*want {
					t.Errorf("window %d, rows (start, n) %v: %v %s, want %v", window, rows, got, name, want)
				}
			}
		}
	}
}

// TestLinearTurnsFromBytesToOperations: the weight is read once however many rows there are, until their products take longer.
func TestLinearTurnsFromBytesToOperations(t *testing.T) {
	const N, K = 100, 200
	w := &kernels.Weight{N: N, K: K, Bytes: N * K / 2}
	s := round()
	s.Bandwidth, s.Rates = 1000, [3]float64{1e6, 1e6, 2e6}
	for _, c := range []struct {
		coded sim.Arithmetic
		rows  int
		want  float64
	}{
		{sim.Acc32, 1, (N*K/2 + 1*(N+K)*2) / 1000.0},
		{sim.Acc32, 200, max((N*K/2+200*(N+K)*2)/1000.0, 2*200*N*K/1e6)},
		{sim.Acc32, 4000, max((N*K/2+4000*(N+K)*2)/1000.0, 2*4000*N*K/1e6)},
		{sim.Int8, 4000, max((N*K/2+4000*(N+K)*2)/1000.0, 4000*N*K/1e6)},
	} {
		s.Coded = c.coded
		m := sim.NewMeter(s)
		m.Begin()
		m.Linear(tensor(c.rows, N), tensor(c.rows, K), w)
		if got := m.Elapsed(); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("%v, %d rows: %v s, want %v", c.coded, c.rows, got, c.want)
		}
	}
}

// TestStateIsReadAndWritten: each run of the delta rule moves its whole state twice, or once where it begins with zeros.
func TestStateIsReadAndWritten(t *testing.T) {
	l := kernels.StateLayout{Layers: 2, Heads: 4, KDim: 16, VDim: 32, ConvChannels: 96, ConvColumns: 3, PageBytes: 1 << 20}
	s := round()
	s.Rates[sim.Acc32] = math.Inf(1)
	m := sim.NewMeter(s)
	m.Begin()
	runs := kernels.Runs{Starts: kernels.Ints{Host: []int32{0, 1, 1, 4}}, In: kernels.Ints{Host: []int32{5, 6, 0}}}
	vector := tensor(1, 4)
	m.GatedDelta(tensor(4, 128), tensor(4, 256), tensor(4, 4), tensor(4, 4),
		kernels.DeltaParams{KeyHeads: 4, Rate: vector, DtBias: vector}, kernels.State{Layout: &l, Runs: runs})
	want := float64(3*4*16*32*4 + 4*(128+256+4+4)*2) // of the second run nothing: it has no tokens
	if got := m.Elapsed(); got != want {
		t.Errorf("%v bytes, want %v", got, want)
	}
}

func TestSampleIsAFunctionOfItsParameters(t *testing.T) {
	const vocab, rows = 100, 400
	params := make([]kernels.SampleParams, rows)
	for i := range params {
		params[i] = kernels.SampleParams{Seed: uint64(i % 5), Index: uint64(i / 5), Given: -1, Logprobs: i%3 - 1}
	}
	params[0].Given = 42
	params[1].Banned = []int32{}
	for id := range int32(vocab) {
		if id != 7 {
			params[1].Banned = append(params[1].Banned, id)
		}
	}
	params[2].Allowed = []uint32{0, 1 << 3}
	params[3].Allowed = []uint32{}
	params[4].Given = vocab
	sample := func(from, to int) []kernels.Sampled {
		m := sim.NewMeter(round())
		out := make([]kernels.Sampled, to-from)
		m.Begin()
		m.Sample(out, tensor(to-from, vocab), vocab, params[from:to])
		return out
	}
	all := sample(0, rows)
	distinct := map[int32]bool{}
	for i, got := range all {
		if one := sample(i, i+1)[0]; fmt.Sprint(one) != fmt.Sprint(got) {
			t.Errorf("row %d: %v alone, %v among others", i, one, got)
		}
		if want := max(params[i].Logprobs, 0); !got.NaN && len(got.Top) != want {
			t.Errorf("row %d: %d of %d likely tokens", i, len(got.Top), want)
		}
		distinct[got.ID] = true
	}
	if all[0].ID != 42 || all[1].ID != 7 || all[2].ID != 35 || !all[3].NaN || !all[4].NaN {
		t.Errorf("given, banned, allowed, none allowed, out of range: %v", all[:5])
	}
	if len(distinct) < vocab*9/10 {
		t.Errorf("%d rows drew %d of %d tokens", rows, len(distinct), vocab)
	}
}

// TestStepsTakeTheirTime: in virtual time End returns when what was charged since Begin has passed, to the
// nanosecond, and the host's own time is part of it.
func TestStepsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := round()
		s.Bandwidth = 1e6
		d := sim.NewDevice(s)
		scratch, err := d.Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		x := kernels.Tensor{Buf: scratch, Rows: 10, Cols: 100, Stride: 100}
		for i, c := range []struct{ host, want time.Duration }{{0, 4 * time.Millisecond}, {3 * time.Millisecond, 4 * time.Millisecond}, {time.Second, time.Second}} {
			start := time.Now()
			d.Begin()
			d.SoftCap(x, 1)
			time.Sleep(c.host)
			if err := d.End(); err != nil || time.Since(start) != c.want {
				t.Errorf("case %d: %v, %v; want %v", i, time.Since(start), err, c.want)
			}
		}
		d.Begin()
		d.SoftCap(x, -1)
		d.RMSNorm(x, x, tensor(1, 3), 0)
		if err := d.End(); err == nil || !strings.Contains(err.Error(), "softCap") {
			t.Errorf("a wrong argument: %v", err)
		}
	})
}
