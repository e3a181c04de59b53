package modeltest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/registry"
)

// Device says how to open a device and what to expect of it.
type Device struct {
	Name string
	Open func(testing.TB) kernels.Device
	KV   kernels.DType
	// Logits is the largest difference from the reference that is allowed; 0 means that the
	// device quantises activations: differences are measured, reported and held to the limits
	// below.
	Logits float64
	// MeanDiff bounds the mean difference of a logit, KL the mean divergence from the reference in
	// nats, both over a checkpoint's stored logits; used when Logits is 0.
	MeanDiff, KL float64
}

// Float32 is a device that computes and caches in float32. Float32 differs from itself, fed in
// pieces, by up to 0.00016, hence its tolerance.
func Float32(name string, open func(testing.TB) kernels.Device) Device {
	return Device{Name: name, Open: open, KV: kernels.F32, Logits: 1e-3}
}

// Checkpoint is one with its stored results, and the file names of both.
type Checkpoint struct {
	Name    string
	Path    string // within the reference data
	Golden  string // folder of golden.json
	Variant string // of a GGUF folder: "Q4_0"
}

// Checkpoints are those of the architectures that the registry has, by architecture.
func Checkpoints(architecture string) []Checkpoint {
	var list []Checkpoint
	folder := func(names ...string) {
		for _, n := range names {
			list = append(list, Checkpoint{Name: n, Path: "golden/" + n, Golden: "golden/" + n})
		}
	}
	gguf := func(name string) {
		for _, v := range []string{"F16", "Q4_0", "Q4_K_M"} {
			dir := "golden/gguf/" + name
			list = append(list, Checkpoint{Name: name + "-" + v, Path: dir + "/" + name + "-" + v + ".gguf", Golden: dir, Variant: v})
		}
	}
	demo := func(name string) {
		list = append(list, Checkpoint{Name: name, Path: "demo-models/" + name, Golden: "demo-models/golden/" + name})
	}
	switch architecture {
	case "llama":
		folder("models/llama", "quant/llama_ct_g128_sym", "quant/llama_ct_g32_sym", "quant/llama_ct_channel_sym", "quant/llama_ct_g32_ignore",
			"quant/llama_ct_g128_asym", "quant/llama_ct_g32_actorder_gidx", "quant/llama_gptq_g128", "quant/llama_gptq_g32_desc_act",
			"quant/llama_gptq_v2_g32_asym", "quant/llama_awq_g128")
		gguf("llama_k256")
		demo("demo-bard")
	case "qwen3":
		folder("models/qwen3_tied", "models/qwen3_untied", "quant/qwen3_ct_g128_sym", "quant/qwen3_ct_channel_asym", "quant/qwen3_ct_g32_asym",
			"quant/qwen3_ct_g32_actorder_weight", "quant/qwen3_gptq_channel", "quant/qwen3_gptq_g32_asym", "quant/qwen3_gptq_v2_g32_desc_act",
			"quant/qwen3_awq_g32_skip")
		gguf("qwen3_k256")
		demo("demo-tales")
	}
	return list
}

// prompt is a prompt with its results, from any of the layouts of golden.json.
type prompt struct {
	name    string
	ids     []int32
	greedy  []int32
	margins []float64
	logits  map[int][]float32 // by position
}

func (c Checkpoint) prompts(tb testing.TB) (ps []prompt) {
	tb.Helper()
	dir := testdata.Shared(tb, c.Golden)
	raw, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		tb.Fatal(err)
	}
	type entry struct {
		Name         string
		IDs          []int32
		Tokens       []int32 // demo-models
		Greedy       []int32
		Continuation []int32 // demo-models
		Margins      []float64
		Logits       struct {
			Tensor    string
			Positions any // "all" or a list
		}
		LogitsLast any `json:"logits_last"`
	}
	var g struct {
		Prompts []entry
		Texts   []entry
		Chat    *entry
		Files   []struct {
			Type    string
			Prompts []entry
		}
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		tb.Fatal(err)
	}
	entries := append(g.Prompts, g.Texts...)
	if g.Chat != nil {
		g.Chat.Name = "chat"
		entries = append(entries, *g.Chat)
	}
	for _, f := range g.Files {
		if f.Type == c.Variant {
			entries = append(entries, f.Prompts...)
		}
	}
	file := filepath.Join(dir, "golden.safetensors")
	demo := filepath.Join(dir, "logits.safetensors")
	if _, err := os.Stat(demo); err == nil {
		file = demo
	}
	tensors := testdata.Tensors(tb, file)
	for _, e := range entries {
		p := prompt{name: e.Name, ids: append(e.IDs, e.Tokens...), greedy: append(e.Greedy, e.Continuation...), margins: e.Margins, logits: map[int][]float32{}}
		last := len(p.ids) - 1
		store := func(name string, positions []int) {
			t, ok := tensors[name]
			if !ok {
				return
			}
			values := t.Float32()
			vocab := t.Shape[len(t.Shape)-1]
			for i, at := range positions {
				p.logits[at] = values[i*vocab : (i+1)*vocab]
			}
		}
		switch at := e.Logits.Positions.(type) {
		case string:
			var all []int
			for i := range p.ids {
				all = append(all, i)
			}
			store(e.Logits.Tensor, all)
		case []any:
			var some []int
			for _, v := range at {
				some = append(some, int(v.(float64)))
			}
			store(e.Logits.Tensor, some)
		default:
			store(e.Name+".logits_last", []int{last})
			store(e.Name, []int{last}) // demo-models
		}
		if len(p.ids) == 0 || len(p.greedy) == 0 || len(p.greedy) != len(p.margins) {
			tb.Fatalf("%s: prompt %q has %d ids, %d greedy and %d margins", c.Golden, e.Name, len(p.ids), len(p.greedy), len(p.margins))
		}
		ps = append(ps, p)
	}
	return ps
}

// load loads the checkpoint at path on a new device.
func (dev Device) load(tb testing.TB, path string, tokens int) *Runner {
	tb.Helper()
	d := dev.Open(tb)
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	c, err := checkpoint.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := registry.Load(c, d)
	if err := c.Close(); err != nil {
		tb.Fatal(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Unload(d) })
	return NewRunner(tb, d, m, dev.KV, tokens)
}

// Run holds the device to the stored results of all checkpoints of an architecture.
func Run(t *testing.T, dev Device, architecture string) {
	list := Checkpoints(architecture)
	if len(list) == 0 {
		t.Fatalf("no checkpoints of %q", architecture)
	}
	for _, c := range list {
		t.Run(c.Name, func(t *testing.T) {
			ps := c.prompts(t)
			r := dev.load(t, testdata.Shared(t, c.Path), 12000)
			m := &measure{device: dev}
			stored := 0
			var runs []*run
			for _, p := range ps {
				stored += len(p.logits)
				runs = append(runs, r.prefill(t, m, p))
			}
			if stored == 0 {
				t.Fatal("no stored logits")
			}
			r.greedy(t, m, runs)
			for i := range runs {
				t.Run(runs[i].name, func(t *testing.T) { r.otherWays(t, runs, i) })
			}
			m.report(t)
		})
	}
}

// run is a prompt that has been computed, and continued.
type run struct {
	prompt
	*Sequence
	want [][]float32 // the logits of every token that was computed
}

// prefill computes a prompt in one pass and compares what is stored of it.
func (r *Runner) prefill(t *testing.T, m *measure, p prompt) *run {
	t.Helper()
	s := &Sequence{Tokens: append([]int32(nil), p.ids...)}
	want := r.Step(Row{s, len(p.ids), true})[0]
	for at, golden := range p.logits {
		m.logits(t, fmt.Sprintf("%s, position %d", p.name, at), want[at], golden)
	}
	return &run{p, s, want}
}

// greedy continues all prompts together. Each is given the reference's choices, so that one that
// fell otherwise does not make the rest incomparable.
func (r *Runner) greedy(t *testing.T, m *measure, runs []*run) {
	t.Helper()
	for step := 0; ; step++ {
		var rows []Row
		var of []*run
		for _, run := range runs {
			if step >= len(run.prompt.greedy) {
				continue
			}
			m.greedy(t, run.prompt, step, run.want[len(run.want)-1])
			if step+1 < len(run.prompt.greedy) {
				run.Tokens = append(run.Tokens, run.prompt.greedy[step])
				rows, of = append(rows, Row{run.Sequence, 1, false}), append(of, run)
			}
		}
		if len(rows) == 0 {
			break
		}
		for i, out := range r.Step(rows...) {
			of[i].want = append(of[i].want, out[0])
		}
	}
	for _, run := range runs {
		r.Drop(run.Sequence)
	}
}

// same wants the same bits.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if math.Float32bits(v) != math.Float32bits(want[i]) {
			t.Fatalf("%s, logit %d: %v, before %v: not the same bits", what, i, v, want[i])
		}
	}
}

// otherWays computes prompt and continuation again in all other ways and wants the same bits.
func (r *Runner) otherWays(t *testing.T, runs []*run, index int) {
	r.tb = t
	want, tokens := runs[index].want, runs[index].Tokens
	if len(want) != len(tokens) {
		t.Fatalf("%d tokens and logits of %d", len(tokens), len(want))
	}
	same := func(how string, from int, got [][]float32) {
		t.Helper()
		for i, row := range got {
			same(t, fmt.Sprintf("%s: position %d", how, from+i), row, want[from+i])
		}
	}
	s := &Sequence{Tokens: tokens}
	same("computed again in one pass", 0, r.Step(Row{s, len(tokens), true})[0])
	r.Drop(s)

	sizes := []int{7, 1}
	if os.Getenv("OPENINFER_SOAK") == "" {
		// A small chunk takes a pass over the weights for a few tokens: some prompts will do.
		sizes = sizes[:max(0, min(2, 3-index))]
	}
	for _, size := range sizes {
		for s.Done < len(tokens) {
			from := s.Done
			same(fmt.Sprintf("chunks of %d", size), from, r.Step(Row{s, min(size, len(tokens)-from), true})[0])
		}
		r.Drop(s)
	}

	// Seven strangers: other prompts at other places of their own, in steps of other sizes.
	var strangers []*Sequence
	for i := range 7 {
		strangers = append(strangers, &Sequence{Tokens: runs[(index+1+i)%len(runs)].Tokens})
	}
	for s.Done < len(tokens) {
		from := s.Done
		rows := []Row{{s, min(23, len(tokens)-from), true}}
		for i, o := range strangers {
			if n := min(1+(from+i*i)%9, len(o.Tokens)-o.Done); n > 0 {
				row := Row{o, n, i%2 == 0}
				if i < 3 {
					rows = append([]Row{row}, rows...)
				} else {
					rows = append(rows, row)
				}
			}
		}
		out := r.Step(rows...)
		for i, row := range rows {
			if row.Sequence == s {
				same("beside seven strangers", from, out[i])
			}
		}
	}
	r.Drop(s)
	for _, o := range strangers {
		r.Drop(o)
	}
}
