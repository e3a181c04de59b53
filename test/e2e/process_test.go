package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

var built struct {
	once      sync.Once
	dir, path string
	err       error
}

// binary is the program: what OPENINFER_BIN names, or built here.
func binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("OPENINFER_BIN"); path != "" {
		return path
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "openinfer-e2e-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "openinfer")
		cmd := exec.Command("go", "build", "-o", built.path, "./cmd/openinfer")
		cmd.Dir = testdata.Repo()
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%v: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func removeBinary() {
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
}

// process is a running server.
type process struct {
	*service
	cmd    *exec.Cmd
	said   string // on stdout until it was ready
	start  time.Duration
	ended  chan struct{} // closed when both outputs were read to their end
	mu     sync.Mutex
	stderr bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

var url = regexp.MustCompile(`https?://[^\s/]+`)

// launch starts `openinfer serve` on a port of its own choice and waits until it is ready.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary(t), append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...), ended: make(chan struct{})}
	p.cmd.Stderr = p
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended already
		<-p.ended
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("the server's log:\n%s", p.log())
		}
	})
	ready := make(chan string, 1)
	go func() {
		defer close(p.ended)
		said := ""
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			said += lines.Text() + "\n"
			if strings.HasPrefix(lines.Text(), "Ready") {
				ready <- said
			}
		}
	}()
	select {
	case p.said = <-ready:
	case <-p.ended:
		t.Fatalf("the server ended before it was ready: %s", p.log())
	case <-time.After(time.Minute):
		t.Fatalf("not ready after a minute: %s", p.log())
	}
	p.start = time.Since(begin)
	p.service = remote(t, url.FindString(p.said))
	return p
}

// end waits until the process is gone and returns how it ended.
func (p *process) end(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatalf("still running: %s", p.log())
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState
}

// TestColdStart prints how long the binary takes from nothing to the first answer.
func TestColdStart(t *testing.T) {
	needsTime(t)
	best := time.Hour
	binary(t)
	for range 3 {
		p := launch(t)
		if status, _ := p.get(t, "/readyz"); status != 200 {
			t.Errorf("/readyz: %d", status)
		}
		best = min(best, p.start)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if state := p.end(t); state.ExitCode() != 0 {
			t.Errorf("exit code %d: %s", state.ExitCode(), p.log())
		}
	}
	t.Logf("cold start to ready with the embedded models: %v", best.Round(time.Millisecond))
}

// TestDrain: after SIGTERM a running stream ends as it should, nothing new is let in, and the
// process ends well.
func TestDrain(t *testing.T) {
	needsTime(t)
	p := launch(t)
	var streams []*http.Response
	for _, model := range []string{tales, bard} {
		resp, err := p.post(chat(model, "Tell me a story", body{"stream": true, "n": 6, "temperature": 1, "max_tokens": 500, "ignore_eos": true}))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		streams = append(streams, resp)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	eventually(t, "the server says that it is stopping", func() bool { return strings.Contains(p.log(), "stopping") })
	if resp, err := p.post(chat(tales, "x", nil)); err == nil { // or nobody listens any more
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("a new request got %d", resp.StatusCode)
		}
		resp.Body.Close()
	}
	for i, resp := range streams {
		r, err := read(resp, true)
		if err != nil || len(r.choices) != 6 {
			t.Errorf("stream %d: %d choices, %v", i, len(r.choices), err)
			continue
		}
		for _, a := range r.choices {
			if a.finish != "length" || len(a.ids) != 500 {
				t.Errorf("stream %d: %d ids, %s", i, len(a.ids), a.finish)
			}
		}
	}
	if state := p.end(t); state.ExitCode() != 0 {
		t.Errorf("exit code %d", state.ExitCode())
	}
}

// TestSecondSignal ends the process whatever still runs, and so does the limit of draining, which
// tells the clients.
func TestSecondSignal(t *testing.T) {
	needsTime(t)
	long := chat(tales, "Tell me a story", body{"stream": true, "n": 64, "temperature": 1, "ignore_eos": true})
	p := launch(t)
	resp, err := p.post(long)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	eventually(t, "the server says that it is stopping", func() bool { return strings.Contains(p.log(), "stopping") })
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if state := p.end(t); state.ExitCode() == 0 {
		t.Error("the second signal let the answer end")
	}

	p = launch(t, "--drain-timeout", "50ms")
	if resp, err = p.post(long); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	raw, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(raw), `"error"`) != 1 {
		t.Errorf("after the limit: %v, %.200s", err, raw[max(0, len(raw)-200):])
	}
	if state := p.end(t); state.ExitCode() != 0 {
		t.Errorf("exit code %d after the limit", state.ExitCode())
	}
}

// TestStartUpErrors: one line that names what is wrong, and exit code 1.
func TestStartUpErrors(t *testing.T) {
	needsTime(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	badKey := file("key.yaml", "listen: 127.0.0.1:0\nmax_num_sequences: 3\n")
	badValue := file("value.yaml", "kv_memory: plenty\n")
	notYAML := file("not.yaml", "models: [\n")
	broken := file("broken.gguf", "GGUF\x03\x00\x00\x00")
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string // all in the line
	}{
		{[]string{"--listen", taken.Addr().String()}, []string{"--listen", taken.Addr().String(), "in use"}},
		{[]string{"--listen", "nowhere"}, []string{"--listen", "nowhere"}},
		{[]string{"--models", "m=" + dir + "/missing.gguf"}, []string{"missing.gguf", "no such file"}},
		{[]string{"--models", "m=" + dir + "/missing"}, []string{"model m", "missing", "no such file"}},
		{[]string{"--models", "m=" + empty}, []string{"model m", "config.json"}},
		{[]string{"--models", "m=" + broken}, []string{"model m", "broken.gguf"}},
		{[]string{"--models", "demo-tale"}, []string{"demo-tale", "demo-tales"}},
		{[]string{"--models", "demo-tales,demo-tales"}, []string{"demo-tales", "twice"}},
		{[]string{"--models", "demo-tales,"}, []string{"--models", "empty"}},
		{[]string{"--max-num-seqs", "many"}, []string{"--max-num-seqs", "many"}},
		{[]string{"--max-num-seqs", "0"}, []string{"--max-num-seqs", "0"}},
		{[]string{"--max-num-seqs", "other=3"}, []string{"--max-num-seqs", "other"}},
		{[]string{"--max-model-len", "-1"}, []string{"--max-model-len", "-1"}},
		{[]string{"--kv-memory", "plenty"}, []string{"--kv-memory", "plenty"}},
		{[]string{"--kv-memory", "1B"}, []string{"KV cache"}},
		{[]string{"--kv-memory", "900000GiB"}, []string{"KV cache", "GiB"}},
		{[]string{"--kv-cache-dtype", "fp4"}, []string{"kv-cache-dtype", "fp4", "fp8-e4m3", "int8"}},
		{[]string{"--device", "cuda9"}, []string{"cuda9"}},
		{[]string{"--threads", "-3"}, []string{"threads", "-3"}},
		{[]string{"--log-format", "xml"}, []string{"--log-format", "xml"}},
		{[]string{"--drain-timeout", "soon"}, []string{"--drain-timeout", "soon"}},
		{[]string{"--api-key-file", dir + "/none.txt"}, []string{"none.txt"}},
		{[]string{"--api-key-file", file("keys.txt", "# nothing\n")}, []string{"keys.txt"}},
		{[]string{"--config", dir + "/none.yaml"}, []string{"--config", "none.yaml"}},
		{[]string{"--config", badKey}, []string{"--config", "max_num_sequences", "2"}},
		{[]string{"--config", badValue}, []string{"--config", "plenty"}},
		{[]string{"--config", notYAML}, []string{"--config", "not.yaml"}},
		{[]string{"--no-such-flag"}, []string{"no-such-flag"}},
		{[]string{"extra"}, []string{"extra"}},
	} {
		args := append([]string{"serve"}, c.args...)
		if c.args[0] != "--listen" && c.args[0] != "--config" {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		cmd := exec.CommandContext(t.Context(), binary(t), args...)
		var stderr, stdout bytes.Buffer
		cmd.Stderr, cmd.Stdout = &stderr, &stdout
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Run()
		kill.Stop()
		line := strings.TrimSuffix(stderr.String(), "\n")
		if code := cmd.ProcessState.ExitCode(); code != 1 || strings.Contains(line, "\n") || !strings.HasPrefix(line, "openinfer: ") || stdout.Len() > 0 {
			t.Errorf("%q: exit code %d, stderr %q, stdout %q", c.args, code, line, stdout.String())
		}
		for _, want := range c.want {
			if !strings.Contains(line, want) {
				t.Errorf("%q: %q does not say %q", c.args, line, want)
			}
		}
	}
}

// TestMemoryOfAProcess: what is resident after serving is the weights, the pool and little else;
// the checkpoint's own pages are gone. At rest it uses no CPU.
func TestMemoryOfAProcess(t *testing.T) {
	needsTime(t)
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	const pool = 256 << 20
	p := launch(t, "--models", "demo-tales,demo-bard,smol="+smolPath(t), "--kv-memory", "256MiB")
	first := resident(t, p.cmd.Process.Pid)
	var weights int64
	m := p.metrics(t)
	for _, model := range []string{tales, bard, smol} {
		weights += int64(m.of(t, "openinfer_weight_bytes", model))
	}
	load := func(clients, tokens int) {
		var wait sync.WaitGroup
		for i := range clients {
			wait.Go(func() {
				b := chat(smol, fmt.Sprintf("Tell me story number %d", i), body{"max_tokens": tokens, "ignore_eos": true, "stream": i%2 == 0})
				if _, err := p.ask(b); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	}
	load(2, 20)
	little := resident(t, p.cmd.Process.Pid)
	load(16, many(20, 40, 300))
	full := resident(t, p.cmd.Process.Pid)
	t.Logf("weights %d MB, pool %d MB; resident at start %v; after little %v; after more %v", weights>>20, pool>>20, first, little, full)
	const most = 100 << 20
	if little.all > weights+most { // the pool's pages are hardly touched yet: what is there twice would show
		t.Errorf("%d MB are resident after a few tokens, weights are %d MB", little.all>>20, weights>>20)
	}
	if full.all > weights+pool+most {
		t.Errorf("%d MB are resident, weights and pool are %d MB", full.all>>20, (weights+pool)>>20)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	if err != nil || strings.Contains(string(maps), ".gguf") {
		t.Errorf("the checkpoint is still mapped (%v)", err)
	}
	if limit := fileSize(t, binary(t)) + 20<<20; full.file > limit { // the program and libraries
		t.Errorf("%d MB of files are resident, want at most %d", full.file>>20, limit>>20)
	}

	p.rest(t)
	p.client.CloseIdleConnections()
	before := cpuTime(t, p.cmd.Process.Pid)
	begin := time.Now()
	<-time.After(1500 * time.Millisecond)
	used, took := cpuTime(t, p.cmd.Process.Pid)-before, time.Since(begin)
	t.Logf("at rest: %v of CPU in %v", used, took)
	if used*50 > took {
		t.Errorf("an idle server used %v of CPU in %v", used, took)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if state := p.end(t); state.ExitCode() != 0 {
		t.Errorf("exit code %d", state.ExitCode())
	}
}

type residents struct{ all, file int64 }

func (r residents) String() string { return fmt.Sprintf("%d MB (%d of files)", r.all>>20, r.file>>20) }

func resident(t testing.TB, pid int) residents {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) (kb int64) {
		_, after, _ := strings.Cut(string(raw), "\n"+name+":")
		if _, err := fmt.Sscan(after, &kb); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return kb << 10
	}
	return residents{field("VmRSS"), field("RssFile")}
}

// cpuTime is what all threads of a process have used.
func cpuTime(t testing.TB, pid int) (used time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, f := range files {
		var ns time.Duration
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		if _, err := fmt.Sscan(string(raw), &ns); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		used += ns
	}
	return used
}

func fileSize(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
