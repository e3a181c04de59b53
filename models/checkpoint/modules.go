package checkpoint

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
)

// moduleConfig is how a module's weight is quantised, as GPTQ, AWQ and AutoRound say it.
type moduleConfig struct {
	bits  int
	group int  // inputs of a scale; 0: all of the row
	sym   bool // the zero point is the middle code
	order bool // activation order
}

// moduleMembers are the members of a config that say so, for all modules or in a rule for some.
type moduleMembers struct {
	Bits     *int    `json:"bits"`
	Group    *int    `json:"group_size"`
	Sym      *bool   `json:"sym"`
	DescAct  *bool   `json:"desc_act"`
	DataType *string `json:"data_type"`
}

// whole is the config that the members make when they are all there is.
func (s moduleMembers) whole() (moduleConfig, error) {
	if s.Group == nil {
		return moduleConfig{}, errors.New("group_size: is missing")
	}
	return s.apply(moduleConfig{})
}

// apply changes m to what the members say.
func (s moduleMembers) apply(m moduleConfig) (moduleConfig, error) {
	if s.Bits != nil {
		m.bits = *s.Bits
	}
	if m.bits != 4 && m.bits != 8 {
		return m, fmt.Errorf("bits: %d-bit weights are not supported, only 4 and 8", m.bits)
	}
	if s.Group != nil {
		switch m.group = *s.Group; {
		case m.group == -1:
			m.group = 0
		case m.group <= 0:
			return m, fmt.Errorf("group_size: %d is neither a number of inputs nor -1", m.group)
		}
	}
	if s.Sym != nil {
		m.sym = *s.Sym
	}
	if s.DescAct != nil {
		m.order = *s.DescAct
	}
	if s.DataType != nil && *s.DataType != "int" {
		return m, fmt.Errorf("data_type: %q is not supported (int is)", *s.DataType)
	}
	return m, nil
}

// moduleRule is an exception for some modules.
type moduleRule struct {
	key     string // of the config, for errors
	targets []target
	float   bool // they are not quantised
	members moduleMembers
}

// of finds the first rule for a module and applies it. It is asked only for modules that are quantised.
func (m moduleConfig) of(module string, rules []moduleRule) (moduleConfig, error) {
	for _, r := range rules {
		fits, err := match(r.targets, module)
		if err != nil {
			return m, fmt.Errorf("quantization_config.%s: %w", r.key, err)
		}
		if fits < patternMatch {
			continue
		}
		if r.float {
			return m, fmt.Errorf("quantization_config.%s says that %s is not quantised, but it is", r.key, module)
		}
		if m, err = r.members.apply(m); err != nil {
			return m, fmt.Errorf("quantization_config.%s.%w", r.key, err)
		}
		return m, nil
	}
	return m, nil
}

// parseDynamic reads GPTQ's "dynamic": patterns that are matched from the start of a module's name,
// the first that fits counts; "-:" before one says that such modules are not quantised, "+:" or nothing
// that they are quantised otherwise.
func parseDynamic(raw []byte) ([]moduleRule, error) {
	return parseRules(raw, "dynamic", func(r *moduleRule, name string) (err error) {
		name, r.float = strings.CutPrefix(name, "-:")
		r.targets, err = parseTargets([]string{"re:" + strings.TrimPrefix(name, "+:")})
		return err
	})
}

// parseRules reads the member of a config that has rules by module, in order.
func parseRules(raw []byte, member string, set func(r *moduleRule, name string) error) ([]moduleRule, error) {
	var cfg map[string]jsontext.Value
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, err
	}
	list := cfg[member]
	if len(list) == 0 || string(list) == "null" || string(list) == "false" {
		return nil, nil
	}
	if list.Kind() != '{' {
		return nil, fmt.Errorf("%s: %.40s is no list of rules by module", member, list)
	}
	var rules []moduleRule
	d := jsontext.NewDecoder(bytes.NewReader(list))
	if _, err := d.ReadToken(); err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", member, err)
		}
		r := moduleRule{key: fmt.Sprintf("%s.%q", member, name.String())}
		if err := set(&r, name.String()); err != nil {
			return nil, fmt.Errorf("%s: %w", r.key, err)
		}
		if err := json.UnmarshalDecode(d, &r.members); err != nil {
			return nil, fmt.Errorf("%s: %w", r.key, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}
