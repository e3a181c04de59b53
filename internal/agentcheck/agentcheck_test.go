package agentcheck

import (
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	for _, c := range []struct {
		s    State
		want string
	}{
		{State{Up: true, Free: 1}, "ready up 100%\n"},
		{State{Up: true, Free: 0.374}, "ready up 37%\n"},
		{State{Up: true, Free: 0.001}, "ready up 1%\n"},
		{State{Up: true}, "ready up 1%\n"},
		{State{Up: true, Free: -3}, "ready up 1%\n"},
		{State{Up: true, Free: 7}, "ready up 100%\n"},
		{State{Up: true, Free: math.NaN()}, "ready up 1%\n"},
		{State{Up: true, Draining: true, Free: 1, Why: "stopping"}, "drain #stopping\n"},
		{State{Draining: true}, "drain\n"},
		{State{Why: "models are loading\nnow\x00"}, "ready down #models are loading now \n"},
	} {
		if got := c.s.Line(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
	}
}

func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() {
		served <- Serve(l, func(model string) (State, error) {
			switch model {
			case "":
				return State{Up: true, Free: 0.5}, nil
			case "a model":
				return State{Up: true, Free: 0.25}, nil
			}
			return State{}, errors.New("there is no model " + model)
		})
	}()
	// check sends a line, none at all if it is "", and half closes the connection if closes.
	check := func(send string, closes bool) string {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		if closes {
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct {
		send   string
		closes bool
		want   string
	}{
		{"", false, "ready up 50%\n"},
		{"", true, "ready up 50%\n"},
		{"\n", false, "ready up 50%\n"},
		{"a model\n", false, "ready up 25%\n"},
		{"a model\r\n", false, "ready up 25%\n"},
		{"a model", true, "ready up 25%\n"},
		{"none\n", false, "ready down #there is no model none\n"},
	} {
		if got := check(c.send, c.closes); got != c.want {
			t.Errorf("%q: %q, want %q", c.send, got, c.want)
		}
	}
	if got := check(strings.Repeat("x", longestLine), false); !strings.HasPrefix(got, "ready down #there is no model xxx") {
		t.Errorf("a line too long: %q", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
