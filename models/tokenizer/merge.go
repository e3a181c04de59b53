// Merging: a piece becomes symbols, and neighbours are joined, best pair first, until no pair
// is left that the vocabulary knows. "Best" is the merge with the lowest rank (byte-pair
// encoding) or the token with the highest score (SentencePiece); of equals, the leftmost.
//
// Short pieces are merged by looking for the best pair again and again, long ones with a heap,
// so that a piece of n symbols costs n log n. Before that a long piece is cut where no merge can
// reach across: between two neighbours that stand side by side in no token.

package tokenizer

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

const noRank = ^uint32(0)

// model is the vocabulary and its merges.
type model struct {
	ids       map[string]int32 // by token; in bytes if byteLevel
	byteLevel bool             // symbols are bytes, else characters
	symbolIDs [256]int32       // of bytes, or of the characters below 256; -1 for none
	runeIDs   map[rune]int32   // of the other characters

	merges pairTable // byte-pair encoding
	spm    *spmModel // SentencePiece; nil for byte-pair encoding

	byteFallback bool
	fallbackIDs  [256]int32 // <0x00> ... <0xFF>, -1 for none
	unk          int32      // -1 for none: an unknown character is dropped
	fuseUnk      bool
	ignoreMerges bool // a piece that is a token is not merged
	wholeBreaks  bool // a piece of line feeds that is a token is not merged
	complete     bool // every byte has an id or is part of one
	longest      int  // bytes of the longest token

	cuts  *adjacency // nil where pieces must not be cut
	cache pieceCache
}

// finish derives the tables from ids and merges.
func (m *model) finish() {
	m.runeIDs = make(map[rune]int32)
	for i := range m.symbolIDs {
		m.symbolIDs[i] = -1
	}
	for token, id := range m.ids {
		switch r, n := utf8.DecodeRuneInString(token); {
		case m.byteLevel && len(token) == 1:
			m.symbolIDs[token[0]] = id
		case m.byteLevel || n != len(token) || r == utf8.RuneError && n == 1:
		case r < 256:
			m.symbolIDs[r] = id
		default:
			m.runeIDs[r] = id
		}
	}
	m.complete = true
	for b := range m.fallbackIDs {
		if m.byteLevel {
			m.complete = m.complete && m.symbolIDs[b] >= 0
		} else {
			m.complete = m.complete && m.byteFallback && m.fallbackIDs[b] >= 0
		}
	}
	// A character without an id becomes the unknown token or nothing, and either ties its
	// neighbours together: no cutting then.
	if !m.complete {
		m.cuts = nil
	}
	for token := range m.ids {
		m.longest = max(m.longest, len(token))
	}
}

// covered is how many bytes of a text, whatever pieces it is cut into, stand in tokens of at most
// longest bytes; the others may be dropped or share an unknown token.
func (m *model) covered(text string) int {
	if m.complete {
		return len(text)
	}
	n := 0
	for i := 0; m.byteLevel && i < len(text); i++ {
		if m.symbolIDs[text[i]] >= 0 {
			n++
		}
	}
	return n
}

// cutAbove is the length in bytes from which a byte-level piece is looked at for cuts.
const cutAbove = 48

// encode appends the ids of a piece.
func (m *model) encode(out []int32, p string) []int32 {
	if p == "" {
		return out
	}
	if m.ignoreMerges || m.wholeBreaks && strings.Trim(p, "\n") == "" {
		if id, ok := m.ids[p]; ok {
			return append(out, id)
		}
	}
	if m.cuts == nil || m.byteLevel && len(p) <= cutAbove {
		return m.encodeCached(out, p)
	}
	from := 0
	if m.byteLevel {
		for i := 1; i < len(p); i++ {
			if !m.cuts.has(rune(p[i-1]), rune(p[i])) {
				out = m.encodeCached(out, p[from:i])
				from = i
			}
		}
		return m.encodeCached(out, p[from:])
	}
	prev := rune(-1)
	for i, r := range p {
		if i > 0 && !m.cuts.has(prev, r) {
			out = m.encodeCached(out, p[from:i])
			from = i
		}
		prev = r
	}
	return m.encodeCached(out, p[from:])
}

func (m *model) encodeCached(out []int32, p string) []int32 {
	if len(p) > maxCached {
		return m.merge(out, p)
	}
	slot := m.cache.slot(p)
	if e := slot.Load(); e != nil && e.piece == p {
		return append(out, e.ids...)
	}
	n := len(out)
	out = m.merge(out, p)
	slot.Store(&cacheEntry{strings.Clone(p), append([]int32(nil), out[n:]...)})
	return out
}

// symbols holds a piece while it is merged.
type symbols struct {
	ids        []int32
	rank       []uint32 // of the pair that begins at a symbol
	from       []int32  // byte offset of each symbol and, last, of the end (SentencePiece only)
	prev, next []int32
	heap       []uint64 // rank<<32 | index
}

var symbolsPool = sync.Pool{New: func() any { return new(symbols) }}

// keepSymbols bounds what the pool holds on to: a rare huge piece is left to the collector.
const keepSymbols = 1 << 16

// merge appends the ids of a piece that is neither cut nor cached.
func (m *model) merge(out []int32, p string) []int32 {
	s := symbolsPool.Get().(*symbols)
	defer func() {
		if cap(s.ids) <= keepSymbols && cap(s.heap) <= keepSymbols {
			symbolsPool.Put(s)
		}
	}()
	s.ids = s.ids[:0]
	if m.spm != nil {
		return m.spm.merge(m, s, out, p)
	}
	if m.byteLevel {
		m.byteSymbols(s, p)
	} else {
		m.runeSymbols(s, p)
	}
	pair := func(i, j int32) uint32 {
		rank, _ := m.merges.get(s.ids[i], s.ids[j])
		return rank
	}
	join := func(i, j int32) {
		_, id := m.merges.get(s.ids[i], s.ids[j])
		s.ids[i] = id
	}
	return append(out, s.merge(pair, join)...)
}

func (m *model) byteSymbols(s *symbols, p string) {
	for i := range len(p) {
		if id := m.symbolIDs[p[i]]; id >= 0 {
			s.ids = append(s.ids, id)
		} else if m.unk >= 0 && (!m.fuseUnk || len(s.ids) == 0 || s.ids[len(s.ids)-1] != m.unk) {
			s.ids = append(s.ids, m.unk)
		}
	}
}

func (m *model) runeSymbols(s *symbols, p string) {
	// An unknown token waits for the next known character; bytes do not end the wait. So does
	// the reference.
	waiting := false
	flush := func() {
		if waiting {
			s.ids = append(s.ids, m.unk)
		}
		waiting = false
	}
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRuneInString(p[i:])
		i += n
		if id := m.runeID(r); id >= 0 {
			flush()
			s.ids = append(s.ids, id)
			continue
		}
		if m.byteFallback && m.appendBytes(s, p[i-n:i]) {
			continue
		}
		if m.unk >= 0 {
			if !m.fuseUnk {
				flush()
			}
			waiting = true
		}
	}
	flush()
}

func (m *model) runeID(r rune) int32 {
	if r < 256 {
		return m.symbolIDs[r]
	}
	if id, ok := m.runeIDs[r]; ok {
		return id
	}
	return -1
}

// appendBytes adds the tokens of a character's bytes if there is one for each.
func (m *model) appendBytes(s *symbols, char string) bool {
	for i := range len(char) {
		if m.fallbackIDs[char[i]] < 0 {
			return false
		}
	}
	for i := range len(char) {
		s.ids = append(s.ids, m.fallbackIDs[char[i]])
	}
	return true
}

// shortPiece is the number of symbols up to which looking through all pairs beats the heap.
const shortPiece = 40

// merge joins neighbours until none can be, and returns the ids left. pair ranks two
// neighbours, join puts the result in the place of the first.
func (s *symbols) merge(pair func(i, j int32) uint32, join func(i, j int32)) []int32 {
	n := int32(len(s.ids))
	if n < 2 {
		return s.ids
	}
	s.rank, s.next, s.prev = resize(s.rank, n), resize(s.next, n), resize(s.prev, n)
	for i := range n {
		s.prev[i], s.next[i] = i-1, i+1
	}
	for i := range n - 1 {
		s.rank[i] = pair(i, i+1)
	}
	s.rank[n-1] = noRank
	if n <= shortPiece {
		s.mergeShort(n, pair, join)
	} else {
		s.mergeLong(n, pair, join)
	}
	k := 0
	for i := int32(0); i < n; i = s.next[i] {
		s.ids[k] = s.ids[i]
		k++
	}
	return s.ids[:k]
}

// joinAt joins the pair at i and ranks its new pairs.
func (s *symbols) joinAt(i, n int32, pair func(i, j int32) uint32, join func(i, j int32)) {
	j := s.next[i]
	join(i, j)
	after := s.next[j]
	s.next[i] = after
	s.rank[j] = noRank
	s.rank[i] = noRank
	if after < n {
		s.prev[after] = i
		s.rank[i] = pair(i, after)
	}
	if before := s.prev[i]; before >= 0 {
		s.rank[before] = pair(before, i)
	}
}

func (s *symbols) mergeShort(n int32, pair func(i, j int32) uint32, join func(i, j int32)) {
	for {
		best, at := noRank, int32(-1)
		for i := int32(0); i < n; i = s.next[i] {
			if s.rank[i] < best {
				best, at = s.rank[i], i
			}
		}
		if at < 0 {
			return
		}
		s.joinAt(at, n, pair, join)
	}
}

func (s *symbols) mergeLong(n int32, pair func(i, j int32) uint32, join func(i, j int32)) {
	s.heap = s.heap[:0]
	for i, r := range s.rank {
		if r != noRank {
			s.heap = append(s.heap, uint64(r)<<32|uint64(i))
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.down(i)
	}
	for len(s.heap) > 0 {
		top := s.heap[0]
		last := len(s.heap) - 1
		s.heap[0] = s.heap[last]
		s.heap = s.heap[:last]
		s.down(0)
		i := int32(uint32(top))
		if s.rank[i] != uint32(top>>32) {
			continue // the pair that was here is gone
		}
		s.joinAt(i, n, pair, join)
		s.push(i)
		if before := s.prev[i]; before >= 0 {
			s.push(before)
		}
	}
}

func (s *symbols) push(i int32) {
	if s.rank[i] == noRank {
		return
	}
	s.heap = append(s.heap, uint64(s.rank[i])<<32|uint64(i))
	for k := len(s.heap) - 1; k > 0; {
		up := (k - 1) / 2
		if s.heap[up] <= s.heap[k] {
			return
		}
		s.heap[up], s.heap[k] = s.heap[k], s.heap[up]
		k = up
	}
}

func (s *symbols) down(k int) {
	h := s.heap
	for {
		c := 2*k + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[k] <= h[c] {
			return
		}
		h[k], h[c] = h[c], h[k]
		k = c
	}
}

func resize[T any](s []T, n int32) []T {
	if int(n) <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}

// spmModel ranks tokens by score: any two neighbours that form a token may be joined.
type spmModel struct {
	rank   map[string]uint32 // 0 for the highest score; equal scores have equal ranks
	maxLen int               // longest token, in bytes
}

func (sp *spmModel) merge(m *model, s *symbols, out []int32, p string) []int32 {
	s.from = s.from[:0]
	for i := range p {
		s.ids = append(s.ids, int32(i)) // here a symbol is where it begins
		s.from = append(s.from, int32(i))
	}
	s.from = append(s.from, int32(len(p)))
	pair := func(i, j int32) uint32 {
		from, to := s.from[i], s.from[s.next[j]]
		if int(to-from) > sp.maxLen {
			return noRank
		}
		if r, ok := sp.rank[p[from:to]]; ok {
			return r
		}
		return noRank
	}
	starts := s.merge(pair, func(i, j int32) {})
	for k, from := range starts {
		to := len(p)
		if k+1 < len(starts) {
			to = int(starts[k+1])
		}
		token := p[from:to]
		if id, ok := m.ids[token]; ok {
			out = append(out, id)
			continue
		}
		for i := range len(token) {
			if id := m.fallbackIDs[token[i]]; id >= 0 {
				out = append(out, id)
			} else if m.unk >= 0 {
				out = append(out, m.unk)
			}
		}
	}
	return out
}

// pairTable maps two ids to the rank and the id of their merge: open addressing, since this is
// the innermost loop.
type pairTable struct {
	keys  []uint64 // 0 for empty, else the pair plus one
	vals  []uint64 // rank<<32 | id
	shift uint
}

func newPairTable(n int) pairTable {
	b := max(4, bits.Len(uint(2*n)))
	return pairTable{keys: make([]uint64, 1<<b), vals: make([]uint64, 1<<b), shift: uint(64 - b)}
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) + 1 }

func (t *pairTable) index(key uint64) int {
	for i := int(key * 0x9E3779B97F4A7C15 >> t.shift); ; i = (i + 1) & (len(t.keys) - 1) {
		if t.keys[i] == key || t.keys[i] == 0 {
			return i
		}
	}
}

// put keeps the last of equal pairs. The table must have been made for as many.
func (t *pairTable) put(a, b int32, rank uint32, id int32) {
	i := t.index(pairKey(a, b))
	t.keys[i] = pairKey(a, b)
	t.vals[i] = uint64(rank)<<32 | uint64(uint32(id))
}

func (t *pairTable) get(a, b int32) (rank uint32, id int32) {
	if i := t.index(pairKey(a, b)); t.keys[i] != 0 {
		return uint32(t.vals[i] >> 32), int32(uint32(t.vals[i]))
	}
	return noRank, -1
}

// adjacency is the set of neighbours that occur in tokens. It may claim more than it was told.
type adjacency struct{ bits [1 << 16]uint64 }

func adjacencyHash(a, b rune) uint32 {
	h := (uint64(uint32(a))<<32 | uint64(uint32(b))) * 0x9E3779B97F4A7C15
	return uint32(h >> 42) // 22 bits
}

func (a *adjacency) has(x, y rune) bool {
	h := adjacencyHash(x, y)
	return a.bits[h>>6]>>(h&63)&1 != 0
}

func (a *adjacency) addToken(token string, byteLevel bool) {
	prev := rune(-1)
	add := func(r rune) {
		if prev >= 0 {
			h := adjacencyHash(prev, r)
			a.bits[h>>6] |= 1 << (h & 63)
		}
		prev = r
	}
	if byteLevel {
		for i := range len(token) {
			add(rune(token[i]))
		}
		return
	}
	for _, r := range token {
		add(r)
	}
}

// pieceCache remembers the ids of short pieces. A slot holds the last piece that hashed to it,
// so the cache is bounded and needs no lock.
type pieceCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cacheEntry]
}

type cacheEntry struct {
	piece string
	ids   []int32
}

const (
	cacheSlots = 1 << 15
	maxCached  = 64 // bytes: longer pieces seldom come again
)

func newPieceCache() pieceCache {
	return pieceCache{maphash.MakeSeed(), make([]atomic.Pointer[cacheEntry], cacheSlots)}
}

func (c *pieceCache) slot(p string) *atomic.Pointer[cacheEntry] {
	return &c.slots[maphash.String(c.seed, p)&(cacheSlots-1)]
}
