// Added tokens: strings that have an id of their own and are cut out of a text before anything
// else. Matching is leftmost-longest, with the options of the reference library.

package tokenizer

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a string with an id of its own, found in a text before pieces are merged.
type AddedToken struct {
	ID         int32
	Content    string
	SingleWord bool // matches only where no word character touches it
	LStrip     bool // takes the white space before it
	RStrip     bool // takes the white space after it
	Normalized bool // is normalised itself, and found in the normalised text
	Special    bool // a control token: dropped by Decode with skipSpecial
}

// trie finds the longest of a set of patterns at a position.
type trie struct {
	root  [256]int32 // child of the root by byte; 0 for none
	nodes []trieNode // nodes[0] is unused
}

type trieNode struct {
	keys  []byte // sorted
	next  []int32
	token int32 // index into the added tokens plus one; 0 where no pattern ends
}

func newTrie() *trie { return &trie{nodes: make([]trieNode, 1)} }

// insert adds a pattern; the first of two equal patterns stays.
func (t *trie) insert(pattern string, token int) {
	if pattern == "" {
		return
	}
	at := &t.root[pattern[0]]
	for i := 0; ; i++ {
		if *at == 0 {
			*at = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{})
		}
		n := *at
		if i == len(pattern)-1 {
			if t.nodes[n].token == 0 {
				t.nodes[n].token = int32(token + 1)
			}
			return
		}
		c := pattern[i+1]
		node := &t.nodes[n]
		k := sort.Search(len(node.keys), func(k int) bool { return node.keys[k] >= c })
		if k == len(node.keys) || node.keys[k] != c {
			node.keys = append(node.keys, 0)
			node.next = append(node.next, 0)
			copy(node.keys[k+1:], node.keys[k:])
			copy(node.next[k+1:], node.next[k:])
			node.keys[k] = c
			node.next[k] = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{})
			node = &t.nodes[n]
		}
		at = &node.next[k]
	}
}

// longest returns the end and the token of the longest pattern that starts at s[i], or 0, -1.
// accept, if not nil, says whether a pattern counts.
func (t *trie) longest(s string, i int, accept func(start, end, token int) bool) (end, token int) {
	token = -1
	n := t.root[s[i]]
	for j := i + 1; n != 0; j++ {
		node := &t.nodes[n]
		if tok := int(node.token) - 1; tok >= 0 && (accept == nil || accept(i, j, tok)) {
			end, token = j, tok
		}
		if j == len(s) {
			break
		}
		n = 0
		for k, c := range node.keys {
			if c == s[j] {
				n = node.next[k]
				break
			}
		}
	}
	return end, token
}

// addedSplit finds added tokens in s and calls yield for every part in order: a token (an index
// into t.added) or, with token -1, the text between. skip makes special tokens ordinary text as
// the reference's encode_special_tokens does: the characters of such a match are passed over.
// accept, if not nil, says which tokens exist at all at a place.
func (t *Tokenizer) addedSplit(s string, tr *trie, skip bool, accept func(start, end, token int) bool, yield func(start, end, token int)) {
	from := 0
	for i := 0; i < len(s); {
		if tr.root[s[i]] == 0 {
			i++
			continue
		}
		end, token := tr.longest(s, i, accept)
		if token < 0 {
			i++
			continue
		}
		start, next := i, end
		i = end
		a := &t.added[token]
		if skip && a.Special {
			continue
		}
		if a.SingleWord && (endsWithWord(s[:start]) || startsWithWord(s[next:])) {
			continue
		}
		if a.LStrip {
			start = min(start, max(len(strings.TrimRightFunc(s[:start], unicode.IsSpace)), from))
		}
		if a.RStrip {
			next = len(s) - len(strings.TrimLeftFunc(s[next:], unicode.IsSpace))
		}
		if from < start {
			yield(from, start, -1)
		}
		yield(start, next, token)
		// White space taken by RStrip counts again where it is itself a token: from may go
		// back here. So it does in the reference.
		from = next
	}
	if from < len(s) {
		yield(from, len(s), -1)
	}
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func startsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

// isWord is \w of the Rust regex library.
func isWord(r rune) bool {
	return unicode.In(pinRune(r), unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}
