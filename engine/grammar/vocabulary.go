package grammar

import (
	"bytes"
	"slices"
)

// Vocabulary is what a model can say, prepared once: a trie of its ordinary tokens in preorder. It is constant.
type Vocabulary struct {
	size     int
	tokens   [][]byte        // by id, of ordinary tokens
	controls []control       // by text
	controlN map[int32]int32 // of a control token: its place in controls
	ends     []int32
	isEnd    map[int32]bool
	single   [256][]int32 // tokens of one byte

	spellsFrom [firstControl]int32 // the first byte from one on that none of single spells

	// By node, without the root, whose depth is 0. A node's subtree is what stands before end.
	label []byte
	depth []uint16
	end   []int32
	first []int32 // in ids; one more than nodes
	ids   []int32
	deep  int
	below []below
	text  textTokens
}

// control are tokens of one text that stand for structure and are never part of free text.
type control struct {
	text string
	ids  []int32
}

// Token is one entry of a vocabulary.
type Token struct {
	Bytes   []byte // that it adds to a text; none: it is never drawn
	Control bool   // only a Literal may be spelt by it
}

// NewVocabulary prepares the tokens 0 to len(tokens)-1, of which ends end an answer. Bytes must not change.
func NewVocabulary(tokens []Token, ends []int32) *Vocabulary {
	v := &Vocabulary{size: len(tokens), tokens: make([][]byte, len(tokens)), ends: slices.Clone(ends),
		isEnd: map[int32]bool{}, controlN: map[int32]int32{}}
	for _, id := range ends {
		v.isEnd[id] = true
	}
	var order []int32
	byText := map[string]int32{}
	for i, t := range tokens {
		id := int32(i)
		switch {
		case len(t.Bytes) == 0 || v.isEnd[id] || len(t.Bytes) > 1<<15:
		case t.Control:
			k, ok := byText[string(t.Bytes)]
			if !ok {
				k = int32(len(v.controls))
				byText[string(t.Bytes)] = k
				v.controls = append(v.controls, control{text: string(t.Bytes)})
			}
			v.controls[k].ids = append(v.controls[k].ids, id)
			v.controlN[id] = k
		default:
			v.tokens[i] = t.Bytes
			order = append(order, id)
			if len(t.Bytes) == 1 {
				v.single[t.Bytes[0]] = append(v.single[t.Bytes[0]], id)
			}
		}
	}
	for b := int32(firstControl - 1); b >= 0; b-- {
		switch {
		case len(v.single[b]) == 0:
			v.spellsFrom[b] = b
		case b == firstControl-1:
			v.spellsFrom[b] = firstControl
		default:
			v.spellsFrom[b] = v.spellsFrom[b+1]
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return bytes.Compare(v.tokens[a], v.tokens[b]) })
	var path []int32 // nodes of the token before
	var before []byte
	for _, id := range order {
		b := v.tokens[id]
		same := 0
		for same < min(len(b), len(before)) && b[same] == before[same] {
			same++
		}
		for len(path) > same {
			v.end[path[len(path)-1]] = int32(len(v.label))
			path = path[:len(path)-1]
		}
		for _, c := range b[same:] {
			path = append(path, int32(len(v.label)))
			v.label, v.depth = append(v.label, c), append(v.depth, uint16(len(path)))
			v.end, v.first = append(v.end, 0), append(v.first, int32(len(v.ids)))
		}
		v.ids = append(v.ids, id)
		v.deep = max(v.deep, len(b))
		before = b
	}
	for _, n := range path {
		v.end[n] = int32(len(v.label))
	}
	v.first = append(v.first, int32(len(v.ids)))
	at := v.lookBelow()
	v.lookText(at)
	return v
}

func (v *Vocabulary) words() int { return (v.size + 31) / 32 }
