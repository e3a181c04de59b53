// Package config reads what a user says on the command line or in a YAML file into plain values,
// and says what is wrong in words that name the flag or the line.
//
// It knows the form of settings, not what they do: engine decides what is possible. A flag that
// was given wins over the file, the file over the default.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Serve holds the settings of `openinfer serve`. Its YAML names are the flags' with underscores.
type Serve struct {
	Models []Model `yaml:"models"`

	Listen      string   `yaml:"listen"`
	AgentCheck  string   `yaml:"agent_check"`
	APIKeyFile  string   `yaml:"api_key_file"`
	TLSCert     string   `yaml:"tls_cert"`
	TLSKey      string   `yaml:"tls_key"`
	CORSOrigins []string `yaml:"cors_origin"`
	LogText     Size     `yaml:"log_text"`
	MaxBodySize Size     `yaml:"max_body_size"`
	Drain       Duration `yaml:"drain_timeout"`

	Device           string   `yaml:"device"`
	Threads          int      `yaml:"threads"`
	Exact            bool     `yaml:"exact"`
	FP16Accumulation bool     `yaml:"fp16_accumulation"`
	WeightsMemory    Size     `yaml:"weights_memory"`
	KeepAlive        string   `yaml:"keep_alive"`
	SLATTFT          Duration `yaml:"sla_ttft"`
	SLATPOT          Duration `yaml:"sla_tpot"`
	KVMemory         Size     `yaml:"kv_memory"`
	KVCacheDType     string   `yaml:"kv_cache_dtype"`
	ReasoningParser  string   `yaml:"reasoning_parser"`
	ToolCallParser   string   `yaml:"tool_call_parser"`
	PrefixCaching    *bool    `yaml:"prefix_caching"`
	Quantize         string   `yaml:"quantize"`
	MaxNumSeqs       int      `yaml:"max_num_seqs"`
	MaxModelLen      int      `yaml:"max_model_len"`
	MaxBatchedTokens int      `yaml:"max_num_batched_tokens"`
	MaxWaiting       int      `yaml:"max_waiting"`
	LogFormat        string   `yaml:"log_format"`
}

// Model is one served model.
type Model struct {
	Name         string `yaml:"name"`
	Path         string `yaml:"path"`
	MaxModelLen  int    `yaml:"max_model_len"`
	MaxNumSeqs   int    `yaml:"max_num_seqs"`
	KVCacheDType string `yaml:"kv_cache_dtype"`

	ReasoningParser string `yaml:"reasoning_parser"`
	ToolCallParser  string `yaml:"tool_call_parser"`
	Quantize        string `yaml:"quantize"`

	KeepAlive string   `yaml:"keep_alive"` // seconds or a duration, as engine.ParseKeepAlive reads it
	SLATTFT   Duration `yaml:"sla_ttft"`
	SLATPOT   Duration `yaml:"sla_tpot"`
	Weight    float64  `yaml:"weight"` // share of the device's time
}

// Read reads a YAML file over s. What no server could have is an error with its line and column. valid, unless it is
// nil, says whether one of named could be a field's value.
func (s *Serve) Read(path string, valid func(field, value string) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	read := *s // a document that says nothing would clear what it is read into
	switch err := dec.Decode(&read); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("--config %s:%s", path, yamlError(err, data))
	}
	if !errors.Is(dec.Decode(new(any)), io.EOF) {
		return fmt.Errorf("--config %s: holds more than one document", path)
	}
	if err := read.checkFile(newPositions(data), valid); err != nil {
		return fmt.Errorf("--config %s:%w", path, err)
	}
	*s = read
	return nil
}

// yamlError is an error of the decoder on one line: line:column, what is wrong, and that line.
func yamlError(err error, data []byte) string {
	text := yamlFault(err)
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return text
	}
	lines := strings.Split(string(data), "\n")
	if n := at.GetToken().Position.Line; n >= 1 && n <= len(lines) {
		text += fmt.Sprintf(", in %.100q", strings.TrimSpace(lines[n-1]))
	}
	return text
}

// ParseModels reads the --models flag: MODEL or NAME=MODEL, separated by commas. A MODEL alone has no Name here:
// who finds it names it.
func ParseModels(flag []string) ([]Model, error) {
	if len(flag) == 0 {
		return nil, errors.New("--models: names no model; write MODEL or NAME=MODEL, separated by commas")
	}
	var models []Model
	for _, item := range flag {
		m := ParseModel(item)
		switch {
		case m == Model{}:
			return nil, errors.New("--models: an entry is empty; write MODEL or NAME=MODEL, separated by commas")
		case strings.HasPrefix(item, "="):
			return nil, fmt.Errorf("--models %q: the name before = is missing; it is the model's id in the API", item)
		case m.Path == "":
			return nil, fmt.Errorf("--models %q: the model after = is missing: a checkpoint folder, a .gguf file or org/name of the hub cache", item)
		}
		models = append(models, m)
	}
	return models, nil
}

// ParseModel reads one MODEL or NAME=MODEL. A = behind a slash belongs to a path.
func ParseModel(item string) Model {
	item = strings.TrimSpace(item)
	if name, path, ok := strings.Cut(item, "="); ok && !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, ".") {
		return Model{Name: name, Path: path}
	}
	return Model{Path: item}
}

// Check reports a value that no server could have.
func (s *Serve) Check() error {
	if field, err := s.fault(); err != nil {
		return fmt.Errorf("--%s: %w", strings.ReplaceAll(field, "_", "-"), err)
	}
	return nil
}

// fault is the first setting that no server could have, by its YAML name, and why.
func (s *Serve) fault() (field string, err error) {
	_, _, listenErr := net.SplitHostPort(s.Listen)
	_, _, agentErr := net.SplitHostPort(s.AgentCheck)
	switch {
	case s.Listen == "":
		return "listen", errors.New("is empty; write an address such as 127.0.0.1:8080, or :8080 for every interface")
	case listenErr != nil:
		return "listen", fmt.Errorf("%s: want ADDRESS:PORT such as 127.0.0.1:8080, or :8080 for every interface", s.Listen)
	case s.AgentCheck != "" && agentErr != nil:
		return "agent_check", fmt.Errorf("%s: want ADDRESS:PORT such as 127.0.0.1:8081", s.AgentCheck)
	case s.MaxBodySize < 1:
		return "max_body_size", errors.New("must be at least 1 byte")
	case s.Drain < 0:
		return "drain_timeout", fmt.Errorf("%v is negative", time.Duration(s.Drain))
	case s.TLSCert != "" && s.TLSKey == "":
		return "tls_cert", errors.New("needs tls_key beside it")
	case s.TLSKey != "" && s.TLSCert == "":
		return "tls_key", errors.New("needs tls_cert beside it")
	case s.LogText > maxLogText:
		return "log_text", fmt.Errorf("%v is more than %v", s.LogText, maxLogText)
	}
	for _, o := range s.CORSOrigins {
		if err := checkOrigin(o); err != nil {
			return "cors_origin", err
		}
	}
	return "", nil
}

// maxLogText keeps a log line to what log collectors take.
const maxLogText Size = 64 << 10

// Check reports a model named twice or not at all.
func Check(models []Model) error {
	seen := map[string]bool{}
	for i, m := range models {
		if m.Name == "" {
			return fmt.Errorf("models[%d] has no name", i)
		}
		if seen[m.Name] {
			return fmt.Errorf("model name %q is used twice", m.Name)
		}
		seen[m.Name] = true
	}
	return nil
}

// PerModel applies a flag that takes a value for all models or NAME=value for one, separated by
// commas; all is called with the former, one with the latter.
func PerModel(flag string, values []string, models []Model, all func(string) error, one func(*Model, string) error) error {
	for _, item := range values {
		name, value, named := strings.Cut(item, "=")
		if !named {
			if err := all(item); err != nil {
				return fmt.Errorf("--%s %s: %w", flag, item, err)
			}
			continue
		}
		i := 0
		for ; i < len(models) && models[i].Name != name; i++ {
		}
		if i == len(models) {
			return fmt.Errorf("--%s %s: no served model is named %q", flag, item, name)
		}
		if err := one(&models[i], value); err != nil {
			return fmt.Errorf("--%s %s: %w", flag, item, err)
		}
	}
	return nil
}

// Int reads a whole number of at least 1.
func Int(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a whole number of at least 1", s)
	}
	return n, nil
}

// Tokens reads a number of tokens: 8192, or 8K for as many.
func Tokens(s string) (int, error) {
	digits, times := strings.TrimSpace(s), 1
	if d, k := strings.CutSuffix(strings.ToUpper(digits), "K"); k {
		digits, times = d, 1024
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, fmt.Errorf("%q is not a number of tokens; write for example 8192 or 8K", s)
	}
	return n * times, nil
}

// Size is a number of bytes, written with a unit: 512MiB, 2GiB, 1.5GB, or a plain number.
type Size int64

var units = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"b", 1},
}

// ParseSize reads a Size.
func ParseSize(s string) (Size, error) {
	text, unit := strings.ToLower(strings.TrimSpace(s)), 1.0
	for _, u := range units {
		if strings.HasSuffix(text, u.name) {
			text, unit = strings.TrimSpace(strings.TrimSuffix(text, u.name)), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) || n*unit > 1<<60 {
		return 0, fmt.Errorf("%q is not a size; write for example 512MiB or 2GiB", s)
	}
	return Size(n * unit), nil
}

// String, Set and Type make a Size a flag.
func (s Size) String() string {
	for _, u := range []struct {
		name string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s != 0 && int64(s)%u.n == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.n, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Set reads the flag's value.
func (s *Size) Set(text string) (err error) { *s, err = ParseSize(text); return err }

// Type names the value in --help.
func (s *Size) Type() string { return "SIZE" }

// UnmarshalYAML reads a Size from a string or a number.
func (s *Size) UnmarshalYAML(n ast.Node) error { return setFrom(n, s.Set) }

// Duration is a time.Duration written as 30s or 2m in YAML.
type Duration time.Duration

// UnmarshalYAML reads a Duration.
func (d *Duration) UnmarshalYAML(n ast.Node) error { return setFrom(n, d.Set) }

// setFrom sets a value from a node, whose place an error has.
func setFrom(n ast.Node, set func(string) error) error {
	text := ""
	if scalar, ok := n.(ast.ScalarNode); ok {
		text = fmt.Sprint(scalar.GetValue())
	} else {
		text = n.String()
	}
	if err := set(text); err != nil {
		return &yaml.SyntaxError{Message: err.Error(), Token: n.GetToken()}
	}
	return nil
}

// Set reads a Duration.
func (d *Duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration; write for example 30s", text)
	}
	*d = Duration(v)
	return nil
}
