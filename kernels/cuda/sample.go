package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
	"github.com/openinfer-go/openinfer/kernels/sampling"
)

// Constants of sample.cuh and sample.cu.
const (
	sampleIDs     = 1 << 18 // the most that a row may have
	sampleStretch = 1024
	sampleWindow  = 1024
)

// The structs of sample.cuh; an address is a uint64.
type (
	sampleJob struct {
		x, peaks, bins, sums uint64
		scale, logMinP       float32
	}
	sampleToken struct {
		id      int32
		logprob float32
	}
	sampleRow struct {
		draw, score                             sampleJob
		changed, allowed, edits, starts, biases uint64
		top                                     uint64
		random, topP                            uint64
		allowedWords, given, topK, cut          int32
		logprobs                                int32
		repetition, presence, frequency         float32
	}
	sampleResult struct {
		id      int32
		logprob float32
		rank    int32
		tops    int32
	}
)

const (
	sampleBinsBytes   = int64(256 * (8 + 4))
	sampleResultBytes = int64(unsafe.Sizeof(sampleResult{}))
	sampleTokenBytes  = int64(unsafe.Sizeof(sampleToken{}))
)

// Sample implements kernels.Device. After an error in the step every row counts as failed.
//
// Ids are those of kernels/ref but where a uniform number, or TopP's share, falls within vocab * 2^-45 weights of the
// largest of the border between two ids: sums are of integers in units of 2^-45, there of float64.
func (d *Device) Sample(out []kernels.Sampled, logits kernels.Tensor, vocab int, params []kernels.SampleParams) {
	for i := range out {
		out[i] = kernels.Sampled{ID: -1, NaN: true} // until drawn
	}
	if d.err != nil || !d.ok(check.Sample(out, logits, vocab, params)) || len(out) == 0 {
		return
	}
	if vocab > sampleIDs {
		d.ok(fmt.Errorf("sample: %d ids; %d are the most", vocab, sampleIDs))
		return
	}
	// What comes back lies before what a tile of rows needs.
	tops := int64(0)
	for i := range params {
		tops += int64(min(max(params[i].Logprobs, 0), vocab))
	}
	backBytes := int64(len(out))*sampleResultBytes + tops*sampleTokenBytes
	t := sampleTile{d: d, logits: logits, vocab: vocab, stretches: (vocab + sampleStretch - 1) / sampleStretch,
		top: d.workspace + uint64(int64(len(out))*sampleResultBytes)}
	for from := 0; from < len(out); {
		n, err := t.carve(params[from:], align(backBytes))
		if !d.ok(err) {
			return
		}
		for i := range n {
			t.add(from+i, &params[from+i])
		}
		t.launch(d.workspace + uint64(int64(from)*sampleResultBytes))
		from += n
	}
	back := make([]byte, backBytes)
	if !d.fetch(back, d.workspace) {
		return
	}
	results := unsafe.Slice((*sampleResult)(unsafe.Pointer(&back[0])), len(out))
	tokens := back[int64(len(out))*sampleResultBytes:]
	for i, r := range results {
		room := min(max(params[i].Logprobs, 0), vocab)
		if r.id >= 0 {
			out[i] = kernels.Sampled{ID: r.id, Logprob: r.logprob, Rank: r.rank, Top: sampledTop(tokens, params[i].Logprobs, int(r.tops))}
		}
		tokens = tokens[int64(room)*sampleTokenBytes:]
	}
}

// sampledTop returns the first n of tokens; nil when none were asked for.
func sampledTop(tokens []byte, asked, n int) []kernels.TokenLogprob {
	if asked <= 0 {
		return nil
	}
	top := make([]kernels.TokenLogprob, n)
	if n > 0 {
		for i, t := range unsafe.Slice((*sampleToken)(unsafe.Pointer(&tokens[0])), n) {
			top[i] = kernels.TokenLogprob{ID: t.id, Logprob: t.logprob}
		}
	}
	return top
}

// sampleTile are rows whose intermediate results fit the workspace together.
type sampleTile struct {
	d                *Device
	logits           kernels.Tensor
	vocab, stretches int
	top              uint64 // of the next row

	rows           []sampleRow // in the step's arrays, as are jobs
	jobs           []sampleJob
	rowsAt, jobsAt uint64
	bins           uint64 // one for each job that has them
	binsEnd        uint64
	free           uint64 // of the workspace
	threads        int    // of sample_pick
}

func align(bytes int64) int64 { return (bytes + 255) &^ 255 }

// needs says what a row takes of the workspace: bins, and the rest.
func (t *sampleTile) needs(p *kernels.SampleParams) (bins, rest int64) {
	partials := align(int64(t.stretches) * 8)
	rest = partials
	if p.Given < 0 && sampling.Changes(p) {
		rest += partials + align(int64(t.vocab)*4)
	}
	if t.vocab <= sampleWindow {
		return 0, rest
	}
	if draws(p) {
		if cuts(p) {
			bins += sampleBinsBytes
		} else {
			rest += partials
		}
	}
	if p.Logprobs > 0 {
		bins += sampleBinsBytes
	} else if p.Logprobs == 0 {
		rest += partials
	}
	return bins, rest
}

// jobsOf is how many jobs p has.
func (t *sampleTile) jobsOf(p *kernels.SampleParams) (n int) {
	if t.vocab <= sampleWindow {
		return 0
	}
	if draws(p) {
		n++
	}
	if p.Logprobs >= 0 {
		n++
	}
	return n
}

// stageLater stages n records that are filled in before the queue is flushed.
func stageLater[T any](d *Device, n int) (addr uint64, records []T) {
	at, bytes := d.arrays.used, n*int(unsafe.Sizeof(*new(T)))
	if addr = d.stage(make([]byte, bytes)); addr == 0 {
		return 0, make([]T, n)
	}
	return addr, unsafe.Slice((*T)(unsafe.Pointer(&d.arrays.host[at])), n)
}

// draws says whether more than the largest decides.
func draws(p *kernels.SampleParams) bool { return p.Given < 0 && p.Temperature > 0 }

// cuts says whether ids are drawn in the order of their probability.
func cuts(p *kernels.SampleParams) bool {
	return p.MinP > 0 || p.TopK > 0 || p.TopP > 0 && p.TopP < 1
}

// carve takes as many of the rows as fit the workspace behind used bytes. Their records lie before what rows stage, so that
// steps whose lists differ in length have equal launches.
func (t *sampleTile) carve(params []kernels.SampleParams, used int64) (n int, err error) {
	var bins, bytes int64
	jobs := 0
	for n < len(params) {
		b, rest := t.needs(&params[n])
		if used+bytes+b+rest > t.d.workspaceBytes {
			break
		}
		bins, bytes, n = bins+b, bytes+b+rest, n+1
		jobs += t.jobsOf(&params[n-1])
	}
	if n == 0 {
		b, rest := t.needs(&params[0])
		return 0, fmt.Errorf("sample: a row of %d ids takes %d bytes of workspace beside %d for what comes back; it has %d",
			t.vocab, b+rest, used, t.d.workspaceBytes)
	}
	t.rowsAt, t.rows = stageLater[sampleRow](t.d, n)
	if jobs > 0 {
		t.jobsAt, t.jobs = stageLater[sampleJob](t.d, jobs)
	}
	t.rows, t.jobs, t.threads = t.rows[:0], t.jobs[:0], 32
	t.bins = t.d.workspace + uint64(used)
	t.binsEnd = t.bins
	t.free = t.bins + uint64(bins)
	return n, nil
}

// take returns room for bytes.
func (t *sampleTile) take(bytes int) (addr uint64) {
	addr = t.free
	t.free += uint64(align(int64(bytes)))
	return addr
}

// add adds row i of the logits.
func (t *sampleTile) add(i int, p *kernels.SampleParams) {
	x := t.logits.Buf.Addr + uint64(i*t.logits.Stride)*4
	r := sampleRow{
		score:      sampleJob{x: x, peaks: t.take(t.stretches * 8), scale: 1, logMinP: 1},
		top:        t.top,
		given:      max(p.Given, -1),
		topK:       int32(min(max(p.TopK, 0), math.MaxInt32)),
		logprobs:   int32(min(max(p.Logprobs, -1), t.vocab)),
		repetition: sampling.Repetition(p), presence: p.Presence, frequency: p.Frequency,
	}
	t.top += uint64(max(r.logprobs, 0)) * uint64(sampleTokenBytes)
	r.draw = r.score
	if p.Given < 0 && sampling.Changes(p) {
		r.changed = t.take(t.vocab * 4)
		r.draw.x, r.draw.peaks = r.changed, t.take(t.stretches*8)
		t.change(&r, p)
	}
	r.draw.scale = 0
	if draws(p) {
		r.draw.scale = min(1/p.Temperature, 1e30)
		r.random = uint64(sampling.Uniform(p.Seed, p.Index)*0x1p53) << 11
		if p.MinP > 0 {
			r.draw.logMinP = float32(math.Log(float64(min(p.MinP, 1))))
		}
		if p.TopP > 0 && p.TopP < 1 {
			r.topP = max(uint64(float64(p.TopP)*0x1p64), 1)
		}
		if cuts(p) {
			r.cut = 1
		}
		t.weigh(&r.draw, r.cut == 1)
	}
	if p.Logprobs >= 0 {
		t.weigh(&r.score, p.Logprobs > 0)
	}
	if draws(p) || p.Logprobs >= 0 {
		t.threads = 512
	}
	t.rows = append(t.rows, r)
}

// weigh adds a job, which fills bins or sums the weights of stretches; a row that fits a window needs neither.
func (t *sampleTile) weigh(j *sampleJob, bins bool) {
	if t.vocab <= sampleWindow {
		return
	}
	if bins {
		j.bins = t.binsEnd
		t.binsEnd += uint64(sampleBinsBytes)
	} else {
		j.sums = t.take(t.stretches * 8)
	}
	t.jobs = append(t.jobs, *j)
}

// change stages what changes a row's logits.
func (t *sampleTile) change(r *sampleRow, p *kernels.SampleParams) {
	d := t.d
	if p.Allowed != nil {
		words := p.Allowed[:min(len(p.Allowed), (t.vocab+31)/32)]
		r.allowed, r.allowedWords = d.stage(bytesOf(words)), int32(len(words))
	}
	e := &d.edits
	e.collect(p, t.vocab)
	r.edits, r.starts, r.biases = d.stage(bytesOf(e.sorted)), d.stage(bytesOf(e.starts)), d.stage(bytesOf(e.biases))
}

// launch draws from the tile's rows.
func (t *sampleTile) launch(results uint64) {
	d := t.d
	// Few ids need few threads: eight ids for each, as in a stretch.
	few := max(32, 1<<bits.Len(uint(t.vocab-1)/8))
	grid := [3]int{t.stretches, len(t.rows), 1}
	d.launch("sample", "sample", "sample_peaks", grid, [3]int{min(few, 128), 1, 1}, 0,
		t.rowsAt, arg(t.vocab), t.bins, arg(int((t.binsEnd-t.bins)/4)))
	if len(t.jobs) > 0 {
		d.launch("sample", "sample", "sample_weigh", [3]int{t.stretches, len(t.jobs), 1}, [3]int{128, 1, 1}, 0, t.jobsAt, arg(t.vocab))
	}
	d.launch("sample", "sample", "sample_pick", [3]int{len(t.rows), 1, 1}, [3]int{min(few, t.threads), 1, 1}, 0, t.rowsAt, results, arg(t.vocab))
}
