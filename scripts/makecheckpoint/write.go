package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// stored is one tensor of a file.
type stored struct {
	name  string
	dtype string
	shape []int64
	bytes int64
	write func(w io.Writer, r *source) error
}

// storedAs turns a tensor into those of the file.
func (t tensor) storedAs() []stored {
	n := int64(1)
	for _, d := range t.shape {
		n *= d
	}
	if t.kind != coded {
		dtype, size := "BF16", int64(2)
		return []stored{{t.name, dtype, t.shape, n * size, func(w io.Writer, r *source) error { return r.values(w, t, n) }}}
	}
	rows, k := t.shape[0], t.shape[1]
	scales := rows * (k / groupSize)
	return []stored{
		{t.name + ".weight_packed", "I32", []int64{rows, k / 8}, n / 2, func(w io.Writer, r *source) error { return r.codes(w, n/2) }},
		{t.name + ".weight_scale", "BF16", []int64{rows, k / groupSize}, scales * 2, func(w io.Writer, r *source) error {
			// A code has a deviation of 4.6.
			return r.scales(w, scales, t.scale/4.6)
		}},
		{t.name + ".weight_shape", "I64", []int64{2}, 16, func(w io.Writer, _ *source) error {
			return binary.Write(w, binary.LittleEndian, t.shape)
		}},
	}
}

// writeShards writes model-0000x-of-0000y.safetensors and the index, and returns the bytes.
func writeShards(out string, tensors []tensor, seed uint64, most int64) (int64, error) {
	var shards [][]stored
	var size, total int64
	for _, t := range tensors {
		parts := t.storedAs()
		n := int64(0)
		for _, p := range parts {
			n += p.bytes
		}
		if len(shards) == 0 || size+n > most {
			shards, size = append(shards, nil), 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], parts...)
		size += n
		total += n
	}
	index := map[string]string{}
	r := newSource(seed)
	for i, s := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, t := range s {
			index[t.name] = name
		}
		if err := writeShard(filepath.Join(out, name), s, r); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	return total, writeJSON(filepath.Join(out, "model.safetensors.index.json"), map[string]any{
		"metadata": map[string]any{"total_size": total}, "weight_map": index,
	})
}

func writeShard(path string, tensors []stored, r *source) (err error) {
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := int64(0)
	for _, t := range tensors {
		header[t.name] = map[string]any{"dtype": t.dtype, "shape": t.shape, "data_offsets": []int64{at, at + t.bytes}}
		at += t.bytes
	}
	h, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(h)%8 != 0 {
		h = append(h, ' ')
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := binary.Write(w, binary.LittleEndian, uint64(len(h))); err != nil {
		return err
	}
	if _, err := w.Write(h); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := t.write(w, r); err != nil {
			return err
		}
	}
	return w.Flush()
}

// source yields random values, some at a time.
type source struct {
	bits  *rand.ChaCha8
	bell  [1 << 12]float64 // a normal distribution of deviation 1, to draw from
	buf   []byte
	table []uint16
}

func newSource(seed uint64) *source {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	s := &source{bits: rand.NewChaCha8(key), buf: make([]byte, 1<<20)}
	r := rand.New(s.bits)
	for i := range s.bell {
		s.bell[i] = r.NormFloat64()
	}
	return s
}

// codes writes n random bytes, two codes each.
func (s *source) codes(w io.Writer, n int64) error {
	for n > 0 {
		b := s.buf[:min(n, int64(len(s.buf)))]
		if _, err := s.bits.Read(b); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		n -= int64(len(b))
	}
	return nil
}

// draw writes n bf16 values drawn from values.
func (s *source) draw(w io.Writer, n int64, values func(i int) float64) error {
	s.table = s.table[:0]
	for i := range len(s.bell) {
		s.table = append(s.table, bf16(values(i)))
	}
	for n > 0 {
		b := s.buf[:min(2*n, int64(len(s.buf)))]
		if _, err := s.bits.Read(b); err != nil {
			return err
		}
		for i := 0; i < len(b); i += 2 {
			v := binary.LittleEndian.Uint16(b[i:]) % uint16(len(s.table))
			binary.LittleEndian.PutUint16(b[i:], s.table[v])
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		n -= int64(len(b) / 2)
	}
	return nil
}

func (s *source) scales(w io.Writer, n int64, scale float64) error {
	return s.draw(w, n, func(i int) float64 { return scale * (0.75 + 0.5*float64(i)/float64(len(s.bell))) })
}

func (s *source) values(w io.Writer, t tensor, n int64) error {
	return s.draw(w, n, func(i int) float64 {
		switch t.kind {
		case ones:
			return 1 + 0.1*s.bell[i]
		case zeros:
			return 0.1 * s.bell[i]
		case decay:
			return math.Log(1 + 15*float64(i)/float64(len(s.bell)))
		case one:
			return 1
		}
		return t.scale * s.bell[i]
	})
}

func bf16(v float64) uint16 {
	b := math.Float32bits(float32(v))
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
