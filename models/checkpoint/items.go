package checkpoint

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Item is one thing that a checkpoint holds, for those who write another one from it: a weight of two
// dimensions, which Matrix reads by its Module, or any other tensor, which is copied as it is.
type Item struct {
	Tensor string // its name in the file; of a weight in several tensors the first's
	Type   string
	Shape  []int
	Bytes  int64

	Module string // "" unless it is a weight
	N, K   int    // of a weight
	Coded  bool   // a weight that is stored as codes
}

// codedParts are the tensors that a module with codes has beside them, by the one that has the codes.
var codedParts = map[string][]string{
	".weight_packed": {".weight_shape", ".weight_scale", ".weight_zero_point", ".weight_g_idx"},
	".weight":        {".weight_scale", ".weight_zero_point"},
	".qweight":       {".qzeros", ".scales", ".g_idx"},
}

// Items lists what a checkpoint of safetensors holds, in the files' order. The parts of a weight that
// is stored as codes are one item.
func (c *Checkpoint) Items() ([]Item, error) {
	if c.format != Safetensors {
		return nil, fmt.Errorf("%s: items are those of safetensors", c.path)
	}
	part := map[string]bool{}
	items := make([]Item, 0, len(c.order))
	coded := func(name string) (module, end string) {
		for _, end := range slices.Sorted(maps.Keys(codedParts)) {
			module, ok := strings.CutSuffix(name, end)
			if ok && c.config.quant != nil && c.config.quant.has(c, module) && (end != ".weight" || c.tensors[name].kind.name == "I8") {
				return module, end
			}
		}
		return "", ""
	}
	for _, t := range c.order {
		if module, end := coded(t.name); module != "" {
			for _, p := range codedParts[end] {
				part[module+p] = true
			}
		}
	}
	for _, t := range c.order {
		if part[t.name] {
			continue
		}
		it := Item{Tensor: t.name, Type: t.kind.name, Shape: t.shape, Bytes: int64(len(t.data))}
		if module, _ := coded(t.name); module != "" {
			var err error
			if it.N, it.K, err = c.codedShape(module, t); err != nil {
				return nil, err
			}
			it.Module, it.Coded = module, true
		} else if module, ok := strings.CutSuffix(t.name, ".weight"); ok && len(t.shape) == 2 && t.kind.float && t.shape[0] > 0 && t.shape[1] > 0 {
			it.Module, it.N, it.K = module, t.shape[0], t.shape[1]
		}
		items = append(items, it)
	}
	return items, nil
}

// codedShape is what the shape of a weight must be for its codes. Matrix checks the rest.
func (c *Checkpoint) codedShape(module string, t *tensor) (n, k int, err error) {
	if len(t.shape) != 2 {
		return 0, 0, t.errorf("should have two dimensions")
	}
	switch q := c.config.quant.(type) {
	case *compressedTensors:
		if t.kind.name == "I8" {
			return t.shape[0], t.shape[1], nil
		}
		shape, err := c.beside(module+".weight_shape", t)
		if err != nil {
			return 0, 0, err
		}
		if shape.kind.name != "I64" || !shape.is(2) {
			return 0, 0, shape.errorf("should be I64 [2]")
		}
		err = c.reading(func() error {
			n, k = int(binary.LittleEndian.Uint64(shape.data)), int(binary.LittleEndian.Uint64(shape.data[8:]))
			return nil
		}, shape.file)
		if err == nil && (n <= 0 || k <= 0) {
			err = shape.errorf("holds %d, %d", n, k)
		}
		return n, k, err
	case *gptq:
		f, err := q.module.of(module, q.rules)
		if err != nil {
			return 0, 0, t.errorf("%w", err)
		}
		return t.shape[1], t.shape[0] * (32 / f.bits), nil
	case *awq:
		return t.shape[1] * 8, t.shape[0], nil
	}
	return 0, 0, t.errorf("its format does not say what shape it has")
}

// Raw calls read with the bytes of a tensor as they are stored. They are valid until it returns.
func (c *Checkpoint) Raw(name string, read func([]byte) error) error {
	t := c.tensors[name]
	if t == nil {
		return fmt.Errorf("%s: tensor %s is missing", c.path, name)
	}
	err := c.reading(func() error { return read(t.data) }, t.file)
	t.file.release(t.data)
	return err
}

// Module is the Hugging Face name of what a tensor's name or a Matrix's stands for: the name without what
// its format puts after the module's, and of a GGUF file translated.
func (c *Checkpoint) Module(stored string) string {
	if c.format != GGUF {
		for end := range codedParts {
			if m, ok := strings.CutSuffix(stored, end); ok {
				return m
			}
		}
		return stored
	}
	stored = strings.TrimSuffix(stored, ".weight")
	find := func(table map[string]string, name string) (string, bool) {
		for _, hf := range slices.Sorted(maps.Keys(table)) {
			if table[hf] == name {
				return hf, true
			}
		}
		return "", false
	}
	if hf, ok := find(c.names.Global, stored); ok {
		return hf
	}
	if rest, ok := strings.CutPrefix(stored, "blk."); ok {
		layer, part, _ := strings.Cut(rest, ".")
		if hf, ok := find(c.names.Layer, part); ok {
			return "model.layers." + layer + "." + hf
		}
	}
	return stored
}

// StoredRow says which stored row each row of a Matrix of this name is, for who writes the rows as they are
// stored; nil when they are the same.
func (c *Checkpoint) StoredRow(name string) func(row int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[name]
}

// Vectors lists the float tensors of a GGUF file that have one dimension.
func (c *Checkpoint) Vectors() []Item {
	var items []Item
	for _, t := range c.order {
		if len(t.shape) == 1 && t.kind.float {
			items = append(items, Item{Tensor: t.name, Type: t.kind.name, Shape: t.shape, Bytes: int64(len(t.data))})
		}
	}
	return items
}

// Files gives the names of the plain files beside the weights, and Text one of them.
func (c *Checkpoint) Files() ([]string, error) { return c.folder.names() }

// Text reads a file of the checkpoint's folder that is not a tensor file.
func (c *Checkpoint) Text(name string) ([]byte, error) { return c.folder.text(name) }

// Identity changes when the tensors' files do: it names them with their sizes and times.
func (c *Checkpoint) Identity() (string, error) {
	var b strings.Builder
	for _, f := range c.files {
		fmt.Fprintf(&b, "%s %d", f.path, len(f.data))
		if f.mapped != nil {
			info, err := f.mapped.Stat()
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, " %d", info.ModTime().UnixNano())
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}
