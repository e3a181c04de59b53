package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// says makes a generator that answers every request with one text.
func says(text string) *apitest.Generator {
	return answers(func(engine.Request) apitest.Answer { return apitest.Answer{Text: text} })
}

func answers(f func(engine.Request) apitest.Answer) *apitest.Generator {
	return &apitest.Generator{Names: []string{"M", "org/other"}, Answer: f}
}

// served is a server on an in-memory network.
type served struct {
	t *testing.T
	*httptest.Server
}

func serve(t *testing.T, gen Generator, o Options) served {
	t.Helper()
	s := httptest.NewTestServer(t, nil)
	s.Config = NewServer(New(gen, o))
	return served{t, s}
}

// answer is a reply as a client gets it.
type answer struct {
	status int
	header http.Header
	body   []byte
	events []string // the data of a stream's events, comments left out
	err    error    // of reading the body
}

func (s served) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	req, err := http.NewRequest(method, "http://test"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	a.body, a.err = io.ReadAll(resp.Body)
	a.events = events(a.body)
	return a
}

func (s served) post(path, body string, headers ...string) answer {
	s.t.Helper()
	return s.do("POST", path, body, headers...)
}

func events(body []byte) []string {
	var all []string
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			all = append(all, data)
		}
	}
	return all
}

// tree is a JSON value; at walks it by keys and indexes.
type tree struct{ v any }

func parse(t *testing.T, text string) tree {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("not JSON: %v: %q", err, text)
	}
	return tree{v}
}

func (x tree) at(path ...any) any {
	v := x.v
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func (x tree) has(key string) bool {
	m, _ := x.v.(map[string]any)
	_, ok := m[key]
	return ok
}

// tree parses a whole reply that must be a 200.
func (s served) ok(a answer) tree {
	s.t.Helper()
	if a.status != 200 || a.err != nil {
		s.t.Fatalf("status %d (%v): %s", a.status, a.err, a.body)
	}
	return parse(s.t, string(a.body))
}

// streamed is a stream that ended well, put together by index.
type streamed struct {
	chunks []tree
	text   map[int]string
	finish map[int]string
	ids    map[int][]any
	usage  *tree
}

func (s served) stream(a answer) streamed {
	s.t.Helper()
	if a.status != 200 || a.err != nil || len(a.events) == 0 || a.events[len(a.events)-1] != "[DONE]" {
		s.t.Fatalf("status %d (%v), not a finished stream: %s", a.status, a.err, a.body)
	}
	if ct := a.header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		s.t.Errorf("content type %q", ct)
	}
	out := streamed{text: map[int]string{}, finish: map[int]string{}, ids: map[int][]any{}}
	roles := map[int]int{}
	for n, e := range a.events[:len(a.events)-1] {
		c := parse(s.t, e)
		out.chunks = append(out.chunks, c)
		for _, k := range []string{"id", "created", "model", "object"} {
			if c.at(k) != out.chunks[0].at(k) {
				s.t.Errorf("chunk %d: %s is %v, was %v", n, k, c.at(k), out.chunks[0].at(k))
			}
		}
		choices, ok := c.at("choices").([]any)
		if !ok {
			s.t.Errorf("chunk %d has no choices: %s", n, e)
		}
		if len(choices) == 0 {
			if out.usage != nil || n != len(a.events)-2 {
				s.t.Errorf("usage chunk %d of %d is not the only, last one", n, len(a.events))
			}
			out.usage = &c
			continue
		}
		i := int(c.at("choices", 0, "index").(float64))
		if out.finish[i] != "" {
			s.t.Errorf("chunk %d: index %d goes on after its end", n, i)
		}
		if t, ok := c.at("choices", 0, "text").(string); ok {
			out.text[i] += t
			roles[i]++
		}
		if t, ok := c.at("choices", 0, "delta", "content").(string); ok {
			out.text[i] += t
		}
		if c.at("choices", 0, "delta", "role") == "assistant" {
			roles[i]++
			if roles[i] > 1 {
				s.t.Errorf("chunk %d: a second role for index %d", n, i)
			}
		}
		if roles[i] == 0 {
			s.t.Errorf("chunk %d: index %d begins without a role", n, i)
		}
		if ids, ok := c.at("choices", 0, "token_ids").([]any); ok {
			out.ids[i] = append(out.ids[i], ids...)
		}
		if f, ok := c.at("choices", 0, "finish_reason").(string); ok {
			out.finish[i] = f
		}
	}
	return out
}

// refused checks for an OpenAI error object and returns its message.
func (s served) refused(a answer, status int, param string) string {
	s.t.Helper()
	if a.status != status {
		s.t.Errorf("status %d, want %d: %s", a.status, status, shorten(string(a.body), 300))
		return ""
	}
	e := parse(s.t, string(a.body))
	message, _ := e.at("error", "message").(string)
	kind, _ := e.at("error", "type").(string)
	got, _ := e.at("error", "param").(string)
	m, _ := e.at("error").(map[string]any)
	if _, ok := m["code"]; message == "" || kind == "" || !ok {
		s.t.Errorf("not an error object: %s", a.body)
	}
	if got != param {
		s.t.Errorf("param %q, want %q: %s", got, param, message)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		s.t.Errorf("content type %q", ct)
	}
	return message
}

// eventually waits for something that another goroutine is about to do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// chunked posts a body whose length is not announced.
func (s served) chunked(path, body string) answer {
	s.t.Helper()
	req, _ := http.NewRequest("POST", "http://test"+path, io.MultiReader(strings.NewReader(body)))
	resp, err := s.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: b, err: err}
}

// raw is a connection to the server on which the beginning of a request was sent.
func (s served) raw(text string) net.Conn {
	s.t.Helper()
	conn, err := s.Client().Transport.(*http.Transport).DialContext(s.t.Context(), "tcp", "test:80")
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return conn
}
