package quantize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/kernels/quant"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/registry"
)

var g32 = quant.Scheme{Bits: 4, Group: 32, Symmetric: true}

func openDevice(t testing.TB) kernels.Device {
	t.Helper()
	d, err := cpu.Open(cpu.Options{Exact: true, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// golden opens one of the reference data's checkpoints.
func golden(t testing.TB, elem ...string) Open {
	t.Helper()
	path := testdata.Shared(t, elem...)
	return func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(path) }
}

func folder(path string) Open {
	return func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(path) }
}

// someText is text that models of the reference data can read: ids that follow from those before.
func someText(vocab, n int) *Text {
	rnd := rand.New(rand.NewPCG(1, 2))
	t := &Text{}
	last := 1
	for range n {
		last = (last*7 + rnd.IntN(5)) % vocab
		t.Tokens = append(t.Tokens, int32(last))
	}
	return t
}

// logits are those of all positions of a sequence. wrap stands between the loader and the device.
func logits(t testing.TB, open Open, tokens []int32, wrap func(kernels.Device) kernels.Device) [][]float32 {
	t.Helper()
	d := openDevice(t)
	c, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	on := d
	if wrap != nil {
		on = wrap(d)
	}
	m, err := registry.Load(c, on)
	if err != nil {
		t.Fatal(err)
	}
	r := modeltest.NewRunner(t, d, m, kernels.F32, 2*len(tokens))
	return r.Step(modeltest.Row{Sequence: &modeltest.Sequence{Tokens: tokens}, N: len(tokens), All: true})[0]
}

// sameLogits allows a difference: 0 wants the same bits.
func sameLogits(t *testing.T, got, want [][]float32, tolerance float64) {
	t.Helper()
	for i := range want {
		for j, v := range want[i] {
			if d := math.Abs(float64(got[i][j]) - float64(v)); !(d <= tolerance) {
				t.Fatalf("position %d, logit %d: %v, want %v", i, j, got[i][j], v)
			}
		}
	}
}

// What is written has the codes of the scheme, and is what the same weights are when they are quantised while
// loading.
func TestFolderIsWhatLoadingQuantises(t *testing.T) {
	tokens := someText(500, 40).Tokens
	for _, source := range []string{"golden/models/llama", "golden/models/qwen3_tied", "golden/gguf/llama_k256/llama_k256-F16.gguf", "golden/gguf/qwen3_k256/qwen3_k256-F16.gguf"} {
		t.Run(source, func(t *testing.T) {
			open := golden(t, source)
			out := filepath.Join(t.TempDir(), "out")
			r, err := Run(t.Context(), open, Options{Scheme: g32, Out: out, Device: openDevice(t)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Coded != 14 || r.Anew != 0 || !(r.Weights > 0.02 && r.Weights < 0.12) {
				t.Errorf("report %+v", r)
			}
			want := logits(t, open, tokens, Load{Scheme: g32}.Device)
			tolerance := 0.0
			if strings.HasSuffix(source, ".gguf") {
				tolerance = 1e-4 // frequencies are computed by a rule instead of read
			}
			sameLogits(t, logits(t, folder(out), tokens, nil), want, tolerance)
			float := logits(t, open, tokens, nil)
			if slices.Equal(float[0], want[0]) {
				t.Error("the weights are as they were: nothing was quantised")
			}
		})
	}
}

func TestAsymmetricAndShards(t *testing.T) {
	open := golden(t, "golden/models/llama")
	s := quant.Scheme{Bits: 4, Group: 64}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := Run(t.Context(), open, Options{Scheme: s, Out: out, ShardBytes: 60000, Device: openDevice(t)}); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(out, "*.safetensors")); len(files) < 4 {
		t.Errorf("files %v: want some", files)
	}
	tokens := someText(500, 20).Tokens
	sameLogits(t, logits(t, folder(out), tokens, nil), logits(t, open, tokens, Load{Scheme: s}.Device), 0)
}

// Codes of the same form are found again, but for a group here and there; of another form they are quantised anew.
func TestCodesAreQuantisedAnew(t *testing.T) {
	tokens := someText(500, 20).Tokens
	for name, same := range map[string]bool{
		"llama_ct_g32_sym": true, "llama_gptq_g32_desc_act": false, "llama_awq_g128": false, "llama_ct_g32_actorder_gidx": false, "llama_ct_channel_sym": false,
	} {
		t.Run(name, func(t *testing.T) {
			open := golden(t, "golden/quant", name)
			out := filepath.Join(t.TempDir(), "out")
			r, err := Run(t.Context(), open, Options{Scheme: g32, Out: out, Device: openDevice(t)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Anew == 0 || r.Anew != r.Coded {
				t.Errorf("report %+v: all weights were codes", r)
			}
			got, want := logits(t, folder(out), tokens, nil), logits(t, open, tokens, nil)
			var kl float64
			for i := range want {
				kl += modeltest.Divergence(want[i], got[i]) / float64(len(want))
			}
			if same && r.Weights > 1e-3 || r.Weights > 0.09 || same && kl > 1e-4 || kl > 0.5 {
				t.Errorf("divergence %v nats from the source, error of weights %v", kl, r.Weights)
			}
		})
	}
}

// With calibration, what the model predicts on the text stays closer to the float model's than with the scale
// search, all weights are reached, and all of the folder is read again.
func TestCalibrationIsBetterThanSearch(t *testing.T) {
	open := golden(t, "demo-models/demo-bard")
	text := someText(2000, 900)
	tokens := text.Tokens[:256]
	float := logits(t, open, tokens, nil)
	kl := map[bool]float64{}
	d := openDevice(t)
	for _, calibrate := range []bool{false, true} {
		out := filepath.Join(t.TempDir(), "out")
		o := Options{Scheme: quant.Scheme{Bits: 4, Group: 32}, Out: out, Device: d}
		if calibrate {
			o.Calibration, o.CalibrationTokens, o.Context = text, 768, 256
		}
		outputs := 0
		o.Progress = func(p Progress) {
			if p.Coded && p.Outputs > 0 {
				outputs++
				if p.Outputs > p.Weights {
					t.Errorf("%s: outputs are off by %v, weights by %v", p.Name, p.Outputs, p.Weights)
				}
			}
		}
		r, err := Run(t.Context(), open, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Uncalibrated) > 0 || calibrate && outputs != r.Coded || !calibrate && outputs > 0 {
			t.Errorf("report %+v, errors of outputs of %d", r, outputs)
		}
		for i, row := range logits(t, folder(out), tokens, nil) {
			kl[calibrate] += modeltest.Divergence(float[i], row) / float64(len(tokens))
		}
	}
	t.Logf("divergence from the float model: scale search %.4f nats, calibrated %.4f", kl[false], kl[true])
	if !(kl[true] < 0.6*kl[false]) {
		t.Errorf("divergence %v with calibration, %v without: want less than 0.6 of it", kl[true], kl[false])
	}
}

// The pass over the calibration text multiplies with the weights that are written, as each architecture stacks and orders
// them: its logits are those of the folder.
func TestCalibrationSeesWhatIsWritten(t *testing.T) {
	for _, source := range []string{"models/llama", "models/qwen3_5", "models/phi3", "models/gemma4", "quant/qwen3_5_ct_g128_sym", "gguf/qwen3_k256/qwen3_k256-F16.gguf"} {
		t.Run(source, func(t *testing.T) {
			open := golden(t, "golden", source)
			out := filepath.Join(t.TempDir(), "out")
			text := someText(500, 96)
			seen := map[[2]int][]float32{}
			r, err := Run(t.Context(), open, Options{
				Scheme: quant.Scheme{Bits: 4, Group: 32}, Out: out, Device: openDevice(t), Calibration: text, CalibrationTokens: 96, Context: 48,
				seen: func(s, p int, logits []float32) { seen[[2]int{s, p}] = slices.Clone(logits) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Uncalibrated) > 0 || r.Coded < 8 {
				t.Errorf("report %+v", r)
			}
			for s := range 2 {
				rows := logits(t, folder(out), text.Tokens[48*s:48*s+48], nil)
				for p := range rows {
					if d := maxDiff(rows[p], seen[[2]int{s, p}]); !(d < 1e-3) {
						t.Fatalf("sequence %d, position %d: logits differ by %v", s, p, d)
					}
				}
			}
		})
	}
}

func maxDiff(a, b []float32) float64 {
	d := math.Abs(float64(len(a) - len(b)))
	for i := range min(len(a), len(b)) {
		d = max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// A run that is interrupted leaves no OUT, and what it left is refused. The next run keeps what is whole, does
// again what is not, and makes the same bytes.
func TestInterruptedRunGoesOn(t *testing.T) {
	d := openDevice(t)
	for _, calibrate := range []bool{false, true} {
		open := golden(t, "golden/models/llama")
		options := func(out string) Options {
			o := Options{Scheme: g32, Out: out, ShardBytes: 100000, Device: d}
			if calibrate {
				o.Calibration, o.CalibrationTokens, o.Context = someText(500, 200), 128, 64
			}
			return o
		}
		whole, out := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "out")
		if _, err := Run(t.Context(), open, options(whole)); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		o, done := options(out), []string{}
		o.Progress = func(p Progress) {
			if p.Coded {
				done = append(done, p.Name)
			}
			if len(done) == 6 {
				cancel()
			}
		}
		if _, err := Run(ctx, open, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled: %v", err)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("an interrupted run left %s: %v", out, err)
		}
		partial := out + ".partial"
		if _, err := checkpoint.Open(partial); err == nil || !strings.Contains(err.Error(), "not finished") {
			t.Fatalf("the unfinished folder: %v", err)
		}

		// Other settings do not go on with it.
		other := options(out)
		other.Scheme.Group = 64
		if _, err := Run(t.Context(), open, other); err == nil || !strings.Contains(err.Error(), "other settings") {
			t.Errorf("other settings go on with the work: %v", err)
		}

		// One weight's bytes are not what they were, and the journal's last line was cut short.
		files, _ := filepath.Glob(filepath.Join(partial, "*.safetensors"))
		spoilt := false
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tensors := testdata.Tensors(t, f)
			if x, ok := tensors[done[0]+".weight_packed"]; ok {
				at := bytes.Index(b, x.Data)
				b[at+100] ^= 0x10
				spoilt = true
				if err := os.WriteFile(f, b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !spoilt {
			t.Fatal("the first weight was not found")
		}
		path := filepath.Join(partial, checkpoint.Unfinished)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(b, []byte("\n")) - 1
		if err := os.WriteFile(path, b[:len(b)-5], 0o644); err != nil {
			t.Fatal(err)
		}

		r, err := Run(t.Context(), open, options(out))
		if err != nil {
			t.Fatal(err)
		}
		if r.Resumed != lines-2 {
			t.Errorf("%d of %d finished jobs were kept, want all but the spoilt and the cut one", r.Resumed, lines)
		}
		want, got := contents(t, whole), contents(t, out)
		for name := range want {
			if !bytes.Equal(got[name], want[name]) {
				t.Errorf("calibrated %v: %s is other than that of a run without interruption", calibrate, name)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d files, want %d", len(got), len(want))
		}
		if _, err := os.Stat(partial); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", partial)
		}
	}
}

func TestOutThatIsThereIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for out, want := range map[string]string{
		dir: "there already", file: "there already", filepath.Join(file, "x"): "not a directory", "": "no name",
	} {
		_, err := Run(t.Context(), golden(t, "golden/models/llama"), Options{Scheme: g32, Out: out, Device: openDevice(t)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", out, err, want)
		}
	}
	empty := t.TempDir()
	if _, err := Run(t.Context(), golden(t, "golden/models/llama"), Options{Scheme: g32, Out: empty, Device: openDevice(t)}); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := os.Stat(filepath.Join(empty, "config.json")); err != nil {
		t.Error(err)
	}
}

// A run that fails before anything is done stands in no later one's way.
func TestFailureLeavesNothingBehind(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := Options{Scheme: g32, Out: out, Device: openDevice(t), Calibration: &Text{Tokens: []int32{1, 2, 3}}, CalibrationTokens: 64, Context: 64}
	if _, err := Run(t.Context(), golden(t, "golden/models/llama"), o); err == nil || !strings.Contains(err.Error(), "fewer than 16") {
		t.Errorf("a text of three tokens: %v", err)
	}
	if _, err := os.Stat(out + ".partial"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it left %s.partial: %v", out, err)
	}
}

// made is a checkpoint of one linear layer and what is given beside it.
func made(t *testing.T, w []float32, n, k int) Open {
	t.Helper()
	dir := t.TempDir()
	wr, err := checkpoint.NewWriter(dir, []checkpoint.NewTensor{{Name: "model.layers.0.mlp.up_proj.weight", Type: "F32", Shape: []int{n, k}}}, 1<<30)
	if err == nil {
		err = wr.Open()
	}
	if err == nil {
		err = wr.WriteAt("model.layers.0.mlp.up_proj.weight", 0, floatBytes(w))
	}
	if err == nil {
		err = errors.Join(wr.Finish(), wr.Close(), os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"other"}`), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder(dir)
}

func TestWeightsThatAreNoNumbersAreNamed(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		w := make([]float32, 80*64)
		w[70*64+33] = float32(bad)
		_, err := Run(t.Context(), made(t, w, 80, 64), Options{Scheme: g32, Out: filepath.Join(t.TempDir(), "out"), Device: openDevice(t)})
		if err == nil || !strings.Contains(err.Error(), "model.layers.0.mlp.up_proj.weight") || !strings.Contains(err.Error(), "output 70, input 33") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// An architecture that cannot be run is quantised all the same, without calibration.
func TestUnknownArchitecture(t *testing.T) {
	open := made(t, make([]float32, 80*64), 80, 64)
	out := filepath.Join(t.TempDir(), "out")
	o := Options{Scheme: g32, Out: out, Device: openDevice(t), Calibration: someText(10, 100), CalibrationTokens: 64, Context: 32}
	if _, err := Run(t.Context(), open, o); err == nil || !strings.Contains(err.Error(), `"other" is not supported`) {
		t.Errorf("calibration: %v", err)
	}
	o.Out, o.Calibration = filepath.Join(t.TempDir(), "out"), nil
	if r, err := Run(t.Context(), open, o); err != nil || r.Coded != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Vision, prediction head, convolutions and gates of hybrid models stay as they are, and the config says so.
func TestWhatStaysFloat(t *testing.T) {
	for name, coded := range map[string]int{"qwen3_5_mtp_vision": -1, "gemma4_multimodal": -1, "phi3": 8} {
		t.Run(name, func(t *testing.T) {
			open := golden(t, "golden/models", name)
			out := filepath.Join(t.TempDir(), "out")
			r, err := Run(t.Context(), open, Options{Scheme: g32, Out: out, Device: openDevice(t)})
			if err != nil {
				t.Fatal(err)
			}
			if coded >= 0 && r.Coded != coded {
				t.Errorf("%d weights are codes, want %d", r.Coded, coded)
			}
			raw, err := os.ReadFile(filepath.Join(out, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			var cfg struct {
				Quantization struct {
					Ignore []string `json:"ignore"`
				} `json:"quantization_config"`
			}
			if err := json.Unmarshal(raw, &cfg); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(cfg.Quantization.Ignore, "lm_head") {
				t.Errorf("ignore %v lacks lm_head", cfg.Quantization.Ignore)
			}
			before := testdata.Tensors(t, filepath.Join(testdata.Shared(t, "golden/models", name), "model.safetensors"))
			after := testdata.Tensors(t, filepath.Join(out, "model.safetensors"))
			codes := 0
			for tensor, want := range before {
				module := strings.TrimSuffix(tensor, ".weight")
				got, kept := after[tensor]
				if !kept {
					codes++
					if after[module+".weight_packed"].DType != "I32" {
						t.Errorf("%s is gone", tensor)
					}
					for _, part := range []string{"visual", "vision", "mtp", "audio", "embed", "conv", "norm"} {
						if strings.Contains(tensor, part) {
							t.Errorf("%s is quantised", tensor)
						}
					}
					continue
				}
				if !bytes.Equal(got.Data, want.Data) || got.DType != want.DType {
					t.Errorf("%s was changed", tensor)
				}
				if len(want.Shape) == 2 && !strings.Contains(tensor, "embed") && tensor != "lm_head.weight" && !slices.Contains(cfg.Quantization.Ignore, module) {
					t.Errorf("%s is float and not in the ignore list", tensor)
				}
			}
			if codes != r.Coded || codes < 8 {
				t.Errorf("%d weights are codes, the report says %d", codes, r.Coded)
			}
			c, err := checkpoint.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Items(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a GGUF file does not have is made: config.json says what Hugging Face's of the same model says.
func TestConfigOfGGUF(t *testing.T) {
	for _, name := range []string{"llama_k256", "qwen3_k256"} {
		out := filepath.Join(t.TempDir(), "out")
		r, err := Run(t.Context(), golden(t, "golden/gguf", name, name+"-Q4_K_M.gguf"), Options{Scheme: g32, Out: out, Device: openDevice(t)})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Notes) > 0 {
			t.Errorf("%s: notes %q", name, r.Notes)
		}
		read := func(path string) (v map[string]any) {
			b, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(b, &v)
			}
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		got, want := read(filepath.Join(out, "config.json")), read(testdata.Shared(t, "golden/gguf", name, "hf_config.json"))
		for _, key := range []string{
			"architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
			"head_dim", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "attention_bias",
		} {
			a, _ := json.Marshal(got[key])
			if b, _ := json.Marshal(want[key]); want[key] != nil && string(a) != string(b) {
				t.Errorf("%s: %s is %s, Hugging Face's says %s", name, key, a, b)
			}
		}
	}
}

// Loading with 8-bit heads changes the embedding and the output layer alone, and little.
func TestLoadWithHead8(t *testing.T) {
	how, err := ParseLoad("int4-g64-head8")
	if err != nil || how != (Load{Scheme: quant.Scheme{Bits: 4, Group: 64, Symmetric: true}, Head8: true}) {
		t.Fatalf("%+v, %v", how, err)
	}
	if _, err := ParseLoad("int4-g48"); err == nil || !strings.Contains(err.Error(), "int4-g48") {
		t.Errorf("int4-g48: %v", err)
	}
	open, tokens := golden(t, "golden/models/llama"), someText(500, 30).Tokens
	got, want := logits(t, open, tokens, how.Device), logits(t, open, tokens, Load{Scheme: how.Scheme}.Device)
	for i := range want {
		if kl := modeltest.Divergence(want[i], got[i]); kl <= 0 || kl > 5e-3 {
			t.Errorf("position %d: divergence %v nats", i, kl)
		}
	}
}

// BenchmarkLoad is the speed of quantising while loading, in weights.
func BenchmarkLoad(b *testing.B) {
	const n, k = 2048, 4096
	rnd := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, k+64)
	for i := range row {
		row[i] = float32(rnd.NormFloat64())
	}
	m := kernels.Matrix{Name: "model.layers.0.mlp.up_proj.weight", N: n, K: k, Type: kernels.BF16}
	shape := m
	m.Read = func(dst *kernels.Rows, from, rows int) error {
		dst.Reset(shape, rows)
		for i := range rows {
			copy(dst.Float[i*k:(i+1)*k], row[(from+i)%64:])
		}
		return nil
	}
	d := openDevice(b)
	for _, name := range []string{"as stored", "int4-g128", "int4-g32"} {
		b.Run(name, func(b *testing.B) {
			on := d
			if name != "as stored" {
				how, err := ParseLoad(name)
				if err != nil {
					b.Fatal(err)
				}
				on = how.Device(d)
			}
			for b.Loop() {
				w, err := on.Load(m)
				if err != nil {
					b.Fatal(err)
				}
				d.Unload(w)
			}
			b.ReportMetric(n*k*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mweights/s")
		})
	}
}
