package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

// report is the JSON file, and what the table is written from.
type report struct {
	Driver      string      `json:"driver"`
	Card        string      `json:"card"`
	Predicted   string      `json:"predictions_are_of"`
	Conformance string      `json:"conformance"` // "passed", or how it failed
	Conformed   bool        `json:"conformed"`
	Rates       []rate      `json:"rates"`
	Steps       []stepRow   `json:"steps"`
	Kernels     []kernelRow `json:"kernels"`
	Seconds     float64     `json:"seconds"` // that the check took
}

func (r *report) rate(name string) float64 {
	for _, x := range r.Rates {
		if x.Name == name {
			return x.PerSecond
		}
	}
	return 0
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(r)
}

// writeTable writes the one table: the suite, the card's own rates, steps, kernels.
func (r *report) writeTable(w io.Writer) {
	say := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	say("%s, driver %s, %.0f s. Predictions are of an %s (the formula of docs/kernels.md, clocks of its data sheet);", r.Card, r.Driver, r.Seconds, r.Predicted)
	say("shares are of this card's own copy and of its mma with sums in fp32. Bytes and operations are counted by the interpreter, times are the card's;")
	say("weights are random. A step's time is the host's, from arrays to sampled tokens; a kernel's is the card's, in a graph of its like.")
	say("")
	say("| what | where | launches | measured | predicted | speed, of the predicted | GB/s | of copy | TFLOP/s | of mma | limit predicted |")
	say("|---|---|---|---|---|---|---|---|---|---|---|")
	say("| conformance | kernels/kerneltest, in full | | %s | passed | | | | | | |", r.Conformance)
	for _, x := range r.Rates {
		of, unit, gb, tf := cost.Card.Bandwidth*cost.CopyShare, "GB/s", fmt.Sprintf("%.0f", x.PerSecond/1e9), ""
		if x.Unit != "bytes" {
			of, unit, gb, tf = cost.Card.Rates[sim.Acc32]*cost.TensorShare, "GFLOP/s", "", fmt.Sprintf("%.1f", x.PerSecond/1e12)
		}
		if x.Name == rateHalf {
			of = cost.Card.Rates[sim.Acc16] * cost.TensorShare
		}
		say("| %s | the card | | %.0f %s | %.0f %s | %.0f %% | %s | | %s | | |", x.Name, x.PerSecond/1e9, unit, of/1e9, unit, 100*x.PerSecond/of, gb, tf)
	}
	for _, s := range r.Steps {
		say("| **%s** | %s | | %.1f tok/s (%.2f ms) | %.1f tok/s | %.0f %% | | | | | |", s.Step, s.Model, s.perSecond(), s.Seconds*1e3, s.predictedPerSecond(), 100*s.perSecond()/s.predictedPerSecond())
	}
	copies, products := r.rate(rateCopy), r.rate(rateSingle)
	for _, k := range r.Kernels {
		where := fmt.Sprintf("%s, %s, %dx%dx%d x %d", k.Model, k.Step, k.Grid[0], k.Grid[1], k.Grid[2], k.Block[0]*k.Block[1]*k.Block[2])
		if k.Predicted == 0 {
			say("| %s | %s | %d | %.1f us | none for this grid | | | | | | |", k.Kernel, where, k.Launches, k.Seconds*1e6)
			continue
		}
		tf, of := "", ""
		if k.Operations > 0 {
			tf, of = fmt.Sprintf("%.1f", k.Operations/1e12), fmt.Sprintf("%.0f %%", 100*k.Operations/products)
		}
		say("| %s | %s | %d | %.1f us | %.1f us | %.0f %% | %.0f | %.0f %% | %s | %s | %s |", k.Kernel, where, k.Launches, k.Seconds*1e6, k.Predicted*1e6, 100*k.Predicted/k.Seconds,
			k.Bytes/1e9, 100*k.Bytes/copies, tf, of, k.LimitedBy)
	}
}
