//go:build linux && cgo

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// server is a running process that speaks the OpenAI API on loopback.
type server struct {
	name, model string
	url         string
	weightBytes float64
	cmd         *exec.Cmd
	log         *os.File
}

// sample is one measurement.
type sample struct {
	rate   float64 // tokens per second
	perCPU float64 // tokens per second of the process's processor time
}

func startBoth(ctx context.Context, o options, path string) (ours, theirs *server, err error) {
	threads := strconv.Itoa(o.threads)
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	ours, err = start(ctx, "OpenInfer", port, o.openinfer, "serve", "--models", "m="+path, "--listen", "127.0.0.1:"+port,
		"--device", "cpu", "--threads", threads, "--max-model-len", "2048", "--max-num-seqs", "8")
	if err != nil {
		return nil, nil, err
	}
	if port, err = freePort(); err != nil {
		return nil, nil, err
	}
	theirs, err = start(ctx, "llama.cpp", port, filepath.Join(o.llama, "llama-server"), "-m", path, "--host", "127.0.0.1", "--port", port,
		"-t", threads, "-tb", threads, "-np", "8", "-c", "16384", "-a", "m")
	if err != nil {
		ours.stop()
		return nil, nil, err
	}
	if info, err := os.Stat(path); err == nil {
		ours.weightBytes = float64(info.Size())
	}
	return ours, theirs, nil
}

func start(ctx context.Context, name, port string, argv ...string) (*server, error) {
	logFile, err := os.CreateTemp("", "benchcpu-*.log")
	if err != nil {
		return nil, err
	}
	s := &server{name: name, model: "m", url: "http://127.0.0.1:" + port, cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), log: logFile}
	s.cmd.Stdout, s.cmd.Stderr = logFile, logFile
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 600 {
		if resp, err := http.Get(s.url + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == 200 {
				return s, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s: not healthy after a minute; see %s", name, logFile.Name())
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill() // also once it has ended
	_ = s.cmd.Wait()
	_ = s.log.Close()
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// decode runs streams answers of n tokens at once and counts tokens from the moment that the last of them
// had its first token until the first ended, or, for several, over the whole.
func (s *server) decode(ctx context.Context, streams, promptLen, n, round int) (sample, error) {
	rng := rand.New(rand.NewPCG(uint64(round+1), uint64(streams)))
	cpu0, start := s.cpuTime(), time.Now()
	var wg sync.WaitGroup
	results := make([]answer, streams)
	errs := make([]error, streams)
	for i := range streams {
		prompt := randomIDs(rng, promptLen)
		wg.Add(1)
		go func() {
			defer wg.Done()
			results[i], errs[i] = s.complete(ctx, prompt, n)
		}()
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	total := 0
	for _, r := range results {
		if r.tokens != n {
			return sample{}, fmt.Errorf("%d tokens, want %d", r.tokens, n)
		}
		total += r.tokens
	}
	v := sample{rate: float64(total) / time.Since(start).Seconds()}
	if streams == 1 {
		v.rate = float64(n-1) / results[0].last.Sub(results[0].first).Seconds()
	}
	v.perCPU = float64(total) / (s.cpuTime() - cpu0)
	return v, nil
}

// prefill times a prompt of n new tokens up to its first answer token.
func (s *server) prefill(ctx context.Context, n, round int) (sample, error) {
	rng := rand.New(rand.NewPCG(uint64(round+1), 1<<40))
	cpu0, start := s.cpuTime(), time.Now()
	if _, err := s.complete(ctx, randomIDs(rng, n), 1); err != nil {
		return sample{}, err
	}
	return sample{rate: float64(n) / time.Since(start).Seconds(), perCPU: float64(n) / (s.cpuTime() - cpu0)}, nil
}

type answer struct {
	first, last time.Time
	tokens      int
}

// client opens a connection for each request: a server may close one that idles while its rival is
// measured.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// complete streams a completion of a prompt of token ids, past any end token.
func (s *server) complete(ctx context.Context, prompt []int, n int) (answer, error) {
	body, err := json.Marshal(map[string]any{
		"model": s.model, "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": true, "stream": true,
		"stream_options": map[string]any{"include_usage": true}, "cache_prompt": false,
	})
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		return answer{}, fmt.Errorf("%s: %s", resp.Status, text)
	}
	var a answer
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct{ Text string }
			Usage   *struct {
				CompletionTokens int `json:"completion_tokens"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return a, err
		}
		if len(chunk.Error) > 0 {
			return a, fmt.Errorf("error event: %s", chunk.Error)
		}
		if chunk.Usage != nil {
			a.tokens = chunk.Usage.CompletionTokens
		}
		if len(chunk.Choices) > 0 {
			a.last = time.Now()
			if a.first.IsZero() {
				a.first = a.last
			}
		}
	}
	return a, lines.Err()
}

func randomIDs(rng *rand.Rand, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 1000 + rng.IntN(40000)
	}
	return ids
}

// cpuTime returns the processor seconds that the server has used.
func (s *server) cpuTime() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+2:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}
