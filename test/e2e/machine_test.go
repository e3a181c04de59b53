package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

// machine is a device to show a case on, with three models to show it with. On a simulated card time is virtual:
// what is asked takes as long as the card would, to the nanosecond, and waiting costs nothing.
type machine struct {
	device  string
	virtual bool
	// long has a context of 32,768 tokens, the others at least 1,024; ids of fewTokens are words to each. There is no
	// room for two of them where the largest just fits.
	long, other, spare string
	models             []engine.ModelSpec // long, other, spare
}

const longContext = 32768

// machines shows a case on the processor and on a simulated card.
func machines(t *testing.T, show func(t *testing.T, m machine)) {
	t.Run("cpu", func(t *testing.T) { show(t, processor(t)) })
	t.Run("sim", func(t *testing.T) { onCard(t, show) })
}

func processor(t *testing.T) machine {
	return machine{device: "cpu", long: "long", other: tales, spare: bard, models: []engine.ModelSpec{
		{Name: "long", Path: stretched(t, "models/qwen3_tied", longContext)}, {Name: tales}, {Name: bard},
	}}
}

// onCard shows a case on a simulated card only, in virtual time.
func onCard(t *testing.T, show func(t *testing.T, m machine)) {
	const long, other, spare = "llama-3.2-1b", "qwen3-1.7b", "spare"
	same := testdata.Shared(t, "configs", long+".json")
	synctest.Test(t, func(t *testing.T) {
		show(t, machine{device: "sim:rtx3090", virtual: true, long: long, other: other, spare: spare, models: []engine.ModelSpec{
			{Name: long}, {Name: other}, {Name: spare, Path: same},
		}})
	})
}

// with is another card with two other models.
func (m machine) with(device, long, other string) machine {
	m.device, m.long, m.other, m.spare = device, long, other, ""
	m.models = []engine.ModelSpec{{Name: long}, {Name: other}}
	return m
}

// first are the machine's first n models.
func (m machine) first(n int) []engine.ModelSpec { return m.models[:n] }

// open makes a service of the machine without loading its models.
func (m machine) open(t *testing.T, o engine.Options, a api.Options) *service {
	t.Helper()
	o.Device = m.device
	e, err := engine.New(quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	if m.virtual {
		s, stop := inMemory(e, a)
		t.Cleanup(stop)
		return s
	}
	s := start(e, a)
	t.Cleanup(s.close)
	return s
}

// serve is open with the models loaded.
func (m machine) serve(t *testing.T, o engine.Options, a api.Options) *service {
	t.Helper()
	s := m.open(t, o, a)
	if err := s.engine.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// oneAtATime are options with room for the weights of any one of the models.
func (m machine) oneAtATime(t *testing.T, o engine.Options) engine.Options {
	t.Helper()
	all := o
	all.Device = m.device
	e, err := engine.Open(t.Context(), quiet(all))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, p := range e.Plan().Models {
		o.WeightMemory = max(o.WeightMemory, p.WeightBytes)
	}
	return o
}

// stretched is a copy of a golden checkpoint whose config allows a longer context.
func stretched(t testing.TB, name string, context int) string {
	t.Helper()
	from, to := testdata.Shared(t, "golden/"+name), t.TempDir()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if f.Name() == "config.json" {
			was := []byte(`"max_position_embeddings": 1024`)
			if !bytes.Contains(b, was) {
				t.Fatalf("%s: no %s in config.json", name, was)
			}
			b = bytes.ReplaceAll(b, was, fmt.Appendf(nil, `"max_position_embeddings": %d`, context))
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// fewTokens are n ids that every model has and that no two calls are likely to begin alike.
func fewTokens(r *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(300 + r.IntN(200))
	}
	return ids
}

// says is a request for exactly so many tokens after a prompt.
func says(model string, prompt any, tokens int, stream bool) body {
	return complete(model, prompt, body{"max_tokens": tokens, "ignore_eos": true, "stream": stream})
}

// whole asks for an answer that must have all its tokens. It may run in any goroutine.
func (s *service) whole(t testing.TB, b body) answer {
	r, err := s.ask(b)
	if err != nil || len(r.choices) != 1 || len(r.choices[0].ids) != b["max_tokens"] || r.choices[0].finish != "length" {
		t.Errorf("%v, %v tokens: %v, %v", b["model"], b["max_tokens"], r.choices, err)
		return answer{}
	}
	return r.choices[0]
}

// of is a model's counters and gauges.
func (s *service) of(t testing.TB, model string) engine.ModelStats {
	t.Helper()
	for _, m := range s.engine.Stats().Models {
		if m.Name == model {
			return m
		}
	}
	t.Fatalf("no model %s", model)
	return engine.ModelStats{}
}

// stateOf says where a model's weights are.
func (s *service) stateOf(t testing.TB, model string) string {
	t.Helper()
	m, err := s.engine.Model(model)
	if err != nil {
		t.Fatal(err)
	}
	return m.State
}

// verified comes to rest and checks that every block and page came back and that requests that were begun have ended.
func (s *service) verified(t testing.TB) metrics {
	t.Helper()
	m := s.rest(t)
	if n := m.state(t, "openinfer_kv_pages", `state="live"`); n != 0 {
		t.Errorf("%v pages are live at rest", n)
	}
	if n := m["openinfer_step_errors_total"]; n != 0 {
		t.Errorf("%v steps failed", n)
	}
	return m
}

// within is how long something took, to be compared with a limit on a machine whose time is virtual.
func (m machine) within(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	if m.virtual && took > limit {
		t.Errorf("%s took %v, more than %v", what, took, limit)
	}
}
