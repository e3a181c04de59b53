// Maskdiff compares token masks with xgrammar's, token by token along valid instances, over a real vocabulary, and writes
// docs/grammar-xgrammar.md. It needs Node.js and the package @mlc-ai/web-xgrammar, which scripts/maskdiff.sh fetches.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/openinfer-go/openinfer/engine/grammar"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

type sample struct{ schema, instance string }

// samples are written as both libraries allow it: members in the schema's order, one space after a colon and a comma.
var samples = []sample{
	{`{"type":"boolean"}`, `true`},
	{`{"type":"null"}`, `null`},
	{`{"type":"integer"}`, `-12034`},
	{`{"type":"number"}`, `3.25e-7`},
	{`{"type":"string"}`, `"naïve \"quoted\" 東京 \u00e9\n"`},
	{`{"enum":["red","green","blue",1,null,true]}`, `"green"`},
	{`{"const":{"a":[1,"x"]}}`, `{"a": [1, "x"]}`},
	{`{"type":"string","minLength":2,"maxLength":12}`, `"hello world"`},
	{`{"type":"string","pattern":"^[A-Z]{2}[0-9]{4}$"}`, `"AB1234"`},
	{`{"type":"integer","minimum":0,"maximum":150}`, `36`},
	{`{"type":"array","items":{"type":"integer"}}`, `[1, 22, -333]`},
	{`{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":3}`, `["a", "bc"]`},
	{`{"type":"array","prefixItems":[{"type":"string"},{"type":"boolean"}],"items":false,"minItems":2}`, `["x", false]`},
	{`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}`, `{"name": "Ada Lovelace", "age": 36}`},
	{`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"},"c":{"type":"boolean"}},"required":["b"],"additionalProperties":false}`, `{"a": "x", "b": 1.5, "c": true}`},
	{`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"additionalProperties":false}`, `{"b": "only"}`},
	{`{"type":"object","additionalProperties":{"type":"integer"}}`, `{"one": 1, "two": 2}`},
	{`{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}`, `"some"`},
	{`{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"number"}},"required":["kind","r"],"additionalProperties":false}`, `{"kind": "circle", "r": 2.0}`},
	{`{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}}`, `{"v": 1, "next": {"v": 2, "next": null}}`},
	{`{"type":"object","properties":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}},"required":["street","city"],"additionalProperties":false},"tags":{"type":"array","items":{"enum":["red","blue"]}}},"required":["address","tags"],"additionalProperties":false}`, `{"address": {"street": "12 St James's", "city": "London"}, "tags": ["red", "blue"]}`},
	{`{"type":"string","format":"date"}`, `"2024-06-30"`},
}

func main() {
	dir := flag.String("tokenizer", filepath.Join(os.Getenv("OPENINFER_CACHE"), "tokenizers", "qwen3"), "folder with tokenizer.json")
	library := flag.String("xgrammar", "", "index.js of web-xgrammar")
	out := flag.String("o", "docs/grammar-xgrammar.md", "file to write")
	flag.Parse()
	raw, err := os.ReadFile(filepath.Join(*dir, "tokenizer.json"))
	check(err)
	tok, err := tokenizer.FromJSON(raw)
	check(err)
	end, ok := tok.ID("<|im_end|>")
	if !ok {
		log.Fatal("no end token")
	}
	size := tok.Size()
	names, tokens := make([]string, size), make([]grammar.Token, size)
	for i := range size {
		id := int32(i)
		names[i], _ = tok.Token(id)
		// xgrammar's ordinary tokens are all that are in its vocabulary; control tokens are left out of the comparison.
		tokens[i] = grammar.Token{Bytes: tok.TokenBytes(id), Control: tok.IsSpecial(id)}
	}
	v := grammar.NewVocabulary(tokens, []int32{end})

	type job struct {
		Schema string  `json:"schema"`
		Spaced bool    `json:"spaced"`
		IDs    []int32 `json:"ids"`
	}
	in := struct {
		Vocabulary []string `json:"vocabulary"`
		End        int32    `json:"end"`
		Cases      []job    `json:"cases"`
	}{Vocabulary: names, End: end}
	for _, s := range samples {
		in.Cases = append(in.Cases, job{s.schema, true, append(tok.Encode(s.instance, tokenizer.Options{}), end)})
	}
	stdin, err := json.Marshal(in)
	check(err)
	cmd := exec.Command("node", "--max-old-space-size=1024", "scripts/maskdiff/xgrammar.mjs", *library)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(stdin), os.Stderr
	stdout, err := cmd.Output()
	check(err)
	lines := strings.Split(strings.TrimSpace(string(stdout)), "\n")
	if len(lines) != len(samples) {
		log.Fatalf("%d lines for %d schemas", len(lines), len(samples))
	}

	var b strings.Builder
	fmt.Fprintf(&b, "# Token masks beside xgrammar's\n\nMade by scripts/maskdiff.sh over the %d tokens of %s: masks before each token of a valid instance. Both are told\nthat any amount of spaces, tabs and new lines may stand between parts; by itself this server lets one space stand there, or a new line and up to 40\nspaces or tabs, so that no answer is white space without end.\n\n", size, filepath.Base(*dir))
	b.WriteString("| schema | masks | equal | differ by white space alone | tokens only here | only there | examples |\n|---|---|---|---|---|---|---|\n")
	masks, equal, spaces := 0, 0, 0
	kinds := map[string]int{}
	for n, s := range samples {
		var theirs struct {
			Masks []string
			Error string
		}
		check(json.Unmarshal([]byte(lines[n]), &theirs))
		cell := "`" + strings.ReplaceAll(s.schema, "|", "\\|") + "`"
		if theirs.Error != "" {
			fmt.Fprintf(&b, "| %s | xgrammar: %.80s | | | | | |\n", cell, theirs.Error)
			continue
		}
		space, err := grammar.Regex(`[ \n\t]*`) // as xgrammar has it
		check(err)
		e, err := grammar.SchemaWithSpace([]byte(s.schema), space, true)
		check(err)
		g, err := grammar.Compile(context.Background(), e, v)
		check(err)
		state := g.Start()
		all, same, white, here, there := 0, 0, 0, 0, 0
		examples := map[string]bool{}
		said := ""
		for k, id := range in.Cases[n].IDs {
			if k >= len(theirs.Masks) {
				break
			}
			if theirs.Masks[k] == "refused" {
				examples["xgrammar refuses "+strconv.Quote(s.instance)] = true
				break
			}
			mask, other := state.Mask(), words(theirs.Masks[k])
			all++
			h, o, blank := 0, 0, 0
			for id := range int32(size) {
				a, b := mask[id/32]>>(id%32)&1 != 0, other[id/32]>>(id%32)&1 != 0
				if a == b || tokens[id].Control && id != end {
					continue
				}
				text := string(tokens[id].Bytes)
				sign := "+"
				if a {
					h++
				} else {
					o++
					sign = "-"
				}
				kind := kindOf(said, text, s.schema, a)
				kinds[kind]++
				switch {
				case kind == "white space":
					blank++
				case len(examples) < 4 && (kind != "broken UTF-8" || len(examples) == 0):
					examples[sign+strconv.Quote(text)] = true
				}
				if kind == unexplained {
					log.Printf("unexplained: %s, before token %d of %s: %s%q", s.schema, k, s.instance, sign, text)
				}
			}
			here, there = here+h, there+o
			switch {
			case h+o == 0:
				same++
			case h+o == blank:
				white++
			}
			next, ok := state.Advance(id)
			if !ok {
				log.Fatalf("%s: %s: token %d is refused", s.schema, s.instance, k)
			}
			state, said = next, said+string(tokens[id].Bytes)
		}
		masks, equal, spaces = masks+all, equal+same, spaces+white
		text := strings.Join(slices.Sorted(maps.Keys(examples)), ", ")
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %s |\n", cell, all, same, white, here, there, strings.ReplaceAll(text, "|", "\\|"))
	}
	fmt.Fprintf(&b, "\n%d masks: %d equal, %d differ by white space alone, %d otherwise. In the examples + is a token that is allowed only here, - one only there.\n", masks, equal, spaces, masks-equal-spaces)
	b.WriteString(notes)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "| %s | %d | %s |\n", kind, kinds[kind], why[kind])
	}
	check(os.WriteFile(*out, []byte(b.String()), 0o644))
	fmt.Print(b.String())
	if kinds[unexplained] > 0 {
		log.Fatalf("%d differences are not explained", kinds[unexplained])
	}
}

const notes = `
## Kinds of difference

| kind | tokens | why |
|---|---|---|
`

const unexplained = "unexplained"

// why explains the kinds.
var why = map[string]string{
	"white space":       "xgrammar lets white space stand before a comma and a colon and behind the whole, where none stands here.",
	"constant":          "xgrammar writes a constant array or object in one way; here white space is as free in it as elsewhere.",
	"broken UTF-8":      "xgrammar lets bytes into a string that are not UTF-8 (C0, C1, F5 to FF, overlong forms, surrogates); such an answer would not be JSON.",
	"minus zero":        "-0 is JSON and an integer; xgrammar's integers have no -0.",
	"half a pair":       "xgrammar lets \\uD800 to \\uDFFF stand alone; that names no character.",
	"escape":            "Where a length is asked for, xgrammar's strings have no escapes; here an escape is a character.",
	"control character": "Where a length is asked for, xgrammar lets control characters stand as themselves, which JSON does not.",
	"calendar":          "A date is one of the calendar here: no 31 June.",
	unexplained:         "to be looked into",
}

var surrogate = regexp.MustCompile(`\\u[dD]([89a-fA-F]|$)`)

// blank is white space where none stands here.
var blank = regexp.MustCompile(`[ \n\t]+([,:]|$)`)

// kindOf names the kind of a difference at a token after what was said, allowed only here or only there.
func kindOf(said, text, schema string, here bool) string {
	switch {
	case !here && surrogate.MatchString((said + text)[max(0, len(said)-5):]):
		return "half a pair"
	case broken(text):
		return "broken UTF-8"
	case here && text == "0" && strings.Contains(schema, "integer"):
		return "minus zero"
	case here && strings.Contains(schema, "Length") && strings.Contains(text, `\`):
		return "escape"
	case !here && strings.Contains(schema, "Length") && strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }):
		return "control character"
	case here && strings.Contains(schema, `"const":{`) && strings.ContainsAny(text, " \n\t"):
		return "constant"
	case !here && blank.MatchString(text):
		return "white space"
	case strings.Contains(schema, "date"):
		return "calendar"
	}
	return unexplained
}

// broken reports whether text is no part of UTF-8; a character may begin before it and end after it.
func broken(text string) bool {
	b := []byte(text)
	for i := 0; i < 3 && len(b) > 0 && b[0]&0xC0 == 0x80; i++ {
		b = b[1:]
	}
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return utf8.FullRune(b)
		}
		b = b[n:]
	}
	return false
}

func words(text string) (out []uint32) {
	for w := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(w, 16, 32)
		check(err)
		out = append(out, uint32(n))
	}
	return out
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
