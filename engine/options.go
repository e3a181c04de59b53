package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/quantize"
	"github.com/openinfer-go/openinfer/sched"
)

// Options say what an Engine serves and with how much. The zero value of a field is its default.
type Options struct {
	Models []ModelSpec

	Device  string // "auto" (default), "cpu" or "ref"
	Threads int    // of the cpu device; 0: one a core
	Exact   bool   // float32 activations and KV cache instead of int8 and fp16

	KVMemory     int64  // bytes of the page pool shared by all models; 0: a share of what is free
	KVCacheDType string // "auto" (fp16; float32 with Exact), "float32", "fp16" or "bf16"; a ModelSpec may set its own
	PrefixCache  *bool  // nil: on
	// Quantize makes codes of float weights while they are loaded, as quantize.ParseLoad reads it; "": they stay as
	// stored. A ModelSpec may set its own.
	Quantize string

	MaxNumSeqs       int // running sequences for each model; 0: 64
	MaxBatchedTokens int // tokens in one step; 0: 512 on cpu
	MaxWaiting       int // waiting requests for each model; 0: 256
	MaxWaitingTotal  int // and in all; 0: 1024

	// HeartbeatLimit is the age of the step loop's last sign of life at which Health says no.
	HeartbeatLimit time.Duration // 0: 30 s
	// Progress, when not nil, is told what start-up is doing.
	Progress func(string)
	Log      *slog.Logger // nil: slog.Default()

	// Seams for tests: what stands between the loop and the device, what looks at steps, and another loader.
	wrap      func(kernels.Device) kernels.Device
	stepped   func(plan *sched.Plan, took time.Duration) // after each step
	loadModel func(kernels.Device, *model) error
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
	Quantize        string // "none" undoes that of Options
}

// maxLimit bounds what counts sequences and tokens of a step: far more than makes sense, and
// little enough to be multiplied.
const maxLimit = 1 << 20

// withDefaults checks o and fills in what was left out.
func (o Options) withDefaults() (Options, error) {
	if len(o.Models) == 0 {
		return o, errors.New("engine: no models")
	}
	o.Models = slices.Clone(o.Models)
	if o.Device == "" {
		o.Device = "auto"
	}
	if !slices.Contains(Devices(), o.Device) && o.Device != "auto" {
		return o, fmt.Errorf("engine: device %q: want auto or one of %q", o.Device, Devices())
	}
	limits := []struct {
		name  string
		value *int
		set   int
		most  int
	}{
		{"threads", &o.Threads, 0, 1024},
		{"max number of sequences", &o.MaxNumSeqs, 64, maxLimit},
		{"max batched tokens", &o.MaxBatchedTokens, 512, 1 << 14},
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
	if o.KVMemory < 0 {
		return o, fmt.Errorf("engine: KV memory: %d is negative", o.KVMemory)
	}
	if o.HeartbeatLimit == 0 {
		o.HeartbeatLimit = 30 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.loadModel == nil {
		o.loadModel = loadCheckpoint
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
		if _, err := kvType(m.KVCacheDType, []kernels.DType{kernels.F32, kernels.F16, kernels.BF16}); err != nil {
			return o, fmt.Errorf("engine: model %s: %w", m.Name, err)
		}
	}
	return o, nil
}

// kvType reads the name of a KV cache type; known are the device's, the one it is best at first.
func kvType(name string, known []kernels.DType) (kernels.DType, error) {
	t := kernels.F32
	switch name {
	case "", "auto":
		return known[0], nil
	case "float32":
	case "fp16", "float16":
		t = kernels.F16
	case "bf16", "bfloat16":
		t = kernels.BF16
	default:
		return 0, fmt.Errorf("KV cache type %q: want auto, float32, fp16 or bf16", name)
	}
	if !slices.Contains(known, t) {
		return 0, fmt.Errorf("KV cache type %q: the device has %v", name, known)
	}
	return t, nil
}
