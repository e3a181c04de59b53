package quantize

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
	"github.com/openinfer-go/openinfer/models/checkpoint"
)

// job is one thing that is written: a weight that becomes codes, or what is copied.
type job struct {
	name    string // of the module, or of the tensor
	tensors []checkpoint.NewTensor
	bytes   int64 // that are read for it
	coded   bool
	m       kernels.Matrix // of a weight
	write   func(*checkpoint.Writer) error
}

// plan is all that will be done.
type plan struct {
	scheme quant.Scheme
	jobs   []*job
	ignore []string
	files  map[string][]byte // beside the weights, without config.json
	config []byte            // config.json of the source
	anew   int               // weights that were codes and are quantised again
	uneven []int             // inputs of weights that stay float because they are not whole groups
	notes  []string
}

// rowValues is how many weights are worked on at once by a goroutine.
const rowValues = 1 << 19

// planFolder is the plan for a checkpoint of safetensors.
func planFolder(c *checkpoint.Checkpoint, s quant.Scheme) (*plan, error) {
	items, err := c.Items()
	if err != nil {
		return nil, err
	}
	p := &plan{scheme: s, config: c.ConfigJSON(), files: map[string][]byte{}}
	for _, it := range items {
		if it.Module == "" || !it.Coded && p.keeps(it.Module, it.N, it.K) != "" {
			if it.Module != "" {
				p.leave(it.Module)
			}
			p.copy(c, it.Tensor, it.Tensor, it)
			continue
		}
		m, err := c.Matrix(it.Module, it.N, it.K)
		if err != nil {
			return nil, err
		}
		p.weight(it.Module, m, it.Bytes)
	}
	names, err := c.Files()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !copied(name) {
			continue
		}
		if p.files[name], err = c.Text(name); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// copied says whether a file beside the weights goes with them: tokenizer, templates, configs, licences.
func copied(name string) bool {
	switch name {
	case "config.json", "model.safetensors.index.json", "quantize_config.json", "quant_config.json", checkpoint.Unfinished:
		return false
	}
	for _, end := range []string{".json", ".jinja", ".model", ".txt", ".tiktoken"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "NOTICE")
}

// keeps is keepsFloat, and counts the weights that another group size would let be quantised.
func (p *plan) keeps(module string, n, k int) string {
	why := keepsFloat(module, n, k, p.scheme)
	if why != "" && p.scheme.Bits != 0 && k%32 == 0 && keepsFloat(module, n, k, quant.Scheme{Bits: 4, Group: 32}) == "" {
		p.uneven = append(p.uneven, k)
	}
	return why
}

// leave notes that a linear layer stays float. Embeddings are none.
func (p *plan) leave(module string) {
	if !isEmbedding(module) {
		p.ignore = append(p.ignore, module)
	}
}

// weight adds a weight that becomes codes, or float where it is to stay that: bfloat16 of codes, float32 of
// any float, whose rows may lie otherwise than in the file.
func (p *plan) weight(module string, m kernels.Matrix, bytes int64) {
	j := &job{name: module, m: m, bytes: bytes}
	p.jobs = append(p.jobs, j)
	if p.keeps(module, m.N, m.K) == "" {
		j.coded = true
		j.tensors = checkpoint.CodedTensors(module, p.scheme, m.N, m.K)
		if m.Bits != 0 {
			p.anew++
		}
		return
	}
	p.leave(module)
	j.tensors = []checkpoint.NewTensor{{Name: module + ".weight", Type: "BF16", Shape: []int{m.N, m.K}}}
	wide := m.Bits == 0 && p.scheme.Bits != 0
	if wide {
		j.tensors[0].Type = "F32"
	}
	j.write = func(w *checkpoint.Writer) error {
		return eachRows(m, func(row, n int, values []float32) error {
			if wide {
				return w.WriteAt(module+".weight", int64(row)*int64(m.K)*4, floatBytes(values))
			}
			b := make([]byte, 0, 2*len(values))
			for _, v := range values {
				h := quant.ToBF16(v)
				b = append(b, byte(h), byte(h>>8))
			}
			return w.WriteAt(module+".weight", int64(row)*int64(m.K)*2, b)
		})
	}
}

// copy adds a tensor that stays as it is, under a name.
func (p *plan) copy(c *checkpoint.Checkpoint, from, to string, it checkpoint.Item) {
	p.jobs = append(p.jobs, &job{
		name: to, bytes: it.Bytes,
		tensors: []checkpoint.NewTensor{{Name: to, Type: it.Type, Shape: it.Shape}},
		write: func(w *checkpoint.Writer) error {
			return c.Raw(from, func(b []byte) error { return w.WriteAt(to, 0, b) })
		},
	})
}

// tensors are all that will be written, in order.
func (p *plan) tensors() []checkpoint.NewTensor {
	var list []checkpoint.NewTensor
	for _, j := range p.jobs {
		list = append(list, j.tensors...)
	}
	return list
}

// eachRows calls f with the weights of some rows of m at a time, inputs in the checkpoint's own order, from
// several goroutines.
func eachRows(m kernels.Matrix, f func(row, n int, values []float32) error) error {
	step := max(1, rowValues/m.K/checkpoint.CodedRowStep) * checkpoint.CodedRowStep
	var g errgroup.Group
	g.SetLimit(threads())
	for row := 0; row < m.N; row += step {
		g.Go(func() error {
			n := min(step, m.N-row)
			values, err := readRows(m, row, n)
			if err != nil {
				return err
			}
			return f(row, n, values)
		})
	}
	err := g.Wait()
	if m.Release != nil {
		m.Release()
	}
	return err
}

func readRows(m kernels.Matrix, row, n int) ([]float32, error) {
	var r kernels.Rows
	if err := m.Read(&r, row, n); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	if m.Bits == 0 {
		return r.Float, nil
	}
	values := make([]float32, n*m.K)
	for i := range n {
		decode(values[i*m.K:(i+1)*m.K], m, &r, i)
	}
	return values, nil
}

// encode quantises a weight by the scale search alone and returns the relative error of its weights.
func (j *job) encode(w *checkpoint.Writer, s quant.Scheme) (float64, error) {
	m := s.Matrix(j.name, j.m.N, j.m.K)
	var e errorSum
	err := eachRows(j.m, func(row, n int, values []float32) error {
		var r kernels.Rows
		r.Reset(m, n)
		if err := notANumber(j.m.Name, m.K, row, s.Rows(&r, 0, values, m.K)); err != nil {
			return err
		}
		e.add(m, &r, values)
		return w.WriteCodes(j.name, s, m, &r, row, n)
	})
	return e.relative(), err
}

// encodeWith quantises a weight with the moments of its inputs and returns the relative errors of weights and of
// products.
func (j *job) encodeWith(w *checkpoint.Writer, s quant.Scheme, shared *moments) (weights, outputs float64, err error) {
	m := s.Matrix(j.name, j.m.N, j.m.K)
	g, err := shared.factored()
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", j.name, err)
	}
	values, err := readRows(j.m, 0, m.N)
	if err != nil {
		return 0, 0, err
	}
	if j.m.Release != nil {
		j.m.Release()
	}
	var r kernels.Rows
	r.Reset(m, m.N)
	wrong, all, bad := g.Rows(&r, s, values)
	if err := notANumber(j.m.Name, m.K, 0, bad); err != nil {
		return 0, 0, err
	}
	var e errorSum
	e.add(m, &r, values)
	if all > 0 {
		outputs = math.Sqrt(max(0, wrong) / all)
	}
	return e.relative(), outputs, w.WriteCodes(j.name, s, m, &r, 0, m.N)
}

// written is a matrix that reads what was written of a weight: row i is the written row stored(i), or i when stored is nil.
func (j *job) written(w *checkpoint.Writer, s quant.Scheme, bias []float32, stored func(int) int) kernels.Matrix {
	m := s.Matrix(j.m.Name, j.m.N, j.m.K)
	shape := m
	m.Bias = bias
	m.Read = func(dst *kernels.Rows, row, n int) error {
		if stored == nil {
			return w.ReadCodes(j.name, s, shape, dst, row, n)
		}
		dst.Reset(shape, n)
		var one kernels.Rows
		for i := range n {
			if err := w.ReadCodes(j.name, s, shape, &one, stored(row+i), 1); err != nil {
				return err
			}
			copy(dst.Codes[i*m.K:], one.Codes)
			copy(dst.Scale[i*shape.Groups():], one.Scale)
			copy(dst.Zero[i*shape.Groups():], one.Zero)
		}
		return nil
	}
	return m
}

// manifest is what decides the bytes of the result, apart from the source's.
func (p *plan) manifest() string {
	var b strings.Builder
	fmt.Fprintln(&b, p.scheme)
	for _, j := range p.jobs {
		fmt.Fprintln(&b, j.name, j.coded, j.tensors)
	}
	names := make([]string, 0, len(p.files))
	for name := range p.files {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintln(&b, names, p.ignore)
	return b.String()
}
