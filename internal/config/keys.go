package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// Key is an API key: who it is and what it may have. 0 is no limit. The key itself is not kept.
type Key struct {
	Name              string
	Hash              [sha256.Size]byte // of the key
	RequestsPerMinute int
	TokensPerMinute   int // of prompts and answers
	MaxConcurrent     int // requests at once
	Models            []string
	Priority          int // added to that of its requests
}

// NewKey is a key without limits.
func NewKey(name, key string) Key { return Key{Name: name, Hash: sha256.Sum256([]byte(key))} }

// keyEntry is a Key as the file has it.
type keyEntry struct {
	Name              string   `yaml:"name"`
	Key               string   `yaml:"key"`
	SHA256            string   `yaml:"sha256"`
	RequestsPerMinute int      `yaml:"requests_per_minute"`
	TokensPerMinute   int      `yaml:"tokens_per_minute"`
	MaxConcurrent     int      `yaml:"max_concurrent"`
	Models            []string `yaml:"models"`
	Priority          int      `yaml:"priority"`
}

// maxKeyPriority is the most that a request may ask for, too.
const maxKeyPriority = 1000

// yamlKeys tells a file of entries from one of keys, one a line.
var yamlKeys = regexp.MustCompile(`(?m)^keys[ \t]*:`)

// keyName is what may be a label of a metric and stand in a log.
var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// ReadKeys reads a file of API keys: YAML with a list `keys`, or one key a line, where empty lines and lines that start
// with # do not count and the keys are named key-1, key-2 and so on. Errors have the file, line and column, never a key.
func ReadKeys(path string) ([]Key, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--api-key-file: %w", err)
	}
	var keys []Key
	if yamlKeys.Match(data) {
		keys, err = readYAMLKeys(data)
	} else {
		keys, err = readPlainKeys(data)
	}
	if err == nil && len(keys) == 0 {
		err = errors.New(" holds no key; an empty file would leave the server open")
	}
	if err != nil {
		return nil, fmt.Errorf("--api-key-file %s:%w", path, err)
	}
	return keys, nil
}

func readPlainKeys(data []byte) ([]Key, error) {
	var keys []Key
	seen := map[[sha256.Size]byte]bool{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.ContainsAny(line, " \t") {
			return nil, fmt.Errorf("%d:1: a key has no spaces; with names and limits the file is YAML that begins with keys:", n)
		}
		k := NewKey(fmt.Sprintf("key-%d", len(keys)+1), line)
		if seen[k.Hash] {
			return nil, fmt.Errorf("%d:1: this key is there twice", n)
		}
		seen[k.Hash] = true
		keys = append(keys, k)
	}
	return keys, nil
}

func readYAMLKeys(data []byte) ([]Key, error) {
	var file struct {
		Keys []keyEntry `yaml:"keys"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(&file); err != nil {
		// the text around the fault would show keys
		return nil, fmt.Errorf("%s", yamlFault(err))
	}
	if !errors.Is(dec.Decode(new(any)), io.EOF) {
		return nil, errors.New(" holds more than one document")
	}
	at := newPositions(data)
	names, hashes := map[string]bool{}, map[[sha256.Size]byte]bool{}
	var keys []Key
	for i, e := range file.Keys {
		bad := func(field, format string, args ...any) error {
			entry := fmt.Sprintf("$.keys[%d]", i)
			return fmt.Errorf("%s %s: %s", at.of(entry+"."+field, entry), field, fmt.Sprintf(format, args...))
		}
		k := Key{Name: e.Name, RequestsPerMinute: e.RequestsPerMinute, TokensPerMinute: e.TokensPerMinute,
			MaxConcurrent: e.MaxConcurrent, Models: e.Models, Priority: e.Priority}
		switch {
		case e.Name == "":
			return nil, bad("name", "is missing; logs and metrics call the key by it")
		case !keyName.MatchString(e.Name):
			return nil, bad("name", "want 1 to 64 letters, digits and . _ @ -, the first a letter or digit")
		case names[e.Name]:
			return nil, bad("name", "%s is used twice", e.Name)
		case e.Key == "" && e.SHA256 == "":
			return nil, bad("key", "is missing; there is key and, for its hash, sha256")
		case e.Key != "" && e.SHA256 != "":
			return nil, bad("sha256", "excludes key")
		case strings.ContainsFunc(e.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, bad("key", "want printable ASCII without spaces: it is sent in a header")
		case e.RequestsPerMinute < 0:
			return nil, bad("requests_per_minute", "%d is negative; 0 is no limit", e.RequestsPerMinute)
		case e.TokensPerMinute < 0:
			return nil, bad("tokens_per_minute", "%d is negative; 0 is no limit", e.TokensPerMinute)
		case e.MaxConcurrent < 0:
			return nil, bad("max_concurrent", "%d is negative; 0 is no limit", e.MaxConcurrent)
		case e.Models != nil && len(e.Models) == 0:
			return nil, bad("models", "is empty; leave it out for all models")
		case e.Priority < -maxKeyPriority || e.Priority > maxKeyPriority:
			return nil, bad("priority", "%d is not within %d", e.Priority, maxKeyPriority)
		}
		if e.Key != "" {
			k.Hash = sha256.Sum256([]byte(e.Key))
		} else if n, err := hex.Decode(k.Hash[:], []byte(strings.ToLower(e.SHA256[:min(len(e.SHA256), 64)]))); err != nil || n != sha256.Size || len(e.SHA256) != 64 {
			return nil, bad("sha256", "want 64 hexadecimal digits")
		}
		if hashes[k.Hash] {
			return nil, bad("name", "%s has the key of an entry before it", e.Name)
		}
		names[e.Name], hashes[k.Hash] = true, true
		keys = append(keys, k)
	}
	return keys, nil
}
