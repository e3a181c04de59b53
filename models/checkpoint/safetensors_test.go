package checkpoint

import (
	"math"
	"strings"
	"testing"
)

const plainConfig = `{"model_type":"llama"}`

// folderOf are the files of a checkpoint with these tensors.
func folderOf(tensors ...storedTensor) map[string][]byte {
	return map[string][]byte{"config.json": []byte(plainConfig), "model.safetensors": safetensorsFile(tensors...)}
}

func openFiles(t testing.TB, files map[string][]byte) *Checkpoint {
	t.Helper()
	c, err := OpenFiles("test", files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSafetensorsHeadersAreChecked(t *testing.T) {
	entry := func(offsets string) string { return `{"dtype":"F32","shape":[2],"data_offsets":` + offsets + `}` }
	for name, c := range map[string]struct {
		header string
		want   []string
	}{
		"hole before":        {`{"a":` + entry("[4,12]") + `}`, []string{"tensor a", "hole"}},
		"hole between":       {`{"a":` + entry("[0,8]") + `,"b":{"dtype":"U8","shape":[2],"data_offsets":[10,12]}}`, []string{"tensor b", "hole"}},
		"bytes left over":    {`{"a":` + entry("[0,8]") + `}`, []string{"no tensor"}},
		"overlap":            {`{"a":` + entry("[0,8]") + `,"b":` + entry("[4,12]") + `}`, []string{"tensor b", "overlap", "a"}},
		"fraction":           {`{"a":` + entry("[0,8.0]") + `}`, []string{"tensor a", "data_offsets"}},
		"negative":           {`{"a":` + entry("[-1,8]") + `}`, []string{"tensor a", "data_offsets"}},
		"one offset":         {`{"a":` + entry("[8]") + `}`, []string{"tensor a"}},
		"no dtype":           {`{"a":{"shape":[2],"data_offsets":[0,8]}}`, []string{"tensor a", "dtype"}},
		"no shape":           {`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, []string{"tensor a", "shape"}},
		"unknown key":        {`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}}`, []string{"tensor a", `"x"`}},
		"product wraps":      {`{"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}}`, []string{"tensor a"}},
		"bytes wrap":         {`{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}`, []string{"tensor a"}},
		"not an object":      {`[]`, []string{"not a JSON object"}},
		"entry not object":   {`{"a":7}`, []string{"tensor a"}},
		"cut":                {`{"a":`, []string{"unexpected EOF"}},
		"text after":         {`{} {}`, []string{"after"}},
		"invalid UTF-8":      {"{\"a\xff\":" + entry("[0,8]") + `}`, []string{"UTF-8"}},
		"deep":               {`{"__metadata__":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, []string{"depth"}},
		"double inner shape": {`{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}`, []string{"tensor a", "shape"}},
	} {
		_, err := OpenFiles("test", map[string][]byte{"config.json": []byte(plainConfig), "model.safetensors": withHeader(c.header, make([]byte, 12))})
		t.Run(name, func(t *testing.T) { refused(t, err, append(c.want, "test/model.safetensors")...) })
	}
}

func TestTensorsOfOddSizesAreRead(t *testing.T) {
	// Nothing is aligned: the body starts wherever the header ends, and a byte precedes the floats.
	c := openFiles(t, folderOf(
		storedTensor{"pad", "U8", []int{1}, []byte{1}}, f32Tensor("v.weight", 1, -2, 3),
		storedTensor{"empty", "F32", []int{0, 5}, nil}, storedTensor{"w.weight", "BF16", []int{1, 3}, []byte{0x80, 0x3f, 0, 0x40, 0x40, 0xc0}},
	))
	v, err := c.Vector("v.weight", 3)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "v", v, []float32{1, -2, 3})
	m, err := c.Matrix("w", 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "w", values(t, m, 0, 1), []float32{1, 2, -3})
	_, err = c.Vector("pad", 1)
	refused(t, err, "tensor pad", "U8")
	refused(t, c.Finish(), "pad", "empty", "2 tensors")
}

func TestShardsAreHeldToTheIndex(t *testing.T) {
	const one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	files := func(index string) map[string][]byte {
		return map[string][]byte{
			"config.json": []byte(plainConfig), indexFile: []byte(index),
			one: safetensorsFile(f32Tensor("a.weight", 1)), two: safetensorsFile(f32Tensor("b.weight", 2), f32Tensor("c.weight", 3)),
		}
	}
	index := func(pairs ...string) string {
		var list []string
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, `"`+pairs[i]+`":"`+pairs[i+1]+`"`)
		}
		return `{"metadata":{"total_size":12},"weight_map":{` + strings.Join(list, ",") + `}}`
	}
	good := index("a.weight", one, "b.weight", two, "c.weight", two)
	c, err := Open(writeDir(t, files(good)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, name := range []string{"a.weight", "b.weight", "c.weight"} {
		v, err := c.Vector(name, 1)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name, v, []float32{float32(i + 1)})
	}
	if err := c.Finish(); err != nil {
		t.Error(err)
	}

	for name, bad := range map[string]struct {
		index string
		want  []string
	}{
		"path upwards":      {index("a.weight", "../"+one, "b.weight", two, "c.weight", two), []string{"a.weight", "../"}},
		"absolute path":     {index("a.weight", "/etc/x.safetensors"), []string{"a.weight", "/etc"}},
		"path downwards":    {index("a.weight", "sub/"+one), []string{"a.weight", "sub/"}},
		"backslash":         {index("a.weight", `..\\`+one), []string{"a.weight"}},
		"no such kind":      {index("a.weight", "config.json"), []string{"a.weight", "config.json"}},
		"no such file":      {index("a.weight", "model-00003-of-00002.safetensors"), []string{"model-00003-of-00002.safetensors"}},
		"in another shard":  {index("a.weight", one, "b.weight", one, "c.weight", two), []string{"b.weight", one}},
		"missing":           {index("a.weight", one, "b.weight", two, "c.weight", two, "d.weight", two), []string{"d.weight", two}},
		"not listed":        {index("a.weight", one, "b.weight", two), []string{"c.weight", "does not list"}},
		"twice":             {index("a.weight", one, "a.weight", one, "b.weight", two, "c.weight", two), []string{"a.weight", "duplicate"}},
		"empty":             {`{}`, []string{"weight_map"}},
		"not JSON":          {`{`, []string{indexFile}},
		"number for a file": {`{"weight_map":{"a.weight":7}}`, []string{"a.weight"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenFiles("test", files(bad.index))
			refused(t, err, bad.want...)
		})
	}
}

func TestFoldersWithoutAClearModelAreRefused(t *testing.T) {
	one := safetensorsFile(f32Tensor("a", 1))
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"nothing":     {map[string][]byte{"config.json": []byte(plainConfig)}, "model.safetensors"},
		"two files":   {map[string][]byte{"config.json": []byte(plainConfig), "a.safetensors": one, "b.safetensors": one}, indexFile},
		"no config":   {map[string][]byte{"model.safetensors": one}, "config.json"},
		"bad config":  {map[string][]byte{"config.json": []byte("{"), "model.safetensors": one}, "config.json"},
		"bad eos":     {map[string][]byte{"config.json": []byte(`{"eos_token_id":"x"}`), "model.safetensors": one}, "eos_token_id"},
		"two ggufs":   {map[string][]byte{"a.gguf": nil, "b.gguf": nil}, "a.gguf"},
		"bad sampler": {map[string][]byte{"config.json": []byte(plainConfig), "model.safetensors": one, "generation_config.json": []byte(`{"top_k":"many"}`)}, "top_k"},
	} {
		_, err := OpenFiles("test", c.files)
		t.Run(name, func(t *testing.T) { refused(t, err, c.want) })
	}
}

func TestATensorIsUsedOnce(t *testing.T) {
	c := openFiles(t, folderOf(f32Tensor("a.weight", 1), f32Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", 1), f32Tensor("visual.x", 1), f32Tensor("visual.y", 1)))
	if _, err := c.Vector("a.weight", 2); err == nil {
		t.Error("a vector of 1 read as 2")
	}
	if _, err := c.Vector("a.weight", 1); err != nil {
		t.Error(err)
	}
	_, err := c.Vector("a.weight", 1)
	refused(t, err, "a.weight", "twice")
	refused(t, c.Finish(), "visual.x", "visual.y")
	if n := c.Skip("visual."); n != 2 {
		t.Errorf("Skip left out %d tensors, want 2", n)
	}
	if err := c.Finish(); err != nil {
		t.Error(err)
	}
}

func TestVectorsAreNumbers(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := openFiles(t, folderOf(f32Tensor("norm.weight", 1, float32(v)))).Vector("norm.weight", 2)
		refused(t, err, "norm.weight", "value 1 is")
	}
}

func TestTiedHeadMustRepeatTheEmbedding(t *testing.T) {
	embed := storedTensor{"model.embed_tokens.weight", "F32", []int{1, 2}, f32s(1, 2)}
	for name, c := range map[string]struct {
		head storedTensor
		want string
	}{
		"equal":       {storedTensor{"lm_head.weight", "F32", []int{1, 2}, f32s(1, 2)}, ""},
		"other value": {storedTensor{"lm_head.weight", "F32", []int{1, 2}, f32s(1, 3)}, "other values"},
		"other shape": {storedTensor{"lm_head.weight", "F32", []int{2, 1}, f32s(1, 2)}, "should repeat"},
		"other type":  {storedTensor{"lm_head.weight", "BF16", []int{1, 2}, []byte{0x80, 0x3f, 0, 0x40}}, "should repeat"},
	} {
		t.Run(name, func(t *testing.T) {
			ckpt := openFiles(t, folderOf(embed, c.head))
			if _, err := ckpt.Matrix("model.embed_tokens", 1, 2); err != nil {
				t.Fatal(err)
			}
			err := ckpt.Alias("lm_head.weight", "model.embed_tokens.weight")
			if c.want != "" {
				refused(t, err, "lm_head.weight", c.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := ckpt.Finish(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBias(t *testing.T) {
	files := folderOf(storedTensor{"a.weight", "F32", []int{2, 1}, f32s(1, 2)}, f32Tensor("a.bias", 3, 4), storedTensor{"b.weight", "F32", []int{2, 1}, f32s(1, 2)})
	c := openFiles(t, files)
	m, err := c.Matrix("a", 2, 1, WithBias(), Unpermute(1)) // no file of safetensors is permuted
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "bias", m.Bias, []float32{3, 4})
	equal(t, "weight", values(t, m, 0, 2), []float32{1, 2})
	if m, err = c.Matrix("b", 2, 1, WithOptionalBias()); err != nil || m.Bias != nil {
		t.Errorf("b: bias %v, error %v", m.Bias, err)
	}
	_, err = openFiles(t, files).Matrix("b", 2, 1, WithBias())
	refused(t, err, "b.bias", "missing")
	c = openFiles(t, files)
	if _, err = c.Matrix("a", 2, 1); err != nil {
		t.Fatal(err)
	}
	refused(t, c.Finish(), "a.bias")
}
