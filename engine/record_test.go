package engine

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/sched"
)

// TestRecordSteps writes the steps of a served mixed load on the cpu device, what each was and how long it took, to
// the file that OPENINFER_RECORD_STEPS names: what sched/testdata/steps.csv was made with.
func TestRecordSteps(t *testing.T) {
	path := os.Getenv("OPENINFER_RECORD_STEPS")
	if path == "" {
		t.Skip("OPENINFER_RECORD_STEPS names no file")
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	fmt.Fprintln(out, "model,rows,tokens,samples,context,promptcontext,seconds")
	models := []ModelSpec{{Name: "demo-tales"}, {Name: "demo-bard"}}
	if smol := filepath.Join(os.Getenv("OPENINFER_CACHE"), "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"); exists(smol) {
		models = append(models, ModelSpec{Name: "smollm2-135m", Path: smol})
	}
	e, err := Open(t.Context(), Options{
		Device: "cpu", Threads: 1, Models: models, KVMemory: 1 << 30, // one thread is disturbed least
		stepped: func(p *sched.Plan, took time.Duration) {
			w := p.Work()
			fmt.Fprintf(out, "%s,%d,%d,%d,%d,%d,%.7f\n", p.Model, w.Rows, w.Tokens, w.Samples, w.Context, w.PromptContext, took.Seconds())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		recordLoad(t, e, m.Name, map[bool]int{true: 180, false: 120}[m.Path == ""])
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// recordLoad is clients that come and go, a few at first and then many, with prompts and answers of many lengths.
func recordLoad(t *testing.T, e *Engine, model string, requests int) {
	t.Helper()
	limit := 0
	for _, m := range e.Models() {
		if m.Name == model {
			limit = min(m.MaxModelLen, 1500)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 24)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range requests {
		prompt := make([]int32, 4+int(float64(limit)*0.4*random.Float64()*random.Float64()))
		for j := range prompt {
			prompt[j] = int32(5 + random.IntN(200))
		}
		tokens := 5 + random.IntN(50)
		if i < 14 { // three at a time, then up to 24
			slots <- struct{}{}
			for len(slots) > 3 {
				time.Sleep(time.Millisecond)
			}
		} else {
			slots <- struct{}{}
		}
		wg.Go(func() {
			defer func() { <-slots }()
			events, err := e.Generate(context.Background(), Request{Model: model, Prompt: prompt, MaxTokens: tokens, IgnoreEOS: true})
			if err != nil {
				t.Error(err)
				return
			}
			for range events {
			}
		})
	}
	wg.Wait()
}
