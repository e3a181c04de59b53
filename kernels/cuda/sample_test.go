package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/kernels/sampling"
)

// sampleOn draws from rows of logits, which lie apart and are padded with what must not be drawn.
func sampleOn(t testing.TB, d *Device, logits [][]float32, params []kernels.SampleParams) []kernels.Sampled {
	t.Helper()
	vocab := len(logits[0])
	stride := vocab + 8
	host := make([]float32, len(logits)*stride)
	for i := range host {
		host[i] = float32(math.NaN())
	}
	for i, r := range logits {
		copy(host[i*stride:], r)
	}
	buf, err := d.Alloc(int64(len(host)) * 4)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(buf)
	if err := d.CopyIn(buf, bytesOf(host)); err != nil {
		t.Fatal(err)
	}
	out := make([]kernels.Sampled, len(logits))
	d.Begin()
	d.Sample(out, kernels.Tensor{Buf: buf, Rows: len(logits), Cols: vocab + 4, Stride: stride}, vocab, params)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	return out
}

// specified draws by the specification.
func specified(logits [][]float32, params []kernels.SampleParams) []kernels.Sampled {
	s := sampling.New(sampling.Plain())
	out := make([]kernels.Sampled, len(logits))
	for i := range out {
		out[i] = s.Row(logits[i], &params[i])
	}
	return out
}

// sameSampled wants equal ids, ranks and order, and log probabilities that differ by their rounding at most.
func sameSampled(t testing.TB, what string, got, want kernels.Sampled) {
	t.Helper()
	close := func(a, b float32) bool {
		return a == b || math.Abs(float64(a)-float64(b)) <= 1.2e-7*math.Abs(float64(b))+1e-9
	}
	same := got.ID == want.ID && got.NaN == want.NaN && got.Rank == want.Rank && close(got.Logprob, want.Logprob) &&
		len(got.Top) == len(want.Top) && (got.Top == nil) == (want.Top == nil)
	for i := 0; same && i < len(got.Top); i++ {
		same = got.Top[i].ID == want.Top[i].ID && close(got.Top[i].Logprob, want.Top[i].Logprob)
	}
	if !same {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// withoutLists is p without its lists.
func withoutLists(p kernels.SampleParams) string {
	p.Prompt, p.Output, p.Bias, p.Banned, p.Allowed = nil, nil, nil, nil, nil
	return fmt.Sprintf("%+v", p)
}

// sampler makes rows and parameters of every kind.
type sampler struct{ *rand.Rand }

// row is of one of several shapes: like a model's, flat, of few values, with infinities.
func (r sampler) row(vocab int) []float32 {
	x := make([]float32, vocab)
	size, shift := []float64{0.02, 1, 3, 8}[r.IntN(4)], r.NormFloat64()*5
	steps := []float64{0, 0, 0, 4}[r.IntN(4)]
	for i := range x {
		v := r.NormFloat64()*size + shift
		if steps > 0 { // many equals
			v = math.Round(v*steps) / steps
		}
		x[i] = float32(v)
	}
	for range r.IntN(8) {
		x[r.IntN(vocab)] += float32(r.ExpFloat64() * 8)
	}
	switch r.IntN(12) {
	case 0:
		for range vocab / 2 {
			x[r.IntN(vocab)] = float32(math.Inf(-1))
		}
	case 1:
		for i := range x {
			x[i] = x[0]
		}
	case 2:
		x[r.IntN(vocab)] = []float32{float32(math.NaN()), float32(math.Inf(1)), 3e38, -3e38}[r.IntN(4)]
	case 3:
		for i := range x {
			x[i] = float32(math.Copysign(0, float64(r.IntN(2)*2-1)))
		}
	}
	return x
}

func (r sampler) ids(vocab, n int) []int32 {
	ids := make([]int32, r.IntN(n+1))
	for i := range ids {
		ids[i] = int32(r.IntN(vocab+4) - 2)
	}
	return ids
}

func (r sampler) params(vocab int) kernels.SampleParams {
	sometimes := func(n int, v float32) float32 {
		if r.IntN(n) == 0 {
			return v
		}
		return 0
	}
	p := kernels.SampleParams{Given: -1, Logprobs: -1, Seed: r.Uint64(), Index: r.Uint64N(1000)}
	if r.IntN(5) > 0 {
		p.Temperature = []float32{1, 1, 0.7, 0.2, 1.7, 30, 1e-3}[r.IntN(7)]
	}
	if r.IntN(2) == 0 {
		p.TopK = []int{1, 2, 5, 20, 100, 1500, vocab, 2 * vocab}[r.IntN(8)]
	}
	p.TopP = sometimes(2, []float32{0.9, 0.95, 0.5, 1, 1e-6, 1e-20, 0.9999999}[r.IntN(7)])
	p.MinP = sometimes(3, []float32{0.05, 0.3, 1, 2, 1e-7, 1e-30}[r.IntN(6)])
	p.Repetition = sometimes(4, []float32{1.1, 1, 2, 0.5, 1e-40}[r.IntN(5)])
	p.Presence, p.Frequency = sometimes(4, r.Float32()*4-2), sometimes(4, r.Float32()*4-2)
	if sampling.Penalised(&p) {
		p.Prompt, p.Output = r.ids(vocab, 60), r.ids(vocab, 60)
	}
	if r.IntN(4) == 0 {
		for _, id := range r.ids(vocab, 12) {
			p.Bias = append(p.Bias, kernels.TokenBias{ID: id, Bias: r.Float32()*10 - 5}, kernels.TokenBias{ID: 1, Bias: r.Float32()})
		}
	}
	if r.IntN(5) == 0 {
		p.Banned = r.ids(vocab, 10)
	}
	if r.IntN(5) == 0 {
		p.Allowed = make([]uint32, r.IntN(vocab/32+3))
		for i := range p.Allowed {
			p.Allowed[i] = r.Uint32() & r.Uint32()
		}
	}
	if r.IntN(3) == 0 {
		p.Logprobs = []int{0, 1, 5, 20, min(vocab, 1200), min(2*vocab, 1500)}[r.IntN(6)]
	}
	if r.IntN(10) == 0 {
		p.Given = int32(r.IntN(vocab + 2))
	}
	return p
}

// Rows and parameters of every kind, several in a call, give what the specification gives.
func TestSampleLikeTheSpecification(t *testing.T) {
	vocabs := map[int]int{1: 8, 7: 40, 31: 40, 100: 80, 1000: 24, 1024: 16, 1025: 24, 3000: 24, 20011: 6}
	if os.Getenv("OPENINFER_SOAK") != "" {
		for v := range vocabs {
			vocabs[v] *= 10
		}
		vocabs[151936], vocabs[262144] = 16, 8
	}
	for vocab, n := range vocabs {
		t.Run(fmt.Sprint(vocab), func(t *testing.T) {
			r := sampler{rand.New(rand.NewPCG(uint64(vocab), 5))}
			d := open(t, uint64(vocab))
			defer d.Close()
			for n > 0 {
				var logits [][]float32
				var params []kernels.SampleParams
				for range min(n, 8) {
					logits, params = append(logits, r.row(vocab)), append(params, r.params(vocab))
				}
				n -= len(logits)
				want := specified(logits, params)
				for i, got := range sampleOn(t, d, logits, params) {
					sameSampled(t, fmt.Sprintf("row %d of %d: %s", i, len(logits), withoutLists(params[i])), got, want[i])
				}
			}
		})
	}
}

// border returns three logits and the parameters of a draw that falls on the border between ids 0 and 1: the third has
// a small weight, which moves the border by the finest of steps.
func border(seed uint64) ([]float32, kernels.SampleParams) {
	p := kernels.SampleParams{Temperature: 1, Given: -1, Logprobs: -1, Seed: seed}
	u := sampling.Uniform(p.Seed, p.Index)
	// w0 = u (w0 + w1 + w2) with w0 or w1 one; a little less than the border without w2.
	x := []float32{0, 0, 0}
	if u < 0.5 {
		x[0] = float32(math.Log(u/(1-u))) + 1e-6
	} else {
		x[1] = float32(math.Log((1-u)/u)) - 1e-6
	}
	w0, w1 := math.Exp(float64(x[0])), math.Exp(float64(x[1]))
	x[2] = float32(math.Log(w0/u - w0 - w1))
	return x, p
}

// A draw differs from the specification's only within 2^-45 for each id: next to a border that a number falls on, ids are
// equal on either side of it.
func TestSampleNextToBorders(t *testing.T) {
	d := open(t, 1)
	defer d.Close()
	const within = 0x1p-42
	tried, near := 0, 0
	var logits [][]float32
	var params []kernels.SampleParams
	for seed := range uint64(60) {
		x, p := border(seed)
		if math.IsNaN(float64(x[2])) || x[2] > 0 {
			continue
		}
		u := sampling.Uniform(p.Seed, p.Index)
		for _, side := range []float64{-1e-9, -2 * within, 2 * within, 1e-9} {
			// The weight of id 2 that puts the border at that distance.
			w0, w1 := math.Exp(float64(x[0])), math.Exp(float64(x[1]))
			y := slices.Clone(x)
			y[2] = float32(math.Log(w0/(u+side) - w0 - w1))
			w2 := math.Exp(float64(y[2]))
			distance := u - w0/(w0+w1+w2)
			if math.Abs(distance) < within {
				continue // w2 has no finer steps
			}
			tried++
			if math.Abs(distance) < 0x1p-38 {
				near++
			}
			logits, params = append(logits, y), append(params, p)
		}
	}
	if tried < 100 || near < 20 {
		t.Fatalf("%d draws, %d next to a border", tried, near)
	}
	want := specified(logits, params)
	for i, got := range sampleOn(t, d, logits, params) {
		sameSampled(t, fmt.Sprintf("seed %d: %v", params[i].Seed, logits[i]), got, want[i])
	}
}

// A row's token is its own: not of its neighbours, of tiles or of the order in which the card works.
func TestSampleInTiles(t *testing.T) {
	const vocab, rows = 2500, 7
	r := sampler{rand.New(rand.NewPCG(3, 3))}
	var logits [][]float32
	var params []kernels.SampleParams
	for range rows {
		p := r.params(vocab)
		p.Banned, p.Logprobs = []int32{5}, 3
		logits, params = append(logits, r.row(vocab)), append(params, p)
	}
	want := specified(logits, params)
	for _, workspace := range []int64{20 << 10, 50 << 10, 1 << 20} {
		launches := 0
		drv := driver.NewInterpreter(uint64(workspace))
		drv.Launched = func(kernel string, _, _ [3]int, _ *ptx.Result) {
			if kernel == "sample_pick" {
				launches++
			}
		}
		d, err := Open(drv, Options{WorkspaceBytes: workspace, StepBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range sampleOn(t, d, logits, params) {
			sameSampled(t, fmt.Sprintf("workspace of %d, row %d: %s", workspace, i, withoutLists(params[i])), got, want[i])
		}
		if (launches == 1) != (workspace == 1<<20) {
			t.Errorf("workspace of %d: %d tiles", workspace, launches)
		}
		d.Close()
	}
}

// Steps whose rows differ in the length of their lists launch the same, so that a recorded step serves them.
func TestSampleRecurs(t *testing.T) {
	const vocab = 1500
	d := open(t, 5)
	defer d.Close()
	r := sampler{rand.New(rand.NewPCG(6, 6))}
	logits := [][]float32{r.row(vocab), r.row(vocab)}
	buf, err := d.Alloc(3 * vocab * 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CopyIn(buf, bytesOf(slices.Concat(logits[0], logits[1], logits[1]))); err != nil {
		t.Fatal(err)
	}
	x := kernels.Tensor{Buf: buf, Rows: 3, Cols: vocab, Stride: vocab}
	p := kernels.SampleParams{Given: -1, Logprobs: -1, Temperature: 1, TopK: 30, Frequency: 0.5}
	const steps = 5
	for n := range steps {
		p.Index++
		for range 50 * n {
			p.Output = append(p.Output, int32(r.IntN(vocab)))
		}
		params := []kernels.SampleParams{p, {Given: -1, Logprobs: -1}}
		out := make([]kernels.Sampled, 2)
		d.Begin()
		for range minGraph { // so many launches are worth recording
			d.GatherRows(x.RowRange(2, 3), x.RowRange(0, 2), d.Upload(kernels.Ints{Host: []int32{1}}))
		}
		d.Sample(out, x.RowRange(0, 2), vocab, params)
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		want := specified(logits, params)
		for i, got := range out {
			sameSampled(t, withoutLists(params[i]), got, want[i])
		}
	}
	if d.graphs.launched != steps-1 {
		t.Errorf("%d of %d steps were recorded ones", d.graphs.launched, steps)
	}
}

func TestSampleRefuses(t *testing.T) {
	drv := driver.NewInterpreter(1)
	d, err := Open(drv, Options{WorkspaceBytes: 8 << 10, StepBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range []struct {
		vocab int
		want  string
	}{
		{1<<18 + 1, "sample: 262145 ids; 262144 are the most"},
		{5000, "sample: a row of 5000 ids takes 20736 bytes of workspace beside 256 for what comes back; it has 8192"},
	} {
		buf, _ := d.Alloc(int64(c.vocab) * 4)
		out := make([]kernels.Sampled, 1)
		d.Begin()
		d.Sample(out, kernels.Tensor{Buf: buf, Rows: 1, Cols: c.vocab, Stride: c.vocab}, c.vocab, []kernels.SampleParams{{Given: -1, Logprobs: -1, Banned: []int32{1}}})
		if err := d.End(); err == nil || !strings.HasPrefix(err.Error(), c.want) || !out[0].NaN {
			t.Errorf("%d ids: %v, %+v", c.vocab, err, out[0])
		}
		d.Free(buf)
	}
}

// Greedy rows are read once, others twice but for the stretches that hold what can be drawn; in whole sectors.
func TestSampleTraffic(t *testing.T) {
	const vocab = 50 * 1024
	x := make([]float32, vocab)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range x {
		x[i] = float32(r.NormFloat64() * 2)
	}
	for i := range 30 { // what can be drawn, in two stretches
		x[5000+i], x[40000+i] = 20, 19
	}
	for _, c := range []struct {
		name    string
		params  kernels.SampleParams
		kernels []string
		most    float64 // of the bytes of the row
	}{
		{"greedy", kernels.SampleParams{}, []string{"sample_peaks", "sample_pick"}, 1.02},
		{"temperature", kernels.SampleParams{Temperature: 1}, []string{"sample_peaks", "sample_weigh", "sample_pick"}, 2.2},
		{"all cuts", kernels.SampleParams{Temperature: 1, TopK: 50, TopP: 0.9, MinP: 1e-3}, []string{"sample_peaks", "sample_weigh", "sample_pick"}, 2.2},
		{"changed", kernels.SampleParams{Banned: []int32{3}}, []string{"sample_peaks", "sample_pick"}, 1.1},
	} {
		for _, logprobs := range []int{-1, 5} {
			drv := driver.NewInterpreter(7)
			var names []string
			var read, sectors, wanted uint64
			drv.Launched = func(kernel string, _, _ [3]int, r *ptx.Result) {
				names = append(names, kernel)
				n := r.Counters
				read += n.DRAMReadBytes
				sectors += n.GlobalLoads.Sectors
				wanted += n.GlobalLoads.Bytes
				t.Logf("%s, logprobs %d: %s read %d, %.3f of a sector, %d instructions", c.name, logprobs, kernel, n.DRAMReadBytes, n.GlobalLoads.Efficiency, n.WarpInstructions)
			}
			d, err := Open(drv, Options{WorkspaceBytes: 1 << 20, StepBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			p, list, most := c.params, c.kernels, c.most
			p.Given, p.Logprobs = -1, logprobs
			if logprobs >= 0 && c.kernels[1] != "sample_weigh" {
				list = []string{"sample_peaks", "sample_weigh", "sample_pick"}
			}
			if logprobs >= 0 {
				most += 1.1
			}
			out := sampleOn(t, d, [][]float32{x}, []kernels.SampleParams{p})
			sameSampled(t, c.name, out[0], specified([][]float32{x}, []kernels.SampleParams{p})[0])
			if !slices.Equal(names, list) {
				t.Errorf("%s, logprobs %d: launched %v", c.name, logprobs, names)
			}
			if got := float64(read) / (4 * vocab); got > most {
				t.Errorf("%s, logprobs %d: read %.3f times the row, want %.3f", c.name, logprobs, got, most)
			}
			if got := float64(wanted) / float64(32*sectors); got < 0.9 {
				t.Errorf("%s, logprobs %d: %.3f of the sectors' bytes wanted", c.name, logprobs, got)
			}
			d.Close()
		}
	}
}

// The device's own rows agree with those of the reference device, through the interface.
func TestSampleLikeRef(t *testing.T) {
	d, spec := open(t, 3), ref.Open()
	defer d.Close()
	defer spec.Close()
	r := sampler{rand.New(rand.NewPCG(9, 9))}
	const vocab, rows = 300, 16
	var logits [][]float32
	var params []kernels.SampleParams
	buf, err := spec.Alloc(rows * vocab * 4)
	if err != nil {
		t.Fatal(err)
	}
	x := kernels.Tensor{Buf: buf, Rows: rows, Cols: vocab, Stride: vocab}
	for i := range rows {
		logits, params = append(logits, r.row(vocab)), append(params, r.params(vocab))
		copy(x.Row(i), logits[i])
	}
	want := make([]kernels.Sampled, rows)
	spec.Begin()
	spec.Sample(want, x, vocab, params)
	if err := spec.End(); err != nil {
		t.Fatal(err)
	}
	for i, got := range sampleOn(t, d, logits, params) {
		sameSampled(t, withoutLists(params[i]), got, want[i])
	}
}
