package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// named is a setting that has a list of values or a form of its own, which whoever uses it knows.
type named struct{ field, value string }

// checkFile finds what no server could have in what was read from a file, and where it stands.
func (s *Serve) checkFile(at positions, valid func(field, value string) error) error {
	fault := func(path, field string, err error) error {
		return fmt.Errorf("%s %s: %w", at.of("$."+path, "$."+parent(path)), field, err)
	}
	check := func(prefix string, numbers map[string]float64, names []named) error {
		for _, field := range slices.Sorted(maps.Keys(numbers)) {
			if v := numbers[field]; !(v >= 0) {
				return fault(prefix+field, field, fmt.Errorf("%v is negative", v))
			}
		}
		for _, n := range names {
			if n.value == "" || valid == nil {
				continue
			}
			if err := valid(n.field, n.value); err != nil {
				return fault(prefix+n.field, n.field, err)
			}
		}
		return nil
	}
	err := check("", map[string]float64{
		"threads": float64(s.Threads), "max_num_seqs": float64(s.MaxNumSeqs), "max_model_len": float64(s.MaxModelLen),
		"max_num_batched_tokens": float64(s.MaxBatchedTokens), "max_waiting": float64(s.MaxWaiting),
		"sla_ttft": time.Duration(s.SLATTFT).Seconds(), "sla_tpot": time.Duration(s.SLATPOT).Seconds(), "drain_timeout": time.Duration(s.Drain).Seconds(),
	}, []named{
		{"device", s.Device}, {"kv_cache_dtype", s.KVCacheDType}, {"quantize", s.Quantize}, {"keep_alive", s.KeepAlive},
		{"reasoning_parser", s.ReasoningParser}, {"log_format", s.LogFormat},
	})
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, m := range s.Models {
		prefix := fmt.Sprintf("models[%d].", i)
		switch {
		case m.Name == "":
			return fault(prefix+"name", "name", errors.New("is missing; it is the model's id in the API"))
		case seen[m.Name]:
			return fault(prefix+"name", "name", fmt.Errorf("%q is used twice", m.Name))
		}
		seen[m.Name] = true
		err := check(prefix, map[string]float64{
			"max_model_len": float64(m.MaxModelLen), "max_num_seqs": float64(m.MaxNumSeqs), "weight": m.Weight,
			"sla_ttft": time.Duration(m.SLATTFT).Seconds(), "sla_tpot": time.Duration(m.SLATPOT).Seconds(),
		}, []named{
			{"kv_cache_dtype", m.KVCacheDType}, {"quantize", m.Quantize}, {"keep_alive", m.KeepAlive}, {"reasoning_parser", m.ReasoningParser},
		})
		if err != nil {
			return err
		}
	}
	// what is not in the file may be in a flag
	if field, err := s.fault(); err != nil && at.of("$."+field) != "" {
		return fault(field, field, err)
	}
	return nil
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

// checkOrigin reports what no browser sends as an origin.
func checkOrigin(o string) error {
	u, err := url.Parse(o)
	if o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.ToLower(o) != o) {
		return fmt.Errorf("%q: want an origin such as https://chat.example.org, in small letters and without a path, or *", o)
	}
	return nil
}
