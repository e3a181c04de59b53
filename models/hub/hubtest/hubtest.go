// Package hubtest is a small hub on loopback for tests: a listing, files that it serves itself, and large ones that
// it redirects to a second server, as the public hub does. What it answers can be spoiled.
//
// Invariant: the second server is another host (another port), and a token that reaches it fails the test.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Hub has one repository. Its fields may change between requests, under no lock: change them when none is under way.
type Hub struct {
	Repo   string
	Commit string
	Token  string // that requests must carry; "": none
	Files  map[string][]byte
	// Listing, when not nil, changes what the listing says.
	Listing func(map[string]any)
	// Spoil, when not nil, is asked before each answer and says whether it has given one itself.
	Spoil func(w http.ResponseWriter, r *http.Request, a Asked) bool

	t            testing.TB
	hub, storage *httptest.Server
	mu           sync.Mutex
	asked        []Asked
}

// Asked is a request.
type Asked struct {
	What  string // "list", "head", "get" of the hub; "storage" of the second server
	Name  string // of the file
	Range string
	Nth   int // among requests for the same, from 1
}

// New starts a hub, which ends with the test.
func New(t testing.TB, repo string, files map[string][]byte) *Hub {
	h := &Hub{Repo: repo, Commit: strings.Repeat("c0ffee", 7)[:40], Files: files, t: t}
	h.hub = httptest.NewServer(http.HandlerFunc(h.serve))
	h.storage = httptest.NewServer(http.HandlerFunc(h.serveStorage))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.storage.Close)
	return h
}

// URL is the hub's address.
func (h *Hub) URL() string { return h.hub.URL }

// Asked returns the requests so far, and forgets them.
func (h *Hub) Asked() []Asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.asked
	h.asked = nil
	return a
}

// Bodies are the names of those files among requests whose bytes were asked for.
func Bodies(asked []Asked) []string {
	var names []string
	for _, a := range asked {
		if a.What == "storage" || a.What == "get" && !Large(a.Name) {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Large says whether a file lies on the second server.
func Large(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".gguf")
}

// SHA256 is the hash of a large file.
func SHA256(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// BlobID is git's hash of a file.
func BlobID(b []byte) string {
	s := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(s[:])
}

// Hash is what the hub says of a file: its SHA256 or BlobID.
func Hash(name string, b []byte) string {
	if Large(name) {
		return SHA256(b)
	}
	return BlobID(b)
}

func (h *Hub) note(r *http.Request, what, name string) Asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := Asked{What: what, Name: name, Range: r.Header.Get("Range"), Nth: 1}
	for _, b := range h.asked {
		if b.What == what && b.Name == name {
			a.Nth++
		}
	}
	h.asked = append(h.asked, a)
	return a
}

func (h *Hub) spoiled(w http.ResponseWriter, r *http.Request, a Asked) bool {
	return h.Spoil != nil && h.Spoil(w, r, a)
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code string) {
		w.Header().Set("X-Error-Code", code)
		w.WriteHeader(status)
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	list, listing := strings.CutPrefix(path, "api/models/")
	name := ""
	if !listing {
		_, rest, _ := strings.Cut(path, "/resolve/")
		_, rest, _ = strings.Cut(rest, "/")
		name, _ = url.PathUnescape(rest)
	}
	what := map[bool]string{true: "list", false: strings.ToLower(r.Method)}[listing]
	a := h.note(r, what, name)
	if h.spoiled(w, r, a) {
		return
	}
	if h.Token != "" && r.Header.Get("Authorization") != "Bearer "+h.Token {
		refuse(http.StatusUnauthorized, "RepoNotFound")
		return
	}
	switch {
	case listing && strings.HasPrefix(list, h.Repo+"/revision/"):
		h.list(w)
		return
	case !strings.HasPrefix(path, h.Repo+"/resolve/"+h.Commit+"/"):
		refuse(http.StatusUnauthorized, "RepoNotFound")
		return
	}
	b, ok := h.Files[name]
	if !ok {
		refuse(http.StatusNotFound, "EntryNotFound")
		return
	}
	w.Header().Set("X-Repo-Commit", h.Commit)
	if !Large(name) {
		w.Header().Set("ETag", `"`+BlobID(b)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
		return
	}
	w.Header().Set("X-Linked-Etag", `"`+SHA256(b)+`"`)
	w.Header().Set("X-Linked-Size", fmt.Sprint(len(b)))
	w.Header().Set("ETag", `"not the file's"`)
	w.Header().Set("Location", h.Storage(name))
	w.WriteHeader(http.StatusFound)
}

// Storage is where a file lies on the second server.
func (h *Hub) Storage(name string) string {
	return h.storage.URL + "/" + url.PathEscape(name) + "?signature=secret"
}

func (h *Hub) serveStorage(w http.ResponseWriter, r *http.Request) {
	name, _ := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/"))
	if len(r.Header["Authorization"]) > 0 {
		h.t.Errorf("%s: the token is sent to %s", name, r.Host)
	}
	if h.spoiled(w, r, h.note(r, "storage", name)) {
		return
	}
	w.Header().Set("ETag", `"some-md5-2"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(h.Files[name]))
}

func (h *Hub) list(w http.ResponseWriter) {
	files := []any{}
	for name, b := range h.Files {
		f := map[string]any{"rfilename": name, "size": len(b), "blobId": BlobID(b)}
		if Large(name) {
			f["lfs"] = map[string]any{"sha256": SHA256(b), "size": len(b), "pointerSize": 134}
			f["blobId"] = BlobID([]byte("a pointer to " + name))
		}
		files = append(files, f)
	}
	all := map[string]any{"id": h.Repo, "sha": h.Commit, "siblings": files}
	if h.Listing != nil {
		h.Listing(all)
	}
	_ = json.NewEncoder(w).Encode(all)
}
