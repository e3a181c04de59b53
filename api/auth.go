package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// ParseKeys reads API keys from a file's text: one a line, without surrounding space; empty lines
// and lines that start with # are skipped. The error names the line.
func ParseKeys(text []byte) ([]string, error) {
	var keys []string
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		key := strings.TrimSpace(lines.Text())
		if key == "" || key[0] == '#' {
			continue
		}
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("API keys: line %d: a key has only printable ASCII and no space", n)
		}
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("API keys: %w", err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("API keys: no key in the file")
	}
	return keys, nil
}

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
