package checkpoint

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/openinfer-go/openinfer/kernels/quant"
)

// ggufTypes are the tensor types of GGUF by number. Those of which only the name is known here are
// refused by it.
var ggufTypes = map[uint32]storage{
	0: storageF32, 1: storageF16, 30: storageBF16,
	2: blockStorage(quant.Q4_0), 3: blockStorage(quant.Q4_1), 6: blockStorage(quant.Q5_0), 7: blockStorage(quant.Q5_1),
	8: blockStorage(quant.Q8_0), 10: blockStorage(quant.Q2_K), 11: blockStorage(quant.Q3_K), 12: blockStorage(quant.Q4_K), 13: blockStorage(quant.Q5_K), 14: blockStorage(quant.Q6_K),
	20: blockStorage(quant.IQ4_NL), 23: blockStorage(quant.IQ4_XS),

	9: {name: "Q8_1"}, 15: {name: "Q8_K"}, 16: {name: "IQ2_XXS"}, 17: {name: "IQ2_XS"},
	18: {name: "IQ3_XXS"}, 19: {name: "IQ1_S"}, 21: {name: "IQ3_S"}, 22: {name: "IQ2_S"},
	24: {name: "I8"}, 25: {name: "I16"}, 26: {name: "I32"}, 27: {name: "I64"}, 28: {name: "F64"}, 29: {name: "IQ1_M"},
	34: {name: "TQ1_0"}, 35: {name: "TQ2_0"}, 39: {name: "MXFP4"},
}

const (
	ggufMagic   = 0x46554747 // "GGUF"
	maxKey      = 1<<16 - 1  // bytes of a metadata key, as the format says
	maxTensor   = 1<<16 - 1  // bytes of a tensor name; 64 in llama.cpp
	maxDims     = 4
	maxAlign    = 1 << 20
	defaultAlgn = 32
	maxParts    = 99999 // five digits
)

// openGGUF opens one file, or all parts of a split one from its first: NAME-00001-of-0000N.gguf.
func (c *Checkpoint) openGGUF(name string) error {
	first, err := c.addGGUF(name)
	if err != nil {
		return err
	}
	c.metadata = first
	parts, err := first.IntOr("split.count", 1)
	if err != nil {
		return err
	}
	if parts <= 1 {
		return nil
	}
	no, err := first.Int("split.no")
	if err != nil {
		return err
	}
	stem, of, ok := splitName(name)
	switch {
	case !ok || of != parts || parts > maxParts:
		return fmt.Errorf("%s: split.count is %d, so its name should end in -00001-of-%05d.gguf", c.folder.path(name), parts, parts)
	case no != 0 || name != partName(stem, 1, parts):
		return fmt.Errorf("%s: part %d of a split model: open the first, %s", c.folder.path(name), no+1, partName(stem, 1, parts))
	}
	for i := 2; i <= parts; i++ {
		m, err := c.addGGUF(partName(stem, i, parts))
		if err != nil {
			return err
		}
		for key, want := range map[string]int{"split.no": i - 1, "split.count": parts} {
			got, err := m.Int(key)
			if err == nil && got != want {
				err = fmt.Errorf("%s: %s is %d, not %d", m.path, key, got, want)
			}
			if err != nil {
				return err
			}
		}
	}
	if want, err := first.IntOr("split.tensors.count", len(c.order)); err != nil || want != len(c.order) {
		return cmp.Or(err, fmt.Errorf("%s: split.tensors.count is %d, the parts have %d tensors", first.path, want, len(c.order)))
	}
	return nil
}

var splitPattern = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

func splitName(name string) (stem string, parts int, ok bool) {
	m := splitPattern.FindStringSubmatch(name)
	if m == nil {
		return "", 0, false
	}
	parts, err := strconv.Atoi(m[3])
	return m[1], parts, err == nil
}

func partName(stem string, part, parts int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", stem, part, parts)
}

// addGGUF maps a file and adds its tensors.
func (c *Checkpoint) addGGUF(name string) (*Metadata, error) {
	f, err := c.folder.open(name)
	if err != nil {
		return nil, err
	}
	c.files = append(c.files, f)
	var m *Metadata
	var tensors []*tensor
	err = guarded(func() error {
		m, tensors, err = parseGGUF(f)
		return err
	}, f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	m.reading = c.reading
	for _, t := range tensors {
		if c.tensors[t.name] != nil {
			return nil, t.errorf("is in %s, too", c.tensors[t.name].file.path)
		}
		c.add(t)
	}
	return m, nil
}

// parseGGUF reads a file of version 2 or 3, little-endian: counts, key-value pairs, tensor
// descriptions, and after padding to general.alignment the tensors.
func parseGGUF(f *file) (*Metadata, []*tensor, error) {
	r := &ggufReader{b: f.data}
	if magic := r.u32(); r.err != nil || magic != ggufMagic {
		return nil, nil, errors.New("no GGUF file: it does not begin with GGUF")
	}
	version := r.u32()
	switch {
	case r.err == nil && bits.ReverseBytes32(version) < 1<<16:
		return nil, nil, fmt.Errorf("big-endian GGUF (version %d) is not supported", bits.ReverseBytes32(version))
	case r.err == nil && version != 2 && version != 3:
		return nil, nil, fmt.Errorf("GGUF version %d is not supported, only 2 and 3", version)
	}
	tensorCount, pairCount := r.u64(), r.u64()
	// The least that one takes: a pair 8+4+1 bytes, a tensor 8+4+8+4+8.
	if left := uint64(len(r.b) - r.off); r.err == nil && (pairCount > left/13 || tensorCount > left/32) {
		return nil, nil, fmt.Errorf("%d tensors and %d metadata pairs do not fit %d bytes", tensorCount, pairCount, len(r.b))
	}
	m := &Metadata{path: f.path, file: f, pairs: map[string]value{}}
	for range pairCount {
		key := r.string(maxKey)
		v := r.value()
		if r.err != nil {
			return nil, nil, fmt.Errorf("metadata %q: %w", key, r.err)
		}
		if m.Has(key) {
			return nil, nil, fmt.Errorf("metadata %s is there twice", key)
		}
		m.keys, m.pairs[key] = append(m.keys, key), v
	}
	align, err := m.IntOr("general.alignment", defaultAlgn)
	if err != nil {
		return nil, nil, err
	}
	if align <= 0 || align > maxAlign || align&(align-1) != 0 {
		return nil, nil, fmt.Errorf("general.alignment: %d is not a power of two up to %d", align, maxAlign)
	}
	var tensors []*tensor
	var offsets []uint64
	for i := range tensorCount {
		t, offset := r.tensor()
		if r.err != nil {
			if t.name == "" {
				t.name = fmt.Sprintf("number %d", i)
			}
			return nil, nil, fmt.Errorf("tensor %s: %w", t.name, r.err)
		}
		if offset%uint64(align) != 0 {
			return nil, nil, fmt.Errorf("tensor %s: offset %d is no multiple of general.alignment %d", t.name, offset, align)
		}
		t.file = f
		tensors, offsets = append(tensors, t), append(offsets, offset)
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	start := (r.off + align - 1) &^ (align - 1)
	body := f.data[min(start, len(f.data)):]
	return m, tensors, place(tensors, offsets, body)
}

// place gives tensors their bytes, which may not overlap.
func place(tensors []*tensor, offsets []uint64, body []byte) error {
	byOffset := make([]int, len(tensors))
	names := make(map[string]bool, len(tensors))
	for i, t := range tensors {
		byOffset[i] = i
		if names[t.name] {
			return fmt.Errorf("tensor %s is there twice", t.name)
		}
		names[t.name] = true
		n, ok := byteSize(t.kind, t.shape)
		if !ok {
			return fmt.Errorf("tensor %s: %s %v: its rows are not whole blocks of %d, or it is too large", t.name, t.kind.name, t.shape, t.kind.values())
		}
		if offsets[i] > uint64(len(body)) || uint64(n) > uint64(len(body))-offsets[i] {
			return fmt.Errorf("tensor %s: its %d bytes at %d reach beyond the file's %d bytes of tensors (was it cut short?)",
				t.name, n, offsets[i], len(body))
		}
		t.data = body[offsets[i] : offsets[i]+uint64(n) : offsets[i]+uint64(n)]
	}
	slices.SortStableFunc(byOffset, func(i, j int) int { return cmp.Compare(offsets[i], offsets[j]) })
	for k := 1; k < len(byOffset); k++ {
		i, j := byOffset[k-1], byOffset[k]
		if offsets[i]+uint64(len(tensors[i].data)) > offsets[j] {
			return fmt.Errorf("tensor %s: its bytes overlap those of %s", tensors[j].name, tensors[i].name)
		}
	}
	return nil
}

// ggufReader reads the parts of a file in order. After the first error it returns zeros.
type ggufReader struct {
	b   []byte
	off int
	err error
}

func (r *ggufReader) bytes(n uint64) []byte {
	if r.err == nil && n > uint64(len(r.b)-r.off) {
		r.err = fmt.Errorf("%d bytes at %d reach beyond its end at %d", n, r.off, len(r.b))
	}
	if r.err != nil {
		return nil
	}
	b := r.b[r.off : r.off+int(n)]
	r.off += int(n)
	return b
}

func (r *ggufReader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *ggufReader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// string reads a text of at most limit bytes.
func (r *ggufReader) string(limit uint64) string {
	n := r.u64()
	if r.err == nil && n > limit {
		r.err = fmt.Errorf("text of %d bytes at %d, at most %d are allowed", n, r.off-8, limit)
	}
	return string(r.bytes(n))
}

// tensor reads one description: name, dimensions (innermost first), type, offset.
func (r *ggufReader) tensor() (*tensor, uint64) {
	t := &tensor{name: r.string(maxTensor)}
	dims := r.u32()
	if r.err == nil && (dims == 0 || dims > maxDims) {
		r.err = fmt.Errorf("%d dimensions", dims)
	}
	for range dims {
		d := r.u64()
		if r.err == nil && (d == 0 || d > 1<<48) {
			r.err = fmt.Errorf("dimension of %d", d)
		}
		if r.err != nil {
			return t, 0
		}
		t.shape = append(t.shape, int(d))
	}
	slices.Reverse(t.shape)
	kind := r.u32()
	offset := r.u64()
	if r.err == nil {
		t.kind = ggufTypes[kind]
		if t.kind.size == 0 {
			r.err = fmt.Errorf("type %s is not supported", cmp.Or(t.kind.name, strconv.Itoa(int(kind))))
		}
	}
	return t, offset
}

// isGGUF says whether a name is that of a GGUF file.
func isGGUF(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".gguf") }

// modelFile picks the one GGUF model of a folder: a file, or the first part of a split one.
func modelFile(names []string) (string, error) {
	var found []string
	for _, n := range names {
		if stem, parts, ok := splitName(n); isGGUF(n) && (!ok || n == partName(stem, 1, parts)) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("several GGUF models (%s): name one", strings.Join(found[:min(len(found), 4)], ", "))
}
