package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/config"
)

// keyring knows API keys by their hashes. It is replaced as a whole, so that a request sees the old keys or the new ones.
type keyring struct {
	accounts atomic.Pointer[[]*account]
}

func newKeyring(keys []config.Key) *keyring {
	k := &keyring{}
	k.set(keys)
	return k
}

// set replaces the keys. A key that stays keeps what it has used of its limits, whatever its name and limits are now.
func (k *keyring) set(keys []config.Key) {
	known := map[[sha256.Size]byte]*account{}
	for _, a := range k.all() {
		known[a.Hash] = a
	}
	accounts := make([]*account, len(keys))
	for i, key := range keys {
		accounts[i] = newAccount(key, known[key.Hash])
	}
	k.accounts.Store(&accounts)
}

func (k *keyring) all() []*account {
	if p := k.accounts.Load(); p != nil {
		return *p
	}
	return nil
}

// check returns whose the request is, nil when there are no keys, or a 401. It compares hashes, all of them and each
// in constant time, so how long it takes says nothing of the keys.
func (k *keyring) check(r *http.Request) (*account, error) {
	accounts := k.all()
	if len(accounts) == 0 {
		return nil, nil
	}
	refuse := func(message string) error {
		return &apiError{status: http.StatusUnauthorized, kind: "invalid_request_error", code: "invalid_api_key", message: message}
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if other := r.Header.Get("X-Api-Key"); scheme == "" && other != "" { // as Anthropic's clients send it
		scheme, key = "Bearer", other
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, refuse("an API key is needed: send Authorization: Bearer KEY")
	}
	given := sha256.Sum256([]byte(strings.TrimSpace(key)))
	found := -1
	for i, a := range accounts {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(a.Hash[:], given[:]), i, found)
	}
	if found < 0 {
		return nil, refuse("the API key is not one of this server's")
	}
	return accounts[found], nil
}

// cacheSalt parts one key's prefix cache from another's. It is hashed once more: a salt may show up where a key's
// hash should not.
func cacheSalt(hash [sha256.Size]byte) string {
	s := sha256.Sum256(append([]byte("cache salt "), hash[:]...))
	return hex.EncodeToString(s[:16])
}

// plainKeys are keys without names of their own.
func plainKeys(keys []string) []config.Key {
	all := make([]config.Key, len(keys))
	for i, k := range keys {
		all[i] = config.NewKey("key-"+strconv.Itoa(i+1), k)
	}
	return all
}

// SetKeys replaces the API keys; with none everybody may ask. Requests that were let in go on.
func (h *Handler) SetKeys(keys []config.Key) {
	var was []config.Key
	for _, a := range h.keys.all() {
		was = append(was, a.Key)
	}
	h.keys.set(keys)
	h.metrics.forgetKeys(was, keys)
}

// someModels is a Generator that names only those models that a key may ask for.
type someModels struct {
	Generator
	names []string
}

func (g someModels) Models() []engine.ModelInfo {
	return slices.DeleteFunc(slices.Clone(g.Generator.Models()), func(m engine.ModelInfo) bool { return !slices.Contains(g.names, m.Name) })
}

// onlyModels is h as if it had no other models than these.
func (h *Handler) onlyModels(names []string) *Handler {
	v := *h
	v.gen = someModels{h.gen, names}
	v.views = nil
	v.routes = v.table()
	return &v
}
