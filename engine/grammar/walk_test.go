package grammar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Of any vocabulary a mask has exactly the tokens whose bytes may follow, however far a counted string still goes.
func TestMasksOfAnyVocabulary(t *testing.T) {
	pieces := []string{"a", "b", " ", "\"", "\\", "n", "\n", "é", "東", "😀", "\xe6", "\xf0\x9f", "\x80", "\xc3", ",", "}", "0", "\\u00", "u", "\x7f", "\xed\xa0\x80"}
	ok := must(t)
	var exprs []Expr
	for _, n := range []int{0, 1, 2, 3, 5, 7, 12, 40} {
		exprs = append(exprs, ok(Schema(fmt.Appendf(nil, `{"type":"string","maxLength":%d}`, n))),
			ok(Schema(fmt.Appendf(nil, `{"type":"object","properties":{"a":{"type":"string","maxLength":%d},"b":{"type":"string","minLength":%d}},"required":["a"]}`, n, n))))
	}
	exprs = append(exprs, JSON(), ok(Schema([]byte(`{"type":"string","pattern":"^[ab東]{2,9}(é|n)*$"}`))), ok(Regex(`(.|\n){0,6}"`)), Seq(Until("東\""), Literal("東\"")))
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var more []string
		for range 120 {
			var b strings.Builder
			for range 1 + rng.IntN(7) {
				b.WriteString(pieces[rng.IntN(len(pieces))])
			}
			more = append(more, b.String())
		}
		v := byteVocabulary(more...)
		for i, e := range exprs {
			s := compiled(t, e, v).Start()
			for range 12 {
				mask := s.Mask()
				var can []int32
				for id := range int32(v.size) {
					text := v.tokens[id]
					if len(text) == 0 {
						continue
					}
					_, reads := s.AdvanceBytes(text)
					if said := mask[id/32]>>(id%32)&1 != 0; said != reads {
						t.Fatalf("seed %d, grammar %d: token %q: the mask says %v, its bytes %v", seed, i, text, said, reads)
					}
					if reads {
						can = append(can, id)
					}
				}
				if len(can) == 0 {
					break
				}
				s, _ = s.Advance(can[rng.IntN(len(can))])
			}
		}
	}
}
