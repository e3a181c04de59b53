package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

const (
	tales = "demo-tales"
	bard  = "demo-bard"
	smol  = "smol"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range []*shared{&fast, &exact} {
		if s.service != nil {
			s.service.close()
		}
	}
	removeBinary()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// soak says that long tests may take their time.
func soak() bool { return os.Getenv("OPENINFER_SOAK") == "1" }

func needsTime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}

// many is how often something is repeated: less in short mode, more in a soak.
func many(short, normal, long int) int {
	switch {
	case testing.Short():
		return short
	case soak():
		return long
	}
	return normal
}

func demos() []engine.ModelSpec { return []engine.ModelSpec{{Name: tales}, {Name: bard}} }

func smolPath(t testing.TB) string {
	return testdata.Cache(t, "gguf", "SmolLM2-135M-Instruct.Q4_1.gguf")
}

func three(t testing.TB) []engine.ModelSpec {
	return append(demos(), engine.ModelSpec{Name: smol, Path: smolPath(t)})
}

// service is an engine with a handler on a loopback listener.
type service struct {
	engine *engine.Engine // nil in another process
	server *httptest.Server
	client *http.Client
	url    string
}

func start(e *engine.Engine, o api.Options) *service {
	s := &service{engine: e, server: httptest.NewServer(api.New(e, o))}
	s.client, s.url = s.server.Client(), s.server.URL
	s.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	return s
}

func (s *service) close() {
	s.engine.Close()
	s.server.Close()
}

// remote is a service of another process.
func remote(t testing.TB, url string) *service {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &service{client: &http.Client{Transport: transport}, url: url}
}

func quiet(o engine.Options) engine.Options {
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	return o
}

// serve opens a service of the test's own.
func serve(t testing.TB, o engine.Options, a api.Options) *service {
	t.Helper()
	e, err := engine.Open(t.Context(), quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	s := start(e, a)
	t.Cleanup(s.close)
	return s
}

// shared is a service that tests share: the three models, opened by the first that asks.
type shared struct {
	exact   bool
	once    sync.Once
	service *service
	err     error
}

var fast, exact = shared{}, shared{exact: true}

func (s *shared) get(t testing.TB) *service {
	t.Helper()
	models := three(t)
	s.once.Do(func() {
		var e *engine.Engine
		if e, s.err = engine.Open(t.Context(), quiet(engine.Options{Models: models, Exact: s.exact, KVMemory: 256 << 20})); s.err == nil {
			s.service = start(e, api.Options{})
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.service
}

// body is a request.
type body map[string]any

// with returns b with more fields.
func (b body) with(more body) body {
	out := body{}
	for k, v := range b {
		out[k] = v
	}
	for k, v := range more {
		out[k] = v
	}
	return out
}

func chat(model, user string, more body) body {
	return body{"model": model, "messages": []body{{"role": "user", "content": user}}, "temperature": 0, "return_token_ids": true}.with(more)
}

func complete(model string, prompt any, more body) body {
	return body{"model": model, "prompt": prompt, "temperature": 0, "return_token_ids": true}.with(more)
}

func (b body) path() string {
	if _, ok := b["messages"]; ok {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// usage, choice and answer are what both endpoints send, whole and in chunks.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u *usage) cached(t testing.TB) int {
	t.Helper()
	if u == nil || u.Details == nil || u.Details.Cached == nil {
		t.Fatalf("usage without cached_tokens: %+v", u)
	}
	return *u.Details.Cached
}

type logprobs struct {
	Tokens     []string             `json:"tokens"`
	Logprobs   []*float64           `json:"token_logprobs"`
	Top        []map[string]float64 `json:"top_logprobs"`
	TextOffset []int                `json:"text_offset"`
	Content    []struct {
		Token   string
		Logprob float64
		Bytes   []int
		Top     []struct {
			Token   string
			Logprob float64
		} `json:"top_logprobs"`
	}
}

type message struct {
	Role    string
	Content *string
}

type choice struct {
	Index          int
	Text           string
	Message, Delta message
	FinishReason   *string `json:"finish_reason"`
	StopReason     any     `json:"stop_reason"`
	TokenIDs       []int32 `json:"token_ids"`
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Logprobs       *logprobs
	PromptLogprobs []map[string]struct{ Logprob float64 } `json:"prompt_logprobs"`
}

type reply struct {
	ID, Object, Model string
	Created           int64
	Choices           *[]choice
	Usage             *usage
	PromptTokenIDs    []int32 `json:"prompt_token_ids"`
}

// answer is one choice put together.
type answer struct {
	text, finish string
	stop         any
	ids          []int32
	prompt       []int32
	logprobs     *logprobs
	scores       []map[string]struct{ Logprob float64 }
}

// same compares what must not depend on anything but the request.
func (a answer) same(b answer) bool {
	return a.text == b.text && a.finish == b.finish && fmt.Sprint(a.ids, a.stop) == fmt.Sprint(b.ids, b.stop)
}

func (a answer) String() string { return fmt.Sprintf("%q (%s, ids %v)", a.text, a.finish, a.ids) }

// result is a whole reply.
type result struct {
	choices []answer
	usage   *usage
	events  []string // of a stream, without the end marker
}

// post sends a request and returns the open response.
func (s *service) post(b body) (*http.Response, error) { return s.postTo(b.path(), b) }

func (s *service) postTo(path string, b any) (*http.Response, error) {
	raw, ok := b.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(b); err != nil {
			return nil, err
		}
	}
	return s.client.Post(s.url+path, "application/json", bytes.NewReader(raw))
}

// ask sends a request that must be answered well, and puts the answer together.
func (s *service) ask(b body) (result, error) {
	resp, err := s.post(b)
	if err != nil {
		return result{}, err
	}
	defer resp.Body.Close()
	return read(resp, b["stream"] == true)
}

func (s *service) must(t testing.TB, b body) result {
	t.Helper()
	r, err := s.ask(b)
	if err != nil {
		t.Fatalf("%v: %v", b, err)
	}
	return r
}

// withKey is must with an API key.
func (s *service) withKey(t testing.TB, key string, b body) result {
	t.Helper()
	raw, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest("POST", s.url+b.path(), bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r, err := read(resp, b["stream"] == true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// one is must for a request with one choice.
func (s *service) one(t testing.TB, b body) answer {
	t.Helper()
	r := s.must(t, b)
	if len(r.choices) != 1 {
		t.Fatalf("%d choices", len(r.choices))
	}
	return r.choices[0]
}

func read(resp *http.Response, stream bool) (result, error) {
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return result{}, err
	}
	if resp.StatusCode != 200 {
		return result{}, fmt.Errorf("status %d: %s", resp.StatusCode, raw)
	}
	if !stream {
		var r reply
		if err := json.Unmarshal(raw, &r); err != nil {
			return result{}, fmt.Errorf("%v: %s", err, raw)
		}
		if r.Choices == nil {
			return result{}, fmt.Errorf("no choices: %s", raw)
		}
		out := result{usage: r.Usage}
		for i, c := range *r.Choices {
			if c.Index != i || c.FinishReason == nil {
				return result{}, fmt.Errorf("choice %d: %s", i, raw)
			}
			a := answer{text: c.Text, finish: *c.FinishReason, stop: c.StopReason, ids: c.TokenIDs, prompt: c.PromptTokenIDs, logprobs: c.Logprobs, scores: c.PromptLogprobs}
			if c.Message.Content != nil {
				a.text = *c.Message.Content
			}
			if a.prompt == nil {
				a.prompt = r.PromptTokenIDs
			}
			out.choices = append(out.choices, a)
		}
		return out, nil
	}
	return readStream(raw)
}

// readStream puts a finished stream together and checks its form.
func readStream(raw []byte) (result, error) {
	var out result
	var first reply
	ended, roles := false, map[int]bool{}
	for _, line := range strings.Split(string(raw), "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			if line != "" && !strings.HasPrefix(line, ":") {
				return out, fmt.Errorf("line %q", line)
			}
			continue
		}
		if ended {
			return out, fmt.Errorf("an event after the end marker: %s", data)
		}
		if data == "[DONE]" {
			ended = true
			continue
		}
		if out.usage != nil {
			return out, fmt.Errorf("an event after the usage chunk: %s", data)
		}
		if !utf8.ValidString(data) {
			return out, fmt.Errorf("invalid UTF-8: %q", data)
		}
		out.events = append(out.events, data)
		var r reply
		if err := json.Unmarshal([]byte(data), &r); err != nil || r.Choices == nil {
			return out, fmt.Errorf("event %s: %v", data, err)
		}
		if first.ID == "" {
			first = r
		}
		if r.ID != first.ID || r.Created != first.Created || r.Model != first.Model || r.Object != first.Object {
			return out, fmt.Errorf("head changes: %s after %+v", data, first)
		}
		if len(*r.Choices) == 0 {
			out.usage = r.Usage
			continue
		}
		for _, c := range *r.Choices {
			for len(out.choices) <= c.Index {
				out.choices = append(out.choices, answer{})
			}
			a := &out.choices[c.Index]
			if a.finish != "" {
				return out, fmt.Errorf("choice %d goes on after its end: %s", c.Index, data)
			}
			if strings.HasPrefix(r.Object, "chat") && !roles[c.Index] && c.Delta.Role != "assistant" {
				return out, fmt.Errorf("choice %d begins without a role: %s", c.Index, data)
			}
			roles[c.Index] = true
			a.text += c.Text
			if c.Delta.Content != nil {
				a.text += *c.Delta.Content
			}
			a.ids = append(a.ids, c.TokenIDs...)
			if c.PromptTokenIDs != nil {
				a.prompt = c.PromptTokenIDs
			}
			if c.FinishReason != nil {
				a.finish, a.stop = *c.FinishReason, c.StopReason
			}
		}
	}
	for i, a := range out.choices {
		if a.finish == "" {
			return out, fmt.Errorf("choice %d has no end", i)
		}
	}
	if !ended {
		return out, fmt.Errorf("no end marker: %s", raw)
	}
	return out, nil
}

// both runs a request whole and streamed and checks that the answers are equal.
func (s *service) both(t testing.TB, b body) answer {
	t.Helper()
	whole := s.one(t, b)
	if streamed := s.one(t, b.with(body{"stream": true})); !whole.same(streamed) {
		t.Errorf("%v:\n   whole %v\nstreamed %v", b, whole, streamed)
	}
	return whole
}

// refused sends a request that must be refused and returns the message and the field named.
func (s *service) refused(t testing.TB, path string, b any, status int) (message, param string) {
	t.Helper()
	resp, err := s.postTo(path, b)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	var e struct {
		Error struct {
			Message, Type string
			Param         *string
		}
	}
	if err := json.Unmarshal(raw, &e); err != nil || e.Error.Message == "" || e.Error.Type == "" || resp.StatusCode != status {
		t.Errorf("%.200s: status %d, want an error with %d: %.300s", fmt.Sprint(b), resp.StatusCode, status, raw)
		return "", ""
	}
	if e.Error.Param != nil {
		param = *e.Error.Param
	}
	return e.Error.Message, param
}

// tokens asks /tokenize.
func (s *service) tokens(t testing.TB, b body) []int32 {
	t.Helper()
	var out struct {
		Count  int
		Tokens []int32
	}
	s.call(t, "/tokenize", b, &out)
	if out.Count != len(out.Tokens) {
		t.Errorf("count %d of %d tokens", out.Count, len(out.Tokens))
	}
	return out.Tokens
}

func (s *service) text(t testing.TB, model string, ids []int32) string {
	t.Helper()
	var out struct{ Prompt string }
	s.call(t, "/detokenize", body{"model": model, "tokens": ids}, &out)
	return out.Prompt
}

func (s *service) call(t testing.TB, path string, b body, out any) {
	t.Helper()
	resp, err := s.postTo(path, b)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s %v: status %d (%v): %s", path, b, resp.StatusCode, err, raw)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatalf("%s: %v: %s", path, err, raw)
	}
}

// get returns status and body of a GET.
func (s *service) get(t testing.TB, path string) (int, string) {
	t.Helper()
	resp, err := s.client.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// models are the names of /v1/models.
func (s *service) models(t testing.TB) (names []string) {
	t.Helper()
	_, raw := s.get(t, "/v1/models")
	var list struct {
		Data []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list.Data) == 0 {
		t.Fatalf("/v1/models: %v: %s", err, raw)
	}
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names
}

// metrics are the samples of /metrics by name and labels as they are written there.
type metrics map[string]float64

func (s *service) metrics(t testing.TB) metrics {
	t.Helper()
	status, text := s.get(t, "/metrics")
	if status != 200 {
		t.Fatalf("/metrics: %d", status)
	}
	return parseMetrics(t, text)
}

func parseMetrics(t testing.TB, text string) metrics {
	t.Helper()
	m := metrics{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		var v float64
		if _, err := fmt.Sscan(line[at+1:], &v); err != nil || at < 0 {
			t.Fatalf("metric %q: %v", line, err)
		}
		m[line[:at]] = v
	}
	return m
}

// of returns a metric of one model; more labels stand in front of the model's, by the alphabet.
func (m metrics) of(t testing.TB, name, model string) float64 {
	t.Helper()
	v, ok := m[name+`{model_name="`+model+`"}`]
	if !ok {
		t.Fatalf("no metric %s of %s", name, model)
	}
	return v
}

func (m metrics) state(t testing.TB, name, labels string) float64 {
	t.Helper()
	v, ok := m[name+"{"+labels+"}"]
	if !ok {
		t.Fatalf("no metric %s{%s}", name, labels)
	}
	return v
}

// rest waits until nothing runs or waits and no block is live.
func (s *service) rest(t testing.TB) metrics {
	t.Helper()
	var m metrics
	eventually(t, "the server comes to rest", func() bool {
		m = s.metrics(t)
		for _, info := range s.models(t) {
			live := m.state(t, "openinfer_kv_blocks", `model_name="`+info+`",state="live"`)
			if m.of(t, "vllm:num_requests_running", info)+m.of(t, "vllm:num_requests_waiting", info)+live+
				m.of(t, "vllm:kv_cache_usage_perc", info) != 0 {
				return false
			}
		}
		return true
	})
	return m
}

// eventually waits for something that another goroutine is about to do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
