package tokenizer

import (
	"os"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// benchText is some 100 kB of mixed prose, code, digits and other scripts.
var benchText = strings.Repeat("The quick brown fox, aged 12, doesn't jump over 3.14159 lazy dogs.\n\n"+
	"func main() {\n\tfmt.Println(\"hello, world\")\n}\n  Übergrößenträger; été; 東京都に行きました。 Привет, мир! 🤷🏽‍♀️\n", 500)

func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"qwen3", "llama3_2", "gemma3", "gpt4o", "deepseek_v3", "smollm2"} {
		b.Run(name, func(b *testing.B) {
			t := load(b, name)
			b.SetBytes(int64(len(benchText)))
			b.ReportAllocs()
			for b.Loop() {
				t.Encode(benchText, Options{})
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	t := load(b, "qwen3")
	ids := t.Encode(benchText, Options{})
	b.SetBytes(int64(len(benchText)))
	for b.Loop() {
		t.Decode(ids, false)
	}
}

func BenchmarkFromJSON(b *testing.B) {
	for _, name := range []string{"qwen3", "gemma3"} {
		b.Run(name, func(b *testing.B) {
			data, err := os.ReadFile(testdata.Cache(b, "tokenizers", name, "tokenizer.json"))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := FromJSON(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncodeHostile encodes texts that punish quadratic algorithms: ns per byte must not
// grow with their length.
func BenchmarkEncodeHostile(b *testing.B) {
	for _, name := range []string{"qwen3", "gemma3", "gpt4o", "deepseek_v3"} {
		for what, unit := range map[string]string{"letters": "a", "spaces": " ", "mixed": "aB1 ", "quotes": "<|"} {
			b.Run(name+"/"+what, func(b *testing.B) {
				t := load(b, name)
				text := strings.Repeat(unit, 8<<20/len(unit))
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					t.Encode(text, Options{})
				}
			})
		}
	}
}
