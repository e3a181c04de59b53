package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
)

// keyring knows API keys by their hashes, so that comparing takes the same time whatever matches.
type keyring [][sha256.Size]byte

func newKeyring(keys []string) keyring {
	var k keyring
	for _, key := range keys {
		k = append(k, sha256.Sum256([]byte(key)))
	}
	return k
}

// check returns the salt that parts one key's prefix cache from another's, "" when there are no
// keys, or a 401.
func (k keyring) check(r *http.Request) (salt string, err error) {
	if len(k) == 0 {
		return "", nil
	}
	refuse := func(message string) error {
		return &apiError{status: http.StatusUnauthorized, kind: "invalid_request_error", code: "invalid_api_key", message: message}
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if other := r.Header.Get("X-Api-Key"); scheme == "" && other != "" { // as Anthropic's clients send it
		scheme, key = "Bearer", other
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return "", refuse("an API key is needed: send Authorization: Bearer KEY")
	}
	given := sha256.Sum256([]byte(strings.TrimSpace(key)))
	found := 0
	for _, known := range k {
		found |= subtle.ConstantTimeCompare(known[:], given[:])
	}
	if found == 0 {
		return "", refuse("the API key is not one of this server's")
	}
	// hashed once more: a salt may show up where a key's hash should not
	s := sha256.Sum256(append([]byte("cache salt "), given[:]...))
	return hex.EncodeToString(s[:16]), nil
}
