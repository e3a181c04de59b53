package virtual

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

func TestDbg(t *testing.T) {
	s := Setting{Card: "a6000", KVCacheDType: "fp8-e4m3"}
	var ds []Demand
	for _, d := range []struct {
		n string
		s float64
		t int
	}{{"qwen3.5-27b", 637, 4000}, {"qwen3.5-9b", 607, 2000}, {"llama-3.2-1b", 1920, 2000}, {"phi-4", 1700, 2000}, {"gemma-4-12b", 530, 2000}, {"qwen3-1.7b", 1664, 2000}} {
		s.Models = append(s.Models, engine.ModelSpec{Name: d.n})
		ds = append(ds, Demand{d.n, d.s, engine.SLA{TTFT: time.Duration(d.t) * time.Millisecond, TPOT: 100 * time.Millisecond}})
	}
	m := Mix{Demands: ds, Prompt: 300, Shared: 200, Output: 200}
	engine.Trace = func(line string) {
		if os.Getenv("TRACE") != "" {
			fmt.Println(line)
		}
	}
	r, err := Ours(s, m.Load(0, 12.4, 30*time.Second), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Models {
		t.Logf("%+v", x)
	}
}
