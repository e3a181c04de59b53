package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// oracleCase is a tokenizer and what the Python tokenizers library 0.23.3 makes of texts and of
// random ids with it; testdata/make_synthetic.py writes them.
type oracleCase struct {
	Name      string          `json:"name"`
	Path      string          `json:"path"` // of the tokenizer, or
	Tokenizer json.RawMessage `json:"tokenizer"`
	Rows      []row           `json:"rows"`
	Decodes   []struct {
		IDs     []int32 `json:"ids"`
		Decoded string  `json:"decoded"`
		Skip    *string `json:"skip"`
	} `json:"decodes"`
}

// TestSynthetic covers every supported component. OPENINFER_TOKENIZER_ORACLE names a folder of
// further files, which are too large to keep.
func TestSynthetic(t *testing.T) {
	files := []string{"testdata/synthetic.json"}
	if dir := os.Getenv("OPENINFER_TOKENIZER_ORACLE"); dir != "" {
		more, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		for _, c := range readOracle(t, file) {
			t.Run(c.Name, func(t *testing.T) {
				tok := c.load(t)
				checkRows(t, tok, c.Rows)
				for _, d := range c.Decodes {
					if got := tok.Decode(d.IDs, false); got != d.Decoded {
						t.Errorf("Decode(%v)\n got %q\nwant %q", d.IDs, got, d.Decoded)
					}
					if got := tok.Decode(d.IDs, true); d.Skip != nil && got != *d.Skip {
						t.Errorf("Decode(%v, skip special)\n got %q\nwant %q", d.IDs, got, *d.Skip)
					}
				}
			})
		}
	}
}

func readOracle(tb testing.TB, file string) []oracleCase {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var cases []oracleCase
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&cases); err != nil || len(cases) == 0 {
		tb.Fatalf("%s: %d cases, %v", file, len(cases), err)
	}
	return cases
}

func (c *oracleCase) load(tb testing.TB) *Tokenizer {
	tb.Helper()
	if c.Path != "" {
		return loadFile(tb, c.Path)
	}
	tok, err := FromJSON(c.Tokenizer)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}
