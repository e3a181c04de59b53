package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/bench/load"
	"github.com/openinfer-go/openinfer/deploy/haproxy"
	"github.com/openinfer-go/openinfer/deploy/localfleet"
)

const simulatedModel = "llama-3.2-1b"

// balanced starts n nodes with simulated cards behind the real HAProxy.
func balanced(t *testing.T, n int, config haproxy.Fleet, args ...string) *localfleet.Fleet {
	t.Helper()
	return balancedModels(t, slices.Repeat([]string{simulatedModel}, n), config, args...)
}

// balancedModels starts a node for each of the models.
func balancedModels(t *testing.T, models []string, config haproxy.Fleet, args ...string) *localfleet.Fleet {
	t.Helper()
	needsTime(t)
	var nodes []*localfleet.Node
	for i, m := range models {
		nodes = append(nodes, &localfleet.Node{Name: fmt.Sprintf("node%d", i+1), Models: []string{m}, Args: append([]string{"--device", "sim:a6000"}, args...)})
	}
	config.Models = slices.Compact(slices.Clone(models))
	f, err := localfleet.Start(t.Context(), binary(t), t.TempDir(), config, nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Stop()
		if t.Failed() {
			t.Logf("HAProxy's log:\n%s", f.Log())
		}
	})
	return f
}

func clientOf(t *testing.T, url, key string) *load.Client {
	t.Helper()
	c, err := load.NewClient(load.ClientOptions{URL: url, Model: simulatedModel, Key: key, Extra: map[string]any{"ignore_eos": true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// requests are n of so many tokens.
func requests(n, tokens int) func(func(*load.Request) bool) {
	return func(yield func(*load.Request) bool) {
		for i := range n {
			if !yield(&load.Request{Messages: load.User(fmt.Sprintf("request %d", i)), MaxTokens: tokens}) {
				return
			}
		}
	}
}

// occupy keeps n long requests running at a node, or ends them all when the test ends.
func occupy(t *testing.T, url string, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	live := new(load.Live)
	c := clientOf(t, url, "")
	running.Go(func() { load.Run(ctx, c, requests(n, 100_000), load.Options{Live: live}) })
	t.Cleanup(func() { cancel(); running.Wait() })
	eventually(t, "the node is occupied", func() bool { return live.Running.Load() == int64(n) && live.Tokens.Load() > 0 })
}

func serverOf(t *testing.T, f *localfleet.Fleet, name string) localfleet.Server {
	t.Helper()
	all, err := f.Servers()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name && s.Backend == haproxy.Backend(simulatedModel) {
			return s
		}
	}
	t.Fatalf("no server %s in %v", name, all)
	return localfleet.Server{}
}

func count(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBalancerLosesNothing: under load a node is drained, which nobody notices, and another is killed, which ends those answers
// that it had begun and no others: what waited there for its first token is asked of another node.
func TestBalancerLosesNothing(t *testing.T) {
	f := balanced(t, 6, haproxy.Fleet{}, "--max-num-seqs", "4")
	drained, killed := f.Nodes[0], f.Nodes[1]
	live := new(load.Live)
	var at time.Duration // when the node was killed, since the beginning
	var running sync.WaitGroup
	begin := time.Now()
	running.Go(func() {
		eventually(t, "answers", func() bool { return live.OK.Load() > 20 })
		_ = drained.Signal(syscall.SIGTERM)
		eventually(t, "HAProxy is told of it", func() bool {
			s := serverOf(t, f, drained.Name)
			return strings.HasPrefix(s.Status, "DRAIN") || strings.HasPrefix(s.Status, "DOWN")
		})
		before := serverOf(t, f, drained.Name).Sent
		eventually(t, "it has ended", func() bool {
			select {
			case <-drained.Ended():
				return true
			default:
				return false
			}
		})
		if after := serverOf(t, f, drained.Name).Sent; after != before {
			t.Errorf("a drained node was sent requests: %s, then %s", before, after)
		}
		eventually(t, "the other node is busy", func() bool { return count(t, serverOf(t, f, killed.Name).Sessions) > 4 })
		at = time.Since(begin)
		_ = killed.Signal(syscall.SIGKILL)
	})
	const n = 700
	result := load.Run(t.Context(), clientOf(t, f.URL, ""), load.At(requests(n, 150), load.Poisson(1, 140)), load.Options{Live: live})
	running.Wait()
	broken := 0
	for _, r := range result.Records {
		switch {
		case r.Outcome == load.OK:
			if r.Tokens != 150 {
				t.Errorf("request %d: %d tokens", r.Index, r.Tokens)
			}
		case r.Outcome != load.Failed || r.FirstByte == 0 || r.FirstByte > at+time.Second || len(r.Chunks) == 0:
			t.Errorf("request %d: %v (%s), headers after %v, %d chunks; the node was killed after %v", r.Index, r.Outcome, r.Reason, r.FirstByte, len(r.Chunks), at)
		default:
			broken++
		}
	}
	if len(result.Records) != n || broken == 0 || broken > 8 {
		t.Errorf("%d of %d records, %d broken off: want some, of the four that ran", len(result.Records), n, broken)
	}
	t.Logf("%d answered, %d broken off", live.OK.Load(), broken)
}

// TestBalancerWeighs: a node that has less free gets less.
func TestBalancerWeighs(t *testing.T) {
	f := balanced(t, 3, haproxy.Fleet{})
	occupy(t, f.Nodes[0].URL, 160)
	eventually(t, "a weight for what is free", func() bool { return count(t, serverOf(t, f, "node1").Weight) <= 50 })
	if w := count(t, serverOf(t, f, "node2").Weight); w < 90 {
		t.Errorf("a free node's weight is %d", w)
	}
	result := load.Run(t.Context(), clientOf(t, f.URL, ""), requests(60, 100), load.Options{Concurrency: 20})
	for _, r := range result.Records {
		if r.Outcome != load.OK {
			t.Errorf("%v: %s", r.Outcome, r.Reason)
		}
	}
	sent := [3]int{}
	for i := range sent {
		sent[i] = count(t, serverOf(t, f, f.Nodes[i].Name).Sent)
	}
	if 3*sent[0] > sent[1]+sent[2] {
		t.Errorf("requests by node: %d, of which the first was busy", sent)
	}
	t.Logf("requests by node: %d", sent)
}

// TestBalancerRefusals: a node that refuses is not the last that is asked; if all refuse the client is told when to come
// again; and a key that asks too often is told so by the balancer.
func TestBalancerRefusals(t *testing.T) {
	// Agents are asked once: HAProxy goes on to think that all nodes are free.
	f := balanced(t, 2, haproxy.Fleet{RequestsPerMinute: 30, AgentInterval: "60s"}, "--max-num-seqs", "1", "--max-waiting", "1")
	c := clientOf(t, f.URL, "")
	send := func(c *load.Client, n int) (records []*load.Record) {
		return load.Run(t.Context(), c, requests(n, 5), load.Options{Concurrency: 1, Length: 10 * time.Second}).Records
	}
	occupy(t, f.Nodes[0].URL, 2)
	for _, r := range send(c, 6) {
		if r.Outcome != load.OK {
			t.Errorf("one node is free: %v: %s", r.Outcome, r.Reason)
		}
	}
	if s := serverOf(t, f, "node1"); count(t, s.Sent) == 0 {
		t.Errorf("the node that refuses was never asked: %+v", s)
	}
	occupy(t, f.Nodes[1].URL, 2)
	for _, r := range send(c, 1) {
		if r.Outcome != load.Refused || r.Status != http.StatusTooManyRequests || r.RetryAfter < time.Second || !strings.Contains(r.Reason, "wait") {
			t.Errorf("no node is free: %v, %d, %v: %s", r.Outcome, r.Status, r.RetryAfter, r.Reason)
		}
	}
	statuses := map[int]int{}
	for range 33 {
		req, err := http.NewRequestWithContext(t.Context(), "POST", f.URL+load.Completions, strings.NewReader(`{}`)) // nothing to serve, and counted
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer mine")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if statuses[resp.StatusCode]++; resp.StatusCode == 429 && resp.Header.Get("Retry-After") == "" {
			t.Error("a refusal without Retry-After")
		}
	}
	if statuses[429] != 3 || statuses[400] != 30 {
		t.Errorf("33 requests of one key, of which 30 are allowed: statuses %v", statuses)
	}
	if r := send(clientOf(t, f.URL, "another"), 1)[0]; r.Status != 429 || !strings.Contains(r.Reason, "wait") {
		t.Errorf("another key: %d: %s", r.Status, r.Reason)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestBalancerDrainEnds: what still runs when a node's time to drain is over ends with an error event, not with a broken stream.
func TestBalancerDrainEnds(t *testing.T) {
	f := balanced(t, 2, haproxy.Fleet{}, "--drain-timeout", "1s")
	live := new(load.Live)
	c := clientOf(t, f.URL, "")
	ended := make(chan []*load.Record, 1)
	go func() {
		ended <- load.Run(t.Context(), c, requests(4, 100_000), load.Options{Concurrency: 4, Live: live}).Records
	}()
	eventually(t, "all run", func() bool { return live.Running.Load() == 4 && live.Tokens.Load() > 100 })
	for _, n := range f.Nodes {
		_ = n.Signal(syscall.SIGTERM)
	}
	for _, r := range <-ended {
		if r.Outcome != load.Failed || r.Tokens == 0 || !strings.Contains(r.Reason, "shut") {
			t.Errorf("request %d: %v after %d tokens: %q", r.Index, r.Outcome, r.Tokens, r.Reason)
		}
	}
}

// TestBalancerAsksOnce: a model on one node is not asked for there again when the node has refused.
func TestBalancerAsksOnce(t *testing.T) {
	f := balancedModels(t, []string{simulatedModel, "qwen3-1.7b"}, haproxy.Fleet{AgentInterval: "60s"}, "--max-num-seqs", "1", "--max-waiting", "1")
	occupy(t, f.Nodes[0].URL, 2)
	result := load.Run(t.Context(), clientOf(t, f.URL, ""), load.At(requests(5, 5), load.Poisson(1, 20)), load.Options{})
	for _, r := range result.Records {
		if r.Outcome != load.Refused || r.Status != http.StatusTooManyRequests {
			t.Errorf("%v, %d", r.Outcome, r.Status)
		}
	}
	if sent := count(t, serverOf(t, f, "node1").Sent); sent != len(result.Records) {
		t.Errorf("the node was asked %d times for %d requests", sent, len(result.Records))
	}
}
