// Grammarbench measures token masks over a real vocabulary and writes docs/grammar.md: how long a mask takes along
// sample answers, how long schemas take to compile, and what the tests and benchmarks of grammars say.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	fmt.Fprintf(&b, "A mask's time is for the masks along the answer: cold, the first answer after compiling; warm, the next one. Each is\nthe least of five compilations.\n\n")
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
	b.WriteString(report())
	check(os.WriteFile(*out, []byte(b.String()), 0o644))
	fmt.Print(b.String())
}

// report is the rest of the document: what tests and benchmarks say of themselves.
func report() string {
	var b strings.Builder
	b.WriteString(`
Masks are kept by state and stack, so a warm mask is a look-up; the step before a cold one computes while it is made. What is cold
is a state that no answer of this grammar was in before: counted strings (maxLength) have one for each character. Where any text may
stand, the subtrees of the vocabulary that hold nothing else are taken whole, and what a token does in a string of JSON is known ahead.

A text may be read in at most 512 ways at a time, and a mask may cost 1,500,000 looks at a way. Beyond that some tokens of several bytes
are left out; single bytes never are, and a token that the mask has is never refused. Of grammars made to be ambiguous:

`)
	said(&b, "./engine/grammar", "TestAmbiguousGrammars", "slowest mask|refused")
	b.WriteString("\n## The public JSON Schema test suite\n\nDrafts 7 and 2020-12. Of each schema that is supported 20 answers from random logits validate by santhosh-tekuri/jsonschema, and no invalid\n" +
		"instance of the suite is accepted. The valid ones that are not accepted are in another order, have members that `properties` does not name, or spell a\nnumber otherwise (see `grammar.Schema`).\n\n")
	said(&b, "./engine/grammar", "TestSchemaSuite", "supported|refused")
	b.WriteString("\n`TestRandomSchemas` does the same with schemas that are made up of all keywords.\n\n")
	said(&b, "./engine/grammar", "TestRandomSchemas", "compiled")
	b.WriteString("\n## A real model\n\n`TestSmolLM2AnswersWithinSchemas`: SmolLM2 135M on the CPU, all schemas at once, 150 tokens for each of the typical ones, 60 for each of the suite's.\n" +
		"Those that are not complete came to that limit, most of them in a string or a number without a bound.\n\n")
	said(&b, "./engine", "TestSmolLM2AnswersWithinSchemas", "complete and valid")
	b.WriteString("\n## Text that has no choice\n\n`BenchmarkForcedText`: an answer of an order's schema, where the text that the grammar leaves no choice about is computed in one row, and a token at a\n" +
		"time. The simulated model, whose logits mean nothing, spells such text byte by byte when it may choose, which flatters the ratio.\n\n")
	measured(&b, "BenchmarkForcedText", "3x")
	b.WriteString("\n## While a large schema compiles\n\n`BenchmarkCompilingBesideAStream`: gaps between the tokens of a stream on a simulated RTX 3090 in real time (qwen3.5-27b), on\n" +
		"2 cores, while schemas of 5,250 lines were compiled one after another, which is more than a client does.\n\n")
	measured(&b, "BenchmarkCompilingBesideAStream", "1x")
	b.WriteString("\nMasks beside xgrammar's: [grammar-xgrammar.md](grammar-xgrammar.md).\n")
	return b.String()
}

// said adds the lines of a test's log that match.
func said(b *strings.Builder, pkg, test, lines string) {
	quote(b, []string{"test", "-count=1", "-v", "-run", "^" + test + "$", pkg}, regexp.MustCompile(`^\s*\w+_test\.go:\d+: (.*(?:`+lines+`).*)$`))
}

// measured adds the results of a benchmark.
func measured(b *strings.Builder, benchmark, times string) {
	quote(b, []string{"test", "-count=1", "-run", "^$", "-bench", "^" + benchmark + "$", "-benchtime", times, "./engine"}, regexp.MustCompile(`^(Benchmark.*)$`))
}

func quote(b *strings.Builder, args []string, lines *regexp.Regexp) {
	cmd := exec.Command("go", args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		log.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	b.WriteString("```\n")
	found := false
	for line := range strings.Lines(string(out)) {
		if m := lines.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			b.WriteString(strings.Join(strings.Fields(m[1]), " ") + "\n")
			found = true
		}
	}
	if !found {
		log.Fatalf("%v says nothing of what is looked for:\n%s", cmd, out)
	}
	b.WriteString("```\n")
}

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
