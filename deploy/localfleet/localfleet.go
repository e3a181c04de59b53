// Package localfleet runs a fleet on this machine, for tests and measurements: nodes, which are processes of the real
// program, and the real HAProxy before them with a configuration of deploy/haproxy, all on loopback.
//
// It owns the processes: each is ended by its own id, and no port is chosen before it is bound. HAProxy inherits its listeners.
package localfleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/deploy/haproxy"
)

// ErrNoHAProxy says that HAProxy is not installed.
var ErrNoHAProxy = errors.New("haproxy is not installed: make deps does that")

// Node is a node to be started, or one that runs.
type Node struct {
	Name   string
	Models []string // as --models has them
	Args   []string // more arguments of serve

	URL   string // of its API
	agent string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it is gone
	log   lockedBuffer
}

// Fleet is nodes behind a balancer.
type Fleet struct {
	URL   string // the balancer's
	Nodes []*Node

	admin   string
	haproxy *exec.Cmd
	gone    chan struct{} // closed when haproxy is
	log     lockedBuffer
}

// Start starts the nodes, all at once, and the balancer, and returns when the balancer sends requests to all of them. binary is
// openinfer. config is the balancer's, without addresses and nodes. ctx ends what was started; dir is for the configuration.
func Start(ctx context.Context, binary, dir string, config haproxy.Fleet, nodes []*Node) (*Fleet, error) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		return nil, ErrNoHAProxy
	}
	f := &Fleet{Nodes: nodes}
	errs := make([]error, len(nodes))
	var starting sync.WaitGroup
	for i, n := range nodes {
		starting.Go(func() { errs[i] = n.start(ctx, binary) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Stop()
		return nil, err
	}
	if err := f.balance(ctx, path, dir, config); err != nil {
		f.Stop()
		return nil, fmt.Errorf("haproxy: %w\n%s", err, f.Log())
	}
	return f, nil
}

var (
	nodeURL   = regexp.MustCompile(`http://[^\s/]+`)
	agentAddr = regexp.MustCompile(`msg="agent check" listen=(\S+)`)
)

func (n *Node) start(ctx context.Context, binary string) error {
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--agent-check", "127.0.0.1:0", "--models", strings.Join(n.Models, ",")}, n.Args...)
	n.cmd, n.ended = exec.CommandContext(ctx, binary, args...), make(chan struct{})
	n.cmd.Stderr = &n.log
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := n.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	ready := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "Ready") {
				ready <- nodeURL.FindString(lines.Text())
			}
		}
		_ = n.cmd.Wait() // it was ended, or its log says why
		close(n.ended)
	}()
	select {
	case n.URL = <-ready:
	case <-n.ended:
		return fmt.Errorf("%s ended before it was ready: %s", n.Name, n.log.String())
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("%s is not ready after two minutes: %s", n.Name, n.log.String())
	}
	agent := agentAddr.FindStringSubmatch(n.log.String())
	if agent == nil {
		return fmt.Errorf("%s does not say where its agent check is: %s", n.Name, n.log.String())
	}
	n.agent = agent[1]
	return nil
}

// balance starts HAProxy.
func (f *Fleet) balance(ctx context.Context, path, dir string, config haproxy.Fleet) error {
	var files []*os.File
	listen := func() (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		defer l.Close() // the file is another descriptor of it
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			return "", err
		}
		files = append(files, file)
		return l.Addr().String(), nil
	}
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	api, err := listen()
	if err != nil {
		return err
	}
	admin, err := listen()
	if err != nil {
		return err
	}
	config.Listen, config.Admin, config.Container = "fd@3", "fd@4", true
	for _, n := range f.Nodes {
		config.Nodes = append(config.Nodes, haproxy.Node{Name: n.Name, Addr: strings.TrimPrefix(n.URL, "http://"), Agent: n.agent, Models: served(n.Models)})
	}
	var text bytes.Buffer
	if err := config.Write(&text); err != nil {
		return err
	}
	name := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(name, text.Bytes(), 0o600); err != nil {
		return err
	}
	f.URL, f.admin = "http://"+api, "http://"+admin
	// As many connections as the limit of files of most users allows.
	f.haproxy = exec.CommandContext(ctx, path, "-db", "-n", "4000", "-f", name)
	f.haproxy.ExtraFiles, f.haproxy.Stdout, f.haproxy.Stderr = files, &f.log, &f.log
	if err := f.haproxy.Start(); err != nil {
		f.haproxy = nil
		return err
	}
	f.gone = make(chan struct{})
	go func() {
		_ = f.haproxy.Wait() // it was ended, or its log says why
		close(f.gone)
	}()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		servers, err := f.Servers()
		up := 0
		for _, s := range servers {
			if strings.HasPrefix(s.Status, "UP") && s.Agent != "" { // both checks have answered
				up++
			}
		}
		if err == nil && up == len(servers) && up > 0 {
			return nil
		}
		select {
		case <-f.gone:
			return errors.New("it ended")
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d servers are up after 30 s: %v", up, len(servers), err)
		}
	}
}

// served are the names of models that --models lists as NAME=MODEL or MODEL.
func served(models []string) (names []string) {
	for _, m := range models {
		name, _, _ := strings.Cut(m, "=")
		names = append(names, name)
	}
	return names
}

// Server is what HAProxy says of a node in one of its backends.
type Server struct {
	Backend, Name  string
	Status         string // UP, DOWN, DRAIN, ...
	Weight         string // of 100, by the agent
	Agent          string // how its last agent check ended; "": there was none
	Sessions, Sent string // requests now, and in all
	Redispatched   string // requests that were taken from it to another
}

// Servers asks HAProxy.
func (f *Fleet) Servers() ([]Server, error) {
	client := http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get(f.admin + "/;csv")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	rows, err := csv.NewReader(resp.Body).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("statistics of %d rows: %w", len(rows), err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[strings.TrimPrefix(name, "# ")] = i
	}
	var out []Server
	for _, r := range rows[1:] {
		at := func(name string) string { return r[column[name]] }
		if at("type") == "2" { // a server
			out = append(out, Server{at("pxname"), at("svname"), at("status"), at("weight"), at("agent_status"), at("scur"), at("stot"), at("wredis")})
		}
	}
	return out, nil
}

// Log is what HAProxy said.
func (f *Fleet) Log() string { return f.log.String() }

// Log is what the node said.
func (n *Node) Log() string { return n.log.String() }

// Signal sends a signal to a node.
func (n *Node) Signal(s os.Signal) error { return n.cmd.Process.Signal(s) }

// Ended is closed when a node is gone.
func (n *Node) Ended() <-chan struct{} { return n.ended }

// Stop ends all that was started.
func (f *Fleet) Stop() {
	if f.haproxy != nil {
		_ = f.haproxy.Process.Kill()
		<-f.gone
		f.haproxy = nil
	}
	for _, n := range f.Nodes {
		if n.cmd != nil && n.cmd.Process != nil {
			_ = n.cmd.Process.Kill() // it may be gone
			<-n.ended
		}
	}
}

// lockedBuffer is written by a process and read here.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
