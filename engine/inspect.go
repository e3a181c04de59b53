package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/openinfer-go/openinfer/internal/hostmem"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/demo"
	"github.com/openinfer-go/openinfer/models/hub"
	"github.com/openinfer-go/openinfer/models/registry"
)

// EmbeddedModels returns the names of the models that the program carries.
func EmbeddedModels() []string { return demo.Names() }

// SimulatedModels returns the names of the configs without weights that the program carries for a simulated card.
func SimulatedModels() []string { return configs.Names() }

// Description is what a checkpoint says of itself, without loading a weight.
type Description struct {
	Architecture string // as the checkpoint names it
	Supported    bool
	Format       string // safetensors, gguf, or config: no weights are there
	Tensors      int
	Types        string // how many tensors are stored how, the most frequent first
	Bytes        int64  // of weights
	HasChat      bool
}

// Describe opens the checkpoint of a model, of which only Name and Path count.
func Describe(m ModelSpec) (Description, error) {
	path, err := m.locate()
	if err != nil {
		return Description{}, fmt.Errorf("model %s: %w", m.Name, err)
	}
	c, err := openCheckpoint(ModelSpec{Name: m.Name, Path: path}, true)
	if err != nil {
		return Description{}, fmt.Errorf("model %s: %w", m.Name, err)
	}
	defer c.Close()
	s := c.Summary()
	types := make([]string, 0, len(s.Types))
	for t := range s.Types {
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b string) int {
		if d := s.Types[b] - s.Types[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, t := range types {
		types[i] = fmt.Sprintf("%d %s", s.Types[t], t)
	}
	_, unsupported := registry.Find(c)
	_, chat := c.ChatTemplate()
	return Description{
		Architecture: c.Architecture(), Supported: unsupported == nil, Format: string(c.Format()),
		Tensors: s.Tensors, Types: strings.Join(types, ", "), Bytes: s.Bytes, HasChat: chat,
	}, nil
}

// Inspect reports to a person what this machine has and what would be used.
func Inspect() string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-15s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("processor", "%s, %d usable cores", cpuName(), runtime.NumCPU())
	line("features", "%s", strings.Join(cpuFeatures(), " "))
	line("memory", "%s available to this process", bytesText(hostmem.Available()))
	used := ""
	for _, name := range Devices() {
		d, err := openDevice(Options{Device: name})
		if err != nil {
			line("device "+name, "not usable: %v", err)
			continue
		}
		if used == "" {
			used = name
		}
		line("device "+name, "%s", d.Info().Description)
		if err := d.Close(); err != nil {
			line("", "closing it: %v", err)
		}
	}
	line("device sim", "simulated cards, nothing is computed: %s", strings.Join(SimulatedCards(), ", "))
	inspectCards(line, driver.Open)
	line("device "+ptxDevice, "an interpreter of the cards' kernels, for tests and to learn from: very slow")
	if name, why := findCard(driver.Open); name != "" {
		used = name
	} else if why != nil {
		used += ", as no card can be used"
	}
	line("auto uses", "%s", used)
	var archs []string
	for _, a := range registry.Architectures() {
		archs = append(archs, a.Name)
	}
	line("architectures", "%s", strings.Join(archs, ", "))
	line("embedded", "%s", strings.Join(demo.Names(), ", "))
	line("for sim", "%s", strings.Join(configs.Names(), ", "))
	cached, err := CachedModels()
	if err != nil {
		line("hub cache", "%s: %v", hub.DefaultCache(), err)
	} else {
		line("hub cache", "%s: %d models (`openinfer models` lists those that can be served)", hub.DefaultCache(), len(cached))
	}
	return b.String()
}

func cpuName() string {
	if cpuid.CPU.BrandName != "" {
		return cpuid.CPU.BrandName
	}
	return runtime.GOARCH
}

// cpuFeatures are the instruction sets that kernels could use, whether or not one does yet.
func cpuFeatures() []string {
	var have []string
	for _, f := range []cpuid.FeatureID{
		cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.AVX512F, cpuid.AVX512VNNI, cpuid.AVXVNNI, cpuid.ASIMD, cpuid.ASIMDDP,
	} {
		if cpuid.CPU.Supports(f) {
			have = append(have, strings.ToLower(f.String()))
		}
	}
	if have == nil {
		return []string{"none that kernels use"}
	}
	return have
}
