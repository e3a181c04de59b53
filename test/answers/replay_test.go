package answers

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/engine/text"
	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// vocabulary is a tokenizer and what random spellings need of it.
type vocabulary struct {
	name string
	*tokenizer.Tokenizer
	ids     map[string][]int32 // by bytes, those of control tokens left out
	longest int
	control []mark
}

// mark is a control token's text and id.
type mark struct {
	text string
	id   int32
}

// loadVocabulary reads a tokenizer, which gets the control tokens that it lacks: the families' own tokenizers have them, and not all of these can
// be had.
func loadVocabulary(t *testing.T, name string, control ...string) *vocabulary {
	t.Helper()
	path := testdata.Shared(t, "golden/tokenizers/smollm2.tokenizer.json")
	if name != "smollm2" {
		path = testdata.Cache(t, "tokenizers", name, "tokenizer.json")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := tokenizer.FromJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	next := int32(plain.Size())
	var added bytes.Buffer
	for _, c := range control {
		if _, ok := plain.ID(c); ok {
			continue
		}
		if err := json.NewEncoder(&added).Encode(map[string]any{"id": next, "content": c, "special": true, "normalized": false,
			"single_word": false, "lstrip": false, "rstrip": false}); err != nil {
			t.Fatal(err)
		}
		added.WriteByte(',')
		next++
	}
	if added.Len() > 0 {
		key := []byte(`"added_tokens": [`)
		if !bytes.Contains(data, key) {
			key = []byte(`"added_tokens":[`)
		}
		if bytes.Count(data, key) != 1 {
			t.Fatalf("%s: no list of added tokens", name)
		}
		data = bytes.Replace(data, key, slices.Concat(key, added.Bytes()), 1)
		if plain, err = tokenizer.FromJSON(data); err != nil {
			t.Fatal(err)
		}
	}
	v := &vocabulary{name: name, Tokenizer: plain, ids: map[string][]int32{}}
	taken := map[int32]bool{}
	for _, a := range plain.AddedTokens() {
		taken[a.ID] = true
	}
	for id := range int32(plain.Size()) {
		if b := plain.TokenBytes(id); len(b) > 0 && !taken[id] {
			v.ids[string(b)] = append(v.ids[string(b)], id)
			v.longest = max(v.longest, len(b))
		}
	}
	for _, c := range control {
		id, ok := plain.ID(c)
		if !ok {
			t.Fatalf("%s: %s is not a token", name, c)
		}
		v.control = append(v.control, mark{c, id})
	}
	return v
}

// ids of control tokens.
func (v *vocabulary) marks(of ...string) []int32 {
	var all []int32
	for _, m := range v.control {
		if slices.Contains(of, m.text) {
			all = append(all, m.id)
		}
	}
	return all
}

// spelling is how a text becomes tokens.
type spelling int

const (
	usual   spelling = iota // as the tokenizer would
	anyhow                  // any tokens that spell it, characters cut as well
	shorter                 // likewise, of at most two bytes
)

// spell turns text into tokens; control tokens are where a part says so, everywhere else their text stays text.
func (v *vocabulary) spell(parts []part, how spelling, r *rand.Rand) []int32 {
	if how == usual {
		segments := make([]tokenizer.Segment, len(parts))
		for i, p := range parts {
			segments[i] = tokenizer.Segment{Text: p.text, Control: p.control}
		}
		marks := map[int32]bool{}
		for _, m := range v.control {
			marks[m.id] = true
		}
		return v.EncodeSegments(segments, tokenizer.Options{Marks: marks})
	}
	var out []int32
	for _, p := range parts {
		if p.control {
			out = append(out, v.marks(p.text)...)
			continue
		}
		for rest := p.text; rest != ""; {
			limit := min(len(rest), v.longest)
			if how == shorter {
				limit = min(limit, 2)
			}
			var fit []int32
			for n := 1; n <= limit; n++ {
				fit = append(fit, v.ids[rest[:n]]...)
			}
			if len(fit) == 0 {
				panic(v.name + ": no token for " + rest[:1])
			}
			id := fit[r.IntN(len(fit))]
			out, rest = append(out, id), rest[len(v.TokenBytes(id)):]
		}
	}
	return out
}

// replay plays tokens as the engine sends those that its models draw.
type replay struct {
	*apitest.Generator
	v      *vocabulary
	tokens []int32
	events *rand.Rand // how many tokens an event has; nil: one
}

func (g *replay) Generate(ctx context.Context, r engine.Request) (iter.Seq[engine.Event], error) {
	return func(yield func(engine.Event) bool) {
		stream := text.NewStream(text.NewStops(r.Stop, r.IncludeStop))
		var all engine.Event
		left := g.several()
		add := func(d text.Delta) {
			for _, m := range d.Marks {
				all.Marks = append(all.Marks, engine.Mark{At: m.At + len(all.Text), Len: m.Len})
			}
			all.Text += d.Text
		}
		for i, id := range g.tokens {
			isMark := slices.Contains(r.Marks, id)
			var b []byte
			if !g.v.IsSpecial(id) || r.KeepSpecial || isMark {
				b = g.v.TokenBytes(id)
			}
			if isMark {
				add(stream.PushMark(b, true))
			} else {
				add(stream.Push(b, true))
			}
			all.Tokens = append(all.Tokens, engine.Token{ID: id})
			all.Usage = engine.Usage{Prompt: len(r.Prompt), Completion: i + 1}
			if i+1 == r.MaxTokens {
				add(stream.Finish())
				all.Finish = engine.FinishLength
				yield(all)
				return
			}
			if left--; left > 0 {
				continue
			}
			if !yield(all) {
				return
			}
			all, left = engine.Event{}, g.several()
		}
		add(stream.Finish())
		all.Finish, all.Usage = engine.FinishStop, engine.Usage{Prompt: len(r.Prompt), Completion: len(g.tokens) + 1}
		yield(all)
	}, nil
}

func (g *replay) several() int {
	if g.events == nil {
		return 1
	}
	return 1 + g.events.IntN(4)
}
