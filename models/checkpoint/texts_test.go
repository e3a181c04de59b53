package checkpoint

import (
	"reflect"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

// beside is a checkpoint with these files beside its tensors, and this config.
func beside(t *testing.T, config string, files map[string]string) *Checkpoint {
	t.Helper()
	all := folderOf(f32Tensor("a", 1))
	all["config.json"] = []byte(config)
	for name, text := range files {
		all[name] = []byte(text)
	}
	return openFiles(t, all)
}

func TestEOSIsTheUnion(t *testing.T) {
	for name, c := range map[string]struct {
		config, generation string
		want               []int32
	}{
		"config alone":     {`{"eos_token_id":7}`, ``, []int32{7}},
		"lists":            {`{"eos_token_id":[1,106]}`, `{"eos_token_id":[106,50,1]}`, []int32{1, 106, 50}},
		"nested":           {`{"eos_token_id":null,"text_config":{"eos_token_id":3}}`, `{"eos_token_id":4}`, []int32{3, 4}},
		"generation alone": {`{}`, `{"eos_token_id":[151645,151643]}`, []int32{151645, 151643}},
		"none":             {`{}`, `{"eos_token_id":null}`, nil},
	} {
		files := map[string]string{}
		if c.generation != "" {
			files["generation_config.json"] = c.generation
		}
		if got := beside(t, c.config, files).EOS(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for _, bad := range []string{`{"eos_token_id":-1}`, `{"eos_token_id":1.5}`, `{"eos_token_id":[1,"x"]}`, `{"eos_token_id":4294967296}`, `{"eos_token_id":{}}`} {
		_, err := OpenFiles("test", map[string][]byte{"config.json": []byte(bad), "model.safetensors": safetensorsFile()})
		t.Run(bad, func(t *testing.T) { refused(t, err, "config.json", "eos_token_id") })
	}
}

func TestChatTemplateIsFound(t *testing.T) {
	const list = `{"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]}`
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		ok    bool
	}{
		"text":           {map[string]string{"tokenizer_config.json": `{"chat_template":"S"}`}, "S", true},
		"list":           {map[string]string{"tokenizer_config.json": list}, "D", true},
		"file first":     {map[string]string{"tokenizer_config.json": `{"chat_template":"S"}`, "chat_template.jinja": "J\n"}, "J\n", true},
		"processor":      {map[string]string{"chat_template.json": `{"chat_template":"P"}`}, "P", true},
		"null":           {map[string]string{"tokenizer_config.json": `{"chat_template":null}`}, "", false},
		"list, no entry": {map[string]string{"tokenizer_config.json": `{"chat_template":[]}`}, "", false},
		"none":           {nil, "", false},
	} {
		got, ok := beside(t, `{}`, c.files).ChatTemplate()
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestSpecialTokens(t *testing.T) {
	c := beside(t, `{}`, map[string]string{
		"tokenizer_config.json": `{"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null,"add_bos_token":true,
			"model_max_length":1000000000000000019884624838656,"image_token":"<img>","split_special_tokens":false}`,
		"special_tokens_map.json": `{"eos_token":"other","unk_token":{"content":"<unk>"},"additional_special_tokens":["x"]}`,
	})
	s := c.SpecialTokens()
	if s.BOS != "<s>" || s.EOS != "</s>" || s.Unknown != "<unk>" || s.Padding != "" || s.Named["image_token"] != "<img>" {
		t.Errorf("%+v", s)
	}
	if s.AddBOS == nil || !*s.AddBOS || s.AddEOS != nil {
		t.Errorf("add_bos_token %v, add_eos_token %v", s.AddBOS, s.AddEOS)
	}
	if c.ModelMaxLength() != 0 {
		t.Errorf("1e30 means no limit, got %d", c.ModelMaxLength())
	}
}

func TestGenerationDefaults(t *testing.T) {
	g := beside(t, `{}`, map[string]string{"generation_config.json": `{"temperature":0.6,"top_k":20,"top_p":0.95,"do_sample":true,"min_p":null,"suppress_tokens":[7,3]}`}).Generation()
	if *g.Temperature != 0.6 || *g.TopK != 20 || *g.TopP != 0.95 || !*g.DoSample || g.MinP != nil || g.RepetitionPenalty != nil || !reflect.DeepEqual(g.SuppressTokens, []int32{7, 3}) {
		t.Errorf("%+v", g)
	}
}

func TestTextsOfGGUF(t *testing.T) {
	c := openGolden(t, "gguf", "llama_k256", "llama_k256-Q4_0.gguf")
	v, err := c.Vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	if v.Model != "gpt2" || v.Pre != "llama-bpe" || len(v.Tokens) != 512 || len(v.Types) != 512 || len(v.Merges) != 251 || v.BOS != 507 || v.EOS != 511 || v.EOT != -1 {
		t.Errorf("%s %s: %d tokens, %d types, %d merges, ids %d %d %d", v.Model, v.Pre, len(v.Tokens), len(v.Types), len(v.Merges), v.BOS, v.EOS, v.EOT)
	}
	if v.AddBOS == nil || !*v.AddBOS || v.AddEOS == nil || *v.AddEOS || v.AddSpacePrefix != nil {
		t.Error("add_bos_token is true, add_eos_token false, add_space_prefix absent")
	}
	if s := c.SpecialTokens(); s.BOS != "<|begin_of_text|>" || s.EOS != "<|eot_id|>" {
		t.Errorf("%+v", s)
	}
	// 508 is <|end_of_text|>, which only its text says.
	if got := c.EOS(); !reflect.DeepEqual(got, []int32{511, 508}) {
		t.Errorf("EOS %v", got)
	}
	if g := c.Generation(); float32(*g.Temperature) != 0.6 || float32(*g.TopP) != 0.9 || g.TopK != nil {
		t.Errorf("%+v", g)
	}
	if _, ok := c.ChatTemplate(); !ok || c.ModelMaxLength() != 1024 || c.Architecture() != "llama" {
		t.Error("chat template, context length or architecture")
	}

	smol, err := Open(testdata.Cache(t, "gguf/SmolLM2-135M-Instruct.Q4_1.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer smol.Close()
	if got := smol.EOS(); !reflect.DeepEqual(got, []int32{2, 0}) { // <|im_end|>, <|endoftext|>
		t.Errorf("SmolLM2: EOS %v", got)
	}
}

// TestGemmaEndsWhereResultsBegin: Gemma 4 ends a turn of calls with a token that GGUF files do not name as an end.
func TestGemmaEndsWhereResultsBegin(t *testing.T) {
	c := openFiles(t, map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
		f.Set("llama.context_length", uint32(64))
		f.Set("tokenizer.ggml.model", "gpt2")
		f.Set("tokenizer.ggml.tokens", []string{"a", "<eos>", "<turn|>", "<|tool_response>", "<|tool_call>"})
		f.Set("tokenizer.ggml.token_type", []int32{1, 3, 3, 4, 4})
		f.Set("tokenizer.ggml.merges", []string{"a a"})
		f.Set("tokenizer.ggml.eos_token_id", uint32(1))
		f.Add(ggufTensor("output_norm.weight", ggufwrite.F32, []int{3}, []float32{1, 2, 3}))
	})})
	if got := c.EOS(); !reflect.DeepEqual(got, []int32{1, 2, 3}) {
		t.Errorf("EOS %v", got)
	}
}

func TestBadVocabulariesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(f *ggufwrite.File)
		want string
	}{
		"types too short": {func(f *ggufwrite.File) { f.Set("tokenizer.ggml.token_type", []int32{1}) }, "tokenizer.ggml.token_type"},
		"scores too long": {func(f *ggufwrite.File) { f.Set("tokenizer.ggml.scores", []float32{1, 2, 3}) }, "tokenizer.ggml.scores"},
		"id too large":    {func(f *ggufwrite.File) { f.Set("tokenizer.ggml.eos_token_id", uint32(2)) }, "tokenizer.ggml.eos_token_id"},
		"merges numbers":  {func(f *ggufwrite.File) { f.Set("tokenizer.ggml.merges", []int32{1}) }, "tokenizer.ggml.merges"},
		"flag a text":     {func(f *ggufwrite.File) { f.Set("tokenizer.ggml.add_bos_token", "yes") }, "tokenizer.ggml.add_bos_token"},
	} {
		_, err := OpenFiles("test", map[string][]byte{"m.gguf": ggufFile(t, func(f *ggufwrite.File) {
			f.Set("tokenizer.ggml.model", "gpt2")
			f.Set("tokenizer.ggml.tokens", []string{"a", "b"})
			c.set(f)
		})})
		t.Run(name, func(t *testing.T) { refused(t, err, c.want) })
	}
}
