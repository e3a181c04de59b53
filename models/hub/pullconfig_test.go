package hub

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/openinfer-go/openinfer/models/hub/hubtest"
)

// TestPullConfig: only what says how weights are is fetched, it is no model that could be served, and a pull of
// the rest then makes it one.
func TestPullConfig(t *testing.T) {
	files := sharded()
	files["quantize_config.json"] = []byte(`{"bits":4}`)
	h := hubtest.New(t, repo, files)
	o, _ := optionsFor(t, h)
	path, err := PullConfig(t.Context(), ref(t, repo), o)
	if want := filepath.Join(string(o.Cache), "models--org--model", "snapshots", h.Commit); err != nil || path != want {
		t.Fatalf("got %s, %v; want %s", path, err, want)
	}
	if got, want := hubtest.Bodies(h.Asked()), []string{"config.json", "quantize_config.json"}; !cmp.Equal(got, want) {
		t.Errorf("fetched %q, want %q", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(path, "config.json")); err != nil || string(b) != string(files["config.json"]) {
		t.Errorf("config.json: %q, %v", b, err)
	}
	if _, err := o.Cache.Find(ref(t, repo)); !errors.Is(err, ErrNotCached) {
		t.Errorf("Find: %v, want ErrNotCached", err)
	}
	if list, err := o.Cache.List(); err != nil || len(list) > 0 {
		t.Errorf("List: %v, %v", list, err)
	}
	o.Offline = true
	if again, err := PullConfig(t.Context(), ref(t, repo), o); err != nil || again != path || len(h.Asked()) > 0 {
		t.Errorf("offline: %s, %v", again, err)
	}
	o.Offline = false
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Fatal(err)
	}
	if found, err := o.Cache.Find(ref(t, repo)); err != nil || found != path {
		t.Errorf("after the pull: %s, %v", found, err)
	}
}

func TestPullConfigRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string][]byte
		ref     string
		offline bool
		want    []string
	}{
		"offline":    {sharded(), repo, true, []string{repo, "config.json", "HF_HUB_OFFLINE"}},
		"GGUF file":  {sharded(), repo + ":Q4_0", false, []string{repo + ":Q4_0", "pull it"}},
		"only GGUF":  {map[string][]byte{"m.gguf": {1}}, repo, false, []string{repo, "config.json", "GGUF"}},
		"nothing":    {map[string][]byte{"README.md": {1}}, repo, false, []string{repo, "config.json is missing"}},
		"far longer": {map[string][]byte{"config.json": make([]byte, maxConfig+1)}, repo, false, []string{"config.json", "more than"}},
		"other name": {sharded(), "org/none", false, []string{"org/none", "no such repository"}},
	} {
		h := hubtest.New(t, repo, c.files)
		o, _ := optionsFor(t, h)
		o.Offline = c.offline
		_, err := PullConfig(t.Context(), ref(t, c.ref), o)
		for _, s := range c.want {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v, want %q in it", name, err, s)
			}
		}
	}
}
