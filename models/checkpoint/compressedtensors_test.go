package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// packedLayer makes the tensors of a module of random codes and its values. scaleShape nil means
// [n, k/group].
func packedLayer(r *rand.Rand, module string, n, k, bits, group int, scaleShape []int) (tensors []storedTensor, want []float32) {
	words := (k*bits + 31) / 32
	packed := make([]uint32, n*words)
	scales := make([]float32, n*k/group)
	var scaleBytes []byte
	if len(scaleShape) == 1 && scaleShape[0] == 1 {
		scales = scales[:1]
	}
	for i := range scales {
		scales[i] = math.Float32frombits(math.Float32bits(float32(r.NormFloat64())) &^ 0xffff) // a bf16 number
		scaleBytes = binary.LittleEndian.AppendUint16(scaleBytes, uint16(math.Float32bits(scales[i])>>16))
	}
	if scaleShape == nil {
		scaleShape = []int{n, k / group}
	}
	for row := range n {
		for i := range k {
			code := r.Uint32() & (1<<bits - 1)
			packed[row*words+i*bits/32] |= code << (i * bits % 32)
			s := scales[0]
			if len(scales) > 1 {
				s = scales[(row*k+i)/group]
			}
			want = append(want, s*float32(int(code)-1<<(bits-1)))
		}
	}
	var raw []byte
	for _, w := range packed {
		raw = binary.LittleEndian.AppendUint32(raw, w)
	}
	return []storedTensor{
		{module + ".weight_packed", "I32", []int{n, words}, raw},
		{module + ".weight_scale", "BF16", scaleShape, scaleBytes},
		{module + ".weight_shape", "I64", []int{2}, append(u64(uint64(n)), u64(uint64(k))...)},
	}, want
}

// ctJSON is a config.json whose groups are name to targets and weights; more is added to the quantisation's members.
func ctJSON(more string, groups ...string) []byte {
	var list []string
	for i := 0; i < len(groups); i += 2 {
		list = append(list, fmt.Sprintf(`"group_%d":{"targets":%s,"weights":%s}`, i/2, groups[i], groups[i+1]))
	}
	return []byte(`{"model_type":"llama","quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",` +
		more + `"config_groups":{` + strings.Join(list, ",") + `}}}`)
}

func weightsJSON(bits int, strategy string, group int) string {
	size := "null"
	if group > 0 {
		size = itoa(group)
	}
	return fmt.Sprintf(`{"num_bits":%d,"type":"int","symmetric":true,"strategy":%q,"group_size":%s}`, bits, strategy, size)
}

func TestPackedShapesAndGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, c := range []struct {
		n, k, bits, group int
		strategy          string
		scaleShape        []int
	}{
		{5, 64, 4, 16, "group", nil}, {3, 96, 4, 32, "group", nil}, {2, 256, 4, 128, "group", nil}, {2, 256, 4, 256, "group", nil},
		{3, 12, 4, 6, "group", nil}, // half a word of padding in each row
		{7, 13, 4, 13, "channel", nil}, {4, 13, 4, 13, "channel", []int{4}}, {4, 40, 4, 40, "tensor", []int{1}},
		{3, 64, 8, 32, "group", nil}, {3, 10, 8, 10, "channel", nil},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			tensors, want := packedLayer(r, "a", c.n, c.k, c.bits, c.group, c.scaleShape)
			size := 0
			if c.strategy == "group" {
				size = c.group
			}
			files := folderOf(tensors...)
			files["config.json"] = ctJSON("", `["Linear"]`, weightsJSON(c.bits, c.strategy, size))
			ckpt := openFiles(t, files)
			m, err := ckpt.Matrix("a", c.n, c.k)
			if err != nil {
				t.Fatal(err)
			}
			if m.Bits != c.bits || m.Group != c.group || m.ScaleType != kernels.BF16 || m.HasMin {
				t.Errorf("%+v", m)
			}
			equal(t, "all", values(t, m, 0, c.n), want)
			equal(t, "last two rows", values(t, m, c.n-2, 2), want[(c.n-2)*c.k:])
			if err := ckpt.Finish(); err != nil {
				t.Error(err)
			}
			if err := m.Read(&kernels.Rows{}, c.n-1, 2); err == nil {
				t.Error("rows beyond the last were read")
			}
		})
	}
}

func TestTargetsAndIgnore(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	four, eight := weightsJSON(4, "group", 8), weightsJSON(8, "channel", 0)
	for name, c := range map[string]struct {
		more   string
		groups []string
		bits   map[string]int // by module; 0 is float
	}{
		"a name beats a pattern beats the class": {"", []string{`["Linear"]`, four, `["re:.*down.*"]`, eight, `["model.layers.0.mlp.down_proj"]`, four},
			map[string]int{"model.layers.0.mlp.up_proj": 4, "model.layers.1.mlp.down_proj": 8, "model.layers.0.mlp.down_proj": 4}},
		"ignored by name and pattern": {`"ignore":["lm_head","re:.*layers\\.1\\..*"],`, []string{`["Linear"]`, four},
			map[string]int{"lm_head": 0, "model.layers.1.mlp.up_proj": 0, "model.layers.11.mlp.up_proj": 4}},
		"lookahead": {`"ignore":["re:model\\.(?!language_model).*"],`, []string{`["Linear"]`, four},
			map[string]int{"model.visual.proj": 0, "model.language_model.layers.0.mlp.up_proj": 4}},
		"pattern from the start": {`"ignore":["re:up_proj"],`, []string{`["Linear"]`, four}, map[string]int{"model.layers.0.mlp.up_proj": 4, "up_proj_2": 0}},
		// The list has layers.0..., the checkpoint language_model.layers.0...
		"a list that misses the prefix": {`"ignore":["layers.0.mlp.up_proj"],`, []string{`["Linear"]`, four},
			map[string]int{"model.language_model.layers.0.mlp.up_proj": 0, "model.language_model.layers.0.mlp.down_proj": 4}},
	} {
		t.Run(name, func(t *testing.T) {
			var tensors []storedTensor
			want := map[string][]float32{}
			for module, bits := range c.bits {
				if bits == 0 {
					tensors = append(tensors, storedTensor{module + ".weight", "F32", []int{1, 16}, f32s(make([]float32, 16)...)})
					want[module] = make([]float32, 16)
					continue
				}
				group := 8
				if bits == 8 {
					group = 16
				}
				layer, v := packedLayer(r, module, 1, 16, bits, group, nil)
				tensors, want[module] = append(tensors, layer...), v
			}
			files := folderOf(tensors...)
			files["config.json"] = ctJSON(c.more, c.groups...)
			ckpt := openFiles(t, files)
			for module, bits := range c.bits {
				m, err := ckpt.Matrix(module, 1, 16)
				if err != nil {
					t.Fatal(err)
				}
				if m.Bits != bits {
					t.Errorf("%s has %d bits, want %d", module, m.Bits, bits)
				}
				equal(t, module, values(t, m, 0, 1), want[module])
			}
			if err := ckpt.Finish(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnreadableQuantisationIsRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	good := weightsJSON(4, "group", 8)
	edit := func(from, to string) string {
		s := strings.Replace(good, from, to, 1)
		if s == good {
			panic(from)
		}
		return s
	}
	layer, _ := packedLayer(r, "a", 2, 16, 4, 8, nil)
	without := func(i int) []storedTensor { return append(append([]storedTensor{}, layer[:i]...), layer[i+1:]...) }
	with := func(i int, t storedTensor) []storedTensor {
		l := append([]storedTensor{}, layer...)
		l[i] = t
		return l
	}
	for name, c := range map[string]struct {
		config  []byte
		tensors []storedTensor
		want    []string
	}{
		"no zero points":   {ctJSON("", `["Linear"]`, edit("true", "false")), layer, []string{"a.weight_zero_point", "missing"}},
		"no group index":   {ctJSON("", `["Linear"]`, edit(`"type"`, `"actorder":"group","type"`)), layer, []string{"a.weight_g_idx", "missing"}},
		"unknown order":    {ctJSON("", `["Linear"]`, edit(`"type"`, `"actorder":"random","type"`)), layer, []string{"actorder", "random"}},
		"activations":      {[]byte(strings.Replace(string(ctJSON("", `["Linear"]`, good)), `"targets"`, `"input_activations":{"num_bits":8},"targets"`, 1)), layer, []string{"group_0", "input_activations"}},
		"float weights":    {ctJSON("", `["Linear"]`, edit(`"int"`, `"float"`)), layer, []string{"weights.type", "float"}},
		"2 bits":           {ctJSON("", `["Linear"]`, edit(":4", ":2")), layer, []string{"num_bits", "2-bit"}},
		"block strategy":   {ctJSON("", `["Linear"]`, edit(`"group"`, `"block"`)), layer, []string{"strategy", "block"}},
		"no group size":    {ctJSON("", `["Linear"]`, edit(":8", ":null")), layer, []string{"group_size"}},
		"no groups":        {ctJSON(""), layer, []string{"config_groups"}},
		"kv cache":         {ctJSON(`"kv_cache_scheme":{"num_bits":8},`, `["Linear"]`, good), layer, []string{"kv_cache_scheme"}},
		"sparse":           {ctJSON(`"sparsity_config":{"format":"sparse-24-bitmask"},`, `["Linear"]`, good), layer, []string{"sparsity_config"}},
		"transforms":       {ctJSON(`"transform_config":{"config_groups":{"u":{}}},`, `["Linear"]`, good), layer, []string{"transform_config"}},
		"bad pattern":      {ctJSON(`"ignore":["re:("],`, `["Linear"]`, good), layer, []string{"ignore", "re:("}},
		"deep pattern":     {ctJSON(`"ignore":["re:`+strings.Repeat("(", 1<<20)+`"],`, `["Linear"]`, good), layer, []string{"ignore", "bytes"}},
		"wrong type":       {ctJSON(`"ignore":"lm_head",`, `["Linear"]`, good), layer, []string{"ignore"}},
		"no target fits":   {ctJSON("", `["re:b"]`, good), layer, []string{"a.weight_packed", "target"}},
		"ignored":          {ctJSON(`"ignore":["a"],`, `["Linear"]`, good), layer, []string{"a.weight_packed", "ignore"}},
		"other group size": {ctJSON("", `["Linear"]`, edit(":8", ":4")), layer, []string{"a.weight_scale", "[2 4]"}},
		"group too large":  {ctJSON("", `["Linear"]`, edit(":8", ":12")), layer, []string{"a.weight_packed", "group_size"}},
		"no scale":         {ctJSON("", `["Linear"]`, good), without(1), []string{"a.weight_scale", "missing"}},
		"no shape":         {ctJSON("", `["Linear"]`, good), without(2), []string{"a.weight_shape", "missing"}},
		"integer scale":    {ctJSON("", `["Linear"]`, good), with(1, storedTensor{"a.weight_scale", "I16", []int{2, 2}, make([]byte, 8)}), []string{"a.weight_scale", "I16"}},
		"other shape":      {ctJSON("", `["Linear"]`, good), with(2, storedTensor{"a.weight_shape", "I64", []int{2}, append(u64(2), u64(15)...)}), []string{"a.weight_shape", "15"}},
		"zero points":      {ctJSON("", `["Linear"]`, good), append(layer[:3:3], storedTensor{"a.weight_zero_point", "I32", []int{1, 2}, make([]byte, 8)}), []string{"a.weight_zero_point"}},
		"group index":      {ctJSON("", `["Linear"]`, good), append(layer[:3:3], storedTensor{"a.weight_g_idx", "I32", []int{16}, make([]byte, 64)}), []string{"a.weight_g_idx"}},
		"unpacked":         {ctJSON("", `["Linear"]`, good), with(0, storedTensor{"a.weight_packed", "I8", []int{2, 16}, make([]byte, 32)}), []string{"a.weight_packed", "I8"}},
		"no config at all": {[]byte(plainConfig), layer, []string{"a.weight_packed", "quantization_config"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := folderOf(c.tensors...)
			files["config.json"] = c.config
			ckpt, err := OpenFiles("test", files)
			if err == nil {
				_, err = ckpt.Matrix("a", 2, 16)
			}
			refused(t, err, c.want...)
		})
	}
}

func TestScalesAreNumbers(t *testing.T) {
	for _, bad := range []uint16{0x7fc0, 0x7f80, 0xff80} { // NaN and the infinities
		layer, _ := packedLayer(rand.New(rand.NewPCG(4, 4)), "a", 2, 16, 4, 8, nil)
		binary.LittleEndian.PutUint16(layer[1].data[6:], bad)
		files := folderOf(layer...)
		files["config.json"] = ctJSON("", `["Linear"]`, weightsJSON(4, "group", 8))
		m, err := openFiles(t, files).Matrix("a", 2, 16)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, m.Read(new(kernels.Rows), 1, 1), "row 1, group 1", "scale")
		if err := m.Read(new(kernels.Rows), 0, 1); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigOfEarlyCompressedTensors(t *testing.T) {
	layer, want := packedLayer(rand.New(rand.NewPCG(4, 4)), "a", 2, 16, 4, 8, nil)
	files := folderOf(layer...)
	var cfg map[string]json.RawMessage
	if err := json.Unmarshal(ctJSON("", `["Linear"]`, weightsJSON(4, "group", 8)), &cfg); err != nil {
		t.Fatal(err)
	}
	cfg["compression_config"] = cfg["quantization_config"]
	delete(cfg, "quantization_config")
	files["config.json"], _ = json.Marshal(cfg)
	m, err := openFiles(t, files).Matrix("a", 2, 16)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "a", values(t, m, 0, 2), want)
}

func TestPatternsThatNeverEndAreAnError(t *testing.T) {
	targets, err := parseTargets([]string{"re:(a+)+b"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = match(targets, strings.Repeat("a", 60))
	refused(t, err, "re:(a+)+b", "timeout")
}
