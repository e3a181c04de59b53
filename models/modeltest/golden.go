package modeltest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
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
	Path    string // within the reference data, or absolute
	Golden  string // folder of golden.json
	Variant string // of a GGUF folder: "Q4_0"
	Own     bool   // Path and Golden are within testdata of this package
}

// at returns where a path of c is.
func (c Checkpoint) at(tb testing.TB, path string) string {
	tb.Helper()
	if filepath.IsAbs(path) {
		return path
	}
	if c.Own {
		return filepath.Join(testdata.Repo(), "models", "modeltest", "testdata", path)
	}
	return testdata.Shared(tb, path)
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
	own := func(name string) {
		list = append(list, Checkpoint{Name: name, Path: name, Golden: name, Own: true})
	}
	switch architecture {
	case "llama":
		folder("models/llama", "quant/llama_ct_g128_sym", "quant/llama_ct_g32_sym", "quant/llama_ct_channel_sym", "quant/llama_ct_g32_ignore",
			"quant/llama_ct_g128_asym", "quant/llama_ct_g32_actorder_gidx", "quant/llama_gptq_g128", "quant/llama_gptq_g32_desc_act",
			"quant/llama_gptq_v2_g32_asym", "quant/llama_awq_g128")
		gguf("llama_k256")
		demo("demo-bard")
		own("llama_yarn")
	case "mistral":
		own("mistral_window")
	case "qwen2":
		own("qwen2")
	case "qwen3":
		folder("models/qwen3_tied", "models/qwen3_untied", "quant/qwen3_ct_g128_sym", "quant/qwen3_ct_channel_asym", "quant/qwen3_ct_g32_asym",
			"quant/qwen3_ct_g32_actorder_weight", "quant/qwen3_gptq_channel", "quant/qwen3_gptq_g32_asym", "quant/qwen3_gptq_v2_g32_desc_act",
			"quant/qwen3_awq_g32_skip")
		gguf("qwen3_k256")
		demo("demo-tales")
	case "qwen3_5":
		folder("models/qwen3_5", "models/qwen3_5_mtp_vision", "quant/qwen3_5_ct_g128_sym", "quant/qwen3_5_mtp_vision_ct_g32_asym")
	case "phi3":
		folder("models/phi3", "models/phi3_mini_longrope", "quant/phi3_ct_g128_sym", "quant/phi3_mini_ct_g32_asym")
		own("phi3_window")
	case "gemma3":
		own("gemma3")
	case "gemma4":
		folder("models/gemma4", "models/gemma4_multimodal", "quant/gemma4_ct_g128_sym", "quant/gemma4_ct_g32_asym")
	}
	return list
}

// prompt is a prompt with its results, from any of the layouts of golden.json.
type prompt struct {
	name    string
	ids     []int32
	greedy  []int32
	margins []float64
	logits  map[int][]float32 // by position, of the prompt in one pass
	steps   [][]float32       // that each greedy id was chosen from, when stored
	hidden  []float32         // [layers+1, tokens, hidden], when stored
	states  []state
}

// state is what is stored of a recurrent layer after a prompt.
type state struct {
	layer   int       // within its group
	heads   []float32 // [Heads, KDim, VDim]
	columns []float32 // [ConvChannels, kernel]
	kernel  int
}

// entry is a prompt in golden.json.
type entry struct {
	Name         string
	IDs          []int32
	Tokens       []int32 // demo-models
	Greedy       []int32
	Continuation []int32 // demo-models
	Recomputed   []int32 `json:"greedy_recompute_every_step"` // longrope
	Margins      []float64
	Logits       struct {
		Tensor    string
		Positions any // "all" or a list
	}
	LogitsLast any `json:"logits_last"`
}

func (c Checkpoint) prompts(tb testing.TB) (ps []prompt) {
	tb.Helper()
	dir := c.at(tb, c.Golden)
	raw, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var g struct {
		Prompts  []entry
		Texts    []entry
		Chat     *entry
		LongRope struct{ Cases []entry }
		Files    []struct {
			Type    string
			Prompts []entry
		}
		LayerTypes []string `json:"layer_types"`
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		tb.Fatal(err)
	}
	entries := slices.Concat(g.Prompts, g.Texts, g.LongRope.Cases)
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
		p := e.prompt(tensors, g.LayerTypes)
		if len(p.ids) == 0 || len(p.greedy) == 0 || len(p.greedy) != len(p.margins) {
			tb.Fatalf("%s: prompt %q has %d ids, %d greedy and %d margins", c.Golden, e.Name, len(p.ids), len(p.greedy), len(p.margins))
		}
		ps = append(ps, p)
	}
	return ps
}

// prompt finds what is stored of an entry.
func (e entry) prompt(tensors map[string]testdata.Tensor, layers []string) prompt {
	p := prompt{
		name: e.Name, ids: append(e.IDs, e.Tokens...), greedy: slices.Concat(e.Greedy, e.Continuation, e.Recomputed),
		margins: e.Margins, logits: map[int][]float32{},
	}
	rows := func(name string) (rows [][]float32) {
		t, ok := tensors[name]
		if !ok {
			return nil
		}
		return slices.Collect(slices.Chunk(t.Float32(), t.Shape[len(t.Shape)-1]))
	}
	store := func(name string, positions ...int) {
		for i, row := range rows(name) {
			p.logits[positions[i]] = row
		}
	}
	switch at := e.Logits.Positions.(type) {
	case string:
		for i, row := range rows(e.Logits.Tensor) {
			p.logits[i] = row
		}
	case []any:
		var some []int
		for _, v := range at {
			some = append(some, int(v.(float64)))
		}
		store(e.Logits.Tensor, some...)
	default:
		last := len(p.ids) - 1
		store(e.Name+".logits_last", last)
		store(e.Name, last) // demo-models
	}
	p.steps = rows(e.Name + ".step_logits_recompute")
	if t, ok := tensors[e.Name+".hidden_states"]; ok {
		p.hidden = t.Float32()
	}
	recurrent := 0
	for i, kind := range layers {
		if kind != "linear_attention" {
			continue
		}
		of := fmt.Sprintf("%s.layer%d.", e.Name, i)
		if t, ok := tensors[of+"recurrent_state"]; ok {
			columns := tensors[of+"conv_state"]
			p.states = append(p.states, state{recurrent, t.Float32(), columns.Float32(), columns.Shape[1]})
		}
		recurrent++
	}
	return p
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
			r := c.Run(t, dev)
			if r.recurrent() && (r.reused == 0 || r.rewound == 0) {
				t.Errorf("%d sequences began with a state slot that another had left, %d went back to a snapshot", r.reused, r.rewound)
			}
		})
	}
}

// Run holds the device to the stored results of the checkpoint, in all ways that tokens can come.
func (c Checkpoint) Run(t *testing.T, dev Device) *Runner {
	t.Helper()
	r, m, runs := c.compare(t, dev, c.at(t, c.Path))
	t.Log(m)
	for i := range runs {
		t.Run(runs[i].name, func(t *testing.T) { r.otherWays(t, runs, i) })
	}
	return r
}

// Compare holds the device and another form of the checkpoint, which lies at path, to its stored results.
func (c Checkpoint) Compare(t *testing.T, dev Device, path string) {
	t.Helper()
	_, m, _ := c.compare(t, dev, path)
	t.Log(m)
}

// compare holds the device to the stored results of a checkpoint: prompts in one pass, and their
// continuations.
func (c Checkpoint) compare(t *testing.T, dev Device, path string) (*Runner, *measure, []*run) {
	t.Helper()
	ps := c.prompts(t)
	r := dev.load(t, path, 12000)
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
	m.check(t)
	return r, m, runs
}

// run is a prompt that has been computed, and continued.
type run struct {
	prompt
	*Sequence
	want  [][]float32 // the logits of every token, under the regime of all of them
	chose [][]float32 // those that each greedy id was chosen from
}

// prefill computes a prompt in one pass and compares what is stored of it.
func (r *Runner) prefill(t *testing.T, m *measure, p prompt) *run {
	t.Helper()
	s := &Sequence{Tokens: append([]int32(nil), p.ids...)}
	var want [][]float32
	step := func() { want = r.Step(Row{s, len(p.ids), true})[0] }
	if p.hidden == nil {
		step()
	} else {
		r.inside(t, m, p, s, r.traced(step))
	}
	for at, golden := range p.logits {
		m.logits(t, fmt.Sprintf("%s, position %d", p.name, at), want[at], golden)
	}
	return &run{prompt: p, Sequence: s, want: want}
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
			last := run.want[len(run.want)-1]
			run.chose = append(run.chose, last)
			m.greedy(t, run.prompt, step, last)
			if step+1 < len(run.prompt.greedy) {
				run.Tokens = append(run.Tokens, run.prompt.greedy[step])
				rows, of = append(rows, Row{run.Sequence, 1, true}), append(of, run)
			}
		}
		if len(rows) == 0 {
			break
		}
		for i, out := range r.Step(rows...) {
			if len(out) > 1 { // all of it again, under another regime
				of[i].want = nil
			}
			of[i].want = append(of[i].want, out...)
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
	soak := os.Getenv("OPENINFER_SOAK") != ""
	if !soak {
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

	// Back to what stayed behind, and on in two steps.
	if (soak || index < 4) && r.Rewind(s) {
		for n := 1; s.Done < len(tokens); n = len(tokens) - s.Done {
			from := s.Done
			same("from a snapshot", from, r.Step(Row{s, n, true})[0])
		}
	}
	for _, o := range strangers {
		r.Drop(o)
	}
	r.Drop(s)
	if r.recurrent() && (soak || index < 3) {
		// A sequence of its own, so that what it is given was another's.
		s = &Sequence{Tokens: tokens}
		same("in a state slot that another left", 0, r.Step(Row{s, len(tokens), true})[0])
		r.Drop(s)
	}
	if r.model.Shape().Regimes != nil {
		r.generate(t, runs[index])
	}
}

// generate continues a prompt alone, across a change of regime where there is one.
func (r *Runner) generate(t *testing.T, run *run) {
	n := len(run.ids)
	s := &Sequence{Tokens: slices.Clone(run.ids)}
	for i, want := range run.chose {
		if i > 0 {
			s.Tokens = append(s.Tokens, run.prompt.greedy[i-1])
			n = 1
		}
		same(t, fmt.Sprintf("alone, greedy step %d", i), r.Step(Row{s, n, false})[0][0], want)
	}
	r.Drop(s)
}

// recurrent says whether the model has a recurrent group.
func (r *Runner) recurrent() bool {
	return slices.ContainsFunc(r.groups, func(g group) bool { return g.Kind == models.Recurrent })
}
