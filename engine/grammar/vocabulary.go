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
	v.lookBelow()
	return v
}

func (v *Vocabulary) words() int { return (v.size + 31) / 32 }

// walk sets in mask every token below node i, whose state is s, that s lets in; i -1 is the root. reached is told
// each node after which a rule has returned to who is not known. It returns its work, in ways looked at, and stops where that
// is most.
func (v *Vocabulary) walk(mask []uint32, i int32, s *set, most int, reached func(node int32)) (work int) {
	if len(s.configs) == 0 {
		return 1
	}
	end, base := int32(len(v.label)), uint16(0)
	if i >= 0 {
		end, base = v.end[i], v.depth[i]
	}
	sets := make([]*set, v.deep-int(base)+1)
	sets[0] = s
	for i++; i < end && work < most; {
		d := v.depth[i] - base
		if v.below[i].opens && sets[d-1].takes(&v.below[i]) {
			work++
			v.take(mask, v.first[i], v.first[v.end[i]])
			i = v.end[i]
			continue
		}
		next := sets[d-1].step(v.label[i])
		if next == dead {
			work++
			i = v.end[i]
			continue
		}
		work += next.cost
		sets[d] = next
		v.take(mask, v.first[i], v.first[i+1])
		if next.pops {
			reached(i)
		}
		switch {
		case len(next.configs) == 0:
			i = v.end[i]
		case v.end[i] > i+1 && !v.below[i].opens && next.takes(&v.below[i]):
			v.take(mask, v.first[i+1], v.first[v.end[i]])
			i = v.end[i]
		default:
			i++
		}
	}
	return work
}

// take sets v.ids from first to end in mask.
func (v *Vocabulary) take(mask []uint32, first, end int32) {
	for _, id := range v.ids[first:end] {
		mask[id/32] |= 1 << (id % 32)
	}
}
