package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// references are the tokenizers with recorded results of the Python tokenizers library 0.23.3.
var references = []string{"qwen3", "llama3_2", "gemma3", "gpt35turbo", "gpt4o", "deepseek_v3", "gptoss", "smollm2"}

var (
	loadedMu sync.Mutex
	loaded   = map[string]*Tokenizer{}
)

// load reads one of the references, once.
func load(tb testing.TB, name string) *Tokenizer {
	tb.Helper()
	loadedMu.Lock()
	defer loadedMu.Unlock()
	if t := loaded[name]; t != nil {
		return t
	}
	var path string
	if name == "smollm2" {
		path = testdata.Shared(tb, "golden/tokenizers/smollm2.tokenizer.json")
	} else {
		path = testdata.Cache(tb, "tokenizers", name, "tokenizer.json")
	}
	t := loadFile(tb, path)
	loaded[name] = t
	return t
}

func loadFile(tb testing.TB, path string) *Tokenizer {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	t, err := FromJSON(data)
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return t
}

// row is one recorded text. Where ids_no_control or decoded_skip_special is absent it equals
// ids or decoded; decoded true means the text.
type row struct {
	Text               string          `json:"text"`
	BytesHex           string          `json:"bytes_hex"`
	AddSpecialTokens   bool            `json:"add_special_tokens"`
	IDs                []int32         `json:"ids"`
	IDsNoControl       []int32         `json:"ids_no_control"`
	Decoded            json.RawMessage `json:"decoded"`
	DecodedSkipSpecial *string         `json:"decoded_skip_special"`
	AnySkipSpecial     bool            `json:"any_skip_special"` // not compared
}

func readRows(tb testing.TB, path string) []row {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var rows []row
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 1<<26)
	for sc.Scan() {
		var r row
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		tb.Fatalf("%s holds no rows", path)
	}
	return rows
}

// checkRows compares a tokenizer with recorded results.
func checkRows(t *testing.T, tok *Tokenizer, rows []row) {
	t.Helper()
	for _, r := range rows {
		text := r.Text
		if r.BytesHex != "" {
			b, err := hex.DecodeString(r.BytesHex)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		got := tok.Encode(text, Options{AddSpecial: r.AddSpecialTokens})
		if !slices.Equal(got, r.IDs) {
			t.Errorf("Encode(%q, special %v)\n got %v\nwant %v", text, r.AddSpecialTokens, got, r.IDs)
			continue
		}
		want := r.IDsNoControl
		if want == nil {
			want = r.IDs
		}
		if got := tok.Encode(text, Options{AddSpecial: r.AddSpecialTokens, NoControl: true}); !slices.Equal(got, want) {
			t.Errorf("Encode(%q, no control)\n got %v\nwant %v", text, got, want)
		}
		decoded := r.Text
		if string(r.Decoded) != "true" {
			if err := json.Unmarshal(r.Decoded, &decoded); err != nil {
				t.Fatal(err)
			}
		}
		if got := tok.Decode(r.IDs, false); got != decoded {
			t.Errorf("Decode(%v)\n got %q\nwant %q", r.IDs, got, decoded)
		}
		if r.DecodedSkipSpecial != nil {
			decoded = *r.DecodedSkipSpecial
		}
		if got := tok.Decode(r.IDs, true); got != decoded && !r.AnySkipSpecial {
			t.Errorf("Decode(%v, skip special)\n got %q\nwant %q", r.IDs, got, decoded)
		}
	}
}

func TestReferenceTokenizers(t *testing.T) {
	for _, name := range references {
		t.Run(name, func(t *testing.T) {
			rows := readRows(t, testdata.Shared(t, "golden/tokenizers", name+".jsonl"))
			checkRows(t, load(t, name), rows)
		})
	}
}

// TestModelFolders compares with the texts and chats recorded beside small checkpoints.
func TestModelFolders(t *testing.T) {
	root := testdata.Shared(t, "golden")
	var files []string
	for _, pattern := range []string{"models/*/tokenizer.json", "quant/*/tokenizer.json", "gguf/*/hf_tokenizer.json"} {
		m, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, m...)
	}
	compared := 0
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(file), "golden.json"))
		if err != nil {
			t.Fatal(err)
		}
		var g goldenModel
		if err := json.Unmarshal(data, &g); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		compared += g.check(t, loadFile(t, file), file)
	}
	if compared < 10 {
		t.Fatalf("only %d texts were compared", compared)
	}
}

// goldenModel is the part of a model folder's golden.json that concerns its tokenizer.
type goldenModel struct {
	Texts []struct {
		Text       string  `json:"text"`
		AddSpecial bool    `json:"add_special_tokens"`
		IDs        []int32 `json:"ids"`
	} `json:"texts"`
	Chat *struct {
		Rendered   string  `json:"rendered"`
		AddSpecial bool    `json:"add_special_tokens"`
		IDs        []int32 `json:"ids"`
	} `json:"chat"`
}

func (g *goldenModel) check(t *testing.T, tok *Tokenizer, name string) (compared int) {
	t.Helper()
	texts := g.Texts
	if c := g.Chat; c != nil {
		texts = append(texts, struct {
			Text       string  `json:"text"`
			AddSpecial bool    `json:"add_special_tokens"`
			IDs        []int32 `json:"ids"`
		}{c.Rendered, c.AddSpecial, c.IDs})
	}
	for _, r := range texts {
		if got := tok.Encode(r.Text, Options{AddSpecial: r.AddSpecial}); !slices.Equal(got, r.IDs) {
			t.Errorf("%s: %q\n got %v\nwant %v", name, r.Text, got, r.IDs)
		}
	}
	return len(texts)
}
