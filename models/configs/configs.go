// Package configs carries the config.json of seven public models, without weights: the text part's geometry,
// assembled from public descriptions of the published files. The simulated device loads them, and plans are
// made of them.
package configs

import (
	"embed"
	"strings"
)

//go:embed *.json
var files embed.FS

// Names lists the models.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // it is embedded
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".json")
	}
	return names
}

// Open returns the config.json of a model.
func Open(name string) ([]byte, bool) {
	b, err := files.ReadFile(name + ".json")
	return b, err == nil
}
