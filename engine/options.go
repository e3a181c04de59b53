package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/quantize"
	"github.com/openinfer-go/openinfer/sched"
)

// Options say what an Engine serves and with how much. The zero value of a field is its default.
type Options struct {
	Models []ModelSpec

	// Device is "auto" (default: a card if there is one, else the processor), "cpu", "ref", "cuda" or "cuda:N" for another card
	// than the first, "cuda:ptx", an interpreter of the cards' kernels for tests, or "sim:CARD", which computes nothing:
	// see kernels/sim.
	Device  string
	Threads int  // of the cpu device; 0: one a core
	Exact   bool // float32 activations and KV cache instead of int8 and fp16
	// FP16Accumulation sums products in fp16, 32 inputs at a time, where a card that computes can: cuda.Options.HalfAccumulate.
	FP16Accumulation bool

	// WeightMemory is what the weights on the device may take together; 0: what is free. Models beyond it are parked: their
	// weights come when a request asks for them, in the place of others'.
	WeightMemory int64
	// KeepAlive is after how long without a request a model is parked: 0 at once, nil or negative never. A
	// ModelSpec may set its own, and so may each request, until the next.
	KeepAlive *time.Duration
	// SLA is that of requests that ask for none; a ModelSpec may set its own.
	SLA SLA

	KVMemory     int64  // bytes of the page pool shared by all models; 0: a share of what is free
	KVCacheDType string // "auto" (fp16; float32 with Exact), "float32", "fp16", "bf16", "fp8-e4m3" or "int8"; a ModelSpec may set its own
	PrefixCache  *bool  // nil: on
	// Quantize makes codes of float weights while they are loaded, as quantize.ParseLoad reads it; "": they stay as
	// stored. A ModelSpec may set its own.
	Quantize string

	MaxNumSeqs       int // running sequences for each model; 0: 64, on a card 256
	MaxBatchedTokens int // tokens in one step; 0: 512, on a card 2048
	MaxWaiting       int // waiting requests for each model; 0: 256
	MaxWaitingTotal  int // and in all; 0: 1024

	// Overlap plans a step while the one before it is computed. Nil: on a card. A processor that computes the step
	// gains nothing by it (docs/bench-overlap.md), and who arrives waits a step longer.
	Overlap *bool

	// HeartbeatLimit is the age of the step loop's last sign of life at which Health says no.
	HeartbeatLimit time.Duration // 0: 30 s
	// Progress, when not nil, is told what start-up is doing.
	Progress func(string)
	// Loading, when not nil, is told how many bytes of the models' weights are on the device while start-up loads them. It
	// is called by one goroutine at a time.
	Loading func(done, all int64)
	Log     *slog.Logger // nil: slog.Default()

	// Seams for tests: how long a model stays once it is loaded (sched.Limits.MinResident), what stands between the loop
	// and the device, what looks at steps, and other loaders.
	minResident time.Duration
	wrap        func(kernels.Device) kernels.Device
	openDriver  func() (driver.Driver, error)              // of cards
	stepped     func(plan *sched.Plan, took time.Duration) // after each step
	loadModel   func(kernels.Device, *model) error
	loadWeights func(kernels.Device, *model) (models.Model, error) // of a model that was loaded before
}

// ModelSpec names a model and where its checkpoint is.
type ModelSpec struct {
	Name string
	Path string // a folder, a .gguf file, or a model of the hub cache; "": what Locate finds by Name
	// What a model may set for itself; zero: as in Options or the checkpoint.
	MaxModelLen  int
	MaxNumSeqs   int
	KVCacheDType string
	// ReasoningParser is one of ReasoningParsers; "" is auto: found by the chat template.
	ReasoningParser string
	// ToolCallParser is one of ToolCallParsers; "" is auto: found by the chat template.
	ToolCallParser string
	Quantize       string // "none" undoes that of Options
	// Floats makes a config.json that has no weights and names no quantisation stand for float weights, as the model's own
	// files have them, and so does Quantize; else it stands for INT4, as checkpoint.OpenConfig tells.
	Floats    bool
	KeepAlive *time.Duration
	SLA       SLA
	Weight    float64 // share of the device's time beside other models; 0: 1
}

// maxLimit bounds what counts sequences and tokens of a step: far more than makes sense, and
// little enough to be multiplied.
const maxLimit = 1 << 20

// maxWeight bounds ModelSpec.Weight.
const maxWeight = 1000

// keepAlive is how long the model stays without a request; negative: for ever.
func (m *ModelSpec) keepAlive() time.Duration {
	if m.KeepAlive == nil {
		return -1
	}
	return *m.KeepAlive
}

// checkSLA says what is wrong with a target.
func checkSLA(s SLA) error {
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"SLA TTFT", s.TTFT}, {"SLA TPOT", s.TPOT}} {
		if t.d < 0 || t.d > maxSLA {
			return fmt.Errorf("%s: %v is not in [0, %v]", t.name, t.d, maxSLA)
		}
	}
	return nil
}

// withDefaults checks o and fills in what was left out.
func (o Options) withDefaults() (Options, error) {
	if len(o.Models) == 0 {
		return o, errors.New("engine: no models")
	}
	o.Models = slices.Clone(o.Models)
	if o.Device == "" {
		o.Device = "auto"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.openDriver == nil {
		o.openDriver = driver.Open
	}
	card, err := checkDevice(o.Device)
	if err != nil {
		return o, err
	}
	if o.Device == "auto" {
		name, why := findCard(o.openDriver)
		if why != nil {
			o.Log.Warn("no card can be used: models run on the processor", "reason", why)
		}
		if name != "" {
			o.Device, card = name, true
		}
	}
	if o.FP16Accumulation && !isCard(o.Device) {
		return o, fmt.Errorf("engine: fp16 accumulation is for cards that compute, not for device %s", o.Device)
	}
	maxSeqs, maxTokens := 64, 512
	if card {
		maxSeqs, maxTokens = 256, 2048
	}
	limits := []struct {
		name  string
		value *int
		set   int
		most  int
	}{
		{"threads", &o.Threads, 0, 1024},
		{"max number of sequences", &o.MaxNumSeqs, maxSeqs, maxLimit},
		{"max batched tokens", &o.MaxBatchedTokens, maxTokens, 1 << 14},
		{"max waiting", &o.MaxWaiting, 256, maxLimit},
		{"max waiting in all", &o.MaxWaitingTotal, 1024, maxLimit},
	}
	for _, l := range limits {
		if *l.value < 0 {
			return o, fmt.Errorf("engine: %s: %d is negative", l.name, *l.value)
		}
		if *l.value > l.most {
			return o, fmt.Errorf("engine: %s: %d is more than %d", l.name, *l.value, l.most)
		}
		if *l.value == 0 {
			*l.value = l.set
		}
	}
	if o.WeightMemory < 0 {
		return o, fmt.Errorf("engine: weight memory: %d is negative", o.WeightMemory)
	}
	if err := checkSLA(o.SLA); err != nil {
		return o, fmt.Errorf("engine: %w", err)
	}
	if o.KVMemory < 0 {
		return o, fmt.Errorf("engine: KV memory: %d is negative", o.KVMemory)
	}
	if o.HeartbeatLimit == 0 {
		o.HeartbeatLimit = 30 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Loading == nil {
		o.Loading = func(done, all int64) {}
	}
	if o.loadModel == nil {
		o.loadModel = loadCheckpoint
	}
	if o.loadWeights == nil {
		o.loadWeights = loadWeights
	}
	seen := map[string]bool{}
	for i := range o.Models {
		m := &o.Models[i]
		if m.Name == "" {
			return o, fmt.Errorf("engine: model %d of %d has no name", i+1, len(o.Models))
		}
		if seen[m.Name] {
			return o, fmt.Errorf("engine: model %s is named twice", m.Name)
		}
		seen[m.Name] = true
		path, err := m.locate()
		if err != nil {
			return o, fmt.Errorf("engine: model %s: %w", m.Name, err)
		}
		m.Path = path
		if m.MaxModelLen < 0 {
			return o, fmt.Errorf("engine: model %s: max model length: %d is negative", m.Name, m.MaxModelLen)
		}
		if m.MaxNumSeqs < 0 || m.MaxNumSeqs > maxLimit {
			return o, fmt.Errorf("engine: model %s: max number of sequences: %d is not in [1, %d]", m.Name, m.MaxNumSeqs, maxLimit)
		}
		if m.MaxNumSeqs == 0 {
			m.MaxNumSeqs = o.MaxNumSeqs
		}
		if !(m.Weight >= 0) || m.Weight > maxWeight {
			return o, fmt.Errorf("engine: model %s: weight: %v is not in (0, %d]", m.Name, m.Weight, maxWeight)
		}
		if err := checkSLA(m.SLA); err != nil {
			return o, fmt.Errorf("engine: model %s: %w", m.Name, err)
		}
		if m.SLA.TTFT == 0 {
			m.SLA.TTFT = o.SLA.TTFT
		}
		if m.SLA.TPOT == 0 {
			m.SLA.TPOT = o.SLA.TPOT
		}
		if m.KeepAlive == nil {
			m.KeepAlive = o.KeepAlive
		}
		if err := checkToolCallParser(m.ToolCallParser); err != nil {
			return o, fmt.Errorf("engine: model %s: %w", m.Name, err)
		}
		if err := checkReasoningParser(m.ReasoningParser); err != nil {
			return o, fmt.Errorf("engine: model %s: %w", m.Name, err)
		}
		if m.Quantize == "" {
			m.Quantize = o.Quantize
		}
		if m.Quantize == "none" {
			m.Quantize = ""
		}
		if m.Quantize != "" {
			if _, err := quantize.ParseLoad(m.Quantize); err != nil {
				return o, fmt.Errorf("engine: model %s: %w", m.Name, err)
			}
		}
		if m.KVCacheDType == "" {
			m.KVCacheDType = o.KVCacheDType
		}
		if _, err := KVCacheType(m.KVCacheDType); err != nil {
			return o, fmt.Errorf("engine: model %s: %w", m.Name, err)
		}
	}
	return o, nil
}

// KVCacheType reads the name of a KV cache type. known are the device's, the one it is best at first, which is what
// "auto" and "" stand for; without known any type will do.
func KVCacheType(name string, known ...kernels.DType) (kernels.DType, error) {
	t := kernels.F32
	switch name {
	case "", "auto":
		if len(known) > 0 {
			t = known[0]
		}
	case "float32":
	case "fp16", "float16":
		t = kernels.F16
	case "bf16", "bfloat16":
		t = kernels.BF16
	case "fp8-e4m3", "fp8_e4m3", "fp8":
		t = kernels.F8E4M3
	case "int8":
		t = kernels.I8
	default:
		return 0, fmt.Errorf("kv-cache-dtype %q: want auto, float32, fp16, bf16, fp8-e4m3 or int8", name)
	}
	if len(known) > 0 && !slices.Contains(known, t) {
		return 0, fmt.Errorf("kv-cache-dtype %q: the device has %v", name, known)
	}
	return t, nil
}
