package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/openinfer-go/openinfer/models/hub/hubtest"
)

// TestPull: what belongs to the checkpoint comes into the usual layout, the token goes to the hub alone, and a second
// pull fetches no byte.
func TestPull(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	h.Token = "hf_secret"
	o, _ := optionsFor(t, h)
	path, err := Pull(t.Context(), ref(t, repo), o)
	if want := filepath.Join(string(o.Cache), "models--org--model", "snapshots", h.Commit); err != nil || path != want {
		t.Fatalf("got %s, %v; want %s", path, err, want)
	}
	checkWhole(t, h, o.Cache, wanted...)
	if b, err := os.ReadFile(filepath.Join(string(o.Cache), "models--org--model", "refs", "main")); err != nil || string(b) != h.Commit {
		t.Errorf("refs/main holds %q, %v", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(string(o.Cache), "*", "blobs", "*.*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if got, err := o.Cache.Find(ref(t, repo)); err != nil || got != path {
		t.Errorf("Find: got %s, %v; want %s", got, err, path)
	}
	// An empty file is whole without a request.
	if got, want := hubtest.Bodies(h.Asked()), slices.DeleteFunc(slices.Clone(wanted), func(n string) bool { return len(h.Files[n]) == 0 }); !cmp.Equal(got, want) {
		t.Errorf("fetched %q, want %q", got, want)
	}

	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Error(err)
	}
	if got := hubtest.Bodies(h.Asked()); len(got) > 0 {
		t.Errorf("the second pull fetched %q", got)
	}

	// What has rotted in the cache is seen and fetched again, and nothing else.
	rotten := o.Cache.blob(ref(t, repo), hubtest.SHA256(h.Files["model-00002-of-00002.safetensors"]))
	b, err := os.ReadFile(rotten)
	if err != nil {
		t.Fatal(err)
	}
	b[777] ^= 1
	if err := os.WriteFile(rotten, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Error(err)
	}
	if got := hubtest.Bodies(h.Asked()); !cmp.Equal(got, []string{"model-00002-of-00002.safetensors"}) {
		t.Errorf("to repair a file, the pull fetched %q", got)
	}
	checkWhole(t, h, o.Cache, wanted...)
}

func TestPullGGUF(t *testing.T) {
	files := map[string][]byte{
		"README.md": {1}, "m-Q4_K_M.gguf": noise(1, 999), "m-Q8_0.gguf": noise(2, 999), "mmproj-f16.gguf": {1},
		"BF16/m-BF16-00001-of-00002.gguf": noise(3, 99), "BF16/m-BF16-00002-of-00002.gguf": noise(4, 98),
	}
	h := hubtest.New(t, repo, files)
	o, _ := optionsFor(t, h)
	_, err := Pull(t.Context(), ref(t, repo), o)
	contains(t, err, "choose one", "org/model:Q4_K_M", "org/model:Q8_0", "org/model:BF16")
	if strings.Contains(fmt.Sprint(err), "mmproj") {
		t.Errorf("%v: a projector is no model", err)
	}
	for text, name := range map[string]string{
		"org/model:q4_k_m": "m-Q4_K_M.gguf", "org/model/m-Q8_0.gguf": "m-Q8_0.gguf", "org/model:m-Q8_0": "m-Q8_0.gguf",
		"org/model:BF16": "BF16/m-BF16-00001-of-00002.gguf", "org/model/BF16/m-BF16-00001-of-00002.gguf": "BF16/m-BF16-00001-of-00002.gguf",
	} {
		path, err := Pull(t.Context(), ref(t, text), o)
		if err != nil || !strings.HasSuffix(path, "/snapshots/"+h.Commit+"/"+name) {
			t.Errorf("%s: got %s, %v", text, path, err)
		}
		if found, err := o.Cache.Find(ref(t, text)); found != path {
			t.Errorf("Find %s: got %s, %v; want %s", text, found, err, path)
		}
	}
	checkWhole(t, h, o.Cache, "m-Q4_K_M.gguf", "m-Q8_0.gguf", "BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf")
	_, err = o.Cache.Find(ref(t, repo))
	contains(t, err, "choose one", "org/model:BF16")
	if list, err := o.Cache.List(); err != nil || !cmp.Equal(fmt.Sprint(list), "[org/model:BF16 org/model:Q4_K_M org/model:Q8_0]") {
		t.Errorf("List: got %v, %v", list, err)
	}
	_, err = Pull(t.Context(), ref(t, repo+":Q3_K_S"), o)
	contains(t, err, `"Q3_K_S"`, "org/model:Q8_0")
}

// TestInterrupted: what has come before a pull was ended is not fetched again, and shows in no snapshot.
func TestInterrupted(t *testing.T) {
	const name = "model-00001-of-00002.safetensors"
	h := hubtest.New(t, repo, sharded())
	half := len(h.Files[name]) / 2
	h.Spoil = func(w http.ResponseWriter, r *http.Request, a hubtest.Asked) bool {
		if a.What != "storage" || a.Name != name {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(h.Files[name])))
		_, _ = w.Write(h.Files[name][:half])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	o, _ := optionsFor(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(e Event) {
		if e.File == name && e.State == Fetching && e.Done == int64(half) {
			cancel()
		}
	}
	if _, err := Pull(ctx, ref(t, repo), o); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	if found := checkCache(t, o.Cache); len(found) > 0 {
		t.Errorf("a pull that was ended left a snapshot with %d files", len(found))
	}
	if _, err := o.Cache.Find(ref(t, repo)); !errors.Is(err, ErrNotCached) {
		t.Errorf("Find: %v, want %v", err, ErrNotCached)
	}
	h.Asked()
	h.Spoil, o.Progress = nil, nil
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, h, o.Cache, wanted...)
	if !slices.ContainsFunc(h.Asked(), func(a hubtest.Asked) bool {
		return a.What == "storage" && a.Name == name && a.Range == fmt.Sprintf("bytes=%d-", half)
	}) {
		t.Error("the pull did not go on from where it was ended")
	}
}

// TestNewCommit: a file that is another one in the next commit does not mix with what came of the old one.
func TestNewCommit(t *testing.T) {
	const name = "model-00002-of-00002.safetensors"
	h := hubtest.New(t, repo, sharded())
	o, _ := optionsFor(t, h)
	old := o.Cache.blob(ref(t, repo), hubtest.SHA256(h.Files[name])) + ".incomplete"
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, h.Files[name][:1000], 0o600); err != nil {
		t.Fatal(err)
	}
	h.Commit, h.Files[name] = strings.Repeat("ab", 20), noise(99, 30_000)
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, h, o.Cache, wanted...)

	// A revision by name has its own ref, by commit it has none.
	for _, revision := range []string{"refs/pr/7", h.Commit} {
		r := ref(t, repo+"@"+revision)
		if _, err := Pull(t.Context(), r, o); err != nil {
			t.Error(err)
		}
		if _, err := o.Cache.Find(r); err != nil {
			t.Error(err)
		}
	}
	refs, err := filesUnder(filepath.Join(o.Cache.repo(ref(t, repo)), "refs"))
	if err != nil || !cmp.Equal(refs, []string{"main", "refs/pr/7"}) {
		t.Errorf("refs: %q, %v", refs, err)
	}
}

// TestTwoPulls: two at once fetch each file once between them.
func TestTwoPulls(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	o, _ := optionsFor(t, h)
	waiting := make(chan bool, 100)
	o.Progress = func(e Event) {
		if e.State == Waiting {
			waiting <- true
		}
	}
	const slow = "model-00001-of-00002.safetensors"
	h.Spoil = func(w http.ResponseWriter, r *http.Request, a hubtest.Asked) bool {
		if a.What == "storage" && a.Name == slow {
			<-waiting // nobody gets it before the other waits
		}
		return false
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			o := o
			o.Connections = 16 // so that somebody waits while others go on
			if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	checkWhole(t, h, o.Cache, wanted...)
	names := hubtest.Bodies(h.Asked())
	if got := slices.Compact(slices.Clone(names)); len(got) != len(names) {
		t.Errorf("fetched twice: %q", names)
	}
}

func TestLockOfARemovedFile(t *testing.T) {
	c, r := Cache(t.TempDir()), ref(t, repo)
	unlock, err := c.lock(t.Context(), r, "aa", func() { t.Error("waits for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.lock(ctx, r, "aa", cancel)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("while it is held: got %v", err)
	}
	// Its holder removes the file and lets go: who waited must not think that the old file counts.
	second := make(chan func())
	go func() {
		unlock, err := c.lock(context.Background(), r, "aa", func() {
			if err := os.Remove(filepath.Join(string(c), ".locks", r.folder(), "aa.lock")); err != nil {
				t.Error(err)
			}
			unlock()
		})
		if err != nil {
			t.Error(err)
		}
		second <- unlock
	}()
	defer (<-second)()
	if _, err := os.Stat(filepath.Join(string(c), ".locks", r.folder(), "aa.lock")); err != nil {
		t.Errorf("the lock is on a file that is not there: %v", err)
	}
}

func TestDiskSpace(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	o, _ := optionsFor(t, h)
	need := int64(0)
	for _, n := range wanted {
		need += int64(len(h.Files[n]))
	}
	o.free = func(string) (int64, error) { return need + spareBytes - int64(len(h.Files[indexFile])) - 1, nil }
	_, err := Pull(t.Context(), ref(t, repo), o)
	contains(t, err, "GB free", "HF_HUB_CACHE", "model-00001-of-00002.safetensors")
	if got := hubtest.Bodies(h.Asked()); !cmp.Equal(got, []string{indexFile}) {
		t.Errorf("fetched %q before it knew that there is no room", got)
	}
	free := o.free
	o.free = func(dir string) (int64, error) { n, err := free(dir); return n + 1, err }
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Errorf("with just enough room: %v", err)
	}
}

func TestOffline(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	o, _ := optionsFor(t, h)
	o.Offline = true
	_, err := Pull(t.Context(), ref(t, repo), o)
	contains(t, err, repo, "HF_HUB_OFFLINE")
	o.Offline = false
	want, err := Pull(t.Context(), ref(t, repo), o)
	if err != nil {
		t.Fatal(err)
	}
	h.Asked()
	o.Offline = true
	if got, err := Pull(t.Context(), ref(t, repo), o); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	if asked := h.Asked(); len(asked) > 0 {
		t.Errorf("asked %v", asked)
	}
}

// TestPartial: a snapshot that lacks a file, or has a link to nothing, is not the model.
func TestPartial(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	for _, gone := range []string{"config.json", "model.safetensors.index.json", "model-00002-of-00002.safetensors"} {
		for _, what := range []string{"snapshots/" + h.Commit + "/" + gone, "blobs/" + hubtest.Hash(gone, h.Files[gone])} {
			o, _ := optionsFor(t, h)
			if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(o.Cache.repo(ref(t, repo)), what)); err != nil {
				t.Fatal(err)
			}
			_, err := o.Cache.Find(ref(t, repo))
			contains(t, err, gone, "openinfer pull org/model")
			if !errors.Is(err, ErrNotCached) {
				t.Errorf("%s: %v is no %v", what, err, ErrNotCached)
			}
			if list, err := o.Cache.List(); err != nil || len(list) > 0 {
				t.Errorf("%s: listed %v, %v", what, list, err)
			}
			if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
				t.Error(err)
			}
			checkWhole(t, h, o.Cache, wanted...)
		}
	}
}

func TestDefaultCache(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"HOME", "/h", "/h/.cache/huggingface/hub"},
		{"XDG_CACHE_HOME", "/x", "/x/huggingface/hub"},
		{"HF_HOME", "$HOME/f", "/h/f/hub"},
		{"HUGGINGFACE_HUB_CACHE", "/old", "/old"},
		{"HF_HUB_CACHE", "~/c", "/h/c"},
	} {
		for _, n := range []string{"XDG_CACHE_HOME", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"} {
			if _, set := os.LookupEnv(n); set && c.name == "HOME" {
				t.Setenv(n, "")
			}
		}
		t.Setenv(c.name, c.value)
		if got := DefaultCache(); string(got) != c.want {
			t.Errorf("%s=%s: got %s, want %s", c.name, c.value, got, c.want)
		}
	}
	dir := t.TempDir()
	t.Setenv("HF_HOME", dir)
	t.Setenv("HF_TOKEN_PATH", "")
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HUGGING_FACE_HUB_TOKEN", "")
	if got, err := DefaultToken(); got != "" || err != nil {
		t.Errorf("without a token: got %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := DefaultToken(); got != "hf_file" {
		t.Errorf("from the file: got %q", got)
	}
	t.Setenv("HF_TOKEN", " hf_env ")
	if got, _ := DefaultToken(); got != "hf_env" {
		t.Errorf("from HF_TOKEN: got %q", got)
	}
}

// TestForeignCache: the layout as other tools leave it, with a commit only, dangling links and other kinds of repositories.
func TestForeignCache(t *testing.T) {
	c := Cache(t.TempDir())
	if list, err := Cache(string(c) + "/none").List(); err != nil || len(list) > 0 {
		t.Errorf("a cache that is not there: %v, %v", list, err)
	}
	commit := strings.Repeat("0a", 20)
	for path, text := range map[string]string{
		"models--a--b/snapshots/" + commit + "/m.Q4_1.gguf":                   "x",
		"models--gpt/refs/main":                                               commit,
		"models--gpt/snapshots/" + commit + "/config.json":                    "{}",
		"models--gpt/snapshots/" + commit + "/model.safetensors":              "x",
		"models--gpt/.no_exist/" + commit + "/chat_template.jinja":            "",
		"models--only--config/refs/main":                                      commit,
		"models--only--config/snapshots/" + commit + "/config.json":           "{}",
		"models--evil--ref/refs/main":                                         "../../../..",
		"datasets--a--d/refs/main":                                            commit,
		"models--part--ial/refs/main":                                         commit,
		"models--part--ial/snapshots/" + commit + "/config.json":              "{}",
		"models--part--ial/snapshots/" + commit + "/m-00001-of-2.safetensors": "x", "version.txt": "1",
		"models--part--ial/snapshots/" + commit + "/m-00001-of-00002.gguf": "x",
	} {
		full := filepath.Join(string(c), path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../blobs/gone", filepath.Join(string(c), "models--a--b/snapshots", commit, "m.Q8_0.gguf")); err != nil {
		t.Fatal(err)
	}
	list, err := c.List()
	want := "[a/b@" + commit + ":Q4_1 gpt part/ial]"
	if err != nil || fmt.Sprint(list) != want {
		t.Errorf("got %v, %v; want %v", list, err, want)
	}
	for _, r := range list {
		if path, err := c.Find(r); err != nil {
			t.Errorf("%s: %v", r, err)
		} else if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"a/b", "evil/ref", "no/where", "only/config", "gpt:Q4_K_M"} {
		_, err := c.Find(ref(t, text))
		contains(t, err, text, "openinfer pull "+text)
	}
}

func TestLinkReplacesWhatIsThere(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	o, _ := optionsFor(t, h)
	dir := o.Cache.snapshot(ref(t, repo), h.Commit)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "mine")
	err := errors.Join(os.WriteFile(outside, []byte("mine"), 0o600),
		os.Symlink(outside, filepath.Join(dir, "config.json")), os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("half"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, h, o.Cache, wanted...)
	if b, err := os.ReadFile(outside); err != nil || !bytes.Equal(b, []byte("mine")) {
		t.Errorf("what a link pointed to is now %q, %v", b, err)
	}
}
