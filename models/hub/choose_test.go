package hub

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/openinfer-go/openinfer/models/hub/hubtest"
)

func TestParseRef(t *testing.T) {
	for text, want := range map[string]Ref{
		"org/name":                     {Repo: "org/name"},
		"gpt2":                         {Repo: "gpt2"},
		"org/Na_me-1.5":                {Repo: "org/Na_me-1.5"},
		"org/name@v1.0":                {Repo: "org/name", Revision: "v1.0"},
		"org/name@refs/pr/3":           {Repo: "org/name", Revision: "refs/pr/3"},
		"org/name:Q4_K_M":              {Repo: "org/name", File: "Q4_K_M"},
		"org/name@rev:a/b.gguf":        {Repo: "org/name", Revision: "rev", File: "a/b.gguf"},
		"org/name/file.gguf":           {Repo: "org/name", File: "file.gguf"},
		"org/name/sub/file-00001.gguf": {Repo: "org/name", File: "sub/file-00001.gguf"},
	} {
		got, err := ParseRef(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseRef(got.String()); err != nil || again != got {
			t.Errorf("%s: written as %s it is %+v, %v", text, got, again, err)
		}
	}
	for text, says := range map[string]string{
		"": "write org/name", "/": "write org/name", "/etc/passwd": "write org/name", "../x": "write org/name", "org/..": "write org/name",
		"a--b/c": "write org/name", "org/na me": "write org/name", "org/name.git": ".git", "org/.": "write org/name", "ORG/é": "write org/name",
		strings.Repeat("a", 97): "longer than 96", "org/name@": "revision", "org/name@../..": "revision", "org/name@/x": "revision", "org/name@a\nb": "revision",
		"org/name:": "missing", "org/name:../x": "leaves", "org/name:/x": "leaves", "org/name/../../x": "leaves", "org/name/a//b": "leaves",
		"org/name/x.gguf:Q4": "twice", `org/name:a\b`: "characters", "org/name:a\x1b[2J": "characters", "org/name:" + strings.Repeat("x", 300): "longer than 255",
		"org/name@" + strings.Repeat("x", 201): "200",
	} {
		_, err := ParseRef(text)
		contains(t, err, says)
	}
}

func TestChoose(t *testing.T) {
	beside := []string{"config.json", "tokenizer.json", "README.md", "sub/config.json", "sub/model.safetensors", "original/consolidated.safetensors"}
	with := func(names ...string) []string { return append(slices.Clone(beside), names...) }
	for _, c := range []struct {
		what  string
		ref   string
		names []string
		files []string // nil: an error that says
		says  string
	}{
		{"one file", "a/b", with("model.safetensors", "x.safetensors"), []string{"config.json", "tokenizer.json", "model.safetensors"}, ""},
		{"one file of another name", "a/b", with("weights.safetensors"), []string{"config.json", "tokenizer.json", "weights.safetensors"}, ""},
		{"both forms", "a/b", with("model.safetensors", "model.safetensors.index.json"), []string{"config.json", "tokenizer.json", "model.safetensors"}, ""},
		{"beside GGUF", "a/b", with("model.safetensors", "m.Q4_0.gguf"), []string{"config.json", "tokenizer.json", "model.safetensors"}, ""},
		{"GGUF beside it", "a/b:Q4_0", with("model.safetensors", "m.Q4_0.gguf"), []string{"m.Q4_0.gguf"}, ""},
		{"several, no index", "a/b", with("a.safetensors", "b.safetensors"), nil, "index.json is missing"},
		{"a shard, no index", "a/b", with("model-00001-of-00002.safetensors"), nil, "index.json is missing"},
		{"no config", "a/b", []string{"model.safetensors"}, nil, "config.json is missing"},
		{"nothing", "a/b", beside, nil, "neither safetensors nor GGUF"},
		{"other formats", "a/b", with("pytorch_model.bin"), nil, "pytorch_model.bin is not read"},
		{"only a projector", "a/b", []string{"mmproj-model-f16.gguf", "imatrix.gguf"}, nil, "neither safetensors nor GGUF"},
		{"one GGUF", "a/b", []string{"x.gguf", "mmproj-F16.gguf", "config.json"}, []string{"x.gguf"}, ""},
		{"dynamic quantisations are others", "a/b:UD-Q4_K_XL", []string{"m-Q4_K_XL.gguf", "m-UD-Q4_K_XL.gguf"}, []string{"m-UD-Q4_K_XL.gguf"}, ""},
		{"a name within a name", "a/b:Q4_K", []string{"m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-IQ4_K.gguf"}, []string{"m-Q4_K.gguf"}, ""},
		{"same quantisation twice", "a/b:Q4_0", []string{"x-Q4_0.gguf", "y-Q4_0.gguf"}, nil, "a/b:x-Q4_0.gguf"},
		{"same name twice", "a/b:m-Q4_0.gguf", []string{"m-Q4_0.gguf", "sub/m-Q4_0.gguf"}, []string{"m-Q4_0.gguf"}, ""},
		{"split", "a/b", []string{"m-Q4_0-00002-of-00002.gguf", "m-Q4_0-00001-of-00002.gguf"}, []string{"m-Q4_0-00001-of-00002.gguf", "m-Q4_0-00002-of-00002.gguf"}, ""},
		{"split by a later part", "a/b/m-Q4_0-00002-of-00002.gguf", []string{"m-Q4_0-00001-of-00002.gguf", "m-Q4_0-00002-of-00002.gguf"}, []string{"m-Q4_0-00001-of-00002.gguf", "m-Q4_0-00002-of-00002.gguf"}, ""},
		{"a part missing", "a/b", []string{"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}, nil, "m-00002-of-00003.gguf is missing"},
		{"many parts missing", "a/b", []string{"m-99999-of-99999.gguf"}, nil, "m-00001-of-99999.gguf is missing"},
		{"a part too many", "a/b", []string{"m-00001-of-00001.gguf", "m-00002-of-00001.gguf"}, nil, "beyond its 1 parts"},
		{"a name no disk takes", "a/b", with(strings.Repeat("w", 260) + ".safetensors"), nil, "longer than 255"},
		{"a name for terminals", "a/b", []string{"m\x1b[2J.gguf", "config.json"}, nil, "characters that file names do not have"},
	} {
		s, err := choose(ref(t, c.ref), c.names, nil)
		switch {
		case c.files == nil:
			contains(t, err, c.says)
			if err != nil && strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%s: %q", c.what, err)
			}
		case err != nil || !cmp.Equal(s.files, c.files):
			t.Errorf("%s: got %q, %v; want %q", c.what, s.files, err, c.files)
		}
	}
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprintf("m%03d-Q4_0.gguf", i))
	}
	_, err := choose(ref(t, "a/b"), many, map[string]int64{"m000-Q4_0.gguf": 2e9})
	contains(t, err, "500 GGUF models", "a/b:m000-Q4_0.gguf  (2.0 GB)", "460 more")
}

// TestHostileListings: a name that leaves the repository ends the pull before anything is fetched, wherever it stands.
func TestHostileListings(t *testing.T) {
	add := func(name string) func(map[string]any) {
		return func(all map[string]any) {
			all["siblings"] = append(all["siblings"].([]any), map[string]any{"rfilename": name})
		}
	}
	index := func(shard string) map[string][]byte {
		files := few()
		b, _ := json.Marshal(map[string]any{"weight_map": map[string]string{"w": shard}})
		files[indexFile] = b
		return files
	}
	long := strings.Repeat("x", 300) + ".safetensors"
	for what, c := range map[string]struct {
		files   map[string][]byte
		listing func(map[string]any)
		says    string
	}{
		"above":             {few(), add("../../../../etc/cron.d/x"), "etc/cron.d/x"},
		"above, deeper":     {few(), add("a/../../config.json"), "leaves the repository"},
		"absolute":          {few(), add("/etc/passwd"), "/etc/passwd"},
		"nameless":          {few(), add(""), `""`},
		"twice":             {few(), add("config.json"), "config.json"},
		"no commit":         {few(), func(all map[string]any) { all["sha"] = "../../x" }, "../../x"},
		"no listing":        {few(), func(all map[string]any) { clear(all) }, "commit"},
		"no files":          {few(), func(all map[string]any) { all["siblings"] = nil }, "neither safetensors"},
		"not a listing":     {few(), func(all map[string]any) { all["siblings"] = 3 }, "siblings"},
		"shard above":       {index("../../x.safetensors"), nil, "../../x.safetensors"},
		"shard absolute":    {index("/x.safetensors"), nil, "/x.safetensors"},
		"shard in a folder": {index("a/x.safetensors"), nil, "a/x.safetensors"},
		"shard of code":     {index("x.py"), nil, "x.py"},
		"shard not there":   {index("y.safetensors"), nil, "y.safetensors"},
		"shard's long name": {index(long), nil, "longer than 255"},
		"another hash": {few(), func(all map[string]any) {
			for _, f := range all["siblings"].([]any) {
				if f := f.(map[string]any); f["lfs"] != nil {
					f["lfs"].(map[string]any)["sha256"] = strings.Repeat("0", 64)
				}
			}
		}, "model-0000"},
	} {
		h := hubtest.New(t, repo, c.files)
		h.Listing = c.listing
		o, _ := optionsFor(t, h)
		_, err := Pull(t.Context(), ref(t, repo), o)
		contains(t, err, c.says)
		if found := checkCache(t, o.Cache); len(found) > 0 {
			t.Errorf("%s: %d files show", what, len(found))
		}
		if strings.ContainsFunc(fmt.Sprint(err), func(r rune) bool { return r < ' ' }) || len(fmt.Sprint(err)) > 1000 {
			t.Errorf("%s: %q", what, err)
		}
	}
}

// TestOddListings: what does not belong to the checkpoint does not matter, however odd or much.
func TestOddListings(t *testing.T) {
	h := hubtest.New(t, repo, few())
	h.Listing = func(all map[string]any) {
		files := all["siblings"].([]any)
		for i := range 20_000 {
			files = append(files, map[string]any{"rfilename": fmt.Sprintf("data/%d.bin", i), "size": 1 << 40})
		}
		for _, n := range []string{strings.Repeat("long", 500), "config.json/below", "back\\slash", "bell\a", ".gitattributes", "con:fig"} {
			files = append(files, map[string]any{"rfilename": n, "size": -1, "blobId": "../x"})
		}
		all["siblings"] = files
	}
	o, _ := optionsFor(t, h)
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, h, o.Cache, fewNames...)

	h.Spoil = func(w http.ResponseWriter, _ *http.Request, a hubtest.Asked) bool {
		if a.What == "list" {
			_, _ = io.CopyN(w, endless(' '), maxListing+100)
		}
		return a.What == "list"
	}
	_, err := Pull(t.Context(), ref(t, repo), o)
	contains(t, err, "listing", fmt.Sprint(maxListing))
}

type endless byte

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(e)
	}
	return len(b), nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// body gives its text and then nothing until the request ends.
type body struct {
	text string
	r    *http.Request
}

func (b *body) Read(p []byte) (int, error) {
	if b.text == "" {
		<-b.r.Context().Done()
		return 0, b.r.Context().Err()
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

func (b *body) Close() error { return nil }

// TestStall: a hub that goes silent before or in an answer is left, and asked again a bounded number of times.
func TestStall(t *testing.T) {
	for _, text := range []string{"", `{"sha":`} {
		synctest.Test(t, func(t *testing.T) {
			base, err := endpointOf("http://hub")
			if err != nil {
				t.Fatal(err)
			}
			tries := 0
			c := &client{base: base, sleep: sleep, http: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				tries++
				if text == "" {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: &body{text, r}, Request: r}, nil
			})}}
			_, _, err = c.list(t.Context(), ref(t, repo), func(error, time.Duration) {})
			contains(t, err, "nothing arrived for 1m0s")
			if tries != maxTries {
				t.Errorf("%q: asked %d times, want %d", text, tries, maxTries)
			}
		})
	}
}

func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"org/name@rev:Q4_K_M", "org/name/a/b.gguf", "../x", "a@b@c:d:e", "gpt2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		if again, err := ParseRef(r.String()); err != nil || again != r {
			t.Errorf("%q is %+v, written %q is %+v, %v", s, r, r, again, err)
		}
		if strings.Contains(r.folder(), "/") || strings.Contains(r.Revision+"/"+r.File, "..") && checkFile(r.File) != nil {
			t.Errorf("%q: %+v", s, r)
		}
	})
}

func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"sha":"0123456789abcdef","siblings":[{"rfilename":"config.json","size":3},{"rfilename":"m-Q4_0-00001-of-00002.gguf","lfs":{"sha256":"00","size":7}}]}`))
	f.Add([]byte(`{"sha":"0123456789abcdef","siblings":[{"rfilename":"../x"}]}`))
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors","b":"../y.safetensors"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if list, err := shards(raw); err == nil {
			for _, n := range list {
				if checkFile(n) != nil {
					t.Errorf("shard %q", n)
				}
			}
		}
		_, files, err := readListing(raw)
		if err != nil {
			return
		}
		var names []string
		for n := range files {
			names = append(names, n)
		}
		for _, r := range []Ref{{Repo: "a/b"}, {Repo: "a/b", File: "Q4_0"}} {
			s, err := choose(r, names, nil)
			if err != nil {
				continue
			}
			for _, n := range s.files {
				if checkFile(n) != nil || !slices.Contains(names, n) {
					t.Errorf("chose %q", n)
				}
			}
		}
	})
}
