package quantize

import (
	"fmt"
	"strings"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// Load is how float weights are quantised while they are loaded.
type Load struct {
	Scheme quant.Scheme
	// Head8 makes 8-bit codes of the embedding and the output layer, which otherwise stay as they are.
	Head8 bool
}

// LoadNames are what ParseLoad takes.
const LoadNames = "int4-g32, int4-g64 or int4-g128, and with -head8 behind it the embedding and the output layer in 8 bits"

// ParseLoad reads the name of a way to quantise while loading.
func ParseLoad(name string) (Load, error) {
	var l Load
	base, head := strings.CutSuffix(name, "-head8")
	groups := map[string]int{"int4-g32": 32, "int4-g64": 64, "int4-g128": 128}
	group, ok := groups[base]
	if !ok {
		return l, fmt.Errorf("quantize: %q is not known: want %s", name, LoadNames)
	}
	return Load{Scheme: quant.Scheme{Bits: 4, Group: group, Symmetric: true}, Head8: head}, nil
}

// Device is d with a Load that quantises float weights first, each scale found by a search (quant.Scheme). Weights
// that are stored as codes stay as they are. What it loads is d's: the rest of the work may go to d itself.
func (l Load) Device(d kernels.Device) kernels.Device { return &onLoad{d, l} }

type onLoad struct {
	kernels.Device
	how Load
}

// Load implements kernels.Device.
func (d *onLoad) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	coded := make([]kernels.Matrix, len(parts))
	for i, m := range parts {
		coded[i] = d.coded(m)
	}
	return d.Device.Load(coded...)
}

// coded is m with a reader that quantises, when m is float and the rule says so.
func (d *onLoad) coded(m kernels.Matrix) kernels.Matrix {
	if m.Bits != 0 {
		return m
	}
	module, s := strings.TrimSuffix(m.Name, ".weight"), d.how.Scheme
	if keepsFloat(module, m.N, m.K, s) != "" {
		s = quant.Scheme{Bits: 8, Group: 32, Symmetric: true}
		if !d.how.Head8 || !isHead(module) && !isEmbedding(module) || m.K%s.Group != 0 {
			return m
		}
	}
	c := s.Matrix(m.Name, m.N, m.K)
	c.Bias, c.Perm, c.Release = m.Bias, m.Perm, m.Release
	c.Read = func(dst *kernels.Rows, row, n int) error {
		var float kernels.Rows
		if err := m.Read(&float, row, n); err != nil {
			return err
		}
		dst.Reset(c, n)
		return notANumber(m.Name, m.K, row, s.Rows(dst, 0, float.Float, m.K))
	}
	return c
}

// notANumber is the error for weight number bad of some rows, from row on; nil for -1.
func notANumber(name string, k, row, bad int) error {
	if bad < 0 {
		return nil
	}
	return fmt.Errorf("tensor %s: the weight of output %d, input %d is not a finite number", name, row+bad/k, bad%k)
}
