// Package agentcheck answers HAProxy's agent checks (Configuration Manual, "agent-check"): a balancer connects, may send a line,
// and gets one that says what share of the node's weight new requests are to come with.
//
// It owns the line protocol and its time-outs. It does not own what free capacity is: its caller says.
//
// Invariant: a check never waits for the node's work, and one that hangs holds nothing but its own connection, for Timeout.
package agentcheck

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"time"
)

// Timeout is how long a check may take in all.
const Timeout = 2 * time.Second

// silence is how long an agent waits for a line of a balancer that may have none to send: agent-send is optional.
const silence = 100 * time.Millisecond

// maxChecks are served at once; more wait in the listener's queue.
const maxChecks = 64

// longestLine is of a model's name and its end.
const longestLine = 512

// State is what a node says of itself, or of one model.
type State struct {
	// Up: requests are taken. A node that is not up is either Draining, which lets those that run end, or down.
	Up, Draining bool
	// Free is the share of the device that is free for more requests, 0 to 1.
	Free float64
	// Why is told in the balancer's log when the node is not up.
	Why string
}

// Line is the answer, with its end. A node that is up and full keeps one per cent: when all are full, one of them has to
// refuse with a time to come back, which a balancer without servers does not know.
func (s State) Line() string {
	switch {
	case s.Draining:
		return "drain" + reason(s.Why)
	case !s.Up:
		return "ready down" + reason(s.Why)
	}
	percent := 1.0
	if s.Free > 0 { // not for a NaN
		percent = min(100, max(1, math.Round(s.Free*100)))
	}
	return fmt.Sprintf("ready up %.0f%%\n", percent)
}

func reason(why string) string {
	why = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, why)
	if why == "" {
		return "\n"
	}
	return " #" + why + "\n"
}

// Serve answers checks on l until it is closed. state is asked with the line that the balancer sent, a model's name, or ""
// for the node as a whole; an error of it, such as for a model that the node has not, is told as down.
func Serve(l net.Listener, state func(model string) (State, error)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxChecks)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("agent check: %w", err)
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			answer(conn, state)
		})
	}
}

func answer(conn net.Conn, state func(model string) (State, error)) {
	_ = conn.SetDeadline(time.Now().Add(Timeout))
	_ = conn.SetReadDeadline(time.Now().Add(silence))
	line, err := bufio.NewReaderSize(io.LimitReader(conn, longestLine), longestLine).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) && !isTimeout(err) {
		return
	}
	s, err := state(strings.TrimSpace(line))
	if err != nil {
		s = State{Why: err.Error()}
	}
	_, _ = io.WriteString(conn, s.Line()) // the balancer asks again
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
