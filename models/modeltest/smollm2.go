package modeltest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// SmolLM2 holds the device to a real model: prompts of SmolLM2-135M-Instruct (Q4_1 and Q8_0) with
// the reference's last logits and greedy ids. prompts and steps bound how many
// prompts and greedy steps are run; 0 is all.
func SmolLM2(t *testing.T, dev Device, prompts, steps int) {
	dir := testdata.Shared(t, "golden/smollm2")
	raw, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Cases []struct {
			IDs, Greedy []int32
			Margins     []float64
		}
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	tensors := testdata.Tensors(t, filepath.Join(dir, "last_logits.safetensors"))
	if len(g.Cases) == 0 || len(tensors) == 0 {
		t.Fatal("no cases")
	}
	r := dev.load(t, testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"), 2000)
	m := &measure{device: dev}
	var runs []*run
	var rows []Row
	for i, c := range g.Cases {
		if prompts > 0 && i == prompts {
			break
		}
		p := prompt{name: fmt.Sprint("case ", i), ids: c.IDs, greedy: c.Greedy, margins: c.Margins}
		// Where two ids are as likely as that, float32 itself decides by its order of summation.
		for j, margin := range p.margins {
			if margin < 0.01 || steps > 0 && j == steps {
				p.greedy, p.margins = p.greedy[:j], p.margins[:j]
				break
			}
		}
		run := &run{prompt: p, Sequence: &Sequence{Tokens: append([]int32(nil), p.ids...)}}
		runs, rows = append(runs, run), append(rows, Row{run.Sequence, len(p.ids), false})
	}
	// All prompts in one step, their continuations together.
	for i, out := range r.Step(rows...) {
		runs[i].want = out
		if golden, ok := tensors[strconv.Itoa(i)]; ok {
			m.logits(t, runs[i].name, out[0], golden.Float32())
		}
	}
	r.greedy(t, m, runs)
	m.check(t)
	t.Log(m)

	// The last token's bits once more, alone and in chunks.
	last := runs[len(runs)-1]
	s := &Sequence{Tokens: last.Tokens}
	for _, n := range []int{len(last.ids) / 2, len(last.ids) - len(last.ids)/2} {
		last.want = append(last.want, r.Step(Row{s, n, false})[0]...)
	}
	same(t, last.name+" in two chunks", last.want[len(last.want)-1], last.want[0])
}
