// Package loadtest is a server that speaks enough of the OpenAI API to test clients of it, and answers as it is told: when,
// with how many tokens and with which faults. What it answers is known, so what a generator measures of it can be checked.
//
// It runs in real time, in a process of its own (scripts/loadcheck), and in virtual time over a Network (testing/synctest).
package loadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Request is what the stub understood of a request.
type Request struct {
	Model         string          `json:"model"`
	Prompt        json.RawMessage `json:"prompt"`
	Messages      []Message       `json:"messages"`
	MaxTokens     int             `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
		Continuous   bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`

	Path         string      `json:"-"`
	Header       http.Header `json:"-"`
	Body         string      `json:"-"`
	PromptTokens int         `json:"-"` // words of all messages and a fixed number for each, or ids
}

// Message is one of a chat.
type Message struct{ Role, Content string }

// Answer is how the stub answers. Times are from when it had read the request.
type Answer struct {
	Status int               // 0: 200
	Header map[string]string // of the reply
	Body   string            // of a reply that is not 200, or of one that is not streamed

	First  time.Duration           // until the first chunk
	Gap    func(int) time.Duration // before chunk i, from 1 on; nil: none
	Chunks int                     // 0: the request's max_tokens
	Tokens func(int) int           // of chunk i; nil: 1 each

	Reasoning int    // so many first chunks are reasoning (chat only)
	Event     string // an event sent after the chunks, in the place of the end
	Cut       bool   // hang up after the chunks
	NoEnd     bool   // after the chunks neither finish_reason nor [DONE]
	Hang      bool   // after the chunks nothing more until the client is gone
}

// Stub is an http.Handler.
type Stub struct {
	// Answer says how to answer the i-th request to be read; nil: at once. It is called for one request at a time.
	Answer func(i int, q Request) Answer
	// Usage is how much of stream_options it takes: 2 continuous, 1 at the end, 0 refuses them with a 400.
	Usage int
	// Models are listed; nil: "stub".
	Models []string
	// IDs is the vocabulary that /tokenize spells words in; 0: there is no /tokenize and no prompt of ids.
	IDs int

	mu   sync.Mutex
	seen []Request
}

// Seen are the requests so far, in the order in which they were read.
func (s *Stub) Seen() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.seen...)
}

// perMessage is what a message costs beside its words.
const perMessage = 3

func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch r.URL.Path {
	case "/v1/models":
		models := s.Models
		if models == nil {
			models = []string{"stub"}
		}
		var list []map[string]any
		for _, m := range models {
			list = append(list, map[string]any{"id": m, "object": "model", "max_model_len": 4096})
		}
		writeJSON(w, map[string]any{"object": "list", "data": list})
	case "/tokenize":
		s.tokenize(w, body)
	case "/v1/completions", "/v1/chat/completions":
		s.complete(w, r, body)
	default:
		http.NotFound(w, r)
	}
}

func (s *Stub) tokenize(w http.ResponseWriter, body []byte) {
	var q struct{ Prompt, Content string }
	if s.IDs == 0 || json.Unmarshal(body, &q) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	ids := []int{}
	for i := range strings.Fields(q.Prompt) {
		ids = append(ids, i%s.IDs)
	}
	writeJSON(w, map[string]any{"count": len(ids), "tokens": ids})
}

func (s *Stub) complete(w http.ResponseWriter, r *http.Request, body []byte) {
	start := time.Now()
	q := Request{Path: r.URL.Path, Header: r.Header, Body: string(body)}
	if err := json.Unmarshal(body, &q); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if q.StreamOptions != nil && (s.Usage == 0 || s.Usage == 1 && q.StreamOptions.Continuous) {
		refuse(w, http.StatusBadRequest, "stream_options: unknown field")
		return
	}
	if !q.count(s.IDs) {
		refuse(w, http.StatusBadRequest, "prompt: not a text")
		return
	}
	s.mu.Lock()
	s.seen = append(s.seen, q)
	a := Answer{}
	if s.Answer != nil {
		a = s.Answer(len(s.seen)-1, q)
	}
	s.mu.Unlock()
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	if a.Status != 0 && a.Status != http.StatusOK || a.Body != "" {
		if a.Status == 0 {
			a.Status = http.StatusOK
		}
		sleep(r.Context(), start, a.First)
		w.WriteHeader(a.Status)
		io.WriteString(w, a.Body)
		return
	}
	s.stream(w, r.Context(), start, q, a)
}

func (q *Request) count(ids int) bool {
	var text string
	var list []int
	switch {
	case json.Unmarshal(q.Prompt, &text) == nil:
		q.PromptTokens = len(strings.Fields(text))
	case json.Unmarshal(q.Prompt, &list) == nil && ids > 0:
		for _, id := range list {
			if id < 0 || id >= ids {
				return false
			}
		}
		q.PromptTokens = len(list)
	case q.Messages != nil:
		for _, m := range q.Messages {
			q.PromptTokens += perMessage + len(strings.Fields(m.Content))
		}
	default:
		return false
	}
	return true
}

// stream writes the chunks, each at its own time from the start, so that being late once makes no later chunk late.
func (s *Stub) stream(w http.ResponseWriter, ctx context.Context, start time.Time, q Request, a Answer) {
	chat := q.Messages != nil
	n := a.Chunks
	if n == 0 {
		n = q.MaxTokens
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	rc.Flush()
	usage := func(tokens int) string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}`,
			q.PromptTokens, q.PromptTokens+tokens, tokens)
	}
	const head = `data: {"id":"cmpl-0123456789","object":"text_completion","created":1700000000,"model":"stub","choices":[{"index":0,`
	continuous := q.StreamOptions != nil && q.StreamOptions.Continuous
	tokens, at := 0, a.First
	buf := make([]byte, 0, 512)
	for i := range n {
		if i > 0 && a.Gap != nil {
			at += a.Gap(i)
		}
		if !sleep(ctx, start, at) {
			return
		}
		if a.Tokens != nil {
			tokens += a.Tokens(i)
		} else {
			tokens++
		}
		buf = append(buf[:0], head...)
		switch {
		case !chat:
			buf = append(buf, `"text":"word \"`...)
		case i < a.Reasoning:
			buf = append(buf, `"delta":{"reasoning_content":"hm \"`...)
		default:
			buf = append(buf, `"delta":{"content":"word \"`...)
		}
		buf = append(strconv.AppendInt(buf, int64(i), 10), `\" "`...)
		if chat {
			buf = append(buf, '}')
		}
		buf = append(buf, `,"logprobs":null,"finish_reason":null}]`...)
		if continuous {
			buf = append(append(buf, ','), usage(tokens)...)
		}
		buf = append(buf, "}\n\n"...)
		if _, err := w.Write(buf); err != nil {
			return
		}
		if rc.Flush() != nil {
			return
		}
	}
	switch {
	case a.Hang:
		<-ctx.Done()
		return
	case a.Cut:
		panic(http.ErrAbortHandler)
	case a.NoEnd:
		return
	case a.Event != "":
		io.WriteString(w, a.Event)
		return
	}
	empty := `"text":""`
	if chat {
		empty = `"delta":{}`
	}
	io.WriteString(w, head+empty+`,"finish_reason":"length"}]}`+"\n\n")
	if q.StreamOptions != nil && q.StreamOptions.IncludeUsage {
		io.WriteString(w, `data: {"choices":[],`+usage(tokens)+"}\n\n")
	}
	io.WriteString(w, "data: [DONE]\n\n")
}

// sleep waits until so long after start.
func sleep(ctx context.Context, start time.Time, d time.Duration) bool {
	wait := time.Until(start.Add(d))
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message}})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// Network is a network without a kernel: in a bubble of synctest, whose clock stands still while anybody waits for a
// socket, connections have to be memory. It is a net.Listener.
type Network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewNetwork returns a Network.
func NewNetwork() *Network {
	return &Network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Network) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Network) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// Transport connects to it whatever the address.
func (l *Network) Transport() *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case l.conns <- theirs:
			return ours, nil
		case <-l.closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1 << 16}
}

// Serve serves h on a Network of its own until the returned function is called. url is the address to give to clients.
func Serve(h http.Handler) (transport *http.Transport, url string, stop func()) {
	l := NewNetwork()
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }()
	transport = l.Transport()
	return transport, "http://memory", func() {
		transport.CloseIdleConnections()
		server.Close()
		<-done
	}
}
