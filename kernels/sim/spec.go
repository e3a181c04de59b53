package sim

import (
	"fmt"
	"strings"
)

// Arithmetic is how products are computed.
type Arithmetic uint8

// Kinds of arithmetic. A rate counts a multiplication and an addition as two.
const (
	Acc32 Arithmetic = iota // fp16 or bf16 factors, sums in fp32
	Acc16                   // fp16 factors, sums in fp16
	Int8                    // int8 factors, sums in int32
	arithmetics
)

func (a Arithmetic) String() string {
	return [...]string{"fp16 with fp32 sums", "fp16 with fp16 sums", "int8"}[a]
}

// Spec is what a step's time is made of.
type Spec struct {
	Name        string // "rtx3090"; what sim:NAME takes
	Description string // "NVIDIA RTX 3090"
	Source      string // of memory, bandwidth and rates
	MemoryBytes int64  // of the card; 0: not bounded
	Bandwidth   float64
	Rates       [arithmetics]float64 // operations a second, dense

	// Coded is what products with weights of 4 or 8 bits are computed in. All others are Acc32.
	Coded Arithmetic

	// The shares of bandwidth and rates that kernels reach: of any operator, of products with weights,
	// and of attention and the delta rule.
	BandwidthShare, ProductShare, AttentionShare float64

	HostBandwidth float64 // bytes a second between host and device memory
	Launch        float64 // seconds that an operator costs however little it does
}

// ReserveBytes is what driver, context and kernels' code take of a card's memory before anything is loaded:
// about 500 MiB on a display-less card with a recent driver.
const ReserveBytes = 512 << 20

// Host is the Spec of a processor with memory of its own: bandwidth and rates are measured or stated by
// the caller, and counted as reached.
func Host(name string, bandwidth, floatRate, int8Rate float64) Spec {
	return Spec{
		Name: name, Description: name, Source: "stated by the caller",
		Bandwidth: bandwidth, Rates: [arithmetics]float64{floatRate, floatRate, int8Rate}, Coded: Int8,
		BandwidthShare: 1, ProductShare: 1, AttentionShare: 1,
		HostBandwidth: bandwidth, Launch: 4e-6,
	}
}

// Card is the Spec of a card by what its driver says of memory, bandwidth and the rate of products with sums in fp32. It
// is taken to reach the shares of those in cards.go.
func Card(name string, memoryBytes int64, bandwidth, rate float64) Spec {
	return Spec{
		Name: name, Description: name, Source: "the card's driver",
		MemoryBytes: memoryBytes, Bandwidth: bandwidth, Rates: [arithmetics]float64{rate, rate, rate}, Coded: Acc32,
		BandwidthShare: bandwidthShare, ProductShare: productShare, AttentionShare: attentionShare,
		HostBandwidth: pcie4, Launch: launch,
	}
}

// UsableBytes is the memory that there is for weights, scratch and cache.
func (s Spec) UsableBytes() int64 {
	if s.MemoryBytes == 0 {
		return 0
	}
	return s.MemoryBytes - ReserveBytes
}

// String is what a device of s says of itself.
func (s Spec) String() string {
	return fmt.Sprintf("simulated %s: %.0f GiB, %.0f GB/s, %.0f TFLOP/s %v", s.Description,
		float64(s.MemoryBytes)/(1<<30), s.Bandwidth/1e9, s.Rates[s.Coded]/1e12, s.Coded)
}

// Find returns the card of that name. The error lists all.
func Find(name string) (Spec, error) {
	for _, c := range cards {
		if c.Name == name {
			return c, nil
		}
	}
	return Spec{}, fmt.Errorf("sim: no card %q: there are %s", name, strings.Join(Names(), ", "))
}

// Cards returns all cards that there are.
func Cards() []Spec { return append([]Spec(nil), cards...) }

// Names returns their names.
func Names() []string {
	names := make([]string, len(cards))
	for i, c := range cards {
		names[i] = c.Name
	}
	return names
}
