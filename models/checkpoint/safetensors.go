package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxHeader bounds the JSON header of a safetensors file, as the format's own reader does.
const maxHeader = 100 << 20

// safetensorsTypes are the types of the format whose elements are whole bytes. Only floats, and the integers of packed
// weights, can become a matrix or a vector; the rest can be there and be refused by name when asked for.
var safetensorsTypes = map[string]storage{
	"F32": storageF32, "F16": storageF16, "BF16": storageBF16,
	"F64": {name: "F64", size: 8}, "C64": {name: "C64", size: 8}, "BOOL": {name: "BOOL", size: 1},
	"I8": {name: "I8", size: 1}, "I16": {name: "I16", size: 2}, "I32": {name: "I32", size: 4}, "I64": {name: "I64", size: 8},
	"U8": {name: "U8", size: 1}, "U16": {name: "U16", size: 2}, "U32": {name: "U32", size: 4}, "U64": {name: "U64", size: 8},
	"F8_E4M3": {name: "F8_E4M3", size: 1}, "F8_E5M2": {name: "F8_E5M2", size: 1}, "F8_E8M0": {name: "F8_E8M0", size: 1},
	"F8_E4M3FNUZ": {name: "F8_E4M3FNUZ", size: 1}, "F8_E5M2FNUZ": {name: "F8_E5M2FNUZ", size: 1},
}

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// openSafetensors reads the headers of a folder's tensor files: model.safetensors, else the
// shards that model.safetensors.index.json lists, else the only file of the kind.
func (c *Checkpoint) openSafetensors(names []string) error {
	if slices.Contains(names, singleFile) {
		return c.addSafetensors(singleFile, nil)
	}
	if slices.Contains(names, indexFile) {
		return c.openShards()
	}
	var found []string
	for _, n := range names {
		if strings.HasSuffix(n, ".safetensors") {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("%s: %w: no %s and no .gguf file in it", c.path, ErrNoWeights, singleFile)
	case 1:
		return c.addSafetensors(found[0], nil)
	}
	return fmt.Errorf("%s: several .safetensors files (%s, %s, ...) and no %s", c.path, found[0], found[1], indexFile)
}

// openShards opens each shard and holds it to the index: a tensor lies in the file that the index
// says, and nowhere else.
func (c *Checkpoint) openShards() error {
	raw, err := c.folder.text(indexFile)
	if err != nil {
		return err
	}
	where, err := shardIndex(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", c.folder.path(indexFile), err)
	}
	var shards []string
	for name, shard := range where {
		if !fs.ValidPath(shard) || strings.ContainsAny(shard, `/\:`) || !strings.HasSuffix(shard, ".safetensors") {
			return fmt.Errorf("%s: weight_map: tensor %s is said to be in %q, which is not a .safetensors file of this folder",
				c.folder.path(indexFile), name, shard)
		}
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	for _, shard := range shards {
		if err := c.addSafetensors(shard, where); err != nil {
			return err
		}
	}
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(where)), func(name string) bool { return c.tensors[name] != nil })
	if len(missing) > 0 {
		return fmt.Errorf("%s: %d tensors of the index are in no file; the first: %s should be in %s",
			c.folder.path(indexFile), len(missing), missing[0], where[missing[0]])
	}
	return nil
}

// shardIndex reads weight_map, tensor name to file name.
func shardIndex(raw []byte) (map[string]string, error) {
	where := map[string]string{}
	err := jsonObject(jsontext.NewDecoder(bytes.NewReader(raw)), func(d *jsontext.Decoder, key string) error {
		if key != "weight_map" {
			return d.SkipValue()
		}
		return jsonObject(d, func(d *jsontext.Decoder, name string) error {
			t, err := d.ReadToken()
			if err == nil && t.Kind() != '"' {
				err = fmt.Errorf("weight_map: tensor %s: not a file name", name)
			}
			if err != nil {
				return err
			}
			where[name] = t.String()
			return nil
		})
	})
	if err == nil && len(where) == 0 {
		err = errors.New("weight_map is missing or empty")
	}
	return where, err
}

// addSafetensors maps a file and adds its tensors. where, when not nil, says which file each
// tensor is in.
func (c *Checkpoint) addSafetensors(name string, where map[string]string) error {
	f, err := c.folder.open(name)
	if err != nil {
		return err
	}
	c.files = append(c.files, f)
	var tensors []*tensor
	err = guarded(func() error {
		tensors, err = parseSafetensors(f)
		return err
	}, f)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	for _, t := range tensors {
		if where != nil && where[t.name] != name {
			if where[t.name] == "" {
				return t.errorf("%s does not list it", indexFile)
			}
			return t.errorf("%s says that it is in %s", indexFile, where[t.name])
		}
		c.add(t)
	}
	return nil
}

// parseSafetensors reads a file: 8 bytes of header length, a JSON object of name to type, shape
// and byte range, and the tensors, which cover the rest without gap or overlap.
func parseSafetensors(f *file) ([]*tensor, error) {
	if len(f.data) < 8 {
		return nil, fmt.Errorf("%d bytes are no safetensors file", len(f.data))
	}
	n := binary.LittleEndian.Uint64(f.data)
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes is more than the %d allowed", n, maxHeader)
	}
	if n > uint64(len(f.data)-8) {
		return nil, fmt.Errorf("header of %d bytes reaches beyond the file's %d: it was cut short", n, len(f.data))
	}
	// A copy: the mapping may change under the decoder.
	header, body := bytes.Clone(f.data[8:8+n]), f.data[8+n:]
	if len(header) == 0 || header[0] != '{' {
		return nil, errors.New("the header is not a JSON object")
	}
	type entry struct {
		*tensor
		begin, end uint64
	}
	var entries []entry
	d := jsontext.NewDecoder(bytes.NewReader(header))
	err := jsonObject(d, func(d *jsontext.Decoder, name string) error {
		if name == "__metadata__" {
			return d.SkipValue()
		}
		e := entry{tensor: &tensor{name: name, file: f}}
		var err error
		if e.begin, e.end, err = parseEntry(d, e.tensor); err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
		if e.begin > e.end || e.end > uint64(len(body)) {
			return fmt.Errorf("tensor %s: data_offsets [%d, %d] do not lie within the file's %d bytes of tensors (was it cut short?)",
				name, e.begin, e.end, len(body))
		}
		want, ok := byteSize(e.kind, e.shape)
		if !ok || uint64(want) != e.end-e.begin {
			return fmt.Errorf("tensor %s: %s %v does not fit the %d bytes of data_offsets [%d, %d]",
				name, e.kind.name, e.shape, e.end-e.begin, e.begin, e.end)
		}
		e.data = body[e.begin:e.end:e.end]
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if rest := bytes.TrimLeft(header[d.InputOffset():], " \x00"); len(rest) > 0 {
		return nil, fmt.Errorf("header: %d bytes after the JSON object", len(rest))
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at := uint64(0)
	tensors := make([]*tensor, len(entries))
	for i, e := range entries {
		switch {
		case e.begin < at:
			return nil, fmt.Errorf("tensor %s: its bytes [%d, %d) overlap those of %s", e.name, e.begin, e.end, entries[i-1].name)
		case e.begin > at:
			return nil, fmt.Errorf("tensor %s: a hole of %d bytes lies before it", e.name, e.begin-at)
		}
		at = e.end
		tensors[i] = e.tensor
	}
	if at != uint64(len(body)) {
		return nil, fmt.Errorf("%d bytes at its end belong to no tensor", uint64(len(body))-at)
	}
	return tensors, nil
}

// parseEntry reads {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} into t.
func parseEntry(d *jsontext.Decoder, t *tensor) (begin, end uint64, err error) {
	var offsets []uint64
	var seenShape bool
	err = jsonObject(d, func(d *jsontext.Decoder, key string) error {
		switch key {
		case "dtype":
			tok, err := d.ReadToken()
			if err != nil {
				return err
			}
			name := tok.String()
			kind, ok := safetensorsTypes[name]
			if tok.Kind() != '"' || !ok {
				return fmt.Errorf("dtype %q is unknown", name)
			}
			t.kind = kind
			return nil
		case "shape":
			shape, err := jsonUints(d)
			if err != nil {
				return fmt.Errorf("shape: %w", err)
			}
			seenShape = true
			for _, n := range shape {
				if n > 1<<62 {
					return fmt.Errorf("shape: dimension %d", n)
				}
				t.shape = append(t.shape, int(n))
			}
			return nil
		case "data_offsets":
			offsets, err = jsonUints(d)
			if err != nil {
				return fmt.Errorf("data_offsets: %w", err)
			}
			return nil
		}
		return fmt.Errorf("unknown key %q", key)
	})
	if err != nil {
		return 0, 0, err
	}
	if t.kind.size == 0 || !seenShape || len(offsets) != 2 {
		return 0, 0, errors.New("needs dtype, shape and two data_offsets")
	}
	return offsets[0], offsets[1], nil
}

// jsonObject calls member for each member of the object that d stands before; member reads its
// value. A name that occurs twice is an error of the decoder, which names it.
func jsonObject(d *jsontext.Decoder, member func(d *jsontext.Decoder, key string) error) error {
	t, err := d.ReadToken()
	if err != nil {
		return unexpected(err)
	}
	if t.Kind() != '{' {
		return fmt.Errorf("%v where an object should be", t.Kind())
	}
	for {
		t, err := d.ReadToken()
		if err != nil {
			return unexpected(err)
		}
		if t.Kind() == '}' {
			return nil
		}
		if err := member(d, t.String()); err != nil {
			return unexpected(err)
		}
	}
}

func jsonUints(d *jsontext.Decoder) ([]uint64, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	if t.Kind() != '[' {
		return nil, fmt.Errorf("%v where a list should be", t.Kind())
	}
	var list []uint64
	for {
		t, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		if t.Kind() == ']' {
			return list, nil
		}
		n, err := strconv.ParseUint(t.String(), 10, 64)
		if t.Kind() != '0' || err != nil {
			return nil, fmt.Errorf("%s is not a whole number from 0 to 2^64-1", t.String())
		}
		list = append(list, n)
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
