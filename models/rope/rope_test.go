package rope

import (
	"math"
	"testing"
)

// TestLlama3Frequencies compares with values worked out by hand from the rule: with a head of 8,
// theta 10000 and an original context of 64, frequencies 1, 0.1, 0.01 and 0.001 have wavelengths
// of 6.3, 63, 628 and 6283 positions; up to 16 stay, from 64 on are divided, 62.8 blends.
func TestLlama3Frequencies(t *testing.T) {
	p := Params{Theta: 10000, Dim: 8, Turned: 4, Scaling: Llama3, Factor: 8, LowFactor: 1, HighFactor: 4, Original: 64}
	kept := (64*0.1/(2*math.Pi) - 1) / 3
	want := []float64{1, (1-kept)*0.1/8 + kept*0.1, 0.01 / 8, 0.001 / 8}
	for i, f := range p.Embedding().ByRegime[0].InvFreq {
		if math.Abs(float64(f)/want[i]-1) > 1e-6 {
			t.Errorf("frequency %d: %v, want %v", i, f, want[i])
		}
	}
}

func TestDivisorsAndLinearFactorDivide(t *testing.T) {
	p := Params{Theta: 100, Dim: 4, Turned: 2, Scaling: Linear, Factor: 4, Divisors: []float32{1, 2}}
	for i, want := range []float32{0.25, 0.0125} {
		if f := p.Embedding().ByRegime[0].InvFreq[i]; math.Abs(float64(f-want)) > 1e-9 {
			t.Errorf("frequency %d: %v, want %v", i, f, want)
		}
	}
}
