package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// spareBytes are left free on the disk by a pull.
const spareBytes = 64 << 20

// Options say where a pull fetches from and to. The zero value of Endpoint, Cache and Connections is its default.
type Options struct {
	Endpoint    string // the hub's address; "": HF_ENDPOINT, else DefaultEndpoint
	Token       string // sent to Endpoint's host and no other; "": none
	Cache       Cache  // "": DefaultCache()
	Connections int    // files at a time; 0: 4
	Offline     bool   // look into the cache alone
	// Progress, when not nil, is told how it goes. It is called by one goroutine at a time, often.
	Progress func(Event)

	// Seams for tests.
	sleep func(context.Context, time.Duration) error
	free  func(dir string) (int64, error)
}

// State is what happens with a file.
type State int

// States of a file.
const (
	Fetching State = iota // Done of Size bytes are here; Size is -1 when it is not known
	Checking              // Done of Size bytes are hashed
	Waiting               // for another process; Note says so
	Retrying              // Note says why and when
	Ready                 // Note says how it came
)

// Event tells how a file of a pull fares. Without File it is about the repository's listing.
type Event struct {
	File  string
	State State
	Done  int64
	Size  int64
	Note  string
}

// DefaultOffline says whether the environment forbids to ask a hub: HF_HUB_OFFLINE.
func DefaultOffline() bool {
	switch strings.ToUpper(os.Getenv("HF_HUB_OFFLINE")) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// pull is one under way.
type pull struct {
	ref    Ref
	cache  Cache
	client *client
	commit string
	mu     sync.Mutex // holds events apart
	listen func(Event)
}

func (p *pull) tell(e Event) {
	if p.listen == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listen(e)
}

// Pull brings a model into the cache and returns its path there: a snapshot's folder, or a GGUF file in it. What is
// there and right is not fetched again, what was fetched in part is gone on with. The error names the file that it
// is about; what had arrived stays for the next pull.
func Pull(ctx context.Context, r Ref, o Options) (string, error) {
	r, err := ParseRef(r.String())
	if err != nil {
		return "", err
	}
	if o.Offline {
		path, err := o.cache().Find(r)
		if errors.Is(err, ErrNotCached) {
			err = fmt.Errorf("%s: not whole in the hub cache %s, and HF_HUB_OFFLINE forbids to fetch it", r, o.cache())
		}
		return path, err
	}
	return fetching(ctx, r, o, (*pull).run)
}

// fetching is a pull of what run fetches.
func fetching(ctx context.Context, r Ref, o Options, run func(*pull, context.Context, Options) (string, error)) (string, error) {
	if o.Endpoint == "" {
		o.Endpoint = firstSet("HF_ENDPOINT", "", DefaultEndpoint)
	}
	if o.Connections == 0 {
		o.Connections = 4
	}
	if o.Connections < 0 || o.Connections > 64 {
		return "", fmt.Errorf("connections: %d is not in [1, 64]", o.Connections)
	}
	if o.sleep == nil {
		o.sleep = sleep
	}
	if o.free == nil {
		o.free = free
	}
	c, err := newClient(o)
	if err != nil {
		return "", err
	}
	defer c.close()
	p := &pull{ref: r, cache: o.cache(), client: c, listen: o.Progress}
	path, err := run(p, ctx, o)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w", r, err)
	}
	return path, err
}

func (o *Options) cache() Cache {
	if o.Cache == "" {
		return DefaultCache()
	}
	return o.Cache
}

// run lists, chooses, describes, makes sure of the room, fetches, and only then shows the snapshot.
func (p *pull) run(ctx context.Context, o Options) (string, error) {
	commit, listing, err := p.client.list(ctx, p.ref, p.noteOf(file{}))
	if err != nil {
		return "", err
	}
	p.commit = commit
	sizes := map[string]int64{}
	for name, l := range listing {
		sizes[name] = max(l.size, 0)
	}
	s, err := choose(p.ref, slices.Sorted(maps.Keys(listing)), sizes)
	if err != nil {
		return "", err
	}
	var index file // fetched first: it names the others
	if s.index {
		var more []string
		if index, more, err = p.index(ctx, listing[indexFile]); err != nil {
			return "", fmt.Errorf("%s: %w", indexFile, err)
		}
		for _, n := range more {
			if _, ok := listing[n]; !ok {
				return "", fmt.Errorf("%s: %s names it and the repository does not have it", n, indexFile)
			}
		}
		s.files = append(s.files, more...)
	}
	files := make([]file, len(s.files))
	err = p.each(ctx, o.Connections, s.files, func(ctx context.Context, i int, name string) (err error) {
		if name == index.name {
			files[i] = index
			return nil
		}
		files[i], err = p.client.describe(ctx, p.ref, commit, name, listing[name], p.noteOf(file{name: name}))
		return err
	})
	if err != nil {
		return "", err
	}
	if err := p.room(files, o.free); err != nil {
		return "", err
	}
	err = p.each(ctx, o.Connections, s.files, func(ctx context.Context, i int, name string) error {
		if name == index.name {
			return nil
		}
		return p.fetch(ctx, files[i])
	})
	if err != nil {
		return "", err
	}
	// config.json stands first and is linked last: without it a folder is no checkpoint.
	for _, f := range slices.Backward(files) {
		if err := p.cache.link(p.ref, commit, f.name, f.hash); err != nil {
			return "", fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := p.cache.writeRef(p.ref, commit); err != nil {
		return "", err
	}
	return filepath.Join(p.cache.snapshot(p.ref, commit), filepath.FromSlash(s.open)), nil
}

// index fetches the index of shards and reads it.
func (p *pull) index(ctx context.Context, l listed) (file, []string, error) {
	f, err := p.client.describe(ctx, p.ref, p.commit, indexFile, l, p.noteOf(file{name: indexFile}))
	if err != nil {
		return f, nil, err
	}
	if f.size > maxIndex {
		return f, nil, fmt.Errorf("its %d bytes are more than %d", f.size, maxIndex)
	}
	if err := p.fetch(ctx, f); err != nil {
		return f, nil, err
	}
	raw, err := os.ReadFile(p.cache.blob(p.ref, f.hash))
	if err != nil {
		return f, nil, err
	}
	more, err := shards(raw)
	return f, more, err
}

// each runs do for every name, n at a time, and adds the name to its error. The first error ends the others.
func (p *pull) each(ctx context.Context, n int, names []string, do func(ctx context.Context, i int, name string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(n)
	for i, name := range names {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := do(ctx, i, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// room is an error when the disk does not have what is still to come.
func (p *pull) room(files []file, free func(string) (int64, error)) error {
	need, largest := int64(0), file{}
	for _, f := range files {
		blob := p.cache.blob(p.ref, f.hash)
		if info, err := os.Stat(blob); err == nil && (f.size < 0 || info.Size() == f.size) {
			continue
		}
		missing := max(f.size, 0)
		if info, err := os.Stat(blob + ".incomplete"); err == nil && info.Size() <= f.size {
			missing -= info.Size()
		}
		if f.size > largest.size {
			largest = f
		}
		if need += missing; need < 0 {
			return fmt.Errorf("%s: the hub gives it %d bytes, more than any disk has", largest.name, largest.size)
		}
	}
	if need == 0 {
		return nil
	}
	dir := p.cache.repo(p.ref)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	have, err := free(dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if need > have-spareBytes {
		return fmt.Errorf("%.2f GB are to be fetched (the largest file is %s) and the disk of %s has %.2f GB free: make room or set HF_HUB_CACHE",
			float64(need)/1e9, largest.name, p.cache, float64(have)/1e9)
	}
	return nil
}

// free is how many bytes the disk of dir has left for this user.
func free(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
