package engine

import (
	"fmt"
	"math"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/sim"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/registry"
)

// published is a stopwatch of the model whose speed is published, on that card.
func published(t testing.TB, card string) (*stopwatch, models.Model) {
	t.Helper()
	raw, _ := configs.Open("qwen3.8-27b")
	c, err := checkpoint.OpenConfigBytes("qwen3.8-27b", raw)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := sim.Find(card)
	if err != nil {
		t.Fatal(err)
	}
	m, err := registry.Load(c, sim.NewMeter(spec))
	if err != nil {
		t.Fatal(err)
	}
	return newStopwatch(m, kernels.F8E4M3, spec), m
}

// TestPublishedSpeeds compares the simulated card with a published table: Qwen3.8-27B in INT4 (group 128) on an
// RTX 3090 with an unlocked tensor rate, vLLM 0.32, fp8 KV cache. Every cell is to be within 10 %.
func TestPublishedSpeeds(t *testing.T) {
	w, _ := published(t, "rtx3090-unlocked")
	within := func(what string, got, want float64) {
		t.Logf("%-34s %8.1f tok/s, published %8.1f (%+.1f %%)", what, got, want, 100*(got/want-1))
		if math.Abs(got/want-1) > 0.10 {
			t.Errorf("%s: %.1f tok/s, published %.1f", what, got, want)
		}
	}
	for _, c := range []struct {
		context, streams int
		want             float64
	}{
		{0, 1, 48.2}, {0, 2, 89.4}, {0, 4, 172.1}, {0, 8, 329.4},
		{16 << 10, 1, 46.6}, {16 << 10, 2, 86.2}, {32 << 10, 1, 45.3}, {56 << 10, 1, 43.5},
	} {
		rows := make([]stepRow, c.streams)
		for i := range rows {
			rows[i] = stepRow{c.context + 700, 1} // the middle of an answer of 30 s
		}
		within(decodeCell(c.context, c.streams), float64(c.streams)/w.seconds(rows), c.want)
	}
	for _, c := range []struct {
		context int
		want    float64
	}{{8 << 10, 2163}, {16 << 10, 2039}, {32 << 10, 1871}, {56 << 10, 1664}} {
		const chunk = 2048
		seconds := 0.0
		for start := 0; start < c.context; start += chunk {
			seconds += w.seconds([]stepRow{{start, chunk}})
		}
		within(prefillCell(c.context), float64(c.context)/seconds, c.want)
	}
}

func decodeCell(context, streams int) string {
	return fmt.Sprintf("decode, context %d, %d streams", context, streams)
}

func prefillCell(context int) string { return fmt.Sprintf("prefill of %d", context) }

// BenchmarkStopwatch is what it costs to ask how long a step of the largest model takes.
func BenchmarkStopwatch(b *testing.B) {
	w, _ := published(b, "rtx3090")
	rows := make([]stepRow, 32)
	for i := range rows {
		rows[i] = stepRow{4000, 1}
	}
	for b.Loop() {
		w.seconds(rows)
	}
}
