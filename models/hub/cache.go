package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Cache is a folder in the layout of the hub's own tools:
//
//	models--ORG--NAME/blobs/HASH               what files hold, by sha256 or git blob id
//	models--ORG--NAME/snapshots/COMMIT/FILE -> ../../blobs/HASH
//	models--ORG--NAME/refs/REVISION            the commit that a branch or tag was when it was fetched
//	.locks/models--ORG--NAME/HASH.lock         held while HASH is fetched
type Cache string

// DefaultCache is where the environment says that the cache is: HF_HUB_CACHE, else hub under HF_HOME, else
// under huggingface in XDG_CACHE_HOME or ~/.cache.
func DefaultCache() Cache {
	return Cache(firstSet("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", home("hub")))
}

// home is a file of HF_HOME or what stands for it.
func home(name string) string {
	return filepath.Join(firstSet("HF_HOME", "", filepath.Join(firstSet("XDG_CACHE_HOME", "", "~/.cache"), "huggingface")), name)
}

// firstSet is a variable of the environment, another, or a path, with ~ and variables in it replaced.
func firstSet(name, other, otherwise string) string {
	path := otherwise
	for _, n := range []string{other, name} {
		if v := os.Getenv(n); v != "" {
			path = v
		}
	}
	path = os.ExpandEnv(path)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if dir, err := os.UserHomeDir(); err == nil {
			path = filepath.Join(dir, rest)
		}
	}
	return path
}

// ErrNotCached says that a model is not in the cache, or not all of it: pull it.
var ErrNotCached = errors.New("not in the hub cache")

// notCached is an ErrNotCached with words of its own.
type notCached struct{ text string }

func (e notCached) Error() string        { return e.text }
func (e notCached) Is(target error) bool { return target == ErrNotCached }

// Find returns the path of a model whose files are all there: a snapshot's folder, or a GGUF file in it. It
// reads names alone, no weights. The error is an ErrNotCached unless r leaves a choice or the cache cannot be read.
func (c Cache) Find(r Ref) (string, error) {
	r, err := ParseRef(r.String())
	if err != nil {
		return "", err
	}
	commit, err := c.commit(r)
	if err != nil {
		return "", err
	}
	dir := c.snapshot(r, commit)
	names, err := filesUnder(dir)
	if err != nil {
		return "", err
	}
	s, err := choose(r, names, nil)
	if err == nil && s.index {
		err = shardsIn(dir, names)
	}
	var choice choiceError
	if errors.As(err, &choice) {
		return "", fmt.Errorf("%s: in the hub cache %s: %w", r, c, err)
	}
	if err != nil {
		return "", notCached{fmt.Sprintf("%s is not in the hub cache %s, or not all of it (`openinfer pull %[1]s` fetches it): %[3]v", r, c, err)}
	}
	return filepath.Join(dir, filepath.FromSlash(s.open)), nil
}

// shardsIn is an error when an index names a file that is not there.
func shardsIn(dir string, names []string) error {
	list, err := indexIn(dir)
	if err != nil {
		return err
	}
	for _, n := range list {
		if !slices.Contains(names, n) {
			return fmt.Errorf("%s is missing, which %s names", n, indexFile)
		}
	}
	return nil
}

// indexIn reads the index of a folder.
func indexIn(dir string) ([]string, error) {
	f, err := os.Open(filepath.Join(dir, indexFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxIndex+1))
	if err == nil && len(raw) > maxIndex {
		err = fmt.Errorf("more than %d bytes", maxIndex)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	list, err := shards(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	return list, nil
}

// List returns the models whose files are all in the cache: every snapshot that a ref names, or where there is
// no ref every snapshot, and of GGUF files each model. A cache that is not there is empty.
func (c Cache) List() ([]Ref, error) {
	entries, err := os.ReadDir(string(c))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Ref
	for _, e := range entries {
		r, ok := refOfFolder(e.Name())
		if !ok {
			continue
		}
		for _, revision := range c.revisions(r) {
			r.Revision = revision
			commit, err := c.commit(r)
			if err != nil {
				continue
			}
			names, err := filesUnder(c.snapshot(r, commit))
			if err != nil {
				return nil, err
			}
			var found []Ref
			if slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, tensorsEnd) }) {
				found = []Ref{r}
			}
			models := ggufModels(names)
			for _, g := range models {
				found = append(found, g.ref(r, models))
			}
			for _, f := range found {
				if _, err := c.Find(f); err == nil {
					all = append(all, f)
				}
			}
		}
	}
	return all, nil
}

// revisions are what to call a repository's snapshots: "" for main, then its other refs that are other
// commits, or commits where there is no ref.
func (c Cache) revisions(r Ref) []string {
	refs := filepath.Join(c.repo(r), "refs")
	names, _ := filesUnder(refs)
	seen := map[string]bool{}
	var list []string
	if commit, err := c.commit(r); err == nil {
		list, seen[commit] = []string{""}, true
	}
	for _, n := range names {
		r.Revision = n
		if commit, err := c.commit(r); err == nil && !seen[commit] && checkRevision(n) == nil {
			list, seen[commit] = append(list, n), true
		}
	}
	if len(list) > 0 {
		return list
	}
	entries, _ := os.ReadDir(filepath.Join(c.repo(r), "snapshots"))
	for _, e := range entries {
		if commitShape.MatchString(e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list
}

func (c Cache) repo(r Ref) string { return filepath.Join(string(c), r.folder()) }

func (c Cache) snapshot(r Ref, commit string) string {
	return filepath.Join(c.repo(r), "snapshots", commit)
}

func (c Cache) blob(r Ref, hash string) string { return filepath.Join(c.repo(r), "blobs", hash) }

// commit is the commit of r whose snapshot is in the cache.
func (c Cache) commit(r Ref) (string, error) {
	for _, commit := range []string{c.readRef(r), r.Revision} {
		if commitShape.MatchString(commit) {
			if _, err := os.Stat(c.snapshot(r, commit)); err == nil {
				return commit, nil
			}
		}
	}
	return "", notCached{fmt.Sprintf("%s is not in the hub cache %s: fetch it with `openinfer pull %[1]s`", r, c)}
}

// readRef is what a ref says, "" when it is not there.
func (c Cache) readRef(r Ref) string {
	f, err := os.Open(filepath.Join(c.repo(r), "refs", filepath.FromSlash(r.revision())))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 100))
	return strings.TrimSpace(string(b))
}

// writeRef makes r's revision mean commit. It is replaced as a whole: readers see the old one or the new.
func (c Cache) writeRef(r Ref, commit string) error {
	if r.revision() == commit || c.readRef(r) == commit {
		return nil
	}
	path := filepath.Join(c.repo(r), "refs", filepath.FromSlash(r.revision()))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	temporary := unique(path)
	if err := os.WriteFile(temporary, []byte(commit), 0o666); err != nil {
		return err
	}
	return renameOver(temporary, path)
}

// link makes a file of a snapshot point to its blob, by a relative link so that the cache can be moved.
func (c Cache) link(r Ref, commit, name, hash string) error {
	path := filepath.Join(c.snapshot(r, commit), filepath.FromSlash(name))
	target, err := filepath.Rel(filepath.Dir(path), c.blob(r, hash))
	if err != nil {
		return err
	}
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	temporary := unique(c.blob(r, hash)) // beside the blobs: nothing unfinished is seen in a snapshot
	if err := os.Symlink(target, temporary); err != nil {
		return fmt.Errorf("%w (the hub cache needs a file system with symbolic links: set HF_HUB_CACHE)", err)
	}
	return renameOver(temporary, path)
}

// unique is a name beside path that nobody else uses.
func unique(path string) string { return fmt.Sprintf("%s.%08x.tmp", path, rand.Uint32()) }

func renameOver(temporary, path string) error {
	err := os.Rename(temporary, path)
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}

// lock waits for its turn at a blob among all processes that fetch it, as the hub's own tools do; wait is called
// when there is somebody before. The blob is anybody's again after the returned function.
func (c Cache) lock(ctx context.Context, r Ref, hash string, wait func()) (func(), error) {
	path := filepath.Join(string(c), ".locks", r.folder(), hash+".lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, err
		}
		if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
			wait()
			err = waitFor(ctx, f)
			if err != nil {
				return nil, err
			}
		} else if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// Some tools remove the file with the lock: then this lock is on a file that nobody else will find.
		if mine, err := f.Stat(); err == nil {
			if now, err := os.Stat(path); err == nil && os.SameFile(mine, now) {
				return func() { _ = f.Close() }, nil
			}
		}
		_ = f.Close()
	}
}

// waitFor locks f when its holder lets go. Nothing interrupts flock: when ctx ends first, the goroutine that waits
// takes the lock some time later and gives it back at once.
func waitFor(ctx context.Context, f *os.File) error {
	locked := make(chan error, 1)
	go func() { locked <- flock(f, syscall.LOCK_EX) }()
	select {
	case err := <-locked:
		if err != nil {
			_ = f.Close()
		}
		return err
	case <-ctx.Done():
		go func() { <-locked; _ = f.Close() }()
		return context.Cause(ctx)
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}

// filesUnder lists the files of a folder and below by their slash paths, sorted. Links count as what they point
// to; those to nothing do not count. A folder that is not there has none.
func filesUnder(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // a link to nothing
		}
		rel, err := filepath.Rel(dir, path)
		names = append(names, filepath.ToSlash(rel))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return names, err
}
