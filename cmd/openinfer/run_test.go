package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/engine"
)

func demoSession(t *testing.T, maxModelLen int) (*session, *bytes.Buffer) {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{Models: []engine.ModelSpec{{Name: "demo-tales", MaxModelLen: maxModelLen}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	out := new(bytes.Buffer)
	return &session{engine: e, info: e.Models()[0], out: out, thoughts: out, maxTokens: 16, given: func(string) bool { return false }}, out
}

// TestChatEndsWhileItWaits: Ctrl-C cancels ctx, and a read that never returns must not hold the chat.
func TestChatEndsWhileItWaits(t *testing.T) {
	s, _ := demoSession(t, 0)
	in, hold := io.Pipe()
	defer hold.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.chat(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestChatOutgrowsTheContext: every line is answered, and the conversation fits again after each.
func TestChatOutgrowsTheContext(t *testing.T) {
	s, out := demoSession(t, 64)
	const lines = 8
	if err := s.chat(t.Context(), strings.NewReader(strings.Repeat("Tell me a story\n", lines))); err != nil {
		t.Fatalf("%v after %q", err, out)
	}
	if n := len(s.messages); n == 0 || n >= 2*lines {
		t.Errorf("%d messages are kept of %d", n, 2*lines)
	}
	if err := s.chat(t.Context(), strings.NewReader(strings.Repeat("long ", 100))); !errors.Is(err, engine.ErrContextLength) {
		t.Errorf("a line that never fits: got %v, want %v", err, engine.ErrContextLength)
	}
}
