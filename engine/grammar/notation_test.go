package grammar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

const testQuote = `<|"|>`

// notationReader reads a value in a notation with testQuote and bare keys.
type notationReader struct {
	t    *testing.T
	text string
	at   int
}

func (r *notationReader) take(s string) bool {
	if strings.HasPrefix(r.text[r.at:], s) {
		r.at += len(s)
		return true
	}
	return false
}

func (r *notationReader) until(marks string) string {
	n := strings.IndexAny(r.text[r.at:], marks)
	if n < 0 {
		n = len(r.text) - r.at
	}
	s := r.text[r.at : r.at+n]
	r.at += n
	return s
}

func (r *notationReader) quoted() (string, bool) {
	if !r.take(testQuote) {
		return "", false
	}
	s, _, ok := strings.Cut(r.text[r.at:], testQuote)
	if !ok {
		r.t.Fatalf("%q: a string without an end", r.text)
	}
	r.at += len(s) + len(testQuote)
	return s, true
}

func (r *notationReader) value() any {
	if s, ok := r.quoted(); ok {
		return s
	}
	switch {
	case r.take("{"):
		out := map[string]any{}
		for n := 0; !r.take("}"); n++ {
			if n > 0 && !r.take(",") {
				r.t.Fatalf("%q: no comma at %d", r.text, r.at)
			}
			key, ok := r.quoted()
			if !ok {
				if key = r.until(":{}[],"); !isBare(key) {
					r.t.Fatalf("%q: the bare key %q", r.text, key)
				}
			}
			if !r.take(":") {
				r.t.Fatalf("%q: no colon at %d", r.text, r.at)
			}
			out[key] = r.value()
		}
		return out
	case r.take("["):
		out := []any{}
		for n := 0; !r.take("]"); n++ {
			if n > 0 && !r.take(",") {
				r.t.Fatalf("%q: no comma at %d", r.text, r.at)
			}
			out = append(out, r.value())
		}
		return out
	}
	word := r.until(",}]")
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(word))
	if err != nil {
		r.t.Fatalf("%q: %q at %d: %v", r.text, word, r.at, err)
	}
	return v
}

// TestNotationSuite: every schema of the public suite that is supported in JSON is in another notation, and what is generated
// validates.
func TestNotationSuite(t *testing.T) {
	v := byteVocabulary(testQuote, "foo", "bar", "{", "},", "true")
	n := Notation{Quote: testQuote, BareKeys: true}
	schemas := 0
	for draft, d := range map[string]*jsonschema.Draft{"draft7": jsonschema.Draft7, "draft2020-12": jsonschema.Draft2020} {
		files, err := filepath.Glob(filepath.Join(testdata.Cache(t, "jsonschema"), draft, "*.json"))
		if err != nil || len(files) < 20 {
			t.Fatalf("%s: %d files", draft, len(files))
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var groups []struct{ Schema json.RawMessage }
			if err := json.Unmarshal(raw, &groups); err != nil {
				t.Fatal(err)
			}
			for i, group := range groups {
				if testing.Short() && i%6 != 0 {
					continue
				}
				if draft == "draft7" && group.Schema[0] == '{' && !bytes.Contains(group.Schema, []byte(`"$schema"`)) { // in which what stands beside $ref is ignored
					group.Schema = append([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#",`), group.Schema[1:]...)
				}
				if _, err := Schema(group.Schema); err != nil {
					continue
				}
				e, err := SchemaIn(n, group.Schema)
				if err != nil {
					t.Errorf("%s: %s: %v", file, group.Schema, err)
					continue
				}
				g, err := Compile(context.Background(), e, v)
				var refused *Error
				if errors.As(err, &refused) {
					continue // nothing satisfies it
				} else if err != nil {
					t.Fatal(err)
				}
				schemas++
				validator := validatorOf(d, group.Schema)
				for seed := range uint64(3) {
					text, ok := generate(g, v, seed)
					if !ok {
						t.Fatalf("%s: %s: no end: %.200q", file, group.Schema, text)
					}
					r := &notationReader{t: t, text: string(text)}
					if value := r.value(); r.at != len(text) {
						t.Fatalf("%s: %q goes on", group.Schema, text)
					} else if err := validator.Validate(value); err != nil {
						t.Fatalf("%s: %s: %q is read as %v: %v", file, group.Schema, text, value, err)
					}
				}
			}
		}
	}
	if schemas < 250 && !testing.Short() {
		t.Errorf("%d schemas", schemas)
	}
}

func TestNotations(t *testing.T) {
	v := byteVocabulary(testQuote)
	for _, c := range []struct {
		what     string
		n        Notation
		schema   string
		yes, not []string
	}{
		{"keys that are no words", Notation{Quote: "'", BareKeys: true}, `{"type":"object","properties":{"a":{"type":"string","maxLength":1},"b c":{"enum":["x\"\n"]}}}`,
			[]string{"{}", "{a:'\"','b c':'x\"\n'}", "{a:'\\'}", "{'b c':'x\"\n'}"}, []string{"{b c:'x\"\n'}", "{a:'xx'}", "{a: 'x'}"}},
		{"other keys", Notation{Quote: "'", BareKeys: true}, `{"type":"object","properties":{"a":{"const":1}},"additionalProperties":{"type":"boolean"}}`,
			[]string{"{a:1,b:true}", "{'b:c':true}", "{ü:false}"}, []string{"{b:true,a:1}", "{a:true}", "{b:1}", "{b c:true}"}},
		{"no quotes", Notation{Stop: "</p>"}, `{"type":["string","null"],"pattern":"^[a-z\"<]*(</p>)?$"}`, []string{"", "a\"<", "null"}, []string{"a</p>", "A", "nul1"}},
		{"any text", Notation{Stop: "</p>"}, `{"type":"string"}`, []string{"", "a\\\"\n</p"}, []string{"</p>"}},
		{"JSON", Notation{Escapes: true, Stop: "</p>"}, `{"type":"object","properties":{"a":{"type":"string"}}}`, []string{`{"a": "x\n\u0041"}`, `{"a":"<\/p>"}`, "{ }"}, []string{`{"a": "</p>"}`, `{a:""}`, "{\"a\":\"\n\"}"}},
	} {
		e, err := SchemaIn(c.n, []byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		g := compiled(t, e, v)
		for want, texts := range map[bool][]string{true: c.yes, false: c.not} {
			for _, text := range texts {
				if got := accepts(g, text); got != want {
					t.Errorf("%s: %q is accepted: %v", c.what, text, got)
				}
			}
		}
	}
	for _, schema := range []string{`{"enum":["a'b"]}`, `{"type":"object","properties":{"a'b":{}}}`} {
		if _, err := SchemaIn(Notation{Quote: "'"}, []byte(schema)); err == nil || !strings.Contains(err.Error(), "cannot be written") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// TestShortestControl: the nearest end may be behind a control token.
func TestShortestControl(t *testing.T) {
	g := compiled(t, Seq(Until("<tool>"), Literal("<tool>")), byteVocabulary())
	s := g.Start()
	if b, ok := s.Shortest(); ok {
		t.Errorf("goes on with %q", b)
	}
	id, ok := s.ShortestControl()
	if !ok {
		t.Fatal("does not go on")
	}
	if s, ok = s.Advance(id); !ok || !s.MayEnd() {
		t.Errorf("token %d does not lead to the end", id)
	}
	if _, ok := s.ShortestControl(); ok {
		t.Error("goes on behind the end")
	}
}
