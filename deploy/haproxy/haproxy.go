// Package haproxy writes HAProxy configurations for a fleet of nodes: the examples beside this file, and what tests and
// benchmarks run with the real HAProxy.
//
// It owns the template. It does not own what a node answers to an agent check: internal/agentcheck does.
//
// Invariant: the committed examples are what the template makes, so that what is tested is what is copied.
package haproxy

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"text/template"
)

// Node is a server of the fleet.
type Node struct {
	Name  string // of letters, digits, - and _
	Addr  string // host:port of its API
	Agent string // host:port of its --agent-check
	// Models that the node serves; nil: all of the fleet's.
	Models []string
}

// Fleet is what a configuration is for.
type Fleet struct {
	Listen string // address of the API, such as :8080
	Admin  string // of the page of statistics and of /metrics, such as 127.0.0.1:8404; "": neither
	Nodes  []Node
	// Models have a backend each, whose weights are what the nodes have free for that model. Without any there is one backend,
	// and a node's weight is what it has free at all: enough where all models are always on the card.
	Models []string
	// RequestsPerMinute and AtOnce are what an API key may ask for; 0: no limit.
	RequestsPerMinute, AtOnce int
	// BodyBytes is the most of a request that is kept to be sent again to another node; larger ones go to one node only.
	BodyBytes int
	// AgentInterval is the time between two agent checks, as HAProxy writes times, such as 500ms.
	AgentInterval string
	// Container: log to standard output and stay in the foreground.
	Container bool
}

//go:embed haproxy.cfg.tmpl
var text string

var configuration = template.Must(template.New("haproxy.cfg").Funcs(template.FuncMap{
	"backend": Backend,
	"quote":   quote,
	"line":    line,
	"split": func(addr string) (a struct{ Host, Port string }, err error) {
		i := strings.LastIndexByte(addr, ':')
		if i < 0 {
			return a, fmt.Errorf("%q is no host:port", addr)
		}
		a.Host, a.Port = addr[:i], addr[i+1:]
		return a, nil
	},
}).Parse(text))

// Backend is the name of a model's backend: what is not a letter, a digit, - or . becomes _.
func Backend(model string) string {
	return "model_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '_'
	}, model)
}

// quote puts a word in single quotes, as HAProxy reads them: all but a quote stands for itself.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// line is a word with the end of a line behind it, which HAProxy writes within double quotes only.
func line(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(s) + `\n"`
}

// serves reports whether a node has a model.
func (n Node) serves(model string) bool {
	if n.Models == nil || model == "" {
		return true
	}
	for _, m := range n.Models {
		if m == model {
			return true
		}
	}
	return false
}

type backend struct {
	Name, Model string
	Nodes       []Node
}

// Retries is how many other nodes a request is offered: to ask the one that refused a moment ago again is of no use.
func (b backend) Retries() int { return min(len(b.Nodes)-1, mostRetries) }

// Write writes the configuration.
func (f Fleet) Write(w io.Writer) error {
	if len(f.Nodes) == 0 {
		return fmt.Errorf("haproxy: a fleet of no nodes")
	}
	names, backends := map[string]string{}, []backend{}
	for _, m := range f.Models {
		b := backend{Name: Backend(m), Model: m}
		if other, taken := names[b.Name]; taken {
			return fmt.Errorf("haproxy: models %q and %q have one name for a backend, %s", other, m, b.Name)
		}
		names[b.Name] = m
		for _, n := range f.Nodes {
			if n.serves(m) {
				b.Nodes = append(b.Nodes, n)
			}
		}
		if len(b.Nodes) == 0 {
			return fmt.Errorf("haproxy: no node serves %q", m)
		}
		backends = append(backends, b)
	}
	backends = append(backends, backend{Name: "nodes", Nodes: f.Nodes})
	if f.BodyBytes == 0 {
		f.BodyBytes = 256 << 10
	}
	if f.AgentInterval == "" {
		f.AgentInterval = "500ms"
	}
	data := struct {
		Fleet
		Backends []backend
		Buffer   int
		Retries  int
	}{f, backends, f.BodyBytes + headerRoom, backends[len(backends)-1].Retries()}
	if err := configuration.Execute(w, data); err != nil {
		return fmt.Errorf("haproxy: %w", err)
	}
	return nil
}

const (
	headerRoom  = 16 << 10 // of a buffer, for the request's headers and what HAProxy keeps free for rewriting
	mostRetries = 3
)
