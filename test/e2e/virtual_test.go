package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

// memoryListener is a network without a kernel: in a bubble of synctest, whose clock stands still while anybody waits
// for a socket, connections have to be memory.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (l *memoryListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
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

// virtual opens a whole server in the test's bubble. The last call closes it.
func virtual(t *testing.T, o engine.Options) (*service, func()) {
	t.Helper()
	e, err := engine.Open(t.Context(), quiet(o))
	if err != nil {
		t.Fatal(err)
	}
	return inMemory(e, api.Options{})
}

// inMemory serves e on a listener in memory.
func inMemory(e *engine.Engine, o api.Options) (*service, func()) {
	l := newMemoryListener()
	server := api.NewServer(api.New(e, o))
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 1000}
	return &service{engine: e, client: &http.Client{Transport: transport}, url: "http://memory"}, func() {
		transport.CloseIdleConnections()
		e.Close()
		server.Close()
		<-done
	}
}

// exchange is a request and its answer, in virtual time.
type exchange struct {
	Model        string
	Sent, Took   time.Duration // since the start, and until the answer was complete
	First        time.Duration // until its first token
	Tokens       int
	Text, Finish string
}

// TestVirtualFleetNode runs the whole server on a simulated card in virtual time: clients that come when they like
// to three models. A second run has the same answers at the same nanoseconds; each answer is what
// it is alone; nobody waits for a step longer than the card takes for it.
func TestVirtualFleetNode(t *testing.T) {
	models := []string{"qwen3.5-9b", "llama-3.2-1b", "qwen3-1.7b"}
	n := many(6, 24, 2000)
	run := func(every time.Duration) (out []exchange, busy float64) {
		synctest.Test(t, func(t *testing.T) {
			var specs []engine.ModelSpec
			for _, m := range models {
				specs = append(specs, engine.ModelSpec{Name: m})
			}
			s, stop := virtual(t, engine.Options{Device: "sim:rtx3090", Models: specs})
			defer stop()
			start := time.Now()
			out = make([]exchange, n)
			var wg sync.WaitGroup
			for i := range out {
				wg.Go(func() {
					x := &out[i]
					x.Model = models[i%len(models)]
					// No two at once: who of them is first is the machine's choice, not the clock's.
					time.Sleep(time.Duration(i)*every + time.Duration(i))
					x.Sent = time.Since(start)
					stream(t, s, x, strings.Repeat("tell me more ", i%7*20)+fmt.Sprint(i))
				})
			}
			wg.Wait()
			for _, m := range s.engine.Stats().Models {
				busy += m.StepSeconds
			}
			busy /= time.Since(start).Seconds()
		})
		return out, busy
	}
	together, busy := run(30 * time.Millisecond)
	again, _ := run(30 * time.Millisecond)
	alone, idle := run(time.Minute)
	t.Logf("device busy %.1f %% of the time together, %.1f %% one by one", 100*busy, 100*idle)
	for i, x := range together {
		if again[i] != x {
			t.Errorf("request %d: %+v, again %+v", i, x, again[i])
		}
		one := alone[i]
		if one.Text != x.Text || one.Tokens != x.Tokens || one.Finish != "stop" || one.Tokens < 20 {
			t.Errorf("request %d: %+v, alone %+v", i, x, one)
		}
		if x.Took < one.Took || x.First < one.First {
			t.Errorf("request %d took %v (first token %v), alone %v (%v)", i, x.Took, x.First, one.Took, one.First)
		}
	}
	if busy > 1 || busy < 2*idle {
		t.Errorf("the device was busy %v of the time, %v when requests came one by one", busy, idle)
	}
}

// stream asks for an answer and notes when it came. It may run in any goroutine.
func stream(t *testing.T, s *service, x *exchange, text string) {
	start := time.Now()
	b := complete(x.Model, text, body{"stream": true, "max_tokens": 2000, "stream_options": body{"include_usage": true}})
	resp, err := s.post(b)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	var raw strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		raw.Write(buf[:n])
		if x.First == 0 && strings.Contains(raw.String(), "data: ") {
			x.First = time.Since(start)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
	x.Took = time.Since(start)
	if resp.StatusCode != 200 {
		t.Errorf("status %d: %s", resp.StatusCode, raw.String())
		return
	}
	r, err := readStream([]byte(raw.String()))
	if err != nil || len(r.choices) != 1 || r.usage == nil {
		t.Errorf("%v: %.300s", err, raw.String())
		return
	}
	x.Tokens, x.Text, x.Finish = r.usage.Completion, r.choices[0].text, r.choices[0].finish
	if !strings.Contains(r.events[0], `_simulated"`) {
		t.Errorf("nothing says that this is simulated: %s", r.events[0])
	}
}

// TestSimulatedServerSpeaksTheAPI: lists, chats, log probabilities and refusals, and everything says what it is.
func TestSimulatedServerSpeaksTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := virtual(t, engine.Options{Device: "sim:l40s", Models: []engine.ModelSpec{{Name: "phi-4"}, {Name: tales}}})
		defer stop()
		get := func(path string) string {
			resp, err := s.client.Get(s.url + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%s: %d, %v", path, resp.StatusCode, err)
			}
			return string(raw)
		}
		var list struct {
			Data []struct{ ID, Simulated string }
		}
		if err := json.Unmarshal([]byte(get("/v1/models")), &list); err != nil || len(list.Data) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, m := range list.Data {
			if m.Simulated != "NVIDIA L40S" {
				t.Errorf("%+v", m)
			}
		}
		if m := get("/metrics"); !strings.Contains(m, `openinfer_simulated{card="NVIDIA L40S",model_name="phi-4"} 1`) {
			t.Errorf("metrics: %s", m)
		}
		for _, model := range []string{"phi-4", tales} {
			a := s.one(t, chat(model, "Tell me a story", body{"max_tokens": 30, "logprobs": true, "top_logprobs": 3}))
			b := s.one(t, chat(model, "Tell me a story", body{"max_tokens": 30}))
			if !a.same(b) || a.text == "" || a.logprobs == nil || len(a.logprobs.Content) != len(a.ids) || len(a.logprobs.Content[0].Top) != 3 {
				t.Errorf("%s: %v, then %v", model, a, b)
			}
			if c := s.one(t, chat(model, "Tell me another", body{"max_tokens": 30})); c.same(a) {
				t.Errorf("%s: two prompts, one answer: %v", model, a)
			}
		}
		if r := s.must(t, chat("phi-4", "Hello", body{"n": 3, "max_tokens": 20, "temperature": 1})); len(r.choices) != 3 || r.choices[0].text == r.choices[1].text {
			t.Errorf("n=3: %v", r.choices)
		}
		resp, err := s.post(chat("phi-4", "Hello", body{"max_tokens": 100_000}))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if raw, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 400 || !strings.Contains(string(raw), "16384") {
			t.Errorf("%d, %v: %s", resp.StatusCode, err, raw)
		}
	})
}
