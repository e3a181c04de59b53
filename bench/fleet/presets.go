package fleet

import (
	"fmt"
	"time"
)

// Preset is the load of one of the two published comparisons, as far as their pages tell: six models on six nodes, or four
// on four.
//
// Waves: one model after the other. Of six nodes with one model each, every card was busy 89 to 100 % in its busiest second
// and 13 to 22 % on average, but all six together never beyond 32 %, and 94 % of one card on average: one or two models
// at a time, each for about a sixth of the run. So a wave takes 1/6 of the run, a third of it each to rise, stay and fall,
// and the next one begins as it ends; answers that are not finished overlap.
//
// Size: the pages do not name their cards, so requests a second mean nothing on another one. What they tell is which part of
// each model's requests a dedicated node answered: of the requests that the pooled fleet was sent (where nearly none was
// refused, so nobody had to come again) the baseline served 233 of 637 (27B), 384 of 607 (9B), 1,380 of 1,920 (1B), 521 of 1,700
// (14B), 323 of 530 (12B) and 1,200 of 1,664 (1.7B). (Its own far larger counts of requests are the same clients, refused at
// once and back.) A node that serves what it can, c a second, of a wave whose top is x*c serves the part (1 - 1/3x) * 3/2x,
// which gives Demand.Times. That is the least that clients can have wanted: on the page they came back after a refusal and were
// served later, here they do not. On simulated A6000s it makes up to about 560 requests in flight, of the page's "about 800", and half of
// what the pooled fleet could do; half as much again comes nearer to both.
//
// Of four nodes the page gives the whole (109 of 286 served), the 27B (25 of 48) and the 1B (32 of 121); the 9B and the 12B
// share the rest (52 of 117).
//
// Not published, and chosen here: prompts of 100 tokens that a model's requests share and 150 of their own on average, log-normal
// lengths, and the SLA: an answer begins within two seconds, four for the largest, and goes on at ten tokens a second or more.
func Preset(name string) (Scenario, error) {
	s := Scenario{
		Name: name, Length: 2 * time.Minute, Waves: 1, Spread: 1,
		PromptTokens: 150, SharedTokens: 100, OutputTokens: 200, PromptSigma: 0.8, OutputSigma: 0.5,
	}
	add := func(model string, served, asked float64, ttftMillis int) {
		s.Demands = append(s.Demands, Demand{Model: model, Times: wanted(served / asked), SLA: slaOf(ttftMillis)})
		s.Nodes++
		s.Width = 1 / float64(s.Nodes)
	}
	switch name {
	case "six":
		add("qwen3.5-27b", 233, 637, 4000)
		add("qwen3.5-9b", 384, 607, 2000)
		add("llama-3.2-1b", 1380, 1920, 2000)
		add("phi-4", 521, 1700, 2000)
		add("gemma-4-12b", 323, 530, 2000)
		add("qwen3-1.7b", 1200, 1664, 2000)
	case "four":
		add("qwen3.5-27b", 25, 48, 4000)
		add("gemma-4-12b", 52, 117, 2000)
		add("qwen3.5-9b", 52, 117, 2000)
		add("llama-3.2-1b", 32, 121, 2000)
	default:
		return s, fmt.Errorf("preset %q: want six or four", name)
	}
	return s, nil
}

// wanted is the x of which (1 - 1/3x) * 3/2x is the part served: 0 < part < 1.
func wanted(part float64) float64 {
	low, high := 1.0, 1000.0
	for high-low > 1e-6 {
		x := (low + high) / 2
		if (1-1/(3*x))*3/(2*x) > part {
			low = x
		} else {
			high = x
		}
	}
	return low
}

func slaOf(ttftMillis int) SLA {
	return SLA{time.Duration(ttftMillis) * time.Millisecond, 100 * time.Millisecond}
}
