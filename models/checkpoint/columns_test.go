package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/x448/float16"

	"github.com/openinfer-go/openinfer/kernels"
)

// columnLayer is a module as GPTQ or AWQ stores it: random codes and zero points by [output][input]
// or [output][group], and the group of each input.
type columnLayer struct {
	n, k, bits, group int
	codes             []uint8
	zeros             []uint8
	scales            []float32
	groupOf           []int
}

func newColumnLayer(r *rand.Rand, n, k, bits, group int, shuffled bool) *columnLayer {
	l := &columnLayer{n: n, k: k, bits: bits, group: group}
	for range n * k {
		l.codes = append(l.codes, uint8(r.Uint32())&(1<<bits-1))
	}
	for range n * k / group {
		l.zeros = append(l.zeros, uint8(r.Uint32())&(1<<bits-1))
		l.scales = append(l.scales, float16.Fromfloat32(float32(r.NormFloat64())).Float32())
	}
	for i := range k {
		l.groupOf = append(l.groupOf, i/group)
	}
	if shuffled {
		r.Shuffle(k, func(i, j int) { l.groupOf[i], l.groupOf[j] = l.groupOf[j], l.groupOf[i] })
	}
	return l
}

// constant gives all groups one zero point.
func (l *columnLayer) constant(zero uint8) *columnLayer {
	for i := range l.zeros {
		l.zeros[i] = zero
	}
	return l
}

func (l *columnLayer) values() (v []float32) {
	for row := range l.n {
		for i := range l.k {
			g := row*l.k/l.group + l.groupOf[i]
			v = append(v, l.scales[g]*float32(int(l.codes[row*l.k+i])-int(l.zeros[g])))
		}
	}
	return v
}

func words(w []uint32) (b []byte) {
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// tensors packs the layer by the formats' definition, one code at a time. less is what is taken from zero points.
func (l *columnLayer) tensors(module, format string, less uint8) []storedTensor {
	per, groups := 32/l.bits, l.k/l.group
	shape := []int{l.k / per, l.n}
	place := func(output int) int { return output % per }
	if format == "awq" {
		shape = []int{l.k, l.n / 8}
		place = func(output int) int { return slices.Index([]int{0, 2, 4, 6, 1, 3, 5, 7}, output%8) }
	}
	weights, zeros := make([]uint32, l.n*l.k/per), make([]uint32, groups*l.n/per)
	var scales, order []byte
	for row := range l.n {
		for i := range l.k {
			code := uint32(l.codes[row*l.k+i])
			if format == "awq" {
				weights[i*(l.n/8)+row/8] |= code << (4 * place(row))
			} else {
				weights[i/per*l.n+row] |= code << (l.bits * (i % per))
			}
		}
		for g := range groups {
			zero := uint32((l.zeros[row*groups+g] - less) & (1<<l.bits - 1))
			zeros[g*(l.n/per)+row/per] |= zero << (l.bits * place(row))
		}
	}
	for g := range groups {
		for row := range l.n {
			scales = binary.LittleEndian.AppendUint16(scales, float16.Fromfloat32(l.scales[row*groups+g]).Bits())
		}
	}
	for _, g := range l.groupOf {
		order = binary.LittleEndian.AppendUint32(order, uint32(g))
	}
	t := []storedTensor{
		{module + ".qweight", "I32", shape, words(weights)},
		{module + ".qzeros", "I32", []int{groups, l.n / per}, words(zeros)},
		{module + ".scales", "F16", []int{groups, l.n}, scales},
	}
	if format != "awq" {
		t = append(t, storedTensor{module + ".g_idx", "I32", []int{l.k}, order})
	}
	return t
}

func TestColumnFormats(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 34))
	gptq := func(bits, group int, more string) string {
		return fmt.Sprintf(`"quant_method":"gptq","bits":%d,"group_size":%d%s`, bits, group, more)
	}
	for name, c := range map[string]struct {
		layer  *columnLayer
		format string
		less   uint8
		config string
		perm   bool
	}{
		"gptq":                  {newColumnLayer(r, 24, 64, 4, 32, false), "gptq", 1, gptq(4, 32, ""), false},
		"gptq 8 bits":           {newColumnLayer(r, 12, 64, 8, 16, false), "gptq", 1, gptq(8, 16, `,"checkpoint_format":"gptq"`), false},
		"gptq 8 bits symmetric": {newColumnLayer(r, 12, 64, 8, 16, false).constant(128), "gptq", 1, gptq(8, 16, `,"sym":true`), false},
		"gptq one group":        {newColumnLayer(r, 8, 40, 4, 40, false), "gptq", 1, gptq(4, -1, ""), false},
		"gptq_v2":               {newColumnLayer(r, 8, 128, 4, 32, false), "gptq", 0, gptq(4, 32, `,"checkpoint_format":"gptq_v2"`), false},
		"gptq_v2 as format":     {newColumnLayer(r, 8, 128, 4, 32, false), "gptq", 0, gptq(4, 32, `,"format":"gptq_v2","pack_dtype":"int32"`), false},
		"gptq order":            {newColumnLayer(r, 8, 128, 4, 32, true), "gptq", 1, gptq(4, 32, `,"desc_act":true`), true},
		"gptq_v2 order 8 bits":  {newColumnLayer(r, 40, 96, 8, 32, true), "gptq", 0, gptq(8, 32, `,"desc_act":true,"checkpoint_format":"gptq_v2"`), true},
		"gptq static groups":    {newColumnLayer(r, 8, 128, 4, 32, false), "gptq", 1, gptq(4, 32, `,"desc_act":true,"static_groups":true`), false},
		"gptq dynamic": {newColumnLayer(r, 8, 64, 8, 16, false), "gptq", 1,
			gptq(4, 32, `,"dynamic":{"-:.*other.*":{},"+:model\\..*\\.a$":{"bits":8,"group_size":16},".*":{"bits":4}}`), false},
		"awq":            {newColumnLayer(r, 40, 64, 4, 32, false), "awq", 0, `"quant_method":"awq","bits":4,"group_size":32,"version":"GEMM","zero_point":true`, false},
		"awq one group":  {newColumnLayer(r, 8, 72, 4, 72, false), "awq", 0, `"quant_method":"awq","bits":4,"group_size":-1`, false},
		"awq long names": {newColumnLayer(r, 8, 64, 4, 16, false), "awq", 0, `"quant_method":"awq","w_bit":4,"q_group_size":16,"modules_to_not_convert":["model.x.gate","visual"]`, false},
		"autoround": {newColumnLayer(r, 16, 64, 4, 32, false), "gptq", 1,
			`"quant_method":"auto-round","bits":4,"group_size":32,"sym":false,"data_type":"int","packing_format":"auto_round:auto_gptq","extra_config":{"lm_head":{"bits":16,"data_type":"float"}}`, false},
		"autoround symmetric": {newColumnLayer(r, 16, 64, 4, 32, false).constant(8), "gptq", 1,
			`"quant_method":"intel/auto-round","bits":4,"group_size":32,"sym":true`, false},
		"autoround exception": {newColumnLayer(r, 16, 64, 8, 64, false), "gptq", 1,
			`"quant_method":"auto-round","bits":4,"group_size":32,"sym":false,"extra_config":{"model.x.a":{"bits":8,"group_size":64}}`, false},
		"autoround awq": {newColumnLayer(r, 16, 64, 4, 32, false), "awq", 0,
			`"quant_method":"auto-round","bits":4,"group_size":32,"sym":false,"packing_format":"auto_round:auto_awq"`, false},
		"autoround awq symmetric": {newColumnLayer(r, 16, 64, 4, 32, false).constant(8), "awq", 0,
			`"quant_method":"auto-round","bits":4,"group_size":32,"sym":true,"packing_format":"auto_round:auto_awq"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := c.layer
			files := folderOf(append(l.tensors("model.x.a", c.format, c.less), f32Tensor("model.x.a.bias", make([]float32, l.n)...))...)
			files["config.json"] = quantJSON("%s", c.config)
			ckpt := openFiles(t, files)
			m, err := ckpt.Matrix("model.x.a", l.n, l.k)
			if err != nil {
				t.Fatal(err)
			}
			if m.Bits != l.bits || m.Group != l.group || m.ScaleType != kernels.F16 || m.HasMin || m.Bias != nil || (m.Perm != nil) != c.perm || m.CheckPerm() != nil {
				t.Errorf("%+v", m)
			}
			equal(t, "all", values(t, m, 0, l.n), l.values())
			equal(t, "rows 3 to 7", values(t, m, 3, 5), l.values()[3*l.k:8*l.k])
			if w := ckpt.Warnings(); w != nil {
				t.Errorf("warnings %q", w)
			}
			if err := ckpt.Finish(); err != nil { // the bias of zeros, too, is used
				t.Error(err)
			}
		})
	}
}

func TestContradictionsAreWarnings(t *testing.T) {
	r := rand.New(rand.NewPCG(56, 78))
	for name, c := range map[string]struct {
		layer  *columnLayer
		less   uint8
		zero   uint8 // that it should be read with
		config string
		want   []string
	}{
		"symmetric, other format":  {newColumnLayer(r, 8, 32, 4, 16, false).constant(8), 0, 8, `"sym":true`, []string{"a.qzeros", "stored as 8", "checkpoint_format gptq"}},
		"symmetric v2":             {newColumnLayer(r, 8, 32, 4, 16, false).constant(8), 1, 8, `"sym":true,"checkpoint_format":"gptq_v2"`, []string{"a.qzeros", "stored as 7", "gptq_v2"}},
		"symmetric, nothing":       {newColumnLayer(r, 8, 32, 4, 16, false).constant(0), 0, 8, `"sym":true`, []string{"a.qzeros", "stored as 0"}},
		"asymmetric, all the same": {newColumnLayer(r, 8, 32, 4, 16, false).constant(9), 1, 9, `"sym":false`, []string{"a.qzeros", "stored as 8", "label"}},
		"order that is not said":   {newColumnLayer(r, 8, 32, 4, 16, true).constant(8), 1, 8, `"sym":true,"desc_act":false`, []string{"a.g_idx", "desc_act"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := folderOf(append(c.layer.tensors("a", "gptq", c.less), c.layer.tensors("b", "gptq", c.less)...)...)
			files["config.json"] = quantJSON(`"quant_method":"gptq","bits":4,"group_size":16,%s`, c.config)
			ckpt := openFiles(t, files)
			for _, module := range []string{"a", "b"} {
				m, err := ckpt.Matrix(module, 8, 32)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, module, values(t, m, 0, 8), c.layer.constant(c.zero).values())
			}
			w := ckpt.Warnings()
			if len(w) != 1 || !strings.Contains(w[0], "1 more") {
				t.Fatalf("warnings %q", w)
			}
			refused(t, fmt.Errorf("%s", w[0]), c.want...)
		})
	}
}

func TestUnreadableColumnsAreRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(90, 12))
	l := newColumnLayer(r, 16, 64, 4, 32, true)
	good := l.tensors("a", "gptq", 1)
	straight := newColumnLayer(r, 16, 64, 4, 32, false).tensors("a", "gptq", 1)
	awq := l.tensors("a", "awq", 0)
	without := func(list []storedTensor, i int) []storedTensor {
		return slices.Delete(slices.Clone(list), i, i+1)
	}
	with := func(list []storedTensor, i int, dtype string, shape ...int) []storedTensor {
		size := map[string]int{"I32": 4, "F16": 2, "I64": 8, "I16": 2}[dtype]
		for _, d := range shape {
			size *= d
		}
		list = slices.Clone(list)
		list[i] = storedTensor{list[i].name, dtype, shape, make([]byte, size)}
		return list
	}
	order := func(change func(b []byte)) []storedTensor {
		list := slices.Clone(good)
		list[3].data = slices.Clone(list[3].data)
		change(list[3].data)
		return list
	}
	put := func(i, g int) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[4*i:], uint32(g)) }
	}
	const gptq, descAct, awqBase = `"quant_method":"gptq","bits":4,"group_size":32`, `"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true`,
		`"quant_method":"awq","bits":4,"group_size":32`
	for name, c := range map[string]struct {
		config  string
		tensors []storedTensor
		want    []string
	}{
		"3 bits":             {`"quant_method":"gptq","bits":3,"group_size":32`, good, []string{"quantization_config", "bits", "3-bit"}},
		"no bits":            {`"quant_method":"gptq","group_size":32`, good, []string{"bits"}},
		"no group size":      {`"quant_method":"gptq","bits":4`, good, []string{"group_size", "missing"}},
		"group size 0":       {`"quant_method":"gptq","bits":4,"group_size":0`, good, []string{"group_size"}},
		"group size text":    {`"quant_method":"gptq","bits":4,"group_size":"128"`, good, []string{"group_size"}},
		"other group size":   {`"quant_method":"gptq","bits":4,"group_size":16`, good, []string{"a.scales", "[4 16]"}},
		"odd group size":     {`"quant_method":"gptq","bits":4,"group_size":48`, good, []string{"a.qweight", "group_size 48"}},
		"8 bits":             {`"quant_method":"gptq","bits":8,"group_size":32`, good, []string{"a.qweight", "8 bits"}},
		"marlin":             {gptq + `,"checkpoint_format":"marlin"`, good, []string{"checkpoint_format", "marlin"}},
		"marlin flag":        {gptq + `,"is_marlin_format":true`, good, []string{"is_marlin_format"}},
		"other words":        {gptq + `,"pack_dtype":"int8"`, good, []string{"pack_dtype", "int8"}},
		"rule: not so":       {gptq + `,"dynamic":{"-:a":{}}`, good, []string{"a.qweight", "dynamic", "-:a"}},
		"rule: 2 bits":       {gptq + `,"dynamic":{"a":{"bits":2}}`, good, []string{"a.qweight", "dynamic", "2-bit"}},
		"rule: bad pattern":  {gptq + `,"dynamic":{"+:(":{"bits":4}}`, good, []string{"dynamic", "+:("}},
		"rules: a list":      {gptq + `,"dynamic":[1]`, good, []string{"dynamic"}},
		"no zeros":           {descAct, without(good, 1), []string{"a.qzeros", "missing"}},
		"no scales":          {descAct, without(good, 2), []string{"a.scales", "missing"}},
		"no order":           {descAct, without(good, 3), []string{"a.g_idx", "missing"}},
		"short codes":        {descAct, with(good, 0, "I32", 7, 16), []string{"a.qweight", "[8 16]"}},
		"codes as I64":       {descAct, with(good, 0, "I64", 8, 16), []string{"a.qweight", "I64"}},
		"zeros of a group":   {descAct, with(good, 1, "I32", 1, 2), []string{"a.qzeros", "[2 2]"}},
		"zeros turned":       {descAct, with(good, 1, "I32", 2, 4), []string{"a.qzeros", "[2 2]"}},
		"zeros as I16":       {descAct, with(good, 1, "I16", 2, 2), []string{"a.qzeros", "I16"}},
		"scales turned":      {descAct, with(good, 2, "F16", 16, 2), []string{"a.scales", "[2 16]"}},
		"scales as I16":      {descAct, with(good, 2, "I16", 2, 16), []string{"a.scales", "I16"}},
		"short order":        {descAct, with(good, 3, "I32", 63), []string{"a.g_idx", "[64]"}},
		"group out of range": {descAct, order(put(9, 2)), []string{"a.g_idx", "input 9", "group 2 of 2"}},
		"group -2":           {descAct, order(put(9, -2)), []string{"a.g_idx", "input 9", "-2"}},
		"no group":           {descAct, order(put(9, -1)), []string{"a.g_idx", "no group"}},
		"one too many":       {descAct, order(func(b []byte) { clear(b) }), []string{"a.g_idx", "group 0", "more than 32"}},
		"not symmetric":      {gptq + `,"sym":true`, straight, []string{"a.qzeros", "sym"}},
		"no config":          {`"quant_method":"gptq","bits":4,"group_size":32`, nil, []string{"a.qweight", "missing"}},
		"awq gemv":           {awqBase + `,"version":"gemv"`, awq, []string{"version", "gemv"}},
		"awq gemv_fast":      {awqBase + `,"version":"gemv_fast"`, awq, []string{"version", "gemv_fast"}},
		"llm-awq":            {awqBase + `,"backend":"llm-awq"`, awq, []string{"backend", "llm-awq"}},
		"awq no zeros":       {awqBase + `,"zero_point":false`, awq, []string{"zero_point"}},
		"awq 8 bits":         {`"quant_method":"awq","bits":8,"group_size":32`, awq, []string{"bits", "8-bit"}},
		"awq listed":         {awqBase + `,"modules_to_not_convert":["a"]`, awq, []string{"a.qweight", "modules_to_not_convert"}},
		"awq as gptq":        {gptq, awq, []string{"a.qweight", "[8 16]"}},
		"gptq as awq":        {awqBase, good, []string{"a.qweight", "[64 2]"}},
		"awq zeros":          {awqBase, with(awq, 1, "I32", 2, 3), []string{"a.qzeros", "[2 2]"}},
		"autoround gguf":     {`"quant_method":"auto-round","bits":4,"group_size":32,"packing_format":"auto_round:llm_compressor"`, good, []string{"packing_format", "llm_compressor"}},
		"autoround act":      {`"quant_method":"auto-round","bits":4,"group_size":32,"act_bits":8`, good, []string{"act_bits"}},
		"autoround floats":   {`"quant_method":"auto-round","bits":4,"group_size":32,"data_type":"mx_fp"`, good, []string{"data_type", "mx_fp"}},
		"autoround pattern":  {`"quant_method":"auto-round","bits":4,"group_size":32,"extra_config":{".*a":{"bits":8}}`, good, []string{"extra_config", ".*a"}},
		"autoround not so":   {`"quant_method":"auto-round","bits":4,"group_size":32,"extra_config":{"a":{"bits":16}}`, good, []string{"a.qweight", "extra_config"}},
		"autoround awq sym":  {`"quant_method":"auto-round","bits":4,"group_size":32,"sym":true,"packing_format":"auto_round:auto_awq"`, awq, []string{"a.qzeros", "sym"}},
		"another method":     {`"quant_method":"bitsandbytes"`, good, []string{"quant_method", "bitsandbytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := folderOf(append(slices.Clone(c.tensors), f32Tensor("n.weight", 1))...)
			files["config.json"] = quantJSON("%s", c.config)
			ckpt, err := OpenFiles("test", files)
			if err == nil {
				_, err = ckpt.Matrix("a", 16, 64)
			}
			refused(t, err, c.want...)
		})
	}
	t.Run("no config", func(t *testing.T) {
		_, err := openFiles(t, folderOf(good...)).Matrix("a", 16, 64)
		refused(t, err, "a.qweight", "quantization_config")
	})
	t.Run("a bias that counts", func(t *testing.T) {
		files := folderOf(append(slices.Clone(straight), f32Tensor("a.bias", append(make([]float32, 15), 1)...))...)
		files["config.json"] = quantJSON(gptq)
		c := openFiles(t, files)
		if _, err := c.Matrix("a", 16, 64); err != nil {
			t.Fatal(err)
		}
		refused(t, c.Finish(), "a.bias")
	})
}

// TestExportersOwnFiles reads quantize_config.json and quant_config.json beside config.json or alone.
func TestExportersOwnFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	l := newColumnLayer(r, 8, 64, 4, 32, false)
	v1, v2, awq := l.tensors("a", "gptq", 1), l.tensors("a", "gptq", 0), l.tensors("a", "awq", 0)
	for name, c := range map[string]struct {
		tensors           []storedTensor
		config, own, file string
		want              []string // nil: it loads
	}{
		"gptq alone":     {v1, "", `{"bits":4,"group_size":32,"desc_act":false}`, gptqFile, nil},
		"gptq both":      {v1, `"quant_method":"gptq","bits":4,"group_size":32,"dynamic":null`, `{"bits":4,"group_size":32,"dynamic":{"b":{"bits":8}},"damp_percent":0.1}`, gptqFile, nil},
		"format in one":  {v2, `"quant_method":"gptq","bits":4,"group_size":32`, `{"checkpoint_format":"gptq_v2"}`, gptqFile, nil},
		"bits differ":    {v1, `"quant_method":"gptq","bits":4,"group_size":32`, `{"bits":8,"group_size":32}`, gptqFile, []string{gptqFile, "bits", "8", "4"}},
		"formats differ": {v1, `"quant_method":"gptq","bits":4,"group_size":32,"checkpoint_format":"gptq"`, `{"checkpoint_format":"gptq_v2"}`, gptqFile, []string{gptqFile, "checkpoint_format"}},
		"no JSON":        {v1, `"quant_method":"gptq","bits":4,"group_size":32`, `{"bits":`, gptqFile, []string{gptqFile}},
		"awq alone":      {awq, "", `{"zero_point":true,"q_group_size":32,"w_bit":4,"version":"GEMM"}`, awqFile, nil},
		"awq bad":        {awq, "", `{"zero_point":true,"q_group_size":32,"w_bit":4,"version":"GEMV"}`, awqFile, []string{awqFile, "version"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := folderOf(c.tensors...)
			if c.config != "" {
				files["config.json"] = quantJSON("%s", c.config)
			}
			files[c.file] = []byte(c.own)
			ckpt, err := OpenFiles("test", files)
			if c.want != nil {
				refused(t, err, c.want...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			m, err := ckpt.Matrix("a", 8, 64)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "a", values(t, m, 0, 8), l.values())
		})
	}
}
