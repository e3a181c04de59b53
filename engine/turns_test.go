package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/engine"
)

// Weights that come back from their checkpoint are the same, to the token; a checkpoint that has changed meanwhile
// is refused by the name of model and file, and only that model is.
func TestParkedWeightsComeBack(t *testing.T) {
	keep := func(b []byte) []byte { return b }
	tales, bard := copyDemo(t, "demo-tales", "config.json", keep), copyDemo(t, "demo-bard", "config.json", keep)
	for _, device := range []string{"cpu", "ref"} {
		e := open(t, engine.Options{Device: device, Models: []engine.ModelSpec{{Name: "x", Path: tales}, {Name: "y", Path: bard}}})
		ask := func(model string) []int32 {
			ids, _, _ := answer(t, e, engine.Request{Model: model, Prompt: []int32{5, 6, 7}, MaxTokens: 12, IgnoreEOS: true})
			return ids
		}
		want := ask("x")
		for range 2 {
			if err := e.UnloadModel(t.Context(), "x", false); err != nil {
				t.Fatal(err)
			}
			if got := ask("x"); !slices.Equal(got, want) {
				t.Errorf("%s: %v, before it was parked %v", device, got, want)
			}
		}
		if err := e.UnloadModel(t.Context(), "x", false); err != nil {
			t.Fatal(err)
		}
		weights := filepath.Join(tales, "model.safetensors")
		was, err := os.Stat(weights)
		if err != nil {
			t.Fatal(err)
		}
		later := was.ModTime().Add(time.Second)
		if err := os.Chtimes(weights, later, later); err != nil {
			t.Fatal(err)
		}
		err = e.LoadModel(t.Context(), "x")
		if !errors.Is(err, engine.ErrLoad) || !strings.Contains(err.Error(), "model x") || !strings.Contains(err.Error(), "model.safetensors has changed") {
			t.Errorf("%s: a checkpoint that has changed: %v", device, err)
		}
		if ids := ask("y"); len(ids) != 12 {
			t.Errorf("%s: the other model: %v", device, ids)
		}
		if err := os.Chtimes(weights, was.ModTime(), was.ModTime()); err != nil {
			t.Fatal(err)
		}
		if got := ask("x"); !slices.Equal(got, want) {
			t.Errorf("%s: afterwards: %v, want %v", device, got, want)
		}
	}
}
