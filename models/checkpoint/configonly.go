package checkpoint

import (
	"cmp"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
)

// ErrNoWeights: the folder has a config.json and no tensor file. Fetch the weights, or open it with OpenConfig.
var ErrNoWeights = errors.New("no weights")

// OpenConfig opens a folder of which config.json and the texts count, or a file that stands for a config.json,
// as if all weights were there: every tensor that an architecture asks for exists, with the shape it
// asks for. Vectors are zeros; a matrix has no values and its Read is an error, so only a device that does
// not read can load it.
//
// Weights are quantised as quantization_config says. Without one linear layers have 4 bits, symmetric,
// with a scale for each 128 inputs, layers too narrow for that (fewer than 64 outputs, or inputs that are no
// whole groups) and an embedding that is only looked up are bf16, and the output layer has 8 bits, a
// scale a row, also where the embedding is it.
func OpenConfig(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openConfig(path, diskFolder(path))
	}
	raw, err := diskFolder(filepath.Dir(path)).text(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	return OpenConfigBytes(path, raw)
}

// bareConfig is a folder with one file, which goes by the folder's name.
type bareConfig struct{ memoryFolder }

func (b bareConfig) path(string) string { return b.name }

// OpenConfigBytes is OpenConfig of what a config.json holds. name stands for the path in errors.
func OpenConfigBytes(name string, raw []byte) (*Checkpoint, error) {
	return openConfig(name, bareConfig{memoryFolder{name, map[string][]byte{configFile: raw}}})
}

func openConfig(path string, f folder) (*Checkpoint, error) {
	c := &Checkpoint{path: path, folder: f, format: ConfigOnly, made: map[string]bool{}}
	names, err := f.names()
	if err == nil {
		err = c.readConfig()
	}
	if err == nil {
		err = c.readTexts(names)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// KeepFloats makes the weights of a config.json that names no quantisation floats of the type that it states, as the
// model's own files have them. It does nothing to a checkpoint that has weights. It is called before the first tensor is asked for.
func (c *Checkpoint) KeepFloats() error {
	if c.format != ConfigOnly || c.config.quant != nil {
		return nil
	}
	type part struct {
		Type string `json:"dtype"`
		Old  string `json:"torch_dtype"`
	}
	var cfg struct {
		part
		Text part `json:"text_config"`
	}
	if err := json.Unmarshal(c.config.raw, &cfg); err != nil {
		return fmt.Errorf("%s: dtype: %w", c.folder.path(configFile), err)
	}
	c.floats = new(kernels.DType)
	switch name := cmp.Or(cfg.Text.Type, cfg.Text.Old, cfg.Type, cfg.Old); name {
	case "bfloat16", "", "auto":
		*c.floats = kernels.BF16
	case "float16":
		*c.floats = kernels.F16
	case "float32":
		*c.floats = kernels.F32
	default:
		return fmt.Errorf("%s: dtype %q: want bfloat16, float16 or float32", c.folder.path(configFile), name)
	}
	return nil
}

const (
	madeGroup   = 128
	madeOutputs = 64 // fewer stay bf16, as in openinfer quantize
)

// makeMatrix is Matrix of a checkpoint that has no weights.
func (c *Checkpoint) makeMatrix(module string, n, k int, o matrixOptions) (kernels.Matrix, error) {
	name := module + ".weight"
	if err := c.make(name); err != nil {
		return kernels.Matrix{}, err
	}
	how, err := c.madeCodes(module, n, k, o.lookedUp)
	if err != nil {
		return kernels.Matrix{}, fmt.Errorf("%s: tensor %s: %w", c.path, name, err)
	}
	m := kernels.Matrix{Name: name, N: n, K: k, Bits: how.bits, Symmetric: how.sym, LookedUp: o.lookedUp, Type: kernels.BF16, ScaleType: kernels.F16}
	if c.floats != nil {
		m.Type = *c.floats
	}
	if how.bits > 0 {
		if m.Group = how.group; m.Group == 0 {
			m.Group = k
		}
		if k%m.Group != 0 {
			return m, fmt.Errorf("%s: tensor %s: %d inputs are not whole groups of %d (quantization_config)", c.path, name, k, m.Group)
		}
	}
	switch {
	case o.inputs != nil:
		m.Perm = o.inputs
	case how.order:
		m.Perm = make([]int32, k)
		for i := range m.Perm {
			m.Perm[i] = int32(i)
		}
	}
	m.Read = func(*kernels.Rows, int, int) error {
		return fmt.Errorf("%s: %w: tensor %s is only named by config.json", c.path, ErrNoWeights, name)
	}
	if o.bias {
		m.Bias, err = c.Vector(module+".bias", n)
	}
	return m, err
}

func (c *Checkpoint) madeCodes(module string, n, k int, lookedUp bool) (moduleConfig, error) {
	switch {
	case c.config.quant != nil:
		return c.config.quant.declared(module)
	case c.floats != nil:
		return moduleConfig{}, nil
	case strings.HasSuffix(module, "lm_head") || strings.HasSuffix(module, "embed_tokens") && !lookedUp:
		return moduleConfig{bits: 8, sym: true}, nil
	case lookedUp || n < madeOutputs || k%madeGroup != 0:
		return moduleConfig{}, nil
	}
	return moduleConfig{bits: 4, group: madeGroup, sym: true}, nil
}

// make uses a name, which may be used once.
func (c *Checkpoint) make(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made[name] {
		return fmt.Errorf("%s: tensor %s is used twice", c.path, name)
	}
	c.made[name] = true
	return nil
}

// makeVector is Vector of a checkpoint that has no weights.
func (c *Checkpoint) makeVector(name string, shape []int) ([]float32, error) {
	n, ok := byteSize(storageF32, shape)
	if !ok || n > maxText {
		return nil, fmt.Errorf("%s: tensor %s: shape %v asked for", c.path, name, shape)
	}
	if err := c.make(name); err != nil {
		return nil, err
	}
	return make([]float32, n/4), nil
}

func (q *compressedTensors) declared(module string) (moduleConfig, error) {
	ignored, err := match(q.ignore, module)
	if err != nil {
		return moduleConfig{}, fmt.Errorf("quantization_config.ignore: %w", err)
	}
	if ignored != noMatch {
		return moduleConfig{}, nil
	}
	g, err := q.group(module)
	if errors.Is(err, errNoTarget) {
		return moduleConfig{}, nil
	}
	return moduleConfig{bits: g.bits, group: g.group, sym: !g.asym, order: g.order}, err
}

func (q *gptq) declared(module string) (moduleConfig, error) {
	return q.module.declared(module, q.rules)
}

func (q *awq) declared(module string) (moduleConfig, error) {
	if _, ok := q.skips(module); ok {
		return moduleConfig{}, nil
	}
	return q.module.declared(module, q.rules)
}

// declared is what the formats by module say (0 bits: as bf16), which quantise neither embedding nor output layer unless a rule names it.
func (m moduleConfig) declared(module string, rules []moduleRule) (moduleConfig, error) {
	for _, r := range rules {
		fits, err := match(r.targets, module)
		if err != nil {
			return moduleConfig{}, fmt.Errorf("quantization_config.%s: %w", r.key, err)
		}
		if fits < patternMatch {
			continue
		}
		if r.float {
			return moduleConfig{}, nil
		}
		m, err = r.members.apply(m)
		return m, err
	}
	if strings.HasSuffix(module, "lm_head") || strings.HasSuffix(module, "embed_tokens") {
		return moduleConfig{}, nil
	}
	return m, nil
}
