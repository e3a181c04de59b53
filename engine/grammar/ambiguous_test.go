package grammar

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostile are grammars that can be read in more ways than are followed.
func hostile() map[string]string {
	var calls, chain, twice, empty, many strings.Builder
	calls.WriteString("root ::= r0")
	for i := range 3000 {
		if i > 0 {
			fmt.Fprintf(&calls, " | r%d", i)
		}
	}
	calls.WriteString("\n")
	for i := range 3000 {
		fmt.Fprintf(&calls, "r%d ::= \"a\" [ab]* \"%d\" | \"b\" root\n", i, i)
	}
	chain.WriteString("root ::= r0 \"x\" | root2\nroot2 ::= \"ab\" root2 | \"c\"\n")
	for i := range 2999 {
		fmt.Fprintf(&chain, "r%d ::= r%d \"%c\" | r%d \"%c\"\n", i, i+1, 'a'+i%3, i+1, 'a'+i%2)
	}
	chain.WriteString("r2999 ::= [ab]+\n")
	twice.WriteString("root ::= r0 \"x\"\n")
	for i := range 40 {
		fmt.Fprintf(&twice, "r%d ::= r%d r%d | r%d \"a\" r%d | \"b\"\n", i, i+1, i+1, i+1, i+1)
	}
	twice.WriteString("r40 ::= \"\" | \"a\"\n")
	empty.WriteString("root ::= r0 \"x\"\n")
	for i := range 60 {
		fmt.Fprintf(&empty, "r%d ::= r%d r%d\n", i, i+1, i+1)
	}
	empty.WriteString("r60 ::= \"\"\n")
	many.WriteString("root ::= ")
	for i := range 600 {
		if i > 0 {
			many.WriteString(" | ")
		}
		fmt.Fprintf(&many, "\"a\"{0,3} s%d", i)
	}
	many.WriteString("\n")
	for i := range 600 {
		fmt.Fprintf(&many, "s%d ::= [ab]* t%d \"c\"\nt%d ::= \"ab\" | \"b\" t%d \"a\" | \"%d\"\n", i, i, i, (i+1)%600, i)
	}
	var fan strings.Builder
	fan.WriteString("root ::= r0")
	for i := 1; i < 90; i++ {
		fmt.Fprintf(&fan, " | r%d", i)
	}
	fan.WriteString("\n")
	for i := range 90 {
		fmt.Fprintf(&fan, "r%d ::= \"a\" m%d | \"b\" r%d \"a\"\nm%d ::= (p0", i, i, i, i)
		for k := 1; k < 10; k++ {
			fmt.Fprintf(&fan, " | p%d", k)
		}
		fmt.Fprintf(&fan, ") [\\x%02x] root?\n", 33+i)
	}
	for k := range 10 {
		fmt.Fprintf(&fan, "p%d ::= \"z\" p%d | \"y\"{%d}\n", k, k, 9+k)
	}
	return map[string]string{
		"fan": strings.ReplaceAll(fan.String(), "| \"y\"", "| \"\" | \"y\""), "any text": "root ::= (x | y)+\nx ::= [^z]* \"a\"\ny ::= \"a\" root [^z] | [^x] root",
		"ambiguous lists":   `root ::= x+` + "\n" + `x ::= "a" | "a" x | "aa" x "b"?`,
		"palindromes":       `root ::= "a" root "a" | "b" root "b" | "a" | "b" | "aa"`,
		"catalan":           `root ::= "a" root root | "b" | "ab" root root root`,
		"catalan, nullable": `root ::= "a" root root | "b" | "a"?` + "\n",
		"3000 rules":        calls.String(),
		"deep chain":        chain.String(),
		"twice each":        twice.String(),
		"empty, doubled":    empty.String(),
		"600 ways":          many.String(),
	}
}

// Where a grammar has more readings than are followed, the mask is still exactly what Advance takes, never empty, and every
// answer can be led to an end.
func TestAmbiguousGrammars(t *testing.T) {
	var pairs []string
	for b := range 256 {
		pairs = append(pairs, "a"+string([]byte{byte(b)}), "ba"+string([]byte{byte(b)}))
	}
	v := byteVocabulary(append(pairs, "aa", "ab", "ba", "bb", "aaa", "aab", "abab", "aaaa", "aaaaaaaa", "abababab", "bbbbbbbb", "bc", "abc", "12", "a1", "xx", "ax", "bx")...)
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			e, err := EBNF(text)
			if err != nil {
				t.Fatal(err)
			}
			g, err := Compile(t.Context(), e, v)
			if err != nil {
				t.Logf("refused: %v", err)
				return
			}
			cut, slowest := 0, time.Duration(0)
			for seed := range uint64(2) {
				s := g.Start()
				for n := range 7 {
					at := time.Now()
					mask := s.Mask()
					slowest = max(slowest, time.Since(at))
					var can []int32
					for id := range int32(v.size) {
						next, takes := s.Advance(id)
						if said := mask[id/32]>>(id%32)&1 != 0; said != takes {
							t.Fatalf("seed %d, token %d of the answer: %d %q: the mask says %v, Advance %v", seed, n, id, v.tokens[id], said, takes)
						}
						if takes {
							can = append(can, id)
							if next.set.cut {
								cut++
							}
						}
					}
					if len(can) == 0 {
						t.Fatal("an empty mask")
					}
					// Long tokens first: they pass more places where ways are cut.
					slices.SortStableFunc(can, func(a, b int32) int { return len(v.tokens[b]) - len(v.tokens[a]) })
					id := can[mix(seed<<32+uint64(n))%uint64(min(len(can), 3))]
					if v.isEnd[id] {
						break
					}
					s, _ = s.Advance(id)
				}
				for n := 0; !s.MayEnd(); n++ {
					b, ok := s.Shortest()
					if !ok || n > 10_000 {
						t.Fatalf("no end after %d bytes", n)
					}
					if s, ok = s.Advance(int32(b)); !ok {
						t.Fatalf("the shortest way on, %q, is refused", b)
					}
				}
			}
			t.Logf("%d states with ways not followed, slowest mask %v, all %v", cut, slowest, time.Since(begin))
		})
	}
}
