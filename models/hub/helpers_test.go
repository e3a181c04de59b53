package hub

import (
	"bytes"
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/models/hub/hubtest"
)

const repo = "org/model"

// noise is n bytes that do not repeat.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// sharded is a repository with a checkpoint in two shards and much that does not belong to it.
func sharded() map[string][]byte {
	return map[string][]byte{
		"config.json":                      []byte(`{"model_type":"llama"}`),
		"generation_config.json":           []byte(`{}`),
		"tokenizer.json":                   noise(1, 5000),
		"tokenizer_config.json":            []byte(`{"bos_token":"<s>"}`),
		"chat_template.jinja":              {},
		"model.safetensors.index.json":     []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`),
		"model-00001-of-00002.safetensors": noise(2, 70_000),
		"model-00002-of-00002.safetensors": noise(3, 30_000),
		"consolidated.safetensors":         noise(4, 100),
		"pytorch_model.bin":                noise(5, 100),
		"README.md":                        []byte("# A model"),
		"onnx/model.onnx":                  noise(6, 100),
	}
}

// wanted are the files of sharded that make the checkpoint.
var wanted = []string{
	"chat_template.jinja", "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
	"model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
}

// waits records what a pull would have waited.
type waits struct {
	mu  sync.Mutex
	all []time.Duration
}

func (w *waits) sleep(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, d)
	return ctx.Err()
}

// optionsFor are those of a pull from h into a cache of its own that waits for nothing.
func optionsFor(t testing.TB, h *hubtest.Hub) (Options, *waits) {
	w := new(waits)
	return Options{Endpoint: h.URL(), Token: h.Token, Cache: Cache(t.TempDir()), sleep: w.sleep}, w
}

func ref(t testing.TB, text string) Ref {
	t.Helper()
	r, err := ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var blobName = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// checkCache is an error of the test when a snapshot holds anything but relative links to whole blobs of the right
// hash, or a ref names a commit that has no snapshot. It returns the snapshots' files by name.
func checkCache(t testing.TB, c Cache) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(string(c), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(string(c), path)
		parts := strings.SplitN(filepath.ToSlash(rel), "/", 4)
		if parts[0] == ".locks" {
			return nil
		}
		switch parts[1] {
		case "refs":
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(string(c), parts[0], "snapshots", string(b))); err != nil {
				t.Errorf("%s names %q: %v", rel, b, err)
			}
		case "blobs":
			if d.Type() != 0 {
				t.Errorf("%s is a %v", rel, d.Type())
			}
			if !blobName.MatchString(strings.TrimSuffix(parts[2], ".incomplete")) {
				t.Errorf("%s: left behind", rel)
			}
		case "snapshots":
			target, err := os.Readlink(path)
			if err != nil {
				t.Errorf("%s is no link: %v", rel, err)
				return nil
			}
			blob := filepath.Join(filepath.Dir(path), target)
			hash := filepath.Base(target)
			if filepath.IsAbs(target) || filepath.Dir(blob) != filepath.Join(string(c), parts[0], "blobs") || !blobName.MatchString(hash) {
				t.Errorf("%s points to %s", rel, target)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Errorf("%s: %v", rel, err)
			}
			if hash != hubtest.SHA256(b) && hash != hubtest.BlobID(b) {
				t.Errorf("%s: holds %d bytes that are not %s", rel, len(b), hash)
			}
			found[parts[3]] = b
		default:
			t.Errorf("%s: what is it?", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// checkWhole holds the snapshot to the hub's files of these names, no fewer and no more.
func checkWhole(t testing.TB, h *hubtest.Hub, c Cache, names ...string) {
	t.Helper()
	found := checkCache(t, c)
	for _, n := range names {
		if b, ok := found[n]; !ok || !bytes.Equal(b, h.Files[n]) {
			t.Errorf("%s: %d bytes (there: %v), want the hub's %d", n, len(b), ok, len(h.Files[n]))
		}
		delete(found, n)
	}
	for n := range found {
		t.Errorf("%s: not asked for", n)
	}
}

func contains(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}
