package checkpoint

import (
	"cmp"
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Unfinished is the file that a folder has while a checkpoint is being written to it. Open refuses such a folder.
const Unfinished = "quantize.progress"

// NewTensor is a tensor of a checkpoint that will be written: its type is safetensors' name of one.
type NewTensor struct {
	Name  string
	Type  string
	Shape []int
}

// Bytes is the tensor's size.
func (t NewTensor) Bytes() int64 {
	n := int64(safetensorsTypes[t.Type].size)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Writer writes the tensor files of a folder. Where each tensor lies is known before the first is
// written, so that they can be written in any order, in pieces, and by several goroutines, and
// nothing of them is kept in memory.
type Writer struct {
	dir    string
	shards []shard
	at     map[string]spot
}

type shard struct {
	name   string
	header []byte
	bytes  int64 // of tensors
	file   *os.File
	names  []string
}

// spot is where a tensor lies: its shard and the offset in that file.
type spot struct {
	shard  int
	offset int64
	bytes  int64
}

// NewWriter plans files of at most shardBytes of tensors each (a larger tensor has one to itself): the
// tensors in the order given, within a file those of wider types first, as readers want each to start at a multiple
// of its element size.
func NewWriter(dir string, tensors []NewTensor, shardBytes int64) (*Writer, error) {
	w := &Writer{dir: dir, at: map[string]spot{}}
	var parts [][]NewTensor
	var size int64
	for _, t := range tensors {
		if _, ok := safetensorsTypes[t.Type]; !ok {
			return nil, fmt.Errorf("tensor %s: type %q is unknown", t.Name, t.Type)
		}
		if len(parts) == 0 || size > 0 && size+t.Bytes() > shardBytes {
			parts, size = append(parts, nil), 0
		}
		size += t.Bytes()
		parts[len(parts)-1] = append(parts[len(parts)-1], t)
	}
	for i, part := range parts {
		slices.SortStableFunc(part, func(a, b NewTensor) int {
			return cmp.Compare(safetensorsTypes[b.Type].size, safetensorsTypes[a.Type].size)
		})
		s := shard{name: singleFile}
		if len(parts) > 1 {
			s.name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(parts))
		}
		b, err := header(part)
		if err != nil {
			return nil, err
		}
		s.header = b
		for _, t := range part {
			if _, ok := w.at[t.Name]; ok {
				return nil, fmt.Errorf("tensor %s is there twice", t.Name)
			}
			w.at[t.Name] = spot{i, int64(len(s.header)) + s.bytes, t.Bytes()}
			s.bytes += t.Bytes()
			s.names = append(s.names, t.Name)
		}
		w.shards = append(w.shards, s)
	}
	return w, nil
}

// header is a file's header with its length before it, padded so that tensors start at a multiple of 8.
func header(tensors []NewTensor) ([]byte, error) {
	type entry struct {
		Type    string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	b := append(make([]byte, 8), `{"__metadata__":{"format":"pt"}`...)
	at := int64(0)
	for _, t := range tensors {
		name, err := jsontext.AppendQuote(nil, t.Name)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		e, err := json.Marshal(entry{t.Type, append([]int{}, t.Shape...), [2]int64{at, at + t.Bytes()}})
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		at += t.Bytes()
		b = append(append(append(append(b, ','), name...), ':'), e...)
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, nil
}

// Open creates the files, or opens those that an earlier Writer of the same tensors left.
func (w *Writer) Open() error {
	for i := range w.shards {
		s := &w.shards[i]
		f, err := os.OpenFile(filepath.Join(w.dir, s.name), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		s.file = f
		if _, err := f.WriteAt(s.header, 0); err != nil {
			return err
		}
		if err := f.Truncate(int64(len(s.header)) + s.bytes); err != nil {
			return err
		}
	}
	return nil
}

// WriteAt writes bytes of a tensor, from offset on.
func (w *Writer) WriteAt(tensor string, offset int64, b []byte) error {
	p, err := w.within(tensor, offset, len(b))
	if err != nil {
		return err
	}
	_, err = w.shards[p.shard].file.WriteAt(b, p.offset+offset)
	return err
}

// ReadAt reads what was written.
func (w *Writer) ReadAt(tensor string, offset int64, b []byte) error {
	p, err := w.within(tensor, offset, len(b))
	if err != nil {
		return err
	}
	_, err = w.shards[p.shard].file.ReadAt(b, p.offset+offset)
	return err
}

func (w *Writer) within(tensor string, offset int64, n int) (spot, error) {
	p, ok := w.at[tensor]
	if !ok || offset < 0 || offset > p.bytes-int64(n) {
		return p, fmt.Errorf("%s: bytes [%d, %d) of tensor %s are not among the planned", w.dir, offset, offset+int64(n), tensor)
	}
	return p, nil
}

// Finish writes the index, when there are several files, and waits until all of it is on the disk.
func (w *Writer) Finish() error {
	if len(w.shards) > 1 {
		where := map[string]string{}
		total := int64(0)
		for _, s := range w.shards {
			total += s.bytes
			for _, n := range s.names {
				where[n] = s.name
			}
		}
		index := map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": where}
		b, err := json.Marshal(index, json.Deterministic(true), jsontext.WithIndent("  "))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(w.dir, indexFile), append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	var errs []error
	for _, s := range w.shards {
		errs = append(errs, s.file.Sync())
	}
	return errors.Join(errs...)
}

// Close closes the files.
func (w *Writer) Close() error {
	var errs []error
	for i := range w.shards {
		if f := w.shards[i].file; f != nil {
			errs = append(errs, f.Close())
			w.shards[i].file = nil
		}
	}
	return errors.Join(errs...)
}

// Bytes is the size of all tensors.
func (w *Writer) Bytes() int64 {
	var n int64
	for _, s := range w.shards {
		n += s.bytes
	}
	return n
}
