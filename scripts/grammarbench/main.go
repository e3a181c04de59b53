// Grammarbench measures token masks over a real vocabulary and writes docs/grammar.md: how long a mask takes along
// sample answers, and how long schemas take to compile.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

func main() {
	dir := flag.String("tokenizer", filepath.Join(os.Getenv("OPENINFER_CACHE"), "tokenizers", "qwen3"), "folder with tokenizer.json")
	out := flag.String("o", "docs/grammar.md", "file to write")
	flag.Parse()
	raw, err := os.ReadFile(filepath.Join(*dir, "tokenizer.json"))
	check(err)
	tok, err := tokenizer.FromJSON(raw)
	check(err)
	tokens := make([]grammar.Token, tok.Size())
	for i := range tokens {
		tokens[i] = grammar.Token{Bytes: tok.TokenBytes(int32(i)), Control: tok.IsSpecial(int32(i))}
	}
	begin := time.Now()
	v := grammar.NewVocabulary(tokens, nil)
	prepared := time.Since(begin)

	var b strings.Builder
	fmt.Fprintf(&b, "# Structured output, measured\n\nMade by scripts/grammarbench over the %d tokens of %s. Preparing the vocabulary, once for each model, takes %v.\n\n", tok.Size(), filepath.Base(*dir), round(prepared))
	fmt.Fprintf(&b, "A mask's time is for the masks along the answer: cold, the first answer after compiling; warm, the next one. Each is\nthe least of five compilations, for the machine was busy with other work.\n\n")
	fmt.Fprintf(&b, "| grammar | compile | states | tokens | cold p50 | cold p99 | cold most | warm p50 | warm p99 |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range cases() {
		var compile, cold, warm []time.Duration
		var g *grammar.Grammar
		ids := tok.Encode(c.answer, tokenizer.Options{})
		for range 5 {
			begin := time.Now()
			e, err := c.expr()
			check(err)
			g, err = grammar.Compile(context.Background(), e, v)
			check(err)
			compile = append(compile, time.Since(begin))
			cold = least(cold, run(g, ids))
			warm = least(warm, run(g, ids))
		}
		fmt.Fprintf(&b, "| %s | %v | %d | %d | %v | %v | %v | %v | %v |\n", c.name, round(at(compile, 50)), g.States(), len(ids),
			round(at(cold, 50)), round(at(cold, 99)), round(at(cold, 100)), round(at(warm, 50)), round(at(warm, 99)))
	}
	b.WriteString(notes)
	check(os.WriteFile(*out, []byte(b.String()), 0o644))
	fmt.Print(b.String())
}

const notes = `
Masks are kept by state and stack, so a warm mask is a look-up; the step before a cold one computes while it is made. What is cold
is a state that no answer of this grammar was in before: counted strings (maxLength) have one for each character. Where any text may
stand, the subtrees of the vocabulary that hold nothing else are taken whole. What is left of the slow first masks is the first one
within a counted string, which looks ahead over as many states as the longest token has characters.

A text may be read in at most 512 ways at a time, and a mask may cost 1,500,000 looks at a way. Beyond that some tokens of several bytes
are left out; single bytes never are, and a token that the mask has is never refused. The slowest mask of a grammar made to be ambiguous
(` + "`TestAmbiguousGrammars`" + `, over this vocabulary) took 120 ms.

## While a large schema compiles

` + "`BenchmarkCompilingBesideAStream`" + `: gaps between the tokens of a stream on a simulated RTX 3090 in real time (qwen3.5-27b), on
2 cores, while schemas of 5,250 lines were compiled one after another:

| | p50 | p95 | most |
|---|---|---|---|
| without | 20.6 ms | 21.7 ms | 21.9 ms |
| with | 20.5 ms | 26.9 ms | 35.3 ms |

The middle is the same; the longest gaps are those of two cores of which a compile takes one.

## A real model

` + "`TestSmolLM2AnswersWithinSchemas`" + `: SmolLM2 135M on the CPU, 30 schemas at once: 30 answers complete and valid by santhosh-tekuri/jsonschema,
460 tokens in 2.3 s.

Masks beside xgrammar's: [grammar-xgrammar.md](grammar-xgrammar.md).
`

func run(g *grammar.Grammar, ids []int32) (times []time.Duration) {
	s := g.Start()
	for _, id := range ids {
		begin := time.Now()
		mask := s.Mask()
		next, ok := s.Advance(id)
		times = append(times, time.Since(begin))
		if !ok || mask[id/32]>>(id%32)&1 == 0 {
			log.Fatalf("token %d is refused", id)
		}
		s = next
	}
	if !s.MayEnd() {
		log.Fatal("the answer is not complete")
	}
	return times
}

// least is of each token the shorter time.
func least(before, times []time.Duration) []time.Duration {
	for i := range before {
		times[i] = min(times[i], before[i])
	}
	return times
}

type sample struct {
	name, answer string
	expr         func() (grammar.Expr, error)
}

func cases() []sample {
	person := `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"},` +
		`"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string","maxLength":60}},"required":["street","city"],"additionalProperties":false},` +
		`"tags":{"type":"array","items":{"enum":["red","green","blue"]}}},"required":["name","age"],"additionalProperties":false}`
	answer := `{"name": "Ada Lovelace of the Analytical Engine", "age": 36, "email": "ada@example.org", "address": {"street": "12 St James's Square", "city": "London in the county of Middlesex"}, "tags": ["red", "blue"]}`
	schema := func(s string) func() (grammar.Expr, error) {
		return func() (grammar.Expr, error) { return grammar.Schema([]byte(s)) }
	}
	var large strings.Builder
	large.WriteString("{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\n")
	for i := range 42 {
		if i > 0 {
			large.WriteString(",\n")
		}
		fmt.Fprintf(&large, "\"part%d\":{\n\"type\":\"object\",\n\"required\":[\"field0\"],\n\"properties\":{\n", i)
		for j := range 20 {
			if j > 0 {
				large.WriteString(",\n")
			}
			fmt.Fprintf(&large, "\"field%d\":{\n\"type\":\"object\",\n\"properties\":{\n\"id\":{\"type\":\"integer\",\"minimum\":%d},\n\"text\":{\"type\":\"string\",\"maxLength\":%d}\n},\"required\":[\"id\"]}", j, i*j, 20+j)
		}
		large.WriteString("\n}}")
	}
	large.WriteString("}}")
	return []sample{
		{"small: one string", `{"a": "some text of a few words"}`, schema(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`)},
		{"typical: a person", answer, schema(person)},
		{"any object", answer, schema(`{"type":"object"}`)},
		{fmt.Sprintf("%d lines", 1+strings.Count(large.String(), "\n")), `{"part7": {"field0": {"id": 12, "text": "hello there"}, "field9": {"id": 900}}, "part30": {"field0": {"id": 3}}}`, schema(large.String())},
		{"regex", "2024-06-30T12:00:00Z", func() (grammar.Expr, error) {
			return grammar.Regex(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`)
		}},
	}
}

func at(times []time.Duration, percent int) time.Duration {
	times = slices.Clone(times)
	slices.Sort(times)
	return times[min(len(times)*percent/100, len(times)-1)]
}

func round(d time.Duration) time.Duration {
	if d > time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
