package sched

import (
	"time"

	"pgregory.net/rapid"
)

// drawSLA draws targets that steps of a millisecond a token (world.commit) meet, miss, or nearly.
func drawSLA(t *rapid.T) SLA {
	ms := func(name string) time.Duration {
		return time.Duration(rapid.SampledFrom([]int{0, 0, 1, 30, 200, 2000}).Draw(t, name)) * time.Millisecond
	}
	return SLA{TTFT: ms("ttft"), TPOT: ms("tpot")}
}

// drawPrior draws what a device may say of itself: nothing, the truth, or not.
func drawPrior(t *rapid.T) []Observation {
	perToken := rapid.SampledFrom([]float64{0, 0, 1e-3, 1e-5, 1}).Draw(t, "prior")
	if perToken == 0 {
		return nil
	}
	var out []Observation
	for _, n := range []int{1, 30, 100} {
		out = append(out, Observation{Work{Rows: 1, Tokens: n, Samples: 1}, 1e-3 + perToken*float64(n)})
	}
	return out
}
