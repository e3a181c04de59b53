package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

func TestMetadataGetters(t *testing.T) {
	c := openFiles(t, map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
		f.Set("u8", uint8(200))
		f.Set("i8", int8(-3))
		f.Set("u16", uint16(60000))
		f.Set("i16", int16(-300))
		f.Set("u32", uint32(4e9))
		f.Set("i32", int32(-5))
		f.Set("u64", uint64(1<<63))
		f.Set("i64", int64(-1<<40))
		f.Set("f32", float32(0.5))
		f.Set("f64", float64(0.25))
		f.Set("yes", true)
		f.Set("text", "é\x00")
		f.Set("texts", []string{"a", "", "b"})
		f.Set("ints", []int32{1, -2})
		f.Set("floats", []float32{1.5})
		f.Set("bools", []bool{true})
		f.Set("nested", [][]string{{"a"}, {}})
	})})
	m := c.GGUF()
	for key, want := range map[string]int{"u8": 200, "i8": -3, "u16": 60000, "i16": -300, "u32": 4e9, "i32": -5, "i64": -1 << 40} {
		if got, err := m.Int(key); got != want || err != nil {
			t.Errorf("Int(%s): %d, %v; want %d", key, got, err, want)
		}
	}
	for key, want := range map[string]float64{"f32": 0.5, "f64": 0.25, "i8": -3} {
		if got, err := m.Float(key); got != want || err != nil {
			t.Errorf("Float(%s): %v, %v; want %v", key, got, err, want)
		}
	}
	check := func(got any, err error, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) || err != nil {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	b, err := m.Bool("yes")
	check(b, err, true)
	s, err := m.String("text")
	check(s, err, "é\x00")
	texts, err := m.Strings("texts")
	check(texts, err, []string{"a", "", "b"})
	ints, err := m.Ints("ints")
	check(ints, err, []int{1, -2})
	floats, err := m.Floats("floats")
	check(floats, err, []float32{1.5})
	n, err := m.IntOr("absent", 7)
	check(n, err, 7)
	s, err = m.StringOr("text", "x")
	check(s, err, "é\x00")

	for what, f := range map[string]func() error{
		"u64":    func() error { _, err := m.Int("u64"); return err }, // 2^63 is no int
		"text":   func() error { _, err := m.IntOr("text", 1); return err },
		"f32":    func() error { _, err := m.Int("f32"); return err },
		"absent": func() error { _, err := m.Int("absent"); return err },
		"yes":    func() error { _, err := m.Float("yes"); return err },
		"ints":   func() error { _, err := m.Strings("ints"); return err },
		"texts":  func() error { _, err := m.Ints("texts"); return err },
		"bools":  func() error { _, err := m.Floats("bools"); return err },
		"nested": func() error { _, err := m.Strings("nested"); return err },
		"u8":     func() error { _, err := m.BoolOr("u8", true); return err },
	} {
		t.Run(what, func(t *testing.T) { refused(t, f(), "metadata "+what) })
	}
}

// TestUnpermute compares with the rule of the format's converter, applied to rows that hold their own numbers.
func TestUnpermute(t *testing.T) {
	const heads, size, k = 3, 8, 32
	// For each head, [2, size/2] rows become [size/2, 2].
	stored := make([]float32, 0, heads*size*k)
	var bias []float32
	for h := range heads {
		for i := range size / 2 {
			for p := range 2 {
				row := float32(h*size + p*size/2 + i)
				bias = append(bias, row)
				for range k {
					stored = append(stored, row)
				}
			}
		}
	}
	c := openFiles(t, map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
		f.Add(ggufTensor("blk.1.attn_q.weight", ggufwrite.F16, []int{heads * size, k}, stored))
		f.Add(ggufTensor("blk.1.attn_q.bias", ggufwrite.F32, []int{heads * size}, bias))
		f.Add(ggufTensor("blk.0.attn_q.weight", ggufwrite.F16, []int{heads * size, k}, stored))
	})})
	m, err := c.Matrix("model.layers.1.self_attn.q_proj", heads*size, k, WithBias(), Unpermute(heads))
	if err != nil {
		t.Fatal(err)
	}
	for first := range m.N {
		got := values(t, m, first, m.N-first)
		for row := first; row < m.N; row++ {
			if v := got[(row-first)*k+1]; v != float32(row) {
				t.Fatalf("read from row %d: row %d is %v", first, row, v)
			}
		}
		if m.Bias[first] != float32(first) {
			t.Errorf("bias %d is %v", first, m.Bias[first])
		}
	}
	_, err = c.Matrix("model.layers.0.self_attn.q_proj", heads*size, k, Unpermute(5))
	refused(t, err, "blk.0.attn_q.weight", "5 heads")
}

// TestEncodersNearTheirInput shows that readers and the plain encoders agree on every block type, in
// rows of several blocks.
func TestEncodersNearTheirInput(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const n, k = 3, 512
	x := make([]float32, n*k)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for kind, tolerance := range map[ggufwrite.Type]float64{
		ggufwrite.F32: 0, ggufwrite.F16: 0.002, ggufwrite.Q8_0: 0.02, ggufwrite.Q6_K: 0.08, ggufwrite.Q4_0: 0.6, ggufwrite.Q4_1: 0.35, ggufwrite.Q4_K: 0.4,
	} {
		c := openFiles(t, map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
			f.Add(ggufTensor("pad", ggufwrite.F32, []int{1}, []float32{1})) // the next one starts after padding
			f.Add(ggufTensor("output.weight", kind, []int{n, k}, x))
		})})
		m, err := c.Matrix("lm_head", n, k)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values(t, m, 0, n) {
			if d := float64(v - x[i]); d > tolerance || -d > tolerance {
				t.Errorf("type %d: value %d is %v, was %v", kind, i, v, x[i])
				break
			}
		}
	}
}

func splitFiles(t *testing.T, change func(part int, f *ggufwrite.File)) map[string][]byte {
	files := map[string][]byte{}
	for i := range 3 {
		files[partName("m", i+1, 3)] = ggufFile(t, func(f *ggufwrite.File) {
			change(i, f)
			f.Add(ggufTensor(fmt.Sprintf("t%d", i), ggufwrite.F32, []int{1}, []float32{float32(i)}))
		})
	}
	return files
}

func TestSplitGGUF(t *testing.T) {
	good := func(part int, f *ggufwrite.File) {
		f.Set("split.no", uint16(part))
		f.Set("split.count", uint16(3))
		f.Set("split.tensors.count", int32(3))
	}
	dir := writeDir(t, splitFiles(t, good))
	for _, path := range []string{dir, dir + "/" + partName("m", 1, 3)} {
		c, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			v, err := c.Vector(fmt.Sprintf("t%d", i), 1)
			if err != nil || v[0] != float32(i) {
				t.Errorf("t%d: %v, %v", i, v, err)
			}
		}
		if err := c.Finish(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := Open(dir + "/" + partName("m", 2, 3))
	refused(t, err, "part 2", partName("m", 1, 3))

	for name, c := range map[string]struct {
		change func(map[string][]byte)
		want   []string
	}{
		"part missing": {func(f map[string][]byte) { delete(f, partName("m", 3, 3)) }, []string{partName("m", 3, 3)}},
		"parts swapped": {func(f map[string][]byte) {
			f[partName("m", 2, 3)], f[partName("m", 3, 3)] = f[partName("m", 3, 3)], f[partName("m", 2, 3)]
		}, []string{partName("m", 2, 3), "split.no"}},
		"same part twice": {func(f map[string][]byte) { f[partName("m", 2, 3)] = f[partName("m", 1, 3)] }, []string{partName("m", 2, 3)}},
		"part of another": {func(f map[string][]byte) {
			f[partName("m", 2, 3)] = ggufFile(t, func(f *ggufwrite.File) { f.Set("split.no", uint16(1)); f.Set("split.count", uint16(4)) })
		}, []string{partName("m", 2, 3), "split.count"}},
		"tensor missing": {func(f map[string][]byte) {
			f[partName("m", 2, 3)] = ggufFile(t, func(f *ggufwrite.File) { good(1, f) })
		}, []string{"split.tensors.count"}},
		"other name": {func(f map[string][]byte) {
			f["x.gguf"] = f[partName("m", 1, 3)]
			clear0(f, "x.gguf")
		}, []string{"x.gguf", "split.count"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := splitFiles(t, good)
			c.change(files)
			_, err := OpenFiles("test", files)
			refused(t, err, c.want...)
		})
	}
}

// clear0 deletes all files but one.
func clear0(files map[string][]byte, keep string) {
	for name := range files {
		if name != keep {
			delete(files, name)
		}
	}
}

// broken is a GGUF header of these counts and bytes.
func broken(version uint32, tensors, pairs uint64, rest ...[]byte) []byte {
	b := append([]byte("GGUF"), binary.LittleEndian.AppendUint32(nil, version)...)
	b = binary.LittleEndian.AppendUint64(b, tensors)
	b = binary.LittleEndian.AppendUint64(b, pairs)
	return append(append(b, bytes.Join(rest, nil)...), make([]byte, 256)...)
}

func u32(n uint32) []byte  { return binary.LittleEndian.AppendUint32(nil, n) }
func u64(n uint64) []byte  { return binary.LittleEndian.AppendUint64(nil, n) }
func text(s string) []byte { return append(u64(uint64(len(s))), s...) }
func pair(k string) []byte { return append(text(k), append(u32(4), u32(1)...)...) }
func desc(parts ...any) []byte { // name, dimensions, type, offset
	b := text(parts[0].(string))
	dims := parts[1].([]uint64)
	b = append(b, u32(uint32(len(dims)))...)
	for _, d := range dims {
		b = append(b, u64(d)...)
	}
	return append(append(b, u32(uint32(parts[2].(int)))...), u64(uint64(parts[3].(int)))...)
}

func TestGGUFHeadersAreChecked(t *testing.T) {
	nested := u32(9)
	for range 10 {
		nested = append(append(nested, u32(9)...), u64(1)...)
	}
	for name, c := range map[string]struct {
		file []byte
		want []string
	}{
		"empty":            {nil, []string{"m.gguf"}},
		"other magic":      {[]byte("GGML\x03\x00\x00\x00"), []string{"GGUF"}},
		"version 1":        {broken(1, 0, 0), []string{"version 1"}},
		"version 4":        {broken(4, 0, 0), []string{"version 4"}},
		"big-endian":       {broken(3<<24, 0, 0), []string{"big-endian"}},
		"too many pairs":   {broken(3, 0, 1<<62), []string{"metadata pairs"}},
		"too many tensors": {broken(3, 1<<62, 0), []string{"tensors"}},
		"counts wrap":      {broken(3, 1<<63, 1<<63), []string{"tensors"}},
		"long key":         {broken(3, 0, 1, u64(1<<16), make([]byte, 1<<17)), []string{"65536"}},
		"endless key":      {broken(3, 0, 1, u64(1<<63)), []string{"metadata"}},
		"endless text":     {broken(3, 0, 1, text("k"), u32(8), u64(1<<40)), []string{"metadata", `"k"`}},
		"unknown value":    {broken(3, 0, 1, text("k"), u32(13)), []string{`"k"`, "type 13"}},
		"unknown element":  {broken(3, 0, 1, text("k"), u32(9), u32(99), u64(1)), []string{`"k"`, "type 99"}},
		"endless array":    {broken(3, 0, 1, text("k"), u32(9), u32(4), u64(1<<62)), []string{`"k"`, "array"}},
		"array wraps":      {broken(3, 0, 1, text("k"), u32(9), u32(10), u64(1<<61+1)), []string{`"k"`, "array"}},
		"endless texts":    {broken(3, 0, 1, text("k"), u32(9), u32(8), u64(1<<62)), []string{`"k"`}},
		"deep array":       {broken(3, 0, 1, text("k"), nested), []string{`"k"`, "nested"}},
		"pair twice":       {broken(3, 0, 2, pair("k"), pair("k")), []string{"k", "twice"}},
		"alignment 3":      {broken(3, 0, 1, text("general.alignment"), u32(4), u32(3)), []string{"general.alignment"}},
		"alignment 0":      {broken(3, 0, 1, text("general.alignment"), u32(4), u32(0)), []string{"general.alignment"}},
		"alignment text":   {broken(3, 0, 1, text("general.alignment"), u32(8), text("x")), []string{"general.alignment"}},
		"no dimension":     {broken(3, 1, 0, desc("t", []uint64{}, 0, 0)), []string{"tensor t", "dimensions"}},
		"5 dimensions":     {broken(3, 1, 0, desc("t", []uint64{1, 1, 1, 1, 1}, 0, 0)), []string{"tensor t", "dimensions"}},
		"dimension 0":      {broken(3, 1, 0, desc("t", []uint64{0}, 0, 0)), []string{"tensor t", "dimension"}},
		"dimension 2^63":   {broken(3, 1, 0, desc("t", []uint64{1 << 63}, 0, 0)), []string{"tensor t", "dimension"}},
		"product wraps":    {broken(3, 1, 0, desc("t", []uint64{1 << 40, 1 << 40}, 0, 0)), []string{"tensor t"}},
		"half a block":     {broken(3, 1, 0, desc("t", []uint64{48, 1}, 2, 0)), []string{"tensor t", "blocks"}},
		"unsupported":      {broken(3, 1, 0, desc("t", []uint64{256, 1}, 16, 0)), []string{"tensor t", "IQ2_XXS"}},
		"unknown type":     {broken(3, 1, 0, desc("t", []uint64{32, 1}, 77, 0)), []string{"tensor t", "77"}},
		"odd offset":       {broken(3, 1, 0, desc("t", []uint64{1}, 0, 4)), []string{"tensor t", "alignment"}},
		"beyond the end":   {broken(3, 1, 0, desc("t", []uint64{1}, 0, 4096)), []string{"tensor t", "beyond"}},
		"offset wraps":     {broken(3, 1, 0, desc("t", []uint64{32}, 0, -32)), []string{"tensor t", "beyond"}},
		"tensor twice":     {broken(3, 2, 0, desc("t", []uint64{1}, 0, 0), desc("t", []uint64{1}, 0, 32)), []string{"tensor t", "twice"}},
		"overlap":          {broken(3, 2, 0, desc("t", []uint64{16}, 0, 0), desc("u", []uint64{1}, 0, 32)), []string{"tensor u", "overlap"}},
		"no architecture":  {broken(3, 0, 0), []string{"general.architecture"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenFiles("test", map[string][]byte{"m.gguf": c.file})
			refused(t, err, append(c.want, "m.gguf")...)
		})
	}
}

// TestEveryCutIsRefused cuts a file with all kinds of parts at every length.
func TestEveryCutIsRefused(t *testing.T) {
	whole := ggufFile(t, func(f *ggufwrite.File) {
		f.Set("texts", []string{"a", "bc"})
		f.Set("nested", [][]string{{"a"}, {}})
		f.Set("n", float64(1))
		f.Add(ggufTensor("t", ggufwrite.Q4_0, []int{2, 32}, make([]float32, 64)))
		f.Add(ggufTensor("u", ggufwrite.F32, []int{8}, make([]float32, 8)))
	})
	for n := range len(whole) {
		if _, err := OpenFiles("test", map[string][]byte{"m.gguf": whole[:n]}); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, len(whole))
		}
	}
	if _, err := OpenFiles("test", map[string][]byte{"m.gguf": whole}); err != nil {
		t.Fatal(err)
	}
}

func TestGGUFNamesAndForeignTables(t *testing.T) {
	files := map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
		f.Add(ggufTensor("token_embd.weight", ggufwrite.F32, []int{2, 1}, []float32{1, 2}))
		f.Add(ggufTensor("blk.3.post_ffw_norm.weight", ggufwrite.F32, []int{1}, []float32{5}))
	})}
	c := openFiles(t, files)
	if !c.Has("model.embed_tokens") || !c.Has("model.embed_tokens.weight") || !c.Has("token_embd") || c.Has("lm_head") || c.Has("model.norm.weight") {
		t.Error("Has is wrong about what the file has")
	}
	_, err := c.Matrix("lm_head", 2, 1)
	refused(t, err, "output.weight", "missing")
	c.SetNames(Names{Layer: map[string]string{"post_feedforward_layernorm": "post_ffw_norm"}})
	if v, err := c.Vector("model.layers.3.post_feedforward_layernorm.weight", 1); err != nil || v[0] != 5 {
		t.Errorf("by another table: %v, %v", v, err)
	}
}

func TestScaleTypesOfGGUF(t *testing.T) {
	for kind, want := range map[ggufwrite.Type]kernels.DType{
		ggufwrite.Q4_0: kernels.F16, ggufwrite.Q4_1: kernels.F16, ggufwrite.Q8_0: kernels.F16, ggufwrite.Q4_K: kernels.F32, ggufwrite.Q6_K: kernels.F32,
	} {
		c := openFiles(t, map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
			f.Add(ggufTensor("output.weight", kind, []int{1, 256}, make([]float32, 256)))
		})})
		m, err := c.Matrix("lm_head", 1, 256)
		if err != nil || m.ScaleType != want || m.N != 1 || m.K != 256 || !strings.Contains(m.Name, "output.weight") {
			t.Errorf("type %d: %+v, %v", kind, m, err)
		}
	}
}

// TestBlockTypesOfGGUF reads one row of each type that files made here do not have.
func TestBlockTypesOfGGUF(t *testing.T) {
	raw, err := os.ReadFile("../../kernels/quant/testdata/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors map[string]json.RawMessage
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]int{"Q2_K": 10, "Q3_K": 11, "IQ4_NL": 20, "IQ4_XS": 23} {
		var v struct {
			Raw    string
			Values []float32
		}
		if err := json.Unmarshal(vectors[name], &v); err != nil {
			t.Fatal(err)
		}
		blocks, err := hex.DecodeString(v.Raw)
		if err != nil {
			t.Fatal(err)
		}
		k := len(v.Values) / 3
		header := bytes.Join([][]byte{[]byte("GGUF"), u32(3), u64(1), u64(1), text("general.architecture"), u32(8), text("llama"),
			desc("output.weight", []uint64{uint64(k), 3}, kind, 0)}, nil)
		header = append(header, make([]byte, -len(header)&31)...)
		c := openFiles(t, map[string][]byte{"m.gguf": append(header, blocks...)})
		m, err := c.Matrix("lm_head", 3, k)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name, values(t, m, 0, 3), v.Values)
		equal(t, name+" row 2", values(t, m, 2, 1), v.Values[2*k:])
	}
}
