package rope

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/models/config"
)

// TestFrequenciesEqualTransformers compares with testdata/frequencies.json, which testdata/make.py
// writes. That library computes in float32, hence the tolerance.
func TestFrequenciesEqualTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/frequencies.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Cases []struct {
			Name        string
			Config      json.RawMessage
			Regimes     []int
			Scale       float64
			Frequencies [][]float64
		}
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			r := config.New(c.Config)
			d := r.Decoder(config.Defaults{RMSEps: 1e-6})
			m := Model{HeadDim: d.HeadDim, MaxPosition: d.MaxPosition, Partial: true}
			if r.TextOr("model_type", "") == "phi3" {
				m.Original = 4096
			}
			p := FromConfig(r, m)
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
			e := p.Embedding()
			if !slices.Equal(e.Regimes, c.Regimes) || len(e.ByRegime) != len(c.Frequencies) {
				t.Fatalf("regimes %v with %d sets of frequencies, want %v with %d", e.Regimes, len(e.ByRegime), c.Regimes, len(c.Frequencies))
			}
			if e.Cols() != 2*len(c.Frequencies[0]) {
				t.Fatalf("%d values of a head are rotated, want %d", e.Cols(), 2*len(c.Frequencies[0]))
			}
			for i, got := range e.ByRegime {
				if math.Abs(float64(got.Scale)-c.Scale) > 1e-6 {
					t.Errorf("regime %d: scale %v, want %v", i, got.Scale, c.Scale)
				}
				for j, f := range got.InvFreq {
					if want := c.Frequencies[i][j]; math.Abs(float64(f)-want) > 2e-6*want {
						t.Errorf("regime %d, frequency %d: %v, want %v", i, j, f, want)
					}
				}
			}
		})
	}
}
