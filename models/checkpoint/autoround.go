package checkpoint

import (
	"encoding/json/v2"
	"fmt"
	"strings"
)

// parseAutoRound reads AutoRound's own config. Its exports have GPTQ's format 1 or AWQ's gemm, as
// packing_format says; extra_config has exceptions by module.
func parseAutoRound(method string, raw []byte) (quantFormat, error) {
	var cfg struct {
		moduleMembers
		Packing *string `json:"packing_format"`
		ActBits *int    `json:"act_bits"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, err
	}
	if cfg.ActBits != nil && *cfg.ActBits < 16 {
		return nil, fmt.Errorf("act_bits: quantised activations (%d bits) are not supported, only weights", *cfg.ActBits)
	}
	module, err := cfg.whole()
	if err != nil {
		return nil, err
	}
	rules, err := parseRules(raw, "extra_config", func(r *moduleRule, name string) error {
		r.targets = []target{{text: name}}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range rules {
		r := &rules[i]
		if r.members.Bits != nil && *r.members.Bits >= 16 {
			r.float = true
		} else if name := r.targets[0].text; strings.ContainsAny(name, `*+?^$|\()[]{}`) {
			return nil, fmt.Errorf("%s: a pattern is not supported, only names of modules", r.key)
		}
	}
	packing := "auto_round:auto_gptq"
	if cfg.Packing != nil {
		packing = *cfg.Packing
	}
	switch strings.TrimPrefix(packing, "auto_round:") {
	case "auto_gptq", "gptq":
		return &gptq{method: method, format: "gptq", module: module, rules: rules}, nil
	case "auto_awq", "awq":
		return &awq{module: module, rules: rules}, nil
	}
	return nil, fmt.Errorf("packing_format: %q is not supported (auto_round:auto_gptq and auto_round:auto_awq are)", packing)
}
