package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxText bounds files that are read whole: configs, tokenizers (the largest public
// tokenizer.json has 35 MB) and templates.
const maxText = 128 << 20

// A folder holds the files of a checkpoint.
type folder interface {
	// names lists the plain files, sorted.
	names() ([]string, error)
	// open maps a file, or finds it in memory. A file that is not there is fs.ErrNotExist.
	open(name string) (*file, error)
	// text reads a file of at most maxText bytes.
	text(name string) ([]byte, error)
	// path is the file's name in errors.
	path(name string) string
}

// file is the bytes of a tensor file.
type file struct {
	path   string
	data   []byte
	mapped *os.File // nil when data is ordinary memory
}

// close unmaps.
func (f *file) close() error {
	if f.mapped == nil {
		return nil
	}
	err := errors.Join(unix.Munmap(f.data), f.mapped.Close())
	f.mapped, f.data = nil, nil
	return err
}

// unchanged is an error when a mapped file does not have the size any more that its offsets were
// checked against. The rest of the last OS page would read as zeros, without a fault.
func (f *file) unchanged() error {
	if f.mapped == nil {
		return nil
	}
	info, err := f.mapped.Stat()
	if err == nil && info.Size() != int64(len(f.data)) {
		err = fmt.Errorf("%s: has %d bytes, had %d when it was opened", f.path, info.Size(), len(f.data))
	}
	return err
}

func (f *file) holds(addr uintptr) bool {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	return addr >= start && addr < start+uintptr(len(f.data))
}

// guarded runs read, which reads the bytes of files, and turns the fault of a file that was cut while it is
// mapped into an error.
func guarded(read func() error, files ...*file) (err error) {
	for _, f := range files {
		if err := f.unchanged(); err != nil {
			return err
		}
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface {
			runtime.Error
			Addr() uintptr
		}); ok {
			for _, f := range files {
				if f.holds(fault.Addr()) {
					err = fmt.Errorf("%s: cannot be read at byte %d: it was cut or its disk fails", f.path,
						fault.Addr()-uintptr(unsafe.Pointer(unsafe.SliceData(f.data))))
					return
				}
			}
		}
		panic(r)
	}()
	return read()
}

// readAhead has the system read what a matrix's next rows need while the last ones are packed. Faults
// of a mapping alone leave a disk idle in between: a gigabyte that is not cached loads in 3.9 to 4.8 s,
// without this in 5.0 to 9.0 s (in turn, two busy cores).
type readAhead struct {
	tensors []*tensor
	rows    int
	asked   atomic.Int64 // bytes of each, by the share of the largest
}

const (
	aheadBytes = 64 << 20
	aheadPiece = 512 << 10 // more at once the system cuts off
)

// reach says that rows before row are being read.
func (r *readAhead) reach(row int) {
	longest := 0
	for _, t := range r.tensors {
		longest = max(longest, len(t.data))
	}
	if longest == 0 {
		return
	}
	to := min(int64(longest), int64(row)*int64(longest)/int64(r.rows)+aheadBytes)
	from := r.asked.Load()
	if from > 0 && to-from < aheadBytes/8 && to < int64(longest) || from >= to || !r.asked.CompareAndSwap(from, to) {
		return
	}
	for _, t := range r.tensors {
		share := func(at int64) int { return int(int64(len(t.data)) * at / int64(longest)) }
		for at, end := share(from), share(to); at < end; at += aheadPiece {
			t.file.willNeed(t.data[at:min(at+aheadPiece, end)])
		}
	}
}

// willNeed asks for the OS pages that b, a part of f, touches.
func (f *file) willNeed(b []byte) {
	if f.mapped == nil || len(b) == 0 {
		return
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	first := int(start) &^ (os.Getpagesize() - 1)
	_ = unix.Madvise(f.data[first:int(start)+len(b)], unix.MADV_WILLNEED) // advice: without it only time is lost
}

// release lets the OS pages go that lie fully inside b, a part of f.
func (f *file) release(b []byte) {
	if f.mapped == nil || len(b) == 0 {
		return
	}
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := int(-start & (page - 1))
	n := (len(b) - skip) &^ int(page-1)
	if n > 0 {
		_ = unix.Madvise(b[skip:skip+n], unix.MADV_DONTNEED) // advice: without it only memory is lost
	}
}

// diskFolder is a folder of the operating system.
type diskFolder string

func (d diskFolder) path(name string) string { return filepath.Join(string(d), name) }

func (d diskFolder) names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// regular opens a file that is one: opening a pipe would wait for its writer.
func (d diskFolder) regular(name string) (*os.File, int64, error) {
	info, err := os.Stat(d.path(name))
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: not a file", d.path(name))
	}
	f, err := os.Open(d.path(name))
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func (d diskFolder) open(name string) (*file, error) {
	f, size, err := d.regular(name)
	if err != nil {
		return nil, err
	}
	if size == 0 || int64(int(size)) != size {
		return nil, errors.Join(fmt.Errorf("%s: has %d bytes", d.path(name), size), f.Close())
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: map %d bytes: %w", d.path(name), size, err), f.Close())
	}
	return &file{path: d.path(name), data: data, mapped: f}, nil
}

func (d diskFolder) text(name string) ([]byte, error) {
	f, size, err := d.regular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxText {
		return nil, fmt.Errorf("%s: %d bytes are more than the %d allowed", d.path(name), size, maxText)
	}
	return io.ReadAll(io.LimitReader(f, maxText))
}

// embeddedFolder is a folder of a file system whose files have no address: they are copied.
type embeddedFolder struct {
	fsys fs.FS
	dir  string
}

func (e embeddedFolder) path(name string) string { return e.dir + "/" + name }

func (e embeddedFolder) names() ([]string, error) {
	entries, err := fs.ReadDir(e.fsys, e.dir)
	var names []string
	for _, x := range entries {
		if !x.IsDir() {
			names = append(names, x.Name())
		}
	}
	return names, err
}

func (e embeddedFolder) text(name string) ([]byte, error) {
	path := name
	if e.dir != "." {
		path = e.path(name)
	}
	return fs.ReadFile(e.fsys, path)
}

func (e embeddedFolder) open(name string) (*file, error) {
	b, err := e.text(name)
	if err != nil {
		return nil, err
	}
	return &file{path: e.path(name), data: b}, nil
}

// memoryFolder is files in memory.
type memoryFolder struct {
	name  string
	files map[string][]byte
}

func (m memoryFolder) path(name string) string { return m.name + "/" + name }

func (m memoryFolder) names() ([]string, error) {
	names := make([]string, 0, len(m.files))
	for n := range m.files {
		names = append(names, n)
	}
	slices.Sort(names)
	return names, nil
}

func (m memoryFolder) text(name string) ([]byte, error) {
	b, ok := m.files[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", m.path(name), fs.ErrNotExist)
	}
	return b, nil
}

func (m memoryFolder) open(name string) (*file, error) {
	b, err := m.text(name)
	return &file{path: m.path(name), data: b}, err
}
