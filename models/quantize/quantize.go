package quantize

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/registry"
)

// Options say what Run makes of a checkpoint.
type Options struct {
	Scheme quant.Scheme // of no bits: weights that are codes become bfloat16
	Out    string       // the folder, which may not be there

	// Calibration, when not nil, is text that the model is run over to quantise with GPTQ. At most
	// CalibrationTokens of it are used, in sequences of Context.
	Calibration       *Text
	CalibrationTokens int
	Context           int

	// Device runs the model over the calibration text. Its memory must be the host's.
	Device kernels.Device

	ShardBytes int64 // of tensors in a file at most; 0: 4 GiB

	// seen, for tests, is called with the logits of the calibration.
	seen func(sequence, position int, logits []float32)

	// Progress, when not nil, is told of each weight and tensor, one call at a time.
	Progress func(Progress)
}

// Progress tells of one weight that is done, or of a tensor that was copied.
type Progress struct {
	Name        string
	Coded       bool
	Weights     float64 // root mean square of the weights' error over that of the weights
	Outputs     float64 // that of their products with the calibration's inputs; 0 when there is none
	Resumed     bool    // it was there from an earlier run
	Done, Total int64   // bytes of the source
}

// Report is what Run did.
type Report struct {
	Coded, Copied, Resumed int
	Anew                   int // weights of Coded that were codes in the source
	SourceBytes, Bytes     int64
	Weights                float64  // relative error of all quantised weights, root of the mean square of the weights'
	Uncalibrated           []string // weights that the calibration did not reach
	Notes                  []string
}

const defaultShardBytes = 4 << 30

// Open opens the source, anew each time: a weight can be taken from a Checkpoint once.
type Open func() (*checkpoint.Checkpoint, error)

// Run quantises a checkpoint into the folder o.Out.
func Run(ctx context.Context, open Open, o Options) (Report, error) {
	if err := o.check(); err != nil {
		return Report{}, err
	}
	c, err := open()
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	var p *plan
	if c.Format() == checkpoint.GGUF {
		p, err = planGGUF(c, o.Scheme, o.Device)
	} else {
		p, err = planFolder(c, o.Scheme)
	}
	if err != nil {
		return Report{}, err
	}
	q := &run{Options: o, ctx: ctx, plan: p, report: Report{Anew: p.anew, Notes: p.notes}}
	for _, j := range p.jobs {
		q.report.SourceBytes += j.bytes
		if j.coded {
			q.report.Coded++
		}
	}
	if n := len(p.uneven); n > 0 {
		fits := 32 // all of uneven are multiples of it
		if !slices.ContainsFunc(p.uneven, func(k int) bool { return k%64 != 0 }) {
			fits = 64
		}
		q.report.Notes = append(q.report.Notes, fmt.Sprintf("%d weights are written as floats, as their inputs (%d and the like) are not whole groups of %d: groups of %d would take them",
			n, p.uneven[0], o.Scheme.Group, fits))
	}
	if q.report.Coded == 0 && o.Scheme.Bits != 0 {
		return Report{}, fmt.Errorf("%s: has no weight that could be quantised", c.Path())
	}
	q.report.Copied = len(p.jobs) - q.report.Coded
	id, err := c.Identity()
	if err != nil {
		return Report{}, err
	}
	calibration := "none"
	if o.Calibration != nil {
		calibration = fmt.Sprint(o.Calibration, o.CalibrationTokens, o.Context)
	}
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(id+p.manifest()+calibration)))
	if err := q.work(open, o.Out+".partial", key); err != nil {
		return Report{}, err
	}
	return q.report, nil
}

func (o *Options) check() error {
	s := o.Scheme
	switch {
	case s.Bits == 0 && o.Calibration != nil:
		return errors.New("calibration: nothing is quantised")
	case s.Bits == 0:
	case s.Bits != 4 || !slices.Contains([]int{32, 64, 128}, s.Group):
		return fmt.Errorf("%v: want int4 in groups of 32, 64 or 128", s)
	case o.Calibration != nil && o.Context < 16:
		return fmt.Errorf("context: %d: calibration wants 16 at least", o.Context)
	case o.Calibration != nil && o.CalibrationTokens < o.Context:
		return fmt.Errorf("calibration tokens: %d are not one context of %d", o.CalibrationTokens, o.Context)
	}
	if o.ShardBytes == 0 {
		o.ShardBytes = defaultShardBytes
	}
	if o.Out == "" {
		return errors.New("the folder to write has no name")
	}
	if _, err := os.Lstat(o.Out); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if entries, err := os.ReadDir(o.Out); err != nil || len(entries) > 0 {
		return fmt.Errorf("%s: is there already", o.Out)
	}
	return nil
}

// run is one Run.
type run struct {
	Options
	*plan
	ctx     context.Context
	report  Report
	w       *checkpoint.Writer
	journal *journal
	done    int64
	errors  errorSum
}

func (q *run) work(open Open, dir, key string) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	made := os.Mkdir(dir, 0o755)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	defer func() {
		if err != nil && made == nil && (q.journal == nil || len(q.journal.done) == 0) { // nothing that a later run could go on from
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if q.journal, err = openJournal(dir, key); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.journal.file.Close()) }()
	if q.w, err = checkpoint.NewWriter(dir, q.tensors(), q.ShardBytes); err != nil {
		return err
	}
	if err := q.w.Open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.w.Close()) }()
	q.report.Bytes = q.w.Bytes()
	if err := q.resume(); err != nil {
		return err
	}
	if q.Calibration != nil {
		if err := q.calibrate(open); err != nil {
			return fmt.Errorf("calibration: %w", err)
		}
	}
	for _, j := range q.jobs {
		if err := q.ctx.Err(); err != nil {
			return err
		}
		if _, ok := q.journal.done[j.name]; ok {
			continue
		}
		var e entry
		if j.coded {
			if q.Calibration != nil {
				q.report.Uncalibrated = append(q.report.Uncalibrated, j.name)
			}
			e.Weights, err = j.encode(q.w, q.scheme)
		} else {
			err = j.write(q.w)
		}
		if err != nil {
			return err
		}
		if err := q.finished(j, e, false); err != nil {
			return err
		}
	}
	q.report.Weights = q.errors.relative()
	return q.publish(dir)
}

// resume keeps the jobs of an earlier run whose bytes are as they were.
func (q *run) resume() error {
	for _, j := range q.jobs {
		e, ok := q.journal.done[j.name]
		if !ok {
			continue
		}
		sum, err := checksum(q.w, j.tensors)
		if err != nil {
			return err
		}
		if sum != e.Sum {
			delete(q.journal.done, j.name)
			continue
		}
		q.report.Resumed++
		if err := q.finished(j, e, true); err != nil {
			return err
		}
	}
	return nil
}

// finished writes a job into the journal, unless it is there, and tells of it.
func (q *run) finished(j *job, e entry, resumed bool) error {
	if !resumed {
		var err error
		e.Job = j.name
		if e.Sum, err = checksum(q.w, j.tensors); err != nil {
			return err
		}
		if err := q.journal.write(e); err != nil {
			return err
		}
		q.journal.done[j.name] = e
	}
	if j.coded {
		n := float64(j.m.N) * float64(j.m.K)
		q.errors.wrong, q.errors.all = q.errors.wrong+n*e.Weights*e.Weights, q.errors.all+n
	}
	q.done += j.bytes
	if q.Progress != nil {
		q.Progress(Progress{
			Name: j.name, Coded: j.coded, Weights: e.Weights, Outputs: e.Outputs, Resumed: resumed, Done: q.done, Total: q.report.SourceBytes,
		})
	}
	return nil
}

// calibrate runs the model over the text and quantises each weight when it is reached.
func (q *run) calibrate(open Open) error {
	c, err := open()
	if err != nil {
		return err
	}
	defer c.Close()
	jobs := map[string]*job{}
	for _, j := range q.jobs {
		if j.coded {
			jobs[j.name] = j
		}
	}
	s, err := newStream(q.Device)
	if err != nil {
		return err
	}
	defer s.release()
	s.before = func(m kernels.Matrix, x kernels.Tensor, shared *moments) (kernels.Matrix, error) {
		if err := q.ctx.Err(); err != nil {
			return m, err
		}
		j := jobs[c.Module(m.Name)]
		if j == nil || j.m.N != m.N || j.m.K != m.K {
			return m, nil
		}
		if _, ok := q.journal.done[j.name]; !ok {
			var e entry
			var err error
			if e.Weights, e.Outputs, err = j.encodeWith(q.w, q.scheme, shared); err != nil {
				return m, err
			}
			if err := q.finished(j, e, false); err != nil {
				return m, err
			}
		}
		stored := c.StoredRow(m.Name)
		if c.Format() == checkpoint.GGUF { // jobs have the loader's order already
			stored = nil
		}
		return j.written(q.w, q.scheme, m.Bias, stored), nil
	}
	model, err := registry.Load(c, s)
	if err != nil {
		return err
	}
	defer model.Unload(s)
	context := min(q.Context, model.Shape().MaxPosition)
	var sequences [][]int32
	for _, w := range q.Calibration.windows(Windows{Context: context, Stride: context}) {
		if len(w.ids) < context && len(sequences) > 0 || (len(sequences)+1)*context > q.CalibrationTokens {
			break
		}
		sequences = append(sequences, w.ids)
	}
	if len(sequences) == 0 || len(sequences[0]) < 16 {
		return errors.New("the text has fewer than 16 tokens")
	}
	r, err := newRunner(s, model, s.Info().KVTypes[0], len(sequences)*len(sequences[0]), len(sequences[0]))
	if err != nil {
		return err
	}
	defer r.free()
	return r.step(sequences, make([]int, len(sequences)), q.seen)
}

// publish writes what stands beside the weights, and gives the folder its name.
func (q *run) publish(dir string) error {
	if err := q.w.Finish(); err != nil {
		return err
	}
	slices.Sort(q.ignore)
	if !slices.Contains(q.ignore, "lm_head") { // tied to the embedding, it has no tensor and yet is a linear layer
		q.ignore = append(q.ignore, "lm_head")
	}
	config, err := checkpoint.PlainConfig(q.config)
	if q.scheme.Bits != 0 {
		config, err = checkpoint.CodedConfig(q.config, q.scheme, q.Calibration != nil, q.ignore)
	}
	if err != nil {
		return err
	}
	q.files["config.json"] = config
	for name, b := range q.files {
		if err := writeSynced(filepath.Join(dir, name), b); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, checkpoint.Unfinished)); err != nil {
		return err
	}
	if err := syncFolder(dir); err != nil {
		return err
	}
	if info, err := os.Lstat(q.Out); err == nil && info.IsDir() { // an empty one, which a rename does not replace
		if err := os.Remove(q.Out); err != nil {
			return err
		}
	}
	if err := os.Rename(dir, q.Out); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(filepath.Clean(q.Out)))
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func writeSynced(path string, b []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// errorSum gathers squared errors of weights and squared weights.
type errorSum struct {
	mu         sync.Mutex
	wrong, all float64
}

func (e *errorSum) add(m kernels.Matrix, r *kernels.Rows, w []float32) {
	var wrong, all float64
	for i, v := range w {
		g := i / m.Group
		d := float64(v - r.Scale[g]*float32(int(r.Codes[i])-int(r.Zero[g])))
		wrong += d * d
		all += float64(v) * float64(v)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wrong, e.all = e.wrong+wrong, e.all+all
}

func (e *errorSum) relative() float64 {
	if e.all == 0 {
		return 0
	}
	return math.Sqrt(e.wrong / e.all)
}

func threads() int { return runtime.GOMAXPROCS(0) }
