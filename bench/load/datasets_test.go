package load

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/bench/load/loadtest"
)

var (
	asWords = &Speller{PerWord: 1.25, Overhead: 7}
	asIDs   = &Speller{IDs: []int32{5, 9, 13, 17}}
)

// TestASeedMakesTheSameLoad: the same requests at the same times, and others of another seed.
func TestASeedMakesTheSameLoad(t *testing.T) {
	datasets := map[string]func(uint64, *Speller) iter.Seq[*Request]{
		"random":   Random{Input: 50, Output: 10, Range: 0.5, Prefix: 8}.Requests,
		"prefixes": Prefixes{Count: 3, Prefix: 20, Suffix: 10, Output: 5, Zipf: 1}.Requests,
		"agents":   Agents{System: 20, First: 10, Turn: 5, Output: 4, Turns: 3, Think: time.Second, Range: 0.2}.Requests,
	}
	for name, d := range datasets {
		for _, s := range []*Speller{asWords, asIDs} {
			if name == "agents" && s == asIDs {
				continue
			}
			text := func(seed uint64) string {
				all := slices.Collect(First(40, At(d(seed, s), Thinned(seed, 5, Waves{Low: 1, High: 5, Rise: time.Second, Fall: time.Second}.Rate))))
				b, err := json.Marshal(all)
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			one, again, other := text(1), text(1), text(2)
			if one != again {
				t.Errorf("%s: a seed gave two loads", name)
			}
			if one == other {
				t.Errorf("%s: two seeds gave one load", name)
			}
		}
	}
}

func TestRandomLengths(t *testing.T) {
	d := Random{Input: 100, Output: 20, Range: 0.25, Prefix: 30}
	var first []int32
	least, most := math.MaxInt, 0
	for q := range First(2000, d.Requests(1, asIDs)) {
		if len(q.IDs) != q.PromptTokens || q.PromptTokens < 105 || q.PromptTokens > 155 || q.MaxTokens < 15 || q.MaxTokens > 25 {
			t.Fatalf("%d ids, %d tokens, answer %d", len(q.IDs), q.PromptTokens, q.MaxTokens)
		}
		if first == nil {
			first = q.IDs[:30]
		}
		if !slices.Equal(first, q.IDs[:30]) {
			t.Fatal("the prefix is not shared")
		}
		least, most = min(least, q.MaxTokens), max(most, q.MaxTokens)
	}
	if least != 15 || most != 25 {
		t.Errorf("answers of %d to %d tokens: the range is not used", least, most)
	}
	for q := range First(20, d.Requests(1, asWords)) {
		// Each word 1.25 tokens and 7 beside them; prefix and rest round for themselves.
		if tokens := 1.25*float64(len(strings.Fields(q.Messages[0].Content))) + 7; math.Abs(tokens-float64(q.PromptTokens)) > 1.3 {
			t.Errorf("%v tokens, meant %d", tokens, q.PromptTokens)
		}
	}
}

func TestPrefixesAreZipfs(t *testing.T) {
	const n = 60_000
	counts := map[string]int{}
	heads := map[string]bool{}
	for q := range First(n, Prefixes{Count: 3, Prefix: 12, Suffix: 4, Output: 1, Zipf: 1}.Requests(7, asIDs)) {
		counts[q.Tag]++
		heads[fmt.Sprint(q.IDs[:12])] = true
	}
	if len(heads) != 3 {
		t.Errorf("%d prefixes, not 3", len(heads))
	}
	for k, want := range []float64{6.0 / 11, 3.0 / 11, 2.0 / 11} {
		if got := float64(counts[fmt.Sprint("prefix ", k)]) / n; math.Abs(got-want) > 0.01 {
			t.Errorf("prefix %d: %.3f of the requests, want %.3f", k, got, want)
		}
	}
}

func TestDatasetsThatCannotBe(t *testing.T) {
	for _, d := range []interface{ Check() error }{
		Random{Input: 0, Output: 1}, Random{Input: 5, Output: 0}, Random{Input: 5, Output: 1, Range: 1}, Random{Input: 5, Output: 1, Range: math.NaN()},
		Prefixes{}, Prefixes{Count: 1, Prefix: 1}, Prefixes{Count: 1, Prefix: 1, Output: 1, Zipf: -1},
		Agents{}, Agents{Turns: 1, First: 1, Turn: 1}, Agents{Turns: 1, First: 1, Turn: 1, Output: 1, Think: -1},
	} {
		if d.Check() == nil {
			t.Errorf("%+v passes", d)
		}
	}
}

// TestCalibration: prompts are as long as they are meant to be, by ids where the server takes them.
func TestCalibration(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		ids      int
	}{{Completions, 400}, {Completions, 0}, {ChatCompletions, 400}} {
		s := &loadtest.Stub{Usage: 2, IDs: c.ids}
		inBubble(t, s, ClientOptions{Endpoint: c.endpoint}, func(t *testing.T, client *Client) {
			speller, err := Calibrate(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			if byIDs := c.ids > 0 && c.endpoint == Completions; (speller.IDs != nil) != byIDs {
				t.Errorf("%s, %d ids: %v", c.endpoint, c.ids, speller)
			}
			d := Random{Input: 64, Output: 2, Range: 0.5}
			for _, r := range Run(t.Context(), client, First(20, d.Requests(3, speller)), Options{Concurrency: 2}).Records {
				if r.Outcome != OK || r.PromptTokens < 32 || r.PromptTokens > 96 {
					t.Errorf("%+v", r)
				}
			}
			for i, q := range s.Seen()[len(s.Seen())-20:] {
				if q.PromptTokens < 32 || q.PromptTokens > 96 || q.MaxTokens < 1 || q.MaxTokens > 3 {
					t.Errorf("request %d: %d tokens", i, q.PromptTokens)
				}
			}
		})
	}
}

func TestFiles(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	all, err := ReadPrompts(write("a plain prompt\n\n{\"prompt\": \"two\\nlines\", \"output_tokens\": 9}\n{\"prompt\":\"x\"}\n"), 5)
	if err != nil || len(all) != 3 || all[0].Messages[0].Content != "a plain prompt" || all[0].MaxTokens != 5 || all[1].Messages[0].Content != "two\nlines" || all[1].MaxTokens != 9 {
		t.Errorf("%v, %v", all, err)
	}
	for text, want := range map[string]string{"": "no prompts", "{\"prompt\":1}": "f:1:", "x\n{\"text\":\"a\"}": "f:2: prompt is missing", "{\"prompt\":\"a\",\"output_tokens\":0}": "output_tokens: 0"} {
		if _, err := ReadPrompts(write(text), 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	long := strings.Repeat("long ", 2000)
	exchanges, err := ReadShareGPT(write(`[{"id":"1","conversations":[{"from":"human","value":"a question of six short words"},{"from":"gpt","value":"an answer of five words"}]},
		{"conversations":[{"from":"human","value":"alone"}]},{"conversations":[{"value":"` + long + `"},{"value":"a b c d e"}]},{"conversations":[{"value":"one two three four"},{"value":"a b"}]}]`))
	if err != nil || len(exchanges) != 3 {
		t.Fatalf("%v, %v", exchanges, err)
	}
	count := func(s string) int { return len(strings.Fields(s)) }
	if got := Choose(1, 10, exchanges, 0, count); len(got) != 1 || got[0].MaxTokens != 5 || got[0].PromptTokens != 6 {
		t.Errorf("%+v", got)
	}
	if got := Choose(1, 10, exchanges, 50, count); len(got) != 2 || got[0].MaxTokens != 50 {
		t.Errorf("%+v", got)
	}
	for text, want := range map[string]string{"": "not a JSON array", "{}": "not a JSON array", "[{\"conversations\":3}]": "entry 0", "[]": "no conversation", "[{}": "entry 1"} {
		if _, err := ReadShareGPT(write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
