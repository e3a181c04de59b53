package quality

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/registry"
)

// oracleCase is what scripts/oracle/make.py says of a checkpoint that it drew.
type oracleCase struct {
	Architecture string
	Notes        []string
	MayRefuse    []string `json:"may_refuse"`
	Noise        float64  // how far the reference's float32 is from its float64
}

// TestOracle holds all devices to the reference library on the checkpoints in OPENINFER_ORACLE, a folder
// that scripts/oracle/make.py filled; `make soak` does both.
func TestOracle(t *testing.T) {
	root := os.Getenv("OPENINFER_ORACLE")
	if root == "" {
		t.Skip("OPENINFER_ORACLE is not set")
	}
	files, err := filepath.Glob(filepath.Join(root, "*", "case.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", root, err)
	}
	compared := 0
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			if compareOracle(t, file) {
				compared++
			}
		})
	}
	t.Logf("%d of %d cases compared, the others refused for a key that is not supported", compared, len(files))
	if compared < len(files)/2 {
		t.Error("most cases were refused")
	}
}

func compareOracle(t *testing.T, file string) bool {
	raw, err := os.ReadFile(file)
	var c oracleCase
	if err := errors.Join(err, json.Unmarshal(raw, &c)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("%s", raw)
		}
	}()
	dir := filepath.Dir(file)
	if err := loads(t, dir); err != nil {
		names := func(key string) bool { return strings.Contains(err.Error(), key) }
		if !slices.ContainsFunc(c.MayRefuse, names) {
			t.Errorf("refused: %v", err)
		}
		return false
	}
	f := modeltest.Checkpoint{Name: c.Architecture, Path: dir, Golden: dir}
	float32 := func(name string, open func(testing.TB) kernels.Device) modeltest.Device {
		d := modeltest.Float32(name, open)
		d.Logits = max(d.Logits, 4*c.Noise)
		return d
	}
	t.Run("ref", func(t *testing.T) {
		f.Compare(t, float32("ref", func(testing.TB) kernels.Device { return ref.Open() }), dir)
	})
	t.Run("exact", func(t *testing.T) { f.Run(t, float32("cpu exact", openCPU(cpu.Options{Exact: true}))) })
	t.Run("int8", func(t *testing.T) {
		// What int8 activations cost is measured elsewhere, on models that mean something: here every logit is a number.
		f.Run(t, modeltest.Device{Name: "cpu", Open: openCPU(cpu.Options{}), KV: kernels.F16, MeanDiff: math.MaxFloat32, KL: math.MaxFloat32})
	})
	return true
}

func openCPU(o cpu.Options) func(testing.TB) kernels.Device {
	return func(tb testing.TB) kernels.Device {
		d, err := cpu.Open(o)
		if err != nil {
			tb.Fatal(err)
		}
		return d
	}
}

// loads loads a checkpoint once, for the error.
func loads(t *testing.T, dir string) error {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	d := ref.Open()
	m, err := registry.Load(c, d)
	if err == nil {
		m.Unload(d)
	}
	return errors.Join(err, c.Close(), d.Close())
}
