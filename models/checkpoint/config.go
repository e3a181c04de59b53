package checkpoint

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
)

const configFile = "config.json"

// config is what this package itself reads of config.json.
type config struct {
	raw          []byte
	architecture string
	eos          ids
	quant        quantFormat // nil: no weight is quantised
}

// ids reads a token id, a list of them, or null.
type ids []int32

func (l *ids) UnmarshalJSON(b []byte) error {
	var list []int32
	if len(b) > 0 && b[0] != '[' {
		b = append(append([]byte{'['}, b...), ']')
	}
	if string(b) == "[null]" {
		*l = nil
		return nil
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("token ids %s: not a whole number or a list of them", b)
	}
	for _, id := range list {
		if id < 0 {
			return fmt.Errorf("token id %d is negative", id)
		}
	}
	*l = list
	return nil
}

func (c *Checkpoint) readConfig() error {
	const name = configFile
	raw, err := c.folder.text(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no checkpoint folder, which has a %s, and no .gguf file: %w", name, err)
	}
	if err != nil {
		return err
	}
	type part struct {
		ModelType     string         `json:"model_type"`
		Architectures []string       `json:"architectures"`
		EOS           ids            `json:"eos_token_id"`
		Quantisation  jsontext.Value `json:"quantization_config"`
		Compression   jsontext.Value `json:"compression_config"` // its name in early compressed-tensors
	}
	var cfg struct {
		part
		Text part `json:"text_config"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return fmt.Errorf("%s: %w", c.folder.path(name), err)
	}
	c.config = config{raw: raw, architecture: cfg.ModelType, eos: append(cfg.EOS, cfg.Text.EOS...)}
	if c.config.architecture == "" && len(cfg.Architectures) > 0 {
		c.config.architecture = cfg.Architectures[0]
	}
	for _, p := range []struct {
		key string
		raw jsontext.Value
	}{
		{"quantization_config", cfg.Quantisation}, {"compression_config", cfg.Compression},
		{"text_config.quantization_config", cfg.Text.Quantisation},
	} {
		if len(p.raw) == 0 || string(p.raw) == "null" {
			continue
		}
		raw, err := c.mergeQuantisation(p.raw)
		if err != nil {
			return err
		}
		if c.config.quant, err = parseQuantisation(raw); err != nil {
			return fmt.Errorf("%s: %s.%w", c.folder.path(name), p.key, err)
		}
		return nil
	}
	return c.readOwnQuantisation()
}

// GPTQ's and AWQ's exporters write a file of their own, and did so before config.json told of quantisation.
const (
	gptqFile = "quantize_config.json"
	awqFile  = "quant_config.json"
)

// mergeQuantisation adds to GPTQ's config what only the exporter's own file says. Where both say
// something of the tensors they must agree.
func (c *Checkpoint) mergeQuantisation(raw jsontext.Value) (jsontext.Value, error) {
	if m, err := quantMethod(raw); err != nil || m != "gptq" {
		return raw, nil // parseQuantisation says what is wrong
	}
	var ours, theirs map[string]jsontext.Value
	if err := c.optionalJSON(gptqFile, &theirs); err != nil || theirs == nil {
		return raw, err
	}
	if err := json.Unmarshal(raw, &ours); err != nil {
		return raw, nil
	}
	for _, key := range []string{"bits", "group_size", "sym", "desc_act", "checkpoint_format", "format", "pack_dtype", "is_marlin_format", "dynamic"} {
		a, b := ours[key], theirs[key]
		if len(b) == 0 || string(b) == "null" {
			continue
		}
		if len(a) == 0 || string(a) == "null" {
			ours[key] = b
			continue
		}
		a, b = a.Clone(), b.Clone()
		if a.Canonicalize() != nil || b.Canonicalize() != nil || string(a) != string(b) {
			return nil, fmt.Errorf("%s: %s is %.80s, but config.json says %.80s", c.folder.path(gptqFile), key, b, a)
		}
	}
	return json.Marshal(ours)
}

// readOwnQuantisation reads the exporters' own files when config.json does not say that weights are quantised.
func (c *Checkpoint) readOwnQuantisation() error {
	for name, parse := range map[string]func([]byte) (quantFormat, error){gptqFile: parseGPTQ, awqFile: parseAWQ} {
		var raw jsontext.Value
		err := c.optionalJSON(name, &raw)
		if err != nil {
			return err
		}
		if raw == nil {
			continue
		}
		if c.config.quant != nil {
			return fmt.Errorf("%s: %s is there, too", c.folder.path(gptqFile), awqFile)
		}
		if c.config.quant, err = parse(raw); err != nil {
			return fmt.Errorf("%s: %w", c.folder.path(name), err)
		}
	}
	return nil
}

func quantMethod(raw jsontext.Value) (string, error) {
	var method struct {
		Method string `json:"quant_method"`
	}
	if err := json.Unmarshal(raw, &method); err != nil {
		return "", fmt.Errorf("quant_method: %w", err)
	}
	return method.Method, nil
}

// parseQuantisation chooses the format by quant_method.
func parseQuantisation(raw jsontext.Value) (quantFormat, error) {
	method, err := quantMethod(raw)
	if err != nil {
		return nil, err
	}
	switch method {
	case "compressed-tensors":
		return parseCompressedTensors(raw)
	case "gptq":
		return parseGPTQ(raw)
	case "awq":
		return parseAWQ(raw)
	case "auto-round", "intel/auto-round":
		return parseAutoRound(method, raw)
	}
	return nil, fmt.Errorf("quant_method: %q is not supported (compressed-tensors, gptq, awq and auto-round are)", method)
}

// optionalJSON reads a JSON file into v, if there is one.
func (c *Checkpoint) optionalJSON(name string, v any) error {
	raw, err := c.folder.text(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = json.Unmarshal(raw, v); err != nil {
			err = fmt.Errorf("%s: %w", c.folder.path(name), err)
		}
	}
	return err
}
