package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

func TestPageNamesWhatIsMissed(t *testing.T) {
	p := page{entries: map[string]cost.Entry{"k": {File: "k.ptx", Registers: 64, Spilled: map[string]int{"sm_80": 8}}},
		matrix: &matrix{single8: 54.9, single4: 58.1, steps: map[int][]cost.Estimate{1: cost.PredictAll([]*cost.Launch{{Entry: "k", Grid: [3]int{820, 1, 1}, Block: [3]int{128, 1, 1}, Counters: ptx.Counters{Blocks: 2, WarpInstructions: 8000}}}, nil)}}}
	var b bytes.Buffer
	p.write(&b)
	for _, want := range []string{"8-bit head: 55 tok/s | 54.9 | MISSED", "58 tok/s | 58.1 | reached", "| k | k | 64 | **sm_80: 8** |", "Predicted, not measured"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if err := p.spills(); err == nil || !strings.Contains(err.Error(), "k map[sm_80:8]") {
		t.Errorf("spills: %v", err)
	}
}
