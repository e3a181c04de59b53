package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	pathpkg "path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
)

// Checkpoint is an open checkpoint. Its methods may be called from several goroutines, and the
// Read of its matrices too, until Close.
type Checkpoint struct {
	path   string
	folder folder
	format Format

	files   []*file
	tensors map[string]*tensor
	order   []*tensor // in the files' order

	metadata *Metadata // GGUF
	names    Names     // GGUF
	config   config    // safetensors
	texts    texts

	mu     sync.Mutex               // guards tensor.used, rows, warned and made
	rows   map[string]func(int) int // the stored row of each row, by Matrix.Name, where they lie otherwise
	warned warnings
	made   map[string]bool // ConfigOnly: the names of tensors that were asked for
	floats *kernels.DType  // ConfigOnly: see KeepFloats
	life   sync.RWMutex    // held by reads of mapped bytes; Close waits for them
	closed bool
}

// Open opens a folder with *.safetensors and config.json, a folder with one GGUF model, a .gguf
// file, or the first part of a split one (NAME-00001-of-0000N.gguf). It reads metadata and checks
// where tensors lie; weights stay in the file, which is mapped until Close.
func Open(path string) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return open(path, diskFolder(path), "")
	}
	return open(path, diskFolder(filepath.Dir(path)), filepath.Base(path))
}

// OpenFS opens what Open does from a file system such as embed.FS, which copies files into memory.
func OpenFS(fsys fs.FS, name string) (*Checkpoint, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return open(name, embeddedFolder{fsys, name}, "")
	}
	return open(name, embeddedFolder{fsys, pathpkg.Dir(name)}, pathpkg.Base(name))
}

// OpenFiles opens a checkpoint that is in memory: the files of a folder by their names there. The bytes
// are used where they are, not copied, and may not change. name stands for the path in errors.
func OpenFiles(name string, files map[string][]byte) (*Checkpoint, error) {
	return open(name, memoryFolder{name, files}, "")
}

// open opens the folder, or the one file of it when there is a name.
func open(path string, f folder, name string) (*Checkpoint, error) {
	c := &Checkpoint{path: path, folder: f, tensors: map[string]*tensor{}, names: llamaNames}
	if err := c.load(name); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) load(name string) error {
	names, err := c.folder.names()
	if err != nil {
		return err
	}
	if slices.Contains(names, Unfinished) && name == "" {
		return fmt.Errorf("%s: is not finished, as %s in it says: run openinfer quantize again as before to finish it", c.path, Unfinished)
	}
	if strings.HasSuffix(name, ".safetensors") {
		return fmt.Errorf("%s: open the folder it is in: config.json and the tokenizer belong to it", c.path)
	}
	tensors := slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".safetensors") })
	if name == "" && !tensors && !slices.Contains(names, indexFile) {
		if name, err = modelFile(names); err != nil {
			return fmt.Errorf("%s: %w", c.path, err)
		}
	}
	if name != "" {
		c.format = GGUF
		if err := c.openGGUF(name); err != nil {
			return err
		}
		return c.readGGUFTexts()
	}
	c.format = Safetensors
	if err := c.readConfig(); err != nil {
		return err
	}
	if err := c.readTexts(names); err != nil {
		return err
	}
	return c.openSafetensors(names)
}

// add takes in a tensor whose name is new.
func (c *Checkpoint) add(t *tensor) {
	c.tensors[t.name] = t
	c.order = append(c.order, t)
}

// Close unmaps the files: no matrix may be read any more. It waits for reads that are under way.
func (c *Checkpoint) Close() error {
	c.life.Lock()
	defer c.life.Unlock()
	c.closed = true
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}

// reading runs read, which reads the bytes of files, unless the checkpoint is closed.
func (c *Checkpoint) reading(read func() error, files ...*file) error {
	c.life.RLock()
	defer c.life.RUnlock()
	if c.closed {
		return fmt.Errorf("%s: %w", c.path, fs.ErrClosed)
	}
	return guarded(read, files...)
}

// Path is what the checkpoint was opened with.
func (c *Checkpoint) Path() string { return c.path }

// Format says what kind of files these are.
func (c *Checkpoint) Format() Format { return c.format }

// GGUF gives the metadata of a GGUF file, nil for safetensors.
func (c *Checkpoint) GGUF() *Metadata { return c.metadata }

// Architecture is model_type of config.json ("llama", "qwen3"; without it the first of
// architectures), or general.architecture of a GGUF file.
func (c *Checkpoint) Architecture() string { return c.config.architecture }

// ConfigJSON is config.json as it is, nil for GGUF.
func (c *Checkpoint) ConfigJSON() []byte { return c.config.raw }
