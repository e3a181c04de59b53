package grammar

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// The public test suite: of each schema that compiles, what is generated validates, no invalid instance is accepted, and the
// valid ones are, or are left out by a choice that doc.go and Schema state (order, closed objects, spelling of numbers).
func TestSchemaSuite(t *testing.T) {
	dir := testdata.Cache(t, "jsonschema")
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	v := byteVocabulary("{\"", "\":", "\": ", "\",", "\"}", "foo", "bar", "}}", "],", "]}", "1,", "12", ", ", "é", "true", "null", "\"foo\"", "\"bar\":")
	refusals := map[string]int{}
	var schemas, supported, none, elsewhere, generated, valid, accepted int
	for draft, d := range map[string]*jsonschema.Draft{"draft7": jsonschema.Draft7, "draft2020-12": jsonschema.Draft2020} {
		files, err := filepath.Glob(filepath.Join(dir, draft, "*.json"))
		if err != nil || len(files) < 20 {
			t.Fatalf("%s: %d files", draft, len(files))
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var groups []struct {
				Description string
				Schema      json.RawMessage
				Tests       []struct {
					Description string
					Data        json.RawMessage
					Valid       bool
				}
			}
			if err := json.Unmarshal(raw, &groups); err != nil {
				t.Fatal(err)
			}
			for _, group := range groups {
				schemas++
				name := fmt.Sprintf("%s/%s: %s", draft, filepath.Base(file), group.Description)
				if draft == "draft7" && group.Schema[0] == '{' && !bytes.Contains(group.Schema, []byte(`"$schema"`)) { // in which what stands beside $ref is ignored
					group.Schema = append([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#",`), group.Schema[1:]...)
				}
				validator := validatorOf(d, group.Schema)
				e, err := Schema(group.Schema)
				var g *Grammar
				if err == nil {
					g, err = Compile(context.Background(), e, v)
				}
				var refused *Error
				if err != nil {
					switch {
					case !errors.As(err, &refused):
						t.Fatalf("%s: %v", name, err)
					case strings.HasPrefix(refused.Message, "nothing can satisfy"):
						none++
						for _, c := range group.Tests {
							if c.Valid {
								t.Errorf("%s: %v, but %s does", name, err, c.Data)
							}
						}
					case strings.Contains(refused.Message, "no other is read"):
						elsewhere++
					default:
						refusals[refused.Message]++
					}
					continue
				}
				if validator == nil {
					t.Errorf("%s: compiled, and the validator refuses it", name)
					continue
				}
				supported++
				for seed := range rounds {
					text, ok := generate(g, v, uint64(seed))
					if !ok {
						t.Errorf("%s: no end: %.200q", name, text)
						continue
					}
					generated++
					if err := validates(validator, text); err != nil {
						t.Errorf("%s: generated %.200s for %.300s: %v", name, text, group.Schema, err)
						break
					}
				}
				for _, c := range group.Tests {
					data := jsontext.Value(bytes.Clone(c.Data))
					if err := data.Compact(); err != nil {
						continue
					}
					takes := accepts(g, string(data))
					if takes && validates(validator, data) != nil {
						t.Errorf("%s: accepts the invalid %s", name, data)
					}
					if c.Valid {
						valid++
						if takes {
							accepted++
						} else {
							t.Logf("left out: %s: %s: %s", name, c.Description, data)
						}
					}
				}
			}
		}
	}
	t.Logf("%d of %d schemas are supported; nothing satisfies %d, and %d refer to other documents; %d generated; %d of %d valid instances accepted",
		supported, schemas, none, elsewhere, generated, accepted, valid)
	for _, why := range slices.Sorted(maps.Keys(refusals)) {
		t.Logf("refused: %d: %s", refusals[why], why)
	}
	if supported < 520 || accepted*100 < valid*90 {
		t.Errorf("%d of %d schemas, %d of %d valid instances: fewer than there were", supported, schemas, accepted, valid)
	}
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("%s is not here", url) }

func validatorOf(d *jsonschema.Draft, raw []byte) *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(d)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	if c.AddResource("mem:///schema.json", doc) != nil {
		return nil
	}
	s, err := c.Compile("mem:///schema.json")
	if err != nil {
		return nil
	}
	return s
}

func validates(s *jsonschema.Schema, text []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// generate draws tokens at random at first and then leads to the nearest end.
func generate(g *Grammar, v *Vocabulary, seed uint64) (text []byte, ok bool) {
	s := g.Start()
	for n := range 3000 {
		h := mix(seed*0x9e3779b97f4a7c15 + uint64(n) + 1)
		b, on := s.Shortest()
		if s.MayEnd() && (s.MustEnd() || n > 12 || h%4 == 0) {
			return text, true
		}
		if on && (n > 24 || h%3 == 0) {
			next, ok := s.AdvanceBytes([]byte{b})
			if !ok {
				return text, false
			}
			text, s = append(text, b), next
			continue
		}
		var can []int32
		mask := s.Mask()
		for id := range int32(v.size) {
			if mask[id/32]>>(id%32)&1 != 0 && !v.isEnd[id] {
				can = append(can, id)
			}
		}
		if len(can) == 0 {
			return text, false
		}
		id := can[h>>8%uint64(len(can))]
		if control, ok := s.ShortestControl(); ok && n > 24 {
			id = control
		}
		next, ok := s.Advance(id)
		if !ok {
			return text, false
		}
		text, s = append(text, v.tokens[id]...), next
	}
	return text, false
}
