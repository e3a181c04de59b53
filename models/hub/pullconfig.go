package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// configFiles say what a model's weights are like without them. Only the first has to be there.
var configFiles = []string{configFile, "quantize_config.json", "quant_config.json"}

// PullConfig brings config.json, and what else says how weights are quantised, of a model with safetensors into the
// cache and returns the folder: it is a checkpoint without weights. What is in the cache already is taken as it is,
// without asking the hub.
func PullConfig(ctx context.Context, r Ref, o Options) (string, error) {
	r, err := ParseRef(r.String())
	if err != nil {
		return "", err
	}
	if r.File != "" {
		return "", fmt.Errorf("%s: of a GGUF file nothing is known without it: pull it, or name the model that it was made of", r)
	}
	if commit, err := o.cache().commit(r); err == nil {
		dir := o.cache().snapshot(r, commit)
		if _, err := os.Stat(filepath.Join(dir, configFile)); err == nil {
			return dir, nil
		}
	}
	if o.Offline {
		return "", fmt.Errorf("%s: its %s is not in the hub cache %s, and HF_HUB_OFFLINE forbids to fetch it", r, configFile, o.cache())
	}
	return fetching(ctx, r, o, (*pull).config)
}

// config lists, and fetches those of configFiles that there are.
func (p *pull) config(ctx context.Context, o Options) (string, error) {
	commit, listing, err := p.client.list(ctx, p.ref, p.noteOf(file{}))
	if err != nil {
		return "", err
	}
	p.commit = commit
	names := slices.DeleteFunc(slices.Clone(configFiles), func(n string) bool { _, ok := listing[n]; return !ok })
	if !slices.Contains(names, configFile) {
		for n := range listing {
			if strings.HasSuffix(n, ggufEnd) {
				return "", errors.New("has GGUF files and no " + configFile + ": of those nothing is known without them: pull one, or name the model that they were made of")
			}
		}
		return "", errors.New(configFile + " is missing")
	}
	files := make([]file, len(names))
	err = p.each(ctx, o.Connections, names, func(ctx context.Context, i int, name string) (err error) {
		if files[i], err = p.client.describe(ctx, p.ref, commit, name, listing[name], p.noteOf(file{name: name})); err != nil {
			return err
		}
		if files[i].size > maxConfig {
			return fmt.Errorf("its %d bytes are more than %d", files[i].size, maxConfig)
		}
		return p.fetch(ctx, files[i])
	})
	if err != nil {
		return "", err
	}
	for _, f := range slices.Backward(files) { // config.json last: with it the others are there
		if err := p.cache.link(p.ref, commit, f.name, f.hash); err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return p.cache.snapshot(p.ref, commit), p.cache.writeRef(p.ref, commit)
}
