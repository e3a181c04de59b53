package top

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/api/state"
	"github.com/openinfer-go/openinfer/engine"
)

func pointer(v float64) *float64 { return &v }

// sample is a server with all that there is to show.
func sample() *state.State {
	return &state.State{
		Version: "1.0", Time: 20_000, Ready: true, Simulated: "X1",
		Memory: state.Memory{Device: "card X1", Bytes: 48 << 30, Weights: 20 << 30, KV: 10 << 30},
		Pool:   state.Pool{PageBytes: 2 << 20, Live: 60, Cached: 20, Free: 20, Map: [][3]int{{0, state.Live, 60}, {1, state.Cached, 20}, {-1, state.Free, 20}}},
		Models: []state.Model{
			{ID: "one", State: "resident", Weights: 8 << 30, Running: 3, Waiting: 1, Rate: 123.4, TTFT: pointer(250), WorstTTFT: pointer(1500), TPOT: pointer(21.5), StepSeconds: 7, Finished: 9, RefusedSLA: 2},
			{ID: "two", State: "parked", Weights: 12 << 30, StepSeconds: 1},
		},
		History: state.History{Seconds: 2, Models: []state.ModelHistory{{Rate: []float64{0, 10, 80}}, {Rate: []float64{0, 0, 0}}}},
		Requests: []state.Request{
			{ID: "chatcmpl-abcdefghijkl", Model: "one", State: state.Decode, Prompt: 50, Sampled: 12, Max: 400, Age: 3000, TTFT: 200, TargetTTFT: 900, Due: -5},
			{ID: "cmpl-zzzzzzzzzzzz", Index: 2, Model: "one", State: state.Prefill, Prompt: 5000, Computed: 2048, Max: 10, Age: 70, TargetTPOT: 30, Late: true},
		},
		Unlisted: 4,
	}
}

func TestScreen(t *testing.T) {
	before := sample()
	before.Time -= 10_000
	before.Models[0].StepSeconds -= 4
	s := screen{url: "http://h", now: sample(), before: before, width: 160, plain: true}
	text := s.String()
	for _, want := range []string{
		"OpenInfer  1.0  http://h  ready  simulated X1", "123 tok/s ▁▂█", "3 running, 1 waiting", "device 40 % busy", "2 refused, 9 finished",
		"Memory  card X1: weights 8.00 GiB of 20.00 GiB, KV cache 10.00 GiB, other 18.00 GiB", "60 pages live, 20 cached, 20 free, 2.0 MiB each",
		strings.Repeat("A", 60) + strings.Repeat("b", 20) + strings.Repeat("·", 20),
		"A one  resident", "250 ms  1.50 s  21.5 ms", "B two  parked", "abcdefgh", "12  400", "first in 900 ms, due", "zzzzzzzz.2", "2048  5000", "30.0 ms per token, cannot be met", "and 4 more",
	} {
		if !strings.Contains(squeezed(text), squeezed(want)) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("escapes in plain text: %q", text)
	}
	s.now.Card = &state.Card{Utilization: pointer(0.97), PowerWatts: pointer(280)}
	if text := s.String(); !strings.Contains(text, "card 97 % busy, 280 W") {
		t.Error(text)
	}
	s.before, s.now.Card = nil, nil
	if text := s.String(); !strings.Contains(text, "device –") {
		t.Error(text)
	}
}

// squeezed is a text whose columns are one space apart.
func squeezed(s string) string { return strings.Join(strings.Fields(s), " ") }

// TestScreenFits: whatever the size, no line is longer than the terminal is wide, and an empty server is no trouble.
func TestScreenFits(t *testing.T) {
	many := sample()
	for range 100 {
		many.Requests = append(many.Requests, many.Requests[0])
	}
	for _, now := range []*state.State{many, {}, {Models: []state.Model{{}}}} {
		for _, width := range []int{20, 40, 80, 200} {
			for _, height := range []int{5, 24, 60} {
				s := screen{now: now, width: width, height: height}
				lines := strings.Split(strings.TrimSuffix(s.String(), "\n"), "\n")
				for _, l := range lines {
					if n := lipgloss.Width(l); n > width {
						t.Errorf("%d of %d columns: %q", n, width, l)
					}
				}
				if len(lines) > max(height, 16) {
					t.Errorf("%d lines of %d", len(lines), height)
				}
			}
		}
	}
}

// TestHostileServer: what a server says of itself cannot move the cursor, colour the screen or set a title.
func TestHostileServer(t *testing.T) {
	const evil = "a\x1b]0;title\x07\x1b[2J\r\n\u009b31m\u202eb"
	s := sample()
	s.Version, s.Reason, s.Ready, s.Simulated, s.Memory.Device = evil, evil, false, evil, evil
	s.Models[0].ID, s.Requests[0].ID, s.Requests[0].Model = evil, evil, evil
	text := (&screen{url: "http://h", now: s, width: 200, plain: true}).String()
	for _, r := range text {
		if r < ' ' && r != '\n' || r == 0x9b || r == 0x202e {
			t.Fatalf("%q in %q", r, text)
		}
	}
}

func serve(t *testing.T, gen api.Generator, o api.Options) (*httptest.Server, *Client) {
	t.Helper()
	s := httptest.NewServer(api.New(gen, o))
	t.Cleanup(s.Close)
	key := ""
	if len(o.Keys) > 0 {
		key = o.Keys[0]
	}
	c, err := NewClient(s.URL+"/v1/", key)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestOnce(t *testing.T) {
	_, c := serve(t, &apitest.Generator{Names: []string{"M", "N"}}, api.Options{Keys: []string{"k"}, Version: "3"})
	var b strings.Builder
	if err := Once(t.Context(), c, &b); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.HasPrefix(got, "OpenInfer  3  http://127.0.0.1:") || !strings.Contains(squeezed(got), "A M resident") || !strings.Contains(got, "No requests.") {
		t.Error(got)
	}
}

func TestErrors(t *testing.T) {
	for address, want := range map[string]string{"": "not the address", "ftp://x": "not the address", "http://": "not the address", "::": "not the address"} {
		if _, err := NewClient(address, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", address, err)
		}
	}
	s, c := serve(t, &apitest.Generator{Names: []string{"M"}}, api.Options{Keys: []string{"k"}})
	c.key = ""
	if _, err := c.Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "an API key is needed") || !strings.Contains(err.Error(), "401") {
		t.Errorf("%v", err)
	}
	c.key, c.url = "k", c.url+"/elsewhere"
	if _, err := c.Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
	s.Close()
	if _, err := c.Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
}

// TestKeys: lines are chosen, models parked and loaded, a request cancelled.
func TestKeys(t *testing.T) {
	gen := &apitest.Generator{Names: []string{"M", "N"}, Answer: func(engine.Request) apitest.Answer { return apitest.Answer{Prefill: time.Hour} }}
	s, c := serve(t, gen, api.Options{})
	answered := make(chan string, 1)
	go func() {
		err := c.ask(context.Background(), "POST", "/v1/completions", map[string]any{"model": "M", "prompt": "x"}, &struct{}{})
		answered <- err.Error()
	}()
	m := &model{ctx: t.Context(), client: c, screen: screen{url: s.URL}}
	for m.screen.now == nil || len(m.screen.now.Requests) == 0 {
		now, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.screen.now = now
	}
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 30})
	press := func(keys string) {
		t.Helper()
		for _, r := range keys {
			msg := tea.KeyPressMsg{Code: r, Text: string(r)}
			if _, cmd := m.Update(msg); cmd != nil {
				m.Update(cmd())
			}
		}
	}
	state := func(i int) string { return gen.Models()[i].State }
	press("l")
	if !strings.Contains(m.message, "choose") {
		t.Error(m.message)
	}
	press("jjp")
	if state(1) != "parked" || state(0) != "resident" || m.message != "parked N" {
		t.Errorf("%s %s, %s", state(0), state(1), m.message)
	}
	press("lc")
	if state(1) != "resident" || !strings.Contains(m.message, "for requests") {
		t.Errorf("%s, %s", state(1), m.message)
	}
	press("jp")
	if !strings.Contains(m.message, "for models") {
		t.Error(m.message)
	}
	press("c")
	if got := <-answered; !strings.Contains(got, "cancelled") || !strings.HasPrefix(m.message, "cancelled cmpl-") {
		t.Errorf("%s; %s", got, m.message)
	}
	press("jjjjkkkkkkkk")
	if m.screen.chosen != modelKey("M") {
		t.Error(m.screen.chosen)
	}
	if v := m.View(); !v.AltScreen || !strings.Contains(v.Content, "\x1b[7m") {
		t.Errorf("the chosen line is not shown: %q", v.Content)
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
	s.Close()
	m.Update(snapshot{nil, context.DeadlineExceeded})
	if !strings.Contains(m.View().Content, "deadline") {
		t.Error("a server that is gone is not told")
	}
}
