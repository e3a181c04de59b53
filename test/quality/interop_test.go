package quality

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/quant"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/quantize"
	"github.com/openinfer-go/openinfer/models/registry"
)

// TestTransformersReadsWhatWeWrite quantises models in several ways and has transformers with compressed-tensors
// compute logits from the folders: they are ours, in float32. Needs the packages of scripts/deps-quant.sh; long.
func TestTransformersReadsWhatWeWrite(t *testing.T) {
	if os.Getenv("OPENINFER_SOAK") == "" {
		t.Skip("OPENINFER_SOAK is not set")
	}
	packages := testdata.Cache(t, "py-quant")
	d, err := cpu.Open(cpu.Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cases := []struct {
		name, source string
		scheme       quant.Scheme
		calibrate    bool
	}{
		{"bard asymmetric g32 calibrated", testdata.Shared(t, "demo-models/demo-bard"), quant.Scheme{Bits: 4, Group: 32}, true},
		{"tales g64", testdata.Shared(t, "demo-models/demo-tales"), quant.Scheme{Bits: 4, Group: 64, Symmetric: true}, false},
		{"SmolLM2 g64, from GGUF", testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"), quant.Scheme{Bits: 4, Group: 64, Symmetric: true}, false},
	}
	dir := t.TempDir()
	prompts := [][]int32{{1, 5, 9, 100, 200, 300, 77, 12, 1500, 3, 3, 3}, {42}}
	raw, err := json.Marshal(prompts)
	if err != nil {
		t.Fatal(err)
	}
	asked := filepath.Join(dir, "prompts.json")
	if err := os.WriteFile(asked, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"logits.py"}
	for i, c := range cases {
		o := quantize.Options{Scheme: c.scheme, Out: filepath.Join(dir, strconv.Itoa(i)), Device: d}
		if c.calibrate {
			text := &quantize.Text{}
			for j := range int32(256) {
				text.Tokens = append(text.Tokens, 10+j*j%1900)
			}
			o.Calibration, o.CalibrationTokens, o.Context = text, 256, 128
		}
		open := func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(c.source) }
		if _, err := quantize.Run(t.Context(), open, o); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		args = append(args, o.Out, asked, o.Out+".safetensors")
	}
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "HF_HUB_OFFLINE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("logits.py: %v\n%s", err, out)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(dir, strconv.Itoa(i))
			theirs := testdata.Tensors(t, out+".safetensors")
			ck, err := checkpoint.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			m, err := registry.Load(ck, d)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Unload(d)
			r := modeltest.NewRunner(t, d, m, kernels.F32, 200)
			largest := 0.0
			for j, ids := range prompts {
				want := theirs[strconv.Itoa(j)].Float32()
				rows := r.Step(modeltest.Row{Sequence: &modeltest.Sequence{Tokens: ids}, N: len(ids), All: true})[0]
				if len(want) != len(rows)*len(rows[0]) {
					t.Fatalf("%d logits for %d rows of %d", len(want), len(rows), len(rows[0]))
				}
				for p, row := range rows {
					for k, v := range row {
						largest = max(largest, math.Abs(float64(v-want[p*len(row)+k])))
					}
				}
			}
			t.Logf("largest difference of a logit %.2g", largest)
			if !(largest <= 1e-3) {
				t.Errorf("logits differ by %v, allowed 0.001", largest)
			}
		})
	}
}
