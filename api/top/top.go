// Package top shows a server in a terminal: GET /v1/state once, or each second until the reader quits, with keys that
// load and park models and cancel requests.
//
// It knows the server only by its API. What is drawn is a pure function of two snapshots and the terminal's size.
//
// Invariant: no text of the server's reaches the terminal with a character that the terminal would obey.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/openinfer-go/openinfer/api/state"
)

// onceWidth is how wide a snapshot is that goes to a file or a pipe.
const onceWidth = 160

// Once writes one snapshot as plain text. It takes a second, as what the device does is seen between two.
func Once(ctx context.Context, c *Client, out io.Writer) error {
	before, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	now, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	s := screen{url: c.url, now: now, before: before, width: onceWidth, plain: true}
	_, err = io.WriteString(out, s.String())
	return err
}

// Watch shows the server on the terminal that in and out are until the reader quits or ctx ends.
func Watch(ctx context.Context, c *Client, in io.Reader, out io.Writer) error {
	first, err := c.Snapshot(ctx) // an address or a key that is wrong is an error, not a screen
	if err != nil {
		return err
	}
	m := &model{ctx: ctx, client: c, screen: screen{url: c.url, now: first}}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out)).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return context.Canceled
	}
	return err
}

// model is the program on the terminal.
type model struct {
	ctx     context.Context
	client  *Client
	screen  screen
	message string // of the last key, or what is wrong
}

// Messages to the model.
type (
	tick     struct{}
	snapshot struct {
		state *state.State
		err   error
	}
	done struct { // of a key
		what string
		err  error
	}
)

const help = "q quits, up and down choose, l loads, p parks, c cancels"

func (m *model) Init() tea.Cmd { return next() }

func next() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return tick{} }) }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.width, m.screen.height = msg.Width, msg.Height
	case tick:
		return m, func() tea.Msg {
			s, err := m.client.Snapshot(m.ctx)
			return snapshot{s, err}
		}
	case snapshot:
		if msg.err != nil {
			m.message = msg.err.Error()
			return m, next()
		}
		m.screen.before, m.screen.now = m.screen.now, msg.state
		return m, next()
	case done:
		m.message = msg.what
		if msg.err != nil {
			m.message = msg.err.Error()
		}
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// key does what a key asks for.
func (m *model) key(key string) tea.Cmd {
	lines := m.lines()
	at := slices.IndexFunc(lines, func(l line) bool { return l.key == m.screen.chosen })
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "up", "k":
		at = max(at-1, 0)
	case "down", "j":
		at = min(at+1, len(lines)-1)
	case "l", "p", "c":
		if at < 0 {
			m.message = "choose a line first, with up and down"
			return nil
		}
		return m.act(key, lines[at])
	}
	if at >= 0 {
		m.screen.chosen = lines[at].key
	}
	return nil
}

// act sends what a key asks for of a line, and reports when it is done.
func (m *model) act(key string, l line) tea.Cmd {
	send := func(doing, what string, f func() error) tea.Cmd {
		m.message = doing
		return func() tea.Msg { return done{what, f()} }
	}
	switch {
	case key == "c" && l.request != "":
		return send("cancelling", "cancelled "+printable(l.request), func() error { return m.client.cancel(m.ctx, l.request) })
	case key == "l" && l.model != "":
		return send("loading "+printable(l.model), "loaded "+printable(l.model), func() error { return m.client.move(m.ctx, "load", l.model) })
	case key == "p" && l.model != "":
		return send("parking "+printable(l.model)+" when its answers have ended", "parked "+printable(l.model), func() error { return m.client.move(m.ctx, "unload", l.model) })
	}
	m.message = "l and p are for models, c is for requests"
	return nil
}

// line is one that can be chosen: a model's or a request's.
type line struct{ key, model, request string }

func (m *model) lines() (all []line) {
	for _, x := range m.screen.now.Models {
		all = append(all, line{key: modelKey(x.ID), model: x.ID})
	}
	for _, r := range m.screen.now.Requests {
		all = append(all, line{key: requestKey(r), request: r.ID})
	}
	return all
}

// View implements tea.Model.
func (m *model) View() tea.View {
	if m.screen.width == 0 { // its size is not known yet
		return tea.NewView("")
	}
	text := m.screen.String()
	last := help
	if m.message != "" {
		last = m.message
	}
	v := tea.NewView(fmt.Sprintf("%s\n%s", text, faint.MaxWidth(m.screen.width).Render(printable(last))))
	v.AltScreen = true
	return v
}
