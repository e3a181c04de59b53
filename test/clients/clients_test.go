//go:build clients

package clients

import (
	"bufio"
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/api/apitest"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/testdata"
)

const key = "key-of-the-client-tests"

var models = []string{"demo-tales", "demo-bard"}

func TestScripted(t *testing.T) { clients(t, scripted(t)) }

func TestBinary(t *testing.T) {
	bin := os.Getenv("OPENINFER_BIN")
	if bin == "" {
		t.Skip("OPENINFER_BIN names no binary")
	}
	clients(t, binary(t, bin))
}

// clients runs every client against the server at base.
func clients(t *testing.T, base string) {
	t.Run("Go", func(t *testing.T) { checkGo(t, base) })
	t.Run("Python", func(t *testing.T) {
		script(t, base, "PYTHONPATH="+testdata.Cache(t, "py"), "python3", "check.py")
	})
	t.Run("JavaScript", func(t *testing.T) {
		script(t, base, "NODE_PATH="+testdata.Cache(t, "js", "node_modules"), "node", "check.mjs")
	})
}

// script runs a client's own program.
func script(t *testing.T, base, env string, command ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	args := append(append(command[1:], base, key), models...)
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	if !bytes.Contains(out, []byte(`"checks"`)) {
		t.Fatalf("%s did not say what it checked: %s", command[0], out)
	}
	t.Logf("%s", bytes.TrimSpace(out))
}

// scripted serves a generator whose answers depend on the end of the prompt alone. They are full
// of characters of several tokens.
func scripted(t *testing.T) string {
	gen := &apitest.Generator{Names: models, Answer: func(r engine.Request) apitest.Answer {
		last := r.Prompt[len(r.Prompt)-1]
		a := apitest.Answer{Text: strings.Repeat("Once upon a tïme — "+string(rune('a'+last%26))+" 🦊 and ", 200)}
		if r.MaxTokens > 500 && r.IgnoreEOS { // to be cancelled in the middle
			a.Delay = time.Millisecond
		}
		return a
	}}
	s := httptest.NewServer(api.New(gen, api.Options{Keys: []string{key}}))
	t.Cleanup(s.Close)
	t.Cleanup(func() {
		if live := gen.Live.Load(); live != 0 {
			t.Errorf("%d sequences live after the last client", live)
		}
	})
	return s.URL + "/v1"
}

// binary starts the built server with its embedded models on a port of its own choice and returns
// the address that it prints when it is ready.
func binary(t *testing.T, bin string, flags ...string) string {
	keys := filepath.Join(t.TempDir(), "keys.txt")
	if err := os.WriteFile(keys, []byte("# of the client tests\n"+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, append([]string{"serve", "--models", strings.Join(models, ","), "--listen", "127.0.0.1:0", "--api-key-file", keys}, flags...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	ended := make(chan struct{})
	var said strings.Builder
	go func() { // reads to the end, so that the server never blocks on its output
		defer close(ended)
		url := regexp.MustCompile(`http://[^\s/]+`)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
			if u := url.FindString(lines.Text()); u != "" {
				select {
				case ready <- u + "/v1":
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		kill := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", stderr.Bytes())
		}
	})
	select {
	case u := <-ready:
		return u
	case <-ended:
		t.Fatalf("the server ended before it was ready:\n%s", said.String())
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready after a minute")
	}
	return ""
}
