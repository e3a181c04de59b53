package checkpoint

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
)

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
	const name = "config.json"
	raw, err := c.folder.text(name)
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
		if c.config.quant, err = parseQuantisation(p.raw); err != nil {
			return fmt.Errorf("%s: %s.%w", c.folder.path(name), p.key, err)
		}
		break
	}
	return nil
}

// parseQuantisation chooses the format by quant_method.
func parseQuantisation(raw jsontext.Value) (quantFormat, error) {
	var method struct {
		Method string `json:"quant_method"`
	}
	if err := json.Unmarshal(raw, &method); err != nil {
		return nil, fmt.Errorf("quant_method: %w", err)
	}
	switch method.Method {
	case "compressed-tensors":
		return parseCompressedTensors(raw)
	case "gptq", "awq", "auto-round":
		return nil, fmt.Errorf("quant_method: %s is not supported yet (compressed-tensors is)", method.Method)
	}
	return nil, fmt.Errorf("quant_method: %q is not supported (compressed-tensors is)", method.Method)
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
