package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// systemd is the socket on which a service says how it is.
type systemd struct {
	mu   sync.Mutex
	said []string
}

// listenAsSystemd has processes that are launched from now on talk to it.
func listenAsSystemd(t *testing.T, watchdog time.Duration) *systemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", fmt.Sprint(watchdog.Microseconds()))
	s := &systemd{}
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.said = append(s.said, string(b[:n]))
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *systemd) count(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.said {
		if strings.HasPrefix(m, what) {
			n++
		}
	}
	return n
}

// certificate writes one that signs itself.
func certificate(t *testing.T, dir string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, b := range map[string]pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(&b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestReloadOfAService: a service under systemd says that it is ready, alive, reloading and stopping. Keys and the
// certificate change under load and nothing is dropped; a bad file leaves the keys as they were and is named with its line.
func TestReloadOfAService(t *testing.T) {
	init := listenAsSystemd(t, 300*time.Millisecond)
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.yaml")
	writeFile(t, keys, "keys:\n  - {name: steady, key: sk-steady}\n  - {name: old, key: sk-old}\n")
	certFile, keyFile := certificate(t, dir)
	p := launch(t, "--models", tales, "--api-key-file", keys, "--tls-cert", certFile, "--tls-key", keyFile)
	if !strings.HasPrefix(url.FindString(p.said), "https://") {
		t.Fatalf("it says %q", p.said)
	}
	address := strings.TrimPrefix(url.FindString(p.said), "https://")
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	ask := func(key string) int {
		req, _ := http.NewRequest("POST", "https://"+address+"/v1/completions", strings.NewReader(`{"model":"`+tales+`","prompt":"Once","max_tokens":8,"stream":true}`))
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode == 200 && !strings.HasSuffix(strings.TrimSpace(string(text)), "[DONE]") {
			t.Errorf("%v: a stream that is cut: %q", err, text)
		}
		return resp.StatusCode
	}
	if a, b := ask("sk-old"), ask("sk-new"); a != 200 || b != 401 {
		t.Fatalf("old %d, new %d", a, b)
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var asked atomic.Int64
	for range 3 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if s := ask("sk-steady"); s != 200 {
						t.Errorf("status %d while keys change", s)
					}
					asked.Add(1)
				}
			}
		})
	}
	hup := func(says string) {
		t.Helper()
		ready, said := init.count("READY=1"), strings.Count(p.log(), says)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log says "+says, func() bool { return strings.Count(p.log(), says) > said })
		eventually(t, "ready again", func() bool { return init.count("READY=1") > ready })
	}
	writeFile(t, keys, "keys:\n  - {name: steady, key: sk-steady}\n  - {name: new, key: sk-new, requests_per_minute: 1}\n")
	certificate(t, dir)
	hup("API keys read")
	if a, b, c := ask("sk-old"), ask("sk-new"), ask("sk-new"); a != 401 || b != 200 || c != 429 {
		t.Errorf("old %d, new %d and then %d", a, b, c)
	}
	writeFile(t, keys, "keys:\n  - {name: steady, key: sk-steady}\n  - {name: new, key: sk-new, requests_per_minute: -1}\n")
	hup("keys.yaml:3:")
	if a := ask("sk-new"); a != 429 {
		t.Errorf("after a bad file: %d", a)
	}
	close(stop)
	clients.Wait()
	if asked.Load() == 0 {
		t.Error("nothing was asked while keys changed")
	}
	if strings.Contains(p.log(), "sk-") {
		t.Error("the log has a key")
	}
	if init.count("RELOADING=1\nMONOTONIC_USEC=") < 2 {
		t.Errorf("told %q", init.said)
	}
	alive := init.count("WATCHDOG=1")
	eventually(t, "signs of life", func() bool { return init.count("WATCHDOG=1") > alive+2 })
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if state := p.end(t); state.ExitCode() != 0 || init.count("STOPPING=1") != 1 {
		t.Errorf("exit code %d, told %q", state.ExitCode(), init.said)
	}
}

// TestHostileClients: a thousand idle connections cost little; floods of headers, wrong keys and clients that send half
// a request do not keep others from being served.
func TestHostileClients(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	const idle, most = 1000, 50 << 20
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	writeFile(t, keys, "sk-good\n")
	certFile, keyFile := certificate(t, dir)
	for _, c := range []struct {
		name string
		args []string
		dial func(address string) (net.Conn, error)
	}{
		{"plain", nil, func(a string) (net.Conn, error) { return net.Dial("tcp", a) }},
		{"TLS", []string{"--tls-cert", certFile, "--tls-key", keyFile}, func(a string) (net.Conn, error) {
			return tls.Dial("tcp", a, &tls.Config{InsecureSkipVerify: true})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := launch(t, append([]string{"--models", tales, "--api-key-file", keys}, c.args...)...)
			_, address, _ := strings.Cut(url.FindString(p.said), "://")
			request := func(conn net.Conn, key string) (status string) {
				body := `{"model":"` + tales + `","prompt":"Once","max_tokens":4}`
				fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					return err.Error()
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body) // the status is what counts
				return resp.Status
			}
			good := func(when string) {
				t.Helper()
				conn, err := c.dial(address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				begin := time.Now()
				if s := request(conn, "sk-good"); s != "200 OK" || time.Since(begin) > 5*time.Second {
					t.Errorf("%s: %s after %v", when, s, time.Since(begin))
				}
			}
			good("at first")
			before := resident(t, p.cmd.Process.Pid)
			open := make([]net.Conn, idle)
			for i := range open {
				var err error
				if open[i], err = c.dial(address); err != nil {
					t.Fatal(err)
				}
				defer open[i].Close()
				fmt.Fprint(open[i], "GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(open[i]), nil)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("connection %d: %v %v", i, resp, err)
				}
			}
			after := resident(t, p.cmd.Process.Pid)
			t.Logf("%d idle connections: %v, before them %v", idle, after, before)
			if cost := after.all - before.all; cost > most {
				t.Errorf("%d idle connections cost %d MB", idle, cost>>20)
			}
			good("beside idle connections")

			var wait sync.WaitGroup
			for i := range 200 {
				wait.Go(func() {
					conn, err := c.dial(address)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					if s := request(conn, fmt.Sprintf("sk-goo%d", i)); !strings.HasPrefix(s, "401") {
						t.Errorf("a wrong key: %s", s)
					}
				})
			}
			for i := range 50 { // half a request, and nothing more
				conn, err := c.dial(address)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprint(conn, []string{"POST /v1/compl", "POST /v1/completions HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer sk-good\r\nContent-Length: 100000\r\n\r\n{"}[i%2])
			}
			for range 20 {
				wait.Go(func() {
					conn, err := c.dial(address)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
					go func() { // the answer may come, and the connection end, before all is sent
						fmt.Fprint(conn, "GET /health HTTP/1.1\r\nHost: t\r\n")
						for i := range 20000 {
							if _, err := fmt.Fprintf(conn, "X-Flood-%d: xxxxxxxxxxxxxxxxxxxx\r\n", i); err != nil {
								return
							}
						}
					}()
					if line, err := bufio.NewReader(conn).ReadString('\n'); err == nil && !strings.Contains(line, "431") {
						t.Errorf("a flood of headers: %q", line)
					}
				})
			}
			good("beside all of it")
			wait.Wait()
			good("after all of it")
			if strings.Contains(p.log(), "sk-goo") {
				t.Error("the log has a key")
			}
		})
	}
}

// TestCheckConfig: what is wrong with a configuration is told with its place, and nothing is served.
func TestCheckConfig(t *testing.T) {
	dir := t.TempDir()
	check := func(text string) (string, error) {
		path := filepath.Join(dir, "c.yaml")
		writeFile(t, path, text)
		out, err := exec.Command(binary(t), "serve", "--check-config", "--config", path).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := check("listen: 127.0.0.1:0\nmodels:\n  - name: demo-tales\n    kv_cache_dtype: fp16\n"); err != nil || !strings.Contains(out, "are good: 1 models") {
		t.Errorf("%v: %s", err, out)
	}
	for text, want := range map[string]string{
		"models:\n  - name: demo-tales\n    kv_cache_dtype: int3\n": "c.yaml:3:21: kv_cache_dtype:",
		"models:\n  - name: demo-tales\n  - name: demo-tales\n":     "c.yaml:3:11: name: \"demo-tales\" is used twice",
		"models:\n  - path: demo-tales\n":                           "c.yaml:2:5: name: is missing",
		"max_num_seqs: 4\nmax_waiting: -2\n":                        "c.yaml:2:14: max_waiting: -2 is negative",
		"drain_timeout: soon\n":                                     "c.yaml:1:16: ",
		"max_body_size: 0\n":                                        "c.yaml:1:16: max_body_size: must be",
		"\nlisten: nowhere\n":                                       "c.yaml:2:9: listen: nowhere",
		"device: abacus\n":                                          "c.yaml:1:9: device:",
		"models:\n  - name: demo-tales\n    keep_alive: whenever\n": "c.yaml:3:17: keep_alive:",
		"models:\n  - name: demo-tales\n    quantize: int1\n":       "c.yaml:3:15: quantize:",
		"reasoning_parser: mind\n":                                  "c.yaml:1:19: reasoning_parser:",
		"log_format: xml\n":                                         "c.yaml:1:13: log_format:",
		"tls_cert: x.pem\n":                                         "c.yaml:1:11: tls_cert: needs tls_key",
		"cors_origin: ['https://x.org/path']\n":                     "c.yaml:1:14: cors_origin:",
		"models:\n  - name: demo-tales\n    weight: -1\n":           "c.yaml:3:13: weight: -1 is negative",
		"models:\n  - name: demo-tales\n    sla_ttft: -1s\n":        "c.yaml:3:15: sla_ttft:",
		"models:\n  - name: demo-tales\n    max_modle_len: 1\n":     "c.yaml:3:5: ",
		"models:\n  - name: demo-tales\n    max_model_len: [1]\n":   "c.yaml:3:20: ",
		"api_key_file: /nowhere/keys\n":                             "/nowhere/keys",
		"tls_cert: /nowhere/c.pem\ntls_key: /nowhere/k.pem\n":       "/nowhere/c.pem",
		"models:\n  - name: m\n    path: /nowhere/m.gguf\n":         "/nowhere/m.gguf",
	} {
		if out, err := check(text); err == nil || !strings.Contains(out, want) || strings.Contains(out, "\n") {
			t.Errorf("%q: %v: %s\nwant one line with %s", text, err, out, want)
		}
	}
}
