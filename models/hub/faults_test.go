package hub

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openinfer-go/openinfer/models/hub/hubtest"
)

// fault spoils an answer about a file whose bytes are b.
type fault struct {
	name  string
	where string // "head", "body" (get of small files, storage of large ones), "any"
	// passes: a pull that meets it twice succeeds all the same.
	passes bool
	spoil  func(h *hubtest.Hub, w http.ResponseWriter, r *http.Request, a hubtest.Asked, b []byte)
}

// few is a repository with little in it, and fewNames are all its files.
func few() map[string][]byte {
	all := sharded()
	files := map[string][]byte{}
	for _, n := range fewNames {
		files[n] = all[n]
	}
	return files
}

var fewNames = []string{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}

// start is the offset of a range request.
func start(a hubtest.Asked) (n int) { fmt.Sscanf(a.Range, "bytes=%d-", &n); return n }

// partly answers with b from where the request asks, as all of it or a part, and then whatever body is.
func partly(w http.ResponseWriter, a hubtest.Asked, b []byte, length int, body []byte) {
	w.Header().Set("Content-Length", fmt.Sprint(length))
	if n := start(a); n > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", n, len(b)-1, len(b)))
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(body)
}

// from is the rest of b that a request asks for.
func from(a hubtest.Asked, b []byte) []byte { return slices.Clone(b[min(start(a), len(b)):]) }

func status(code int, headers ...string) func(*hubtest.Hub, http.ResponseWriter, *http.Request, hubtest.Asked, []byte) {
	return func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, _ hubtest.Asked, _ []byte) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

var faults = []fault{
	{"truncated", "body", true, func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, a hubtest.Asked, b []byte) {
		rest := from(a, b)
		partly(w, a, b, len(rest), rest[:len(rest)/2])
		panic(http.ErrAbortHandler)
	}},
	{"short by its own Content-Length", "body", true, func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, a hubtest.Asked, b []byte) {
		rest := from(a, b)
		partly(w, a, b, len(rest)/2, rest[:len(rest)/2])
	}},
	{"more than the file", "body", true, func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, a hubtest.Asked, b []byte) {
		rest := append(from(a, b), "and more"...)
		partly(w, a, b, len(rest), rest)
	}},
	{"a byte flipped", "body", true, func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, a hubtest.Asked, b []byte) {
		rest := from(a, b)
		if len(rest) > 0 {
			rest[len(rest)/2] ^= 0x40
		}
		partly(w, a, b, len(rest), rest)
	}},
	{"a page of HTML", "body", true, func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, _ hubtest.Asked, _ []byte) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>Sign in to this network</html>")
	}},
	{"the range ignored", "body", true, func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, _ hubtest.Asked, b []byte) {
		_, _ = w.Write(b)
	}},
	{"another range", "body", false, func(_ *hubtest.Hub, w http.ResponseWriter, _ *http.Request, _ hubtest.Asked, b []byte) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 1-%d/%d", len(b)-1, len(b)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(b[1:])
	}},
	{"a range that is none", "body", false, status(http.StatusPartialContent, "Content-Range", "bytes ?")},
	{"416", "body", true, status(http.StatusRequestedRangeNotSatisfiable, "Content-Range", "bytes */3")},
	{"429", "any", true, status(http.StatusTooManyRequests, "Retry-After", "3")},
	{"503", "any", true, status(http.StatusServiceUnavailable)},
	{"cut off", "any", true, func(*hubtest.Hub, http.ResponseWriter, *http.Request, hubtest.Asked, []byte) {
		panic(http.ErrAbortHandler)
	}},
	{"403", "any", false, status(http.StatusForbidden)},
	{"404", "any", false, status(http.StatusNotFound, "X-Error-Code", "EntryNotFound")},
	{"a redirect to itself", "any", false, func(_ *hubtest.Hub, w http.ResponseWriter, r *http.Request, _ hubtest.Asked, _ []byte) {
		http.Redirect(w, r, r.URL.String(), http.StatusFound)
	}},
	{"a redirect to no address", "any", false, status(http.StatusFound, "Location", "http://[::1")},
	{"a redirect to a local file", "any", false, status(http.StatusFound, "Location", "file:///etc/passwd")},
	{"no etag and no size", "head", false, status(http.StatusOK)},
	{"an etag that is a path", "head", false, status(http.StatusOK, "ETag", `"../../../../etc/passwd"`, "X-Linked-Etag", `"../x"`, "X-Linked-Size", "3")},
	{"an etag of something else", "head", false, status(http.StatusOK, "X-Linked-Etag", `"`+strings.Repeat("0", 64)+`"`, "X-Linked-Size", "3")},
	{"a commit of something else", "head", false, status(http.StatusOK, "X-Repo-Commit", strings.Repeat("0", 40))},
	{"a size that is wrong", "head", false, func(h *hubtest.Hub, w http.ResponseWriter, _ *http.Request, a hubtest.Asked, b []byte) {
		w.Header().Set("X-Linked-Etag", `"`+hubtest.Hash(a.Name, b)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(b)+7))
	}},
	{"a size that no disk has", "head", false, func(h *hubtest.Hub, w http.ResponseWriter, _ *http.Request, a hubtest.Asked, b []byte) {
		w.Header().Set("X-Linked-Etag", `"`+hubtest.Hash(a.Name, b)+`"`)
		w.Header().Set("X-Linked-Size", "9223372036854775807")
	}},
}

func (f fault) fits(a hubtest.Asked) bool {
	switch f.where {
	case "head":
		return a.What == "head"
	case "body":
		return a.What == "storage" || a.What == "get" && !hubtest.Large(a.Name)
	}
	return a.What != "list"
}

// bare is a repository whose listing has names alone, so that all depends on what the hub says of each file.
func bare(all map[string]any) {
	for _, f := range all["siblings"].([]any) {
		f := f.(map[string]any)
		delete(f, "size")
		delete(f, "blobId")
		delete(f, "lfs")
	}
}

// TestEachFault: what happens once passes, or is an error that names the file; what goes on happening is one, unless
// the file came to be right all the same. Nothing half shows.
func TestEachFault(t *testing.T) {
	for _, f := range faults {
		for _, name := range []string{"config.json", "model-00001-of-00002.safetensors"} {
			for _, times := range []int{2, 1 << 30} {
				for _, listing := range []func(map[string]any){nil, bare} {
					if listing != nil && f.where != "head" {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%d/%v", f.name, name, times, listing == nil), func(t *testing.T) {
						f.once(t, name, times, listing)
					})
				}
			}
		}
	}
}

// once pulls while a file has the fault so many times, and then without it.
func (f fault) once(t *testing.T, name string, times int, listing func(map[string]any)) {
	h := hubtest.New(t, repo, few())
	h.Listing = listing
	var mu sync.Mutex
	left := times
	h.Spoil = func(w http.ResponseWriter, r *http.Request, a hubtest.Asked) bool {
		mu.Lock()
		hit := a.Name == name && f.fits(a) && left > 0
		if hit {
			left--
		}
		mu.Unlock()
		if hit {
			f.spoil(h, w, r, a, h.Files[name])
		}
		return hit
	}
	o, _ := optionsFor(t, h)
	_, err := Pull(t.Context(), ref(t, repo), o)
	if left == times {
		t.Error("the fault never happened")
	}
	if err != nil {
		contains(t, err, name, repo)
		if found := checkCache(t, o.Cache); len(found) > 0 {
			t.Errorf("%d files show after %v", len(found), err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: shows a signature", err)
		}
	} else {
		checkWhole(t, h, o.Cache, fewNames...)
	}
	if f.passes && times < 3 && err != nil {
		t.Errorf("what passes by itself ends the pull: %v", err)
	}
	// Whatever it was, the next pull from a good hub is whole.
	h.Spoil, h.Listing = nil, nil
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Error(err)
	}
	checkWhole(t, h, o.Cache, fewNames...)
}

// TestWhateverTheHubDoes: any faults in any order.
func TestWhateverTheHubDoes(t *testing.T) {
	h := hubtest.New(t, repo, few())
	rapid.Check(t, func(rt *rapid.T) {
		h.Listing = nil
		if rapid.Bool().Draw(rt, "bare") {
			h.Listing = bare
		}
		plan := map[string][]int{} // a file's answers in order: a fault's number, or none
		for _, n := range fewNames {
			plan[n] = rapid.SliceOfN(rapid.IntRange(-8, len(faults)-1), 0, 6).Draw(rt, n)
		}
		var mu sync.Mutex
		h.Spoil = func(w http.ResponseWriter, r *http.Request, a hubtest.Asked) bool {
			mu.Lock()
			next := -1
			if steps := plan[a.Name]; len(steps) > 0 {
				next = steps[0]
				plan[a.Name] = steps[1:]
			}
			mu.Unlock()
			if next < 0 || !faults[next].fits(a) {
				return false
			}
			faults[next].spoil(h, w, r, a, h.Files[a.Name])
			return true
		}
		o, _ := optionsFor(t, h)
		for range 2 {
			_, err := Pull(t.Context(), ref(t, repo), o)
			if err == nil {
				checkWhole(t, h, o.Cache, fewNames...)
				continue
			}
			checkCache(t, o.Cache)
			if !slices.ContainsFunc(fewNames, func(n string) bool { return strings.Contains(err.Error(), n) }) {
				rt.Errorf("%v: names no file", err)
			}
		}
		h.Asked()
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// TestWaits: the hub's word counts when it is longer than ours and not too long.
func TestWaits(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	o, w := optionsFor(t, h)
	answers := []func(http.Header){
		func(h http.Header) { h.Set("Retry-After", "7") },
		func(h http.Header) { h.Set("RateLimit", `"api";r=0;t=55`) },
		func(h http.Header) {
			h.Set("Retry-After", time.Now().Add(100*time.Second).UTC().Format(http.TimeFormat))
		},
		func(h http.Header) { h.Set("Retry-After", "-5") },
	}
	h.Spoil = func(w http.ResponseWriter, _ *http.Request, a hubtest.Asked) bool {
		if a.What != "list" || a.Nth > len(answers) {
			return false
		}
		answers[a.Nth-1](w.Header())
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Fatal(err)
	}
	for i, least := range []time.Duration{7, 55, 90, 8} {
		if i >= len(w.all) || w.all[i] < least*time.Second || w.all[i] > 101*time.Second {
			t.Errorf("wait %d of %v: want at least %ds", i+1, w.all, least)
		}
	}
	if len(w.all) != len(answers) {
		t.Errorf("%d waits, want %d", len(w.all), len(answers))
	}

	answers[0] = func(h http.Header) { h.Set("Retry-After", "3600") }
	h.Asked()
	_, err := Pull(t.Context(), ref(t, repo), o)
	contains(t, err, "429", "1h0m0s", "token")
	answers = slices.Repeat([]func(http.Header){func(http.Header) {}}, 100)
	h.Asked()
	_, err = Pull(t.Context(), ref(t, repo), o)
	contains(t, err, "429", "tried 6 times")
	if n := len(h.Asked()); n != maxTries {
		t.Errorf("asked %d times, want %d", n, maxTries)
	}
}

// TestRefusals: who may not have the model is told what to do, and not made to wait.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		token  string
		want   []string
	}{
		{401, "RepoNotFound", "", []string{"401", "no such repository, or it is private", "--token", "HF_TOKEN"}},
		{401, "RepoNotFound", "bad", []string{"401", "token", "not valid"}},
		{401, "GatedRepo", "", []string{"401", "access has to be granted", "HF_TOKEN"}},
		{403, "GatedRepo", "ok", []string{"403", "access has to be granted", "token of that account"}},
		{404, "RepoNotFound", "ok", []string{"404", "no such repository"}},
		{404, "RevisionNotFound", "", []string{"404", "no such revision"}},
	} {
		h := hubtest.New(t, repo, sharded())
		h.Spoil = func(w http.ResponseWriter, _ *http.Request, _ hubtest.Asked) bool {
			w.Header().Set("X-Error-Code", c.code)
			w.Header().Set("X-Error-Message", "words of the hub\u202e")
			w.WriteHeader(c.status)
			return true
		}
		o, w := optionsFor(t, h)
		o.Token = c.token
		_, err := Pull(t.Context(), ref(t, repo), o)
		contains(t, err, append(c.want, repo, "words of the hub")...)
		if len(w.all) > 0 || strings.Contains(err.Error(), "\u202e") {
			t.Errorf("%d %s: waited %v for %q", c.status, c.code, w.all, err)
		}
	}
	h := hubtest.New(t, repo, sharded())
	o, _ := optionsFor(t, h)
	o.Token = "two\nlines"
	_, err := Pull(t.Context(), ref(t, repo), o)
	contains(t, err, "token has characters")
	for _, bad := range []string{"ftp://h", "h", "http://", "https://u:pw@h", "https://h?x=1", "https://h/%zz"} {
		o.Token, o.Endpoint = "", bad
		_, err := Pull(t.Context(), ref(t, repo), o)
		contains(t, err, "hub address")
		if strings.Contains(err.Error(), "pw") {
			t.Errorf("%v: shows a password", err)
		}
	}
}

// TestRedirectsKeepTheTokenAtHome: a relative redirect goes on with the token, one elsewhere and back does too, and the
// second server (another port of the same host) never sees it, which hubtest checks.
func TestRedirectsKeepTheTokenAtHome(t *testing.T) {
	h := hubtest.New(t, repo, sharded())
	h.Token = "hf_secret"
	h.Spoil = func(w http.ResponseWriter, r *http.Request, a hubtest.Asked) bool {
		if strings.Contains(r.URL.RawQuery, "moved") {
			return false
		}
		switch {
		case a.What == "list":
			w.Header().Set("Location", r.URL.Path+"?moved")
		case a.Name == "config.json" && a.What == "get":
			w.Header().Set("Location", strings.Replace(h.Storage("config.json"), "signature", "back", 1))
		case a.What == "storage" && a.Name == "config.json":
			w.Header().Set("Location", h.URL()+"/"+repo+"/resolve/"+h.Commit+"/config.json?moved")
		default:
			return false
		}
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	}
	o, _ := optionsFor(t, h)
	if _, err := Pull(t.Context(), ref(t, repo), o); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, h, o.Cache, wanted...)
	if n := len(hubtest.Bodies(h.Asked())); n < len(wanted) {
		t.Errorf("%d bodies", n)
	}
}
