package engine

import (
	"github.com/openinfer-go/openinfer/models/quantize"
)

// CheckSetting says whether value could be that of a setting with a list of values or a form of its own, by its name in a
// configuration file. Whether this machine has what it names is found out when the engine starts. Other names are fine.
func CheckSetting(field, value string) error {
	var err error
	switch field {
	case "device":
		_, err = checkDevice(value)
	case "kv_cache_dtype":
		_, err = KVCacheType(value)
	case "quantize":
		if value != "none" {
			_, err = quantize.ParseLoad(value)
		}
	case "keep_alive":
		_, err = ParseKeepAlive(value)
	case "reasoning_parser":
		err = checkReasoningParser(value)
	}
	return err
}
