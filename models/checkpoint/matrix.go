package checkpoint

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// Option changes how Matrix reads a tensor.
type Option func(*matrixOptions)

type matrixOptions struct {
	bias         bool
	optionalBias bool
	lookedUp     bool
	heads        int
	rows         func(int) int
	inputs       []int32
}

// WithBias makes Matrix take module.bias, [n], too; without it is an error.
func WithBias() Option { return func(o *matrixOptions) { o.bias = true } }

// WithOptionalBias makes Matrix take module.bias, [n], when the checkpoint has one.
func WithOptionalBias() Option { return func(o *matrixOptions) { o.optionalBias = true } }

// Unpermute undoes the order that GGUF files of the llama architecture store the rows of attn_q
// and attn_k in: within each of the heads, rotated pairs are neighbours there, and half a head apart
// in Hugging Face's checkpoints. It changes the bias with the rows, and nothing in safetensors, so
// an architecture that is stored that way asks for it always.
func Unpermute(heads int) Option { return func(o *matrixOptions) { o.heads = heads } }

// RowOrder makes row i of the matrix, and of its bias, the stored row stored(i). It must name each row once.
func RowOrder(stored func(i int) int) Option { return func(o *matrixOptions) { o.rows = stored } }

// InputOrder says that the inputs are stored in another order: stored input k is input order[k].
func InputOrder(order []int32) Option { return func(o *matrixOptions) { o.inputs = order } }

// weight is a matrix that is being put together: fill reads n stored rows, from row on, into dst
// from its row at on.
type weight struct {
	kernels.Matrix
	tensors []*tensor
	fill    func(dst *kernels.Rows, at, row, n int)
}

// LookedUp says that the matrix is only a table to look rows up in: see kernels.Matrix.
func LookedUp() Option { return func(o *matrixOptions) { o.lookedUp = true } }

// quantFormat is a quantisation that config.json names.
type quantFormat interface {
	// has says whether the module has a weight in this format.
	has(c *Checkpoint, module string) bool
	// weight reads it.
	weight(c *Checkpoint, module string, n, k int) (weight, error)
	// missing names the tensor that a module lacks that has no weight at all.
	missing(module string) string
	// declared is what the config alone says of a module; 0 bits: it is not quantised.
	declared(module string) (moduleConfig, error)
}

// Matrix returns the weight of a linear layer or an embedding, [n, k], by the name of its module
// ("model.layers.0.self_attn.q_proj"), float or quantised as it is stored, and marks its tensors
// used. Names of a GGUF file are accepted too. Errors name the tensor: one missing, of another
// shape, of a type that cannot be a weight, or used before.
//
// What is stored decides: a module that the quantisation config counts in but that has a float weight
// is float, as lists of exceptions often miss a prefix; the shape check leaves no doubt which it is.
func (c *Checkpoint) Matrix(module string, n, k int, opts ...Option) (kernels.Matrix, error) {
	var o matrixOptions
	for _, opt := range opts {
		opt(&o)
	}
	name := c.stored(module)
	if n <= 0 || k <= 0 {
		return kernels.Matrix{}, fmt.Errorf("%s: %s.weight: shape [%d, %d] asked for", c.path, name, n, k)
	}
	if c.made != nil {
		return c.makeMatrix(name, n, k, o)
	}
	var w weight
	var err error
	if q := c.config.quant; q != nil && q.has(c, name) {
		w, err = q.weight(c, name, n, k)
	} else {
		w, err = c.plainWeight(name, n, k)
	}
	if err != nil {
		return kernels.Matrix{}, err
	}
	w.LookedUp = o.lookedUp
	rows := o.rows
	if c.format == GGUF && o.heads > 0 {
		if n%(2*o.heads) != 0 {
			return kernels.Matrix{}, w.tensors[0].errorf("%d rows are not %d heads of an even size", n, o.heads)
		}
		rows = func(i int) int { return permutedRow(i, n/o.heads) }
	}
	if o.inputs != nil {
		if w.Perm != nil {
			return kernels.Matrix{}, w.tensors[0].errorf("has an activation order, but its inputs are stored in an order of their own")
		}
		w.Perm = o.inputs
	}
	bias := name + ".bias"
	if o.bias || o.optionalBias && c.tensors[bias] != nil {
		if w.Bias, err = c.Vector(bias, n); err != nil {
			return kernels.Matrix{}, err
		}
		if rows != nil {
			stored := slices.Clone(w.Bias)
			for i := range w.Bias {
				w.Bias[i] = stored[rows(i)]
			}
		}
	} else if t := c.tensors[bias]; t != nil && w.Bits != 0 && c.format == Safetensors && c.isZero(t, n) {
		// Exporters of GPTQ gave every module a bias, of zeros where the model has none.
		w.tensors = append(w.tensors, t)
	}
	if err := c.use(w.tensors...); err != nil {
		return kernels.Matrix{}, err
	}
	if rows != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.rows == nil {
			c.rows = map[string]func(int) int{}
		}
		c.rows[w.Name] = rows
	}
	return c.finish(w, rows), nil
}

// finish gives a matrix its Read and Release. Row i is the stored row rows(i); nil: i.
func (c *Checkpoint) finish(w weight, rows func(int) int) kernels.Matrix {
	m, fill := w.Matrix, w.fill
	var files []*file
	for _, t := range w.tensors {
		if !slices.Contains(files, t.file) {
			files = append(files, t.file)
		}
	}
	ahead := readAhead{tensors: w.tensors, rows: m.N}
	shape := m // without Read and Release, for Reset
	m.Read = func(dst *kernels.Rows, row, n int) error {
		if row < 0 || n < 0 || row > shape.N-n {
			return fmt.Errorf("%s: rows [%d, %d) of %d", shape.Name, row, row+n, shape.N)
		}
		dst.Reset(shape, n)
		return c.reading(func() error {
			ahead.reach(row + n)
			if rows == nil {
				fill(dst, 0, row, n)
				return finite(shape, dst, row)
			}
			for i := 0; i < n; {
				first, count := rows(row+i), 1
				for i+count < n && rows(row+i+count) == first+count {
					count++
				}
				fill(dst, i, first, count)
				i += count
			}
			return finite(shape, dst, row)
		}, files...)
	}
	m.Release = func() {
		c.life.RLock()
		defer c.life.RUnlock()
		if c.closed {
			return
		}
		for _, t := range w.tensors {
			t.file.release(t.data)
		}
	}
	return m
}

// finite refuses scales and minima that are no finite numbers: every answer would fail. Floats are not looked at, as
// the rows of an embedding that nobody uses may hold anything. Who reads names the matrix.
func finite(m kernels.Matrix, r *kernels.Rows, row int) error {
	if m.Bits == 0 {
		return nil
	}
	for i, x := range r.Scale {
		if x-x != 0 {
			return fmt.Errorf("row %d, group %d: the scale is %v", row+i/m.Groups(), i%m.Groups(), x)
		}
	}
	if m.HasMin {
		for i, x := range r.Min {
			if x-x != 0 {
				return fmt.Errorf("row %d, group %d: the minimum is %v", row+i/m.Groups(), i%m.Groups(), x)
			}
		}
	}
	return nil
}

// permutedRow is where a llama GGUF stores a row of heads of size rows: row i of the first half of a head at 2i,
// row i of the second at 2i+1.
func permutedRow(row, size int) int {
	head, i := row/size*size, row%size
	return head + i%(size/2)*2 + i/(size/2)
}

// plainWeight is module.weight, float or one of GGUF's block types.
func (c *Checkpoint) plainWeight(module string, n, k int) (weight, error) {
	t := c.tensors[module+".weight"]
	if t == nil {
		missing := module + ".weight"
		if c.config.quant != nil {
			missing = c.config.quant.missing(module)
		}
		for _, suffix := range []string{".weight_packed", ".qweight"} {
			if other := c.tensors[module+suffix]; other != nil {
				return weight{}, other.errorf("config.json has no quantization_config that says what it is, and there is no %s", missing)
			}
		}
		return weight{}, fmt.Errorf("%s: tensor %s is missing", c.path, missing)
	}
	if !t.is(n, k) {
		return weight{}, t.errorf("should have the shape [%d %d]", n, k)
	}
	w := weight{tensors: []*tensor{t}, Matrix: kernels.Matrix{Name: t.name, N: n, K: k}}
	if t.kind.float {
		w.Type, w.ScaleType = t.kind.dtype, t.kind.dtype
		rowBytes := k * t.kind.size
		w.fill = func(dst *kernels.Rows, at, row, n int) {
			quant.Floats(dst.Float[at*k:(at+n)*k], t.kind.dtype, t.data[row*rowBytes:(row+n)*rowBytes])
		}
		return w, nil
	}
	b := t.kind.blocks
	if b == nil {
		return weight{}, t.errorf("a weight cannot be of this type")
	}
	w.Bits, w.Group, w.HasMin, w.ScaleType = b.Bits, b.Group, b.HasMin, b.ScaleType
	rowBytes := k / b.Values * b.Bytes
	w.fill = func(dst *kernels.Rows, at, row, n int) {
		b.Unpack(dst, at*k, t.data[row*rowBytes:(row+n)*rowBytes])
	}
	return w, nil
}

// isZero says whether a float tensor has n values, all zero.
func (c *Checkpoint) isZero(t *tensor, n int) bool {
	if !t.kind.float || !t.is(n) {
		return false
	}
	zero := false
	err := c.reading(func() error {
		v := make([]float32, n)
		quant.Floats(v, t.kind.dtype, t.data)
		zero = !slices.ContainsFunc(v, func(x float32) bool { return x != 0 })
		return nil
	}, t.file)
	return err == nil && zero
}

// Vector reads a float tensor of this shape ("model.norm.weight"; "rope_freqs.weight" of a GGUF
// file), outermost dimension first, and marks it used. Values that are no finite numbers are an error.
func (c *Checkpoint) Vector(name string, shape ...int) ([]float32, error) {
	if c.made != nil {
		return c.makeVector(name, shape)
	}
	stored := c.storedTensor(name)
	t := c.tensors[stored]
	if t == nil {
		return nil, fmt.Errorf("%s: tensor %s is missing", c.path, stored)
	}
	if !t.is(shape...) {
		return nil, t.errorf("should have the shape %v", shape)
	}
	if !t.kind.float {
		return nil, t.errorf("should be F32, F16 or BF16")
	}
	if err := c.use(t); err != nil {
		return nil, err
	}
	v := make([]float32, len(t.data)/t.kind.size)
	err := c.reading(func() error {
		quant.Floats(v, t.kind.dtype, t.data)
		return nil
	}, t.file)
	if err != nil {
		return nil, err
	}
	for i, x := range v {
		if x-x != 0 { // NaN or infinite: every answer would fail
			return nil, t.errorf("value %d is %v", i, x)
		}
	}
	return v, nil
}

// use marks tensors used, which they may not be before.
func (c *Checkpoint) use(tensors ...*tensor) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range tensors {
		if t.used {
			return t.errorf("is used twice")
		}
	}
	for _, t := range tensors {
		t.used = true
	}
	return nil
}

// Alias accepts a tensor that repeats another one: when name is there, it must have the type,
// shape and bytes of the tensor of, and is marked used. A tied model says so of lm_head.weight.
func (c *Checkpoint) Alias(name, of string) error {
	t, original := c.tensors[c.storedTensor(name)], c.tensors[c.storedTensor(of)]
	if t == nil {
		return nil
	}
	if original == nil {
		return t.errorf("should repeat %s, which is missing", c.storedTensor(of))
	}
	if t.kind.name != original.kind.name || !t.is(original.shape...) {
		return t.errorf("should repeat %v", original)
	}
	err := c.reading(func() error {
		if !bytes.Equal(t.data, original.data) {
			return t.errorf("should repeat %s, but holds other values", original.name)
		}
		return nil
	}, t.file, original.file)
	t.file.release(t.data)
	if err != nil {
		return err
	}
	return c.use(t)
}

// Skip marks the tensors whose names start with prefix as left unused on purpose, and returns how many they are.
func (c *Checkpoint) Skip(prefix string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.order {
		if !t.used && strings.HasPrefix(t.name, prefix) {
			t.used = true
			n++
		}
	}
	return n
}

// buffers end the names of tensors that follow from the config, which old exporters wrote beside
// the weights.
var buffers = []string{".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached", ".attn_rot_embd.weight"}

// Finish says that the model is complete: a tensor that was not used is an error that names it.
// Buffers that follow from the config (rotary_emb.inv_freq and the like) may be left.
func (c *Checkpoint) Finish() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []string
	for _, t := range c.order {
		if !t.used && !slices.ContainsFunc(buffers, func(end string) bool { return strings.HasSuffix(t.name, end) }) {
			left = append(left, t.name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	more := ""
	if len(left) > 5 {
		more = ", ..."
	}
	return fmt.Errorf("%s: %d tensors are not part of the model %q: %s%s",
		c.path, len(left), c.Architecture(), strings.Join(left[:min(len(left), 5)], ", "), more)
}
