// Package demo carries two tiny INT4 language models inside the binary, as complete checkpoint
// folders, so that several models can be tried at once without fetching anything. Each folder's
// README.md says how its model was made and under which licence.
package demo

import (
	"embed"
	"io/fs"
)

//go:embed demo-tales demo-bard
var files embed.FS

// Names lists the embedded models.
func Names() []string { return []string{"demo-tales", "demo-bard"} }

// Open returns the checkpoint folder of an embedded model.
func Open(name string) (fs.FS, bool) {
	for _, n := range Names() {
		if n == name {
			sub, err := fs.Sub(files, n)
			return sub, err == nil
		}
	}
	return nil, false
}
