//go:build linux && cgo

// Command shapes loads and asks checkpoints of full size, made by makecheckpoint, and writes what that
// took as a table: loading in gigabytes a second, memory at its highest and while serving, prefill and
// decode. It fails when a server takes more memory than it may, or an answer is not whole.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/openinfer-go/openinfer/kernels/cpu"
)

// limits are the most memory a server of the shape may take, with its pages of KV cache.
var limits = map[string]int64{"llama-3.2-1b": 3 << 30, "qwen3.5-9b": 11 << 30, "qwen3.5-27b": 20 << 30}

const (
	poolBytes    = 512 << 20
	promptTokens = 256
	shortTokens  = 4
	answerTokens = 16
)

// row is what one checkpoint took.
type row struct {
	name            string
	fileBytes       int64
	ready           time.Duration
	most, serving   int64
	prefill, decode float64 // tokens a second
}

func main() {
	openinfer := flag.String("openinfer", "./openinfer", "the server")
	out := flag.String("o", "", "table to write; empty: standard output")
	flag.Parse()
	var rows []row
	for _, dir := range flag.Args() {
		r, err := measure(*openinfer, dir)
		if err != nil {
			fmt.Fprintf(os.Stderr, "shapes: %s: %v\n", dir, err)
			os.Exit(1)
		}
		rows = append(rows, r)
	}
	text := table(rows)
	if *out == "" {
		fmt.Print(text)
		return
	}
	if err := os.WriteFile(*out, []byte(text), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "shapes:", err)
		os.Exit(1)
	}
}

func measure(openinfer, dir string) (r row, err error) {
	r.name = filepath.Base(dir)
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return r, err
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return r, err
		}
		r.fileBytes += info.Size()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return r, err
	}
	address := l.Addr().String()
	l.Close()
	cmd := exec.Command(openinfer, "serve", "--models", "m="+dir, "--listen", address, "--kv-memory", strconv.Itoa(poolBytes), "--max-num-seqs", "2")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
		}
	}()
	for !healthy(address) {
		select {
		case <-ended:
			ended <- nil
			return r, fmt.Errorf("the server ended: %s", log.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	r.ready = time.Since(begin)
	if err := ask(address, &r); err != nil {
		return r, err
	}
	if r.most, err = status(cmd.Process.Pid, "VmHWM"); err != nil {
		return r, err
	}
	if r.serving, err = status(cmd.Process.Pid, "VmRSS"); err != nil {
		return r, err
	}
	if most := limits[r.name]; most > 0 && r.most > most {
		return r, fmt.Errorf("took %.2f GiB at its highest, more than %.0f", gib(r.most), gib(most))
	}
	return r, nil
}

func healthy(address string) bool {
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// ask measures a long prompt, and the tokens of an answer after a short one. The first answer of a
// server brings memory in that nobody had touched, so it is not measured.
func ask(address string, r *row) error {
	took := func(prompt, n, round int) (time.Duration, error) {
		ids := make([]int, prompt)
		for i := range ids {
			ids[i] = (i*7 + round*31) % 256
		}
		prompted, wrote, d, err := complete(address, ids, n, fmt.Sprint(round))
		if err == nil && (prompted != prompt || wrote != n) {
			err = fmt.Errorf("%d tokens of prompt and %d of answer: want %d and %d", prompted, wrote, prompt, n)
		}
		return d, err
	}
	if _, err := took(shortTokens, 2, 0); err != nil {
		return err
	}
	d, err := took(promptTokens, 1, 1)
	if err != nil {
		return err
	}
	r.prefill = promptTokens / d.Seconds()
	first, err := took(shortTokens, 1, 2)
	if err != nil {
		return err
	}
	all, err := took(shortTokens, 1+answerTokens, 3)
	r.decode = answerTokens / (all - first).Seconds()
	return err
}

func complete(address string, prompt []int, n int, salt string) (prompted, wrote int, took time.Duration, err error) {
	body, err := json.Marshal(map[string]any{"model": "m", "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": true, "cache_salt": salt})
	if err != nil {
		return 0, 0, 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return 0, 0, 0, err
	}
	begin := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, 0, err
	}
	defer resp.Body.Close()
	var answer struct {
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
		Error any
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0, 0, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, 0, 0, fmt.Errorf("%s: %v", resp.Status, answer.Error)
	}
	return answer.Usage.Prompt, answer.Usage.Completion, time.Since(begin), nil
}

// status reads a size from /proc/PID/status.
func status(pid int, key string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == key+":" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in the status of process %d", key, pid)
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }

func table(rows []row) string {
	var b strings.Builder
	b.WriteString("# Checkpoints of full size\n\n")
	fmt.Fprintf(&b, "Random INT4 weights in groups of 128, embeddings and output layer in bf16, made by `scripts/makecheckpoint`; one server each with\n"+
		"%d MiB of KV cache; a prompt of %d tokens; %d tokens of answer after a prompt of %d; one stream. Written by `make soak` (part `shapes`) on %s.\n",
		poolBytes>>20, promptTokens, answerTokens, shortTokens, time.Now().UTC().Format(time.DateOnly))
	if bytesPerSecond, err := cpu.ReadBandwidth(runtime.NumCPU()); err == nil {
		fmt.Fprintf(&b, "The machine reads %.1f GB/s.\n", bytesPerSecond/1e9)
	}
	b.WriteString("\n| shape | on disk | ready after | loading | memory, highest | memory, serving | prefill | decode |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %.2f GB | %.1f s | %.2f GB/s | %.2f GiB | %.2f GiB | %.1f tok/s | %.2f tok/s |\n",
			r.name, float64(r.fileBytes)/1e9, r.ready.Seconds(), float64(r.fileBytes)/1e9/r.ready.Seconds(), gib(r.most), gib(r.serving), r.prefill, r.decode)
	}
	return b.String()
}
