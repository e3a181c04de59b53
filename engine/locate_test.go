package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/models/demo"
)

// cacheDemo puts an embedded model into a hub cache as org/bard, and makes that the cache of this test.
func cacheDemo(t *testing.T) (snapshot string) {
	t.Helper()
	files, ok := demo.Open("demo-bard")
	if !ok {
		t.Fatal("no demo-bard")
	}
	cache, commit := t.TempDir(), strings.Repeat("ab", 20)
	snapshot = filepath.Join(cache, "models--org--bard", "snapshots", commit)
	refs := filepath.Join(cache, "models--org--bard", "refs")
	for _, err := range []error{
		os.MkdirAll(snapshot, 0o700), os.CopyFS(snapshot, files),
		os.MkdirAll(refs, 0o700), os.WriteFile(filepath.Join(refs, "main"), []byte(commit), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HF_HUB_CACHE", cache)
	return snapshot
}

func TestLocate(t *testing.T) {
	snapshot := cacheDemo(t)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("small.gguf", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]engine.ModelSpec{
		"demo-tales":    {Name: "demo-tales"},
		"org/bard":      {Name: "org/bard", Path: snapshot},
		"org/bard@main": {Name: "org/bard@main", Path: snapshot},
		"small.gguf":    {Name: "small", Path: "small.gguf"},
		"./small.gguf":  {Name: "small", Path: "./small.gguf"},
		snapshot:        {Name: filepath.Base(snapshot), Path: snapshot},
	} {
		if got, err := engine.Locate(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, says := range map[string][]string{
		"org/other":      {"org/other", "openinfer pull org/other", "no such file or folder"},
		"org/bard:Q4_0":  {"no .gguf file", "openinfer pull org/bard:Q4_0"},
		"org/bard@v2":    {"openinfer pull org/bard@v2"},
		"./org/bard":     {"./org/bard", "no such file or folder"},
		"/no/where":      {"/no/where", "no such file or folder"},
		"missing.gguf/x": {"missing.gguf/x", "no such file or folder"},
		"demo-tale":      {"demo-tale", "demo-tales"},
		"":               {"no such file or folder"},
	} {
		_, err := engine.Locate(text)
		for _, s := range says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%q: %v, want an error that says %q", text, err, s)
			}
		}
		if err != nil && strings.Contains(err.Error(), "pull") != strings.Contains(strings.Join(says, ""), "pull") && text != "missing.gguf/x" {
			t.Errorf("%q: %v", text, err)
		}
	}
	// What lies here by that name wins.
	if err := os.MkdirAll("org/bard", 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := engine.Locate("org/bard"); err != nil || got.Path != "org/bard" || got.Name != "bard" {
		t.Errorf("a folder of that name: got %+v, %v", got, err)
	}
}

// TestServeFromTheHubCache: a model of the cache answers under its name, or another.
func TestServeFromTheHubCache(t *testing.T) {
	snapshot := cacheDemo(t)
	if names, err := engine.CachedModels(); err != nil || len(names) != 1 || names[0] != "org/bard" {
		t.Fatalf("the cache holds %q, %v", names, err)
	}
	if d, err := engine.Describe(engine.ModelSpec{Name: "org/bard"}); err != nil || !d.Supported || d.Format != "safetensors" {
		t.Errorf("got %+v, %v", d, err)
	}
	e := open(t, engine.Options{Models: []engine.ModelSpec{{Name: "org/bard"}, {Name: "bard", Path: "org/bard"}}})
	for _, m := range e.Models() {
		if m.Path != snapshot {
			t.Errorf("%s is from %s", m.Name, m.Path)
		}
		ids, err := e.Tokenize(m.Name, "Let Juliet speak.", true)
		if err != nil {
			t.Fatal(err)
		}
		events, err := e.Generate(t.Context(), engine.Request{Model: m.Name, Prompt: ids, MaxTokens: 3})
		if err != nil {
			t.Fatal(err)
		}
		for ev := range events {
			if ev.Err != nil {
				t.Error(ev.Err)
			}
		}
	}
	_, err := engine.New(engine.Options{Models: []engine.ModelSpec{{Name: "x", Path: "demo-tales"}}})
	if err == nil || !strings.Contains(err.Error(), "model x") || !strings.Contains(err.Error(), "embedded") {
		t.Errorf("an embedded model by another name: %v", err)
	}
}
