package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/models/demo"
	"github.com/openinfer-go/openinfer/models/hub"
)

// Locate finds the model that a text means, in this order: an embedded one of that name; a folder, .gguf file or
// config.json; one of SimulatedModels; a model of a hub, org/name[@revision][:file or quantisation], that is in the
// hub cache. The Name of the result is
// what the model is called by default: the embedded name, the file's or folder's, or the text. The error says
// where the model could come from.
func Locate(text string) (ModelSpec, error) {
	if slices.Contains(demo.Names(), text) {
		return ModelSpec{Name: text}, nil
	}
	_, err := os.Stat(text)
	switch {
	case err == nil:
		return ModelSpec{Name: nameOf(text), Path: text}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return ModelSpec{}, err
	}
	if slices.Contains(configs.Names(), text) {
		return ModelSpec{Name: text}, nil
	}
	r, notName := hub.ParseRef(text)
	looksLikePath := strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "~")
	switch {
	case looksLikePath || notName != nil:
		return ModelSpec{}, fmt.Errorf("%s: no such file or folder", text)
	}
	path, err := hub.DefaultCache().Find(r)
	switch {
	case err == nil:
		return ModelSpec{Name: text, Path: path}, nil
	case !strings.Contains(text, "/"):
		return ModelSpec{}, fmt.Errorf("%s: no embedded model of that name (there are %s, and on a simulated card %s), and no such file or folder", text,
			strings.Join(demo.Names(), ", "), strings.Join(configs.Names(), ", "))
	case errors.Is(err, hub.ErrNotCached):
		return ModelSpec{}, fmt.Errorf("%w (and there is no such file or folder)", err)
	}
	return ModelSpec{}, err
}

// locate is the path of the model's checkpoint, "" when it is embedded.
func (m ModelSpec) locate() (string, error) {
	found, err := Locate(cmp.Or(m.Path, m.Name))
	if err == nil && m.Path != "" && found.Path == "" {
		err = fmt.Errorf("%s is an embedded model: it has that name and no other", m.Path)
	}
	return found.Path, err
}

// nameOf is what a model at that path is called: its file or folder; config.json has its folder's name.
func nameOf(path string) string {
	name := baseName(path)
	if name == "config.json" {
		return baseName(filepath.Dir(path))
	}
	return strings.TrimSuffix(strings.TrimSuffix(name, ".gguf"), ".json")
}

// baseName is a path's last name, also of "." and "..".
func baseName(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	return filepath.Base(path)
}

// CachedModels are the names that Locate knows the models of the hub cache by. Whether they can be served is for
// Describe to say.
func CachedModels() ([]string, error) {
	refs, err := hub.DefaultCache().List()
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.String()
	}
	return names, err
}
