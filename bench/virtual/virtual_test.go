package virtual

import (
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

func two() (Setting, Mix) {
	s := Setting{Card: "rtx3090", Models: []engine.ModelSpec{{Name: "llama-3.2-1b"}, {Name: "qwen3-1.7b"}}}
	sla := engine.SLA{TTFT: time.Second, TPOT: 50 * time.Millisecond}
	return s, Mix{Demands: []Demand{{"llama-3.2-1b", 1, sla}, {"qwen3-1.7b", 1, sla}}, Prompt: 200, Shared: 50, Output: 100}
}

func TestSmoke(t *testing.T) {
	s, m := two()
	load := m.Load(1, 20, 20*time.Second)
	for _, f := range []func(Setting, []Request, time.Duration) (Result, error){Ours, FirstCome, Split, Swap, SwapGrouped} {
		begin := time.Now()
		r, err := f(s, load, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %v %+v busy %v switches %d real %v", r.Way, r.Length, r.Sum(), r.Busy, r.Switches, time.Since(begin))
	}
}
