package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// foxes is a prompt that SmolLM2 goes on with in characters of three tokens each.
var foxes = strings.Repeat("🦊", 8)

// TestCharactersOverTokens: characters that are several tokens come whole, at every token limit,
// streamed or not.
func TestCharactersOverTokens(t *testing.T) {
	s := fast.get(t)
	for _, prompt := range []string{foxes, strings.Repeat("日本語", 6), strings.Repeat("naïve — “é” ", 4)} {
		for limit := 1; limit <= many(3, 5, 20); limit++ {
			a := s.both(t, complete(smol, prompt, body{"max_tokens": limit}))
			if strings.Contains(a.text, "\ufffd") {
				t.Errorf("%q, limit %d: %q", prompt, limit, a.text)
			}
			if a.finish != "length" || len(a.ids) != limit {
				t.Errorf("%q, limit %d: %v", prompt, limit, a)
			}
			// the one-shot decode may end in half a character
			if once := s.text(t, smol, a.ids); strings.TrimRight(once, "\ufffd") != a.text {
				t.Errorf("%q, limit %d: %q, decoded at once %q", prompt, limit, a.text, once)
			}
		}
	}
	a := s.both(t, complete(smol, foxes, body{"max_tokens": 24}))
	if n := strings.Count(a.text, "🦊") + strings.Count(a.text, "🦋"); n != 8 {
		t.Errorf("the model was to write 8 animals: %v", a)
	}
	for limit := 1; limit <= 6; limit++ {
		a := s.both(t, chat(smol, "Reply with one smiling emoji only.", body{"max_tokens": limit}))
		if strings.Contains(a.text, "\ufffd") || a.finish != "length" {
			t.Errorf("limit %d: %v", limit, a)
		}
	}
}

// TestForcedHalfCharacters: pieces of characters that never become whole are held to the one-shot
// decode too.
func TestForcedHalfCharacters(t *testing.T) {
	s := fast.get(t)
	ids := s.tokens(t, body{"model": smol, "prompt": "🦊é🐻", "add_special_tokens": false})
	r := rand.New(rand.NewPCG(1, 2))
	for range many(2, 6, 200) {
		bias := body{}
		for _, id := range ids { // a mixture of pieces of characters
			bias[fmt.Sprint(id)] = 90 + 10*r.Float64()
		}
		a := s.both(t, complete(smol, "x", body{"max_tokens": 12, "logit_bias": bias, "temperature": 1.9, "seed": r.IntN(1000)}))
		if once := s.text(t, smol, a.ids); strings.TrimRight(once, "\ufffd") != strings.TrimRight(a.text, "\ufffd") {
			t.Errorf("%v: %q, decoded at once %q", a.ids, a.text, once)
		}
	}
}

// TestPromptEndsInsideCharacter: of a prompt of token ids that ends inside a character, the stream
// repeats nothing.
func TestPromptEndsInsideCharacter(t *testing.T) {
	s := fast.get(t)
	ids := s.tokens(t, body{"model": smol, "prompt": foxes, "add_special_tokens": false})
	for cut := 1; cut <= 2; cut++ {
		a := s.both(t, complete(smol, ids[:len(ids)-cut], body{"max_tokens": 3*3 + cut}))
		got := strings.TrimLeft(a.text, "\ufffd")
		if once := strings.Trim(s.text(t, smol, a.ids), "\ufffd"); strings.Trim(a.text, "\ufffd") != once || strings.Count(got, "🦊") > 3 || !strings.HasPrefix(got, "🦊") {
			t.Errorf("%d ids cut: %v, decoded at once %q", cut, a, once)
		}
	}
}

// TestStopStrings cuts what a model writes at strings that span its tokens.
func TestStopStrings(t *testing.T) {
	s := fast.get(t)
	check := func(b body, full answer, stops ...string) {
		t.Helper()
		at, hit := -1, ""
		for _, stop := range stops { // the earliest match; of several there, the one complete first
			i := strings.Index(full.text, stop)
			if i >= 0 && (at < 0 || i+len(stop) < at+len(hit)) {
				at, hit = i, stop
			}
		}
		a := s.both(t, b.with(body{"stop": stops}))
		if at < 0 {
			if !a.same(full) {
				t.Errorf("stop %q: %v, without %v", stops, a, full)
			}
			return
		}
		if a.text != full.text[:at] || a.finish != "stop" || a.stop != hit {
			t.Errorf("stop %q: %v (%v), want %q", stops, a, a.stop, full.text[:at])
		}
	}
	repeat := chat(smol, "Repeat exactly: red green blue yellow", body{"max_tokens": 40})
	full := s.both(t, repeat)
	if !strings.Contains(full.text, "green blue yellow") || full.finish != "stop" {
		t.Fatalf("the model was to repeat the colours and end: %v", full)
	}
	check(repeat, full, "green blue")
	check(repeat, full, "yellow\nUser:")     // begins at the very end, and never comes
	check(repeat, full, "n b", "n blue yel") // one ends inside the other
	check(repeat, full, "blue yellow", "ellow")
	check(repeat, full, "never", "nor this")

	story := chat(tales, "Tell me a story", body{"max_tokens": 120})
	full = s.both(t, story)
	r := rand.New(rand.NewPCG(3, 4))
	for range many(5, 25, 500) {
		from := r.IntN(len(full.text) - 12)
		stop := full.text[from : from+1+r.IntN(11)]
		if !strings.ContainsRune(stop, '\ufffd') {
			check(story, full, strings.ToValidUTF8(stop, "x"))
			check(story, full, strings.ToValidUTF8(stop, "x")+"§") // all but its last character matches
		}
	}
}

// TestEndTokens: answers end by themselves, at any of the model's end tokens, and none shows.
func TestEndTokens(t *testing.T) {
	s := fast.get(t)
	for _, info := range s.engine.Models() {
		if len(info.EndTokens) == 0 || info.Name == tales && len(info.EndTokens) != 2 {
			t.Errorf("%s: end tokens %v", info.Name, info.EndTokens)
		}
		for _, id := range info.EndTokens {
			forced := body{"max_tokens": 8, "logit_bias": body{fmt.Sprint(id): 100}}
			a := s.both(t, chat(info.Name, "hello", forced))
			if a.text != "" || a.finish != "stop" || len(a.ids) != 1 || a.ids[0] != id {
				t.Errorf("%s: end token %d: %v", info.Name, id, a)
			}
			a = s.both(t, chat(info.Name, "hello", forced.with(body{"ignore_eos": true})))
			if a.text != "" || a.finish != "length" || len(a.ids) != 8 {
				t.Errorf("%s: end token %d ignored: %v", info.Name, id, a)
			}
			a = s.both(t, chat(info.Name, "hello", forced.with(body{"min_tokens": 5})))
			if a.finish != "length" && len(a.ids) < 5 {
				t.Errorf("%s: end token %d after min_tokens: %v", info.Name, id, a)
			}
		}
	}
	a := exact.get(t).both(t, chat(smol, "What is the capital of France?", body{"max_tokens": 64}))
	if a.finish != "stop" || a.text != "The capital of France is Paris." {
		t.Errorf("%v", a)
	}
}

// TestUsage: a usage chunk when asked for, and only then; cached tokens are there, cold or warm.
func TestUsage(t *testing.T) {
	s := fast.get(t)
	prompt := strings.Repeat("A fox met a king. ", 10)
	for warm := range 2 {
		for _, options := range []any{nil, body{"include_usage": true}, body{"include_usage": false}} {
			b := chat(tales, prompt, body{"stream": true, "max_tokens": 5, "cache_salt": fmt.Sprintf("usage %v", options)})
			if options != nil {
				b["stream_options"] = options
			}
			r := s.must(t, b)
			if o, _ := options.(body); o["include_usage"] != true {
				if r.usage != nil {
					t.Errorf("%v: a usage chunk", options)
				}
				for _, e := range r.events {
					if strings.Contains(e, `"usage"`) {
						t.Errorf("%v: %s", options, e)
					}
				}
				continue
			}
			if r.usage == nil {
				t.Fatalf("%v: no usage chunk", options)
			}
			want := 0
			if warm == 1 {
				want = (r.usage.Prompt - 1) / 16 * 16
			}
			if r.usage.cached(t) != want || r.usage.Completion != 5 || r.usage.Total != r.usage.Prompt+5 {
				t.Errorf("%v, pass %d: %+v, want %d cached", options, warm, r.usage, want)
			}
		}
	}
}

// TestManyChoices: each of n has its own role, text and end; usage is the sum.
func TestManyChoices(t *testing.T) {
	s := fast.get(t)
	for _, model := range []string{tales, smol} {
		b := chat(model, "Tell me a story", body{"n": 3, "temperature": 1, "seed": 7, "max_tokens": 8})
		whole := s.must(t, b)
		streamed := s.must(t, b.with(body{"stream": true, "stream_options": body{"include_usage": true}}))
		if len(whole.choices) != 3 || len(streamed.choices) != 3 {
			t.Fatalf("%s: %d and %d choices", model, len(whole.choices), len(streamed.choices))
		}
		tokens := 0
		for i, a := range whole.choices {
			tokens += len(a.ids)
			if !a.same(streamed.choices[i]) {
				t.Errorf("%s, choice %d: %v, streamed %v", model, i, a, streamed.choices[i])
			}
		}
		if whole.choices[0].same(whole.choices[1]) {
			t.Errorf("%s: choices are equal: %v", model, whole.choices)
		}
		if whole.usage.Completion != tokens || streamed.usage == nil || streamed.usage.Completion != tokens || whole.usage.Prompt != streamed.usage.Prompt {
			t.Errorf("%s: usage %+v and %+v of %d tokens", model, whole.usage, streamed.usage, tokens)
		}
	}
}

// TestErrorDuringStream: before a stream begins an error is a status; after, it is one event and
// the end.
func TestErrorDuringStream(t *testing.T) {
	s := serve(t, engine.Options{Models: demos()}, api.Options{})
	s.refused(t, "/v1/chat/completions", chat(tales, "x", body{"n": 0, "stream": true}), 400)
	resp, err := s.post(chat(tales, "Tell me a story", body{"stream": true, "ignore_eos": true, "n": 16, "temperature": 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for seen := 0; seen < 3 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			seen++
		}
	}
	go s.engine.Close()
	var failures int
	last := ""
	for lines.Scan() {
		if line := lines.Text(); line != "" {
			last = line
			if strings.Contains(line, `"error"`) {
				failures++
			}
		}
	}
	var e struct{ Error struct{ Message string } }
	if failures != 1 || json.Unmarshal([]byte(strings.TrimPrefix(last, "data: ")), &e) != nil || e.Error.Message == "" {
		t.Errorf("%d error events, the last line is %.300s", failures, last)
	}
	s.refused(t, "/v1/chat/completions", chat(tales, "x", nil), 503)
}

// TestLongPrefill: headers and comment lines come while a prompt is computed, and others go on.
func TestLongPrefill(t *testing.T) {
	needsTime(t)
	shared := fast.get(t)
	s := start(shared.engine, api.Options{KeepAlive: 20 * time.Millisecond})
	defer s.server.Close()
	ids := make([]int32, 450)
	r := rand.New(rand.NewPCG(5, uint64(time.Now().UnixNano())))
	for i := range ids {
		ids[i] = int32(1000 + r.IntN(40000))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := make(chan time.Time, 10000) // tokens of another model's stream
	go func() {
		defer close(other)
		b, _ := json.Marshal(chat(tales, "Tell me a story", body{"stream": true, "ignore_eos": true, "max_tokens": 900}))
		for ctx.Err() == nil {
			req, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/chat/completions", strings.NewReader(string(b)))
			resp, err := s.client.Do(req)
			if err != nil {
				return
			}
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data: {") {
					other <- time.Now()
				}
			}
			resp.Body.Close()
		}
	}()
	<-other
	begin := time.Now()
	resp, err := s.post(complete(smol, ids, body{"stream": true, "max_tokens": 2}))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	headers := time.Now()
	comments, prefill := 0, time.Duration(0)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ":") && prefill == 0 {
			comments++
		}
		if strings.HasPrefix(lines.Text(), "data: {") && prefill == 0 {
			prefill = time.Since(begin)
		}
	}
	cancel()
	between := 0
	for at := range other {
		if at.After(begin) && at.Before(begin.Add(prefill)) {
			between++
		}
	}
	t.Logf("headers after %v, first token after %v, %d comments and %d tokens of another stream in between",
		headers.Sub(begin).Round(time.Millisecond), prefill.Round(time.Millisecond), comments, between)
	if comments < 2 {
		t.Errorf("%d comment lines in %v of prefill", comments, prefill)
	}
	if between < 3 { // one chunk is at most 128 tokens while others run
		t.Errorf("%d tokens of another stream during a prefill of %d tokens", between, len(ids))
	}
}

// TestTwoModelsStreamAtOnce: what a newcomer sees first.
func TestTwoModelsStreamAtOnce(t *testing.T) {
	s := serve(t, engine.Options{Models: demos()}, api.Options{})
	type opened struct {
		resp *http.Response
		in   *bufio.Reader
	}
	var streams []opened
	for _, model := range []string{tales, bard} {
		resp, err := s.post(chat(model, "Tell me a story", body{"stream": true, "max_tokens": 300, "ignore_eos": true}))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		streams = append(streams, opened{resp, bufio.NewReader(resp.Body)})
	}
	for _, o := range streams { // both have begun before either is read on
		if line, err := o.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
			t.Fatalf("%q: %v", line, err)
		}
	}
	for i, o := range streams {
		rest, err := io.ReadAll(o.in)
		if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
			t.Errorf("stream %d: %v: %.100s", i, err, rest)
		}
	}
	s.rest(t)
}
