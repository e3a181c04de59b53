//go:build linux && cgo

// Command benchcpu measures OpenInfer beside llama.cpp's server on this machine, in one run: the
// same client, the same token ids, the same number of threads, rounds alternating between the two
// so that a noisy neighbour hits both. It writes one Markdown page.
//
// Speeds are medians over rounds; a ratio is the median of the rounds' ratios. Beside tokens per
// second stand tokens per second of processor time, which a shared machine disturbs less.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openinfer-go/openinfer/kernels/cpu"
)

type options struct {
	openinfer, llama, smol, big, text, out string
	rounds, threads                        int
	only                                   string
}

func main() {
	log.SetFlags(log.Ltime)
	var o options
	flag.StringVar(&o.openinfer, "openinfer", "./openinfer", "our `binary`")
	flag.StringVar(&o.llama, "llama", "", "`folder` with llama-server and llama-perplexity")
	flag.StringVar(&o.smol, "smol", "", "SmolLM2 GGUF `file`")
	flag.StringVar(&o.big, "big", "", "1B-shape GGUF `file`")
	flag.StringVar(&o.text, "text", "LICENSE", "`file` of English text for the quality measure")
	flag.StringVar(&o.out, "o", "docs/bench-cpu.md", "report `file`")
	flag.IntVar(&o.rounds, "rounds", 5, "alternations of each pair")
	flag.IntVar(&o.threads, "threads", runtime.NumCPU(), "threads of both servers")
	flag.StringVar(&o.only, "only", "speed,busy,quality", "which parts")
	burn := flag.Duration("burn", 0, "only keep core -burn-core busy for this long")
	burnCore := flag.Int("burn-core", 1, "the core")
	flag.Parse()
	if *burn > 0 {
		burnCPU(*burnCore, *burn)
		return
	}
	if err := run(context.Background(), o); err != nil {
		log.Fatal(err)
	}
}

func burnCPU(core int, d time.Duration) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		log.Fatal(err)
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		for i := 0; i < 1_000_000; i++ {
			_ = i
		}
	}
}

func run(ctx context.Context, o options) error {
	var page strings.Builder
	var speeds []pair
	bandwidth, err := cpu.ReadBandwidth(o.threads)
	if err != nil {
		return err
	}
	for _, m := range []struct{ name, path string }{{"SmolLM2-135M Q4_1", o.smol}, {"1B shape Q4_0", o.big}} {
		if m.path == "" {
			continue
		}
		ours, theirs, err := startBoth(ctx, o, m.path)
		if err != nil {
			return err
		}
		defer ours.stop()
		defer theirs.stop()
		if strings.Contains(o.only, "speed") {
			pairs, err := compare(ctx, o, m.name, m.path, ours, theirs)
			if err != nil {
				return err
			}
			speeds = append(speeds, pairs...)
			again, err := cpu.ReadBandwidth(o.threads)
			if err != nil {
				return err
			}
			bandwidth = max(bandwidth, again)
		}
		if strings.Contains(o.only, "busy") && m.path == o.smol {
			busy, err := besideBusyProcess(ctx, o, ours, theirs)
			if err != nil {
				return err
			}
			fmt.Fprintf(&page, "\n## One core of %d taken by a busy process\n\n%s", o.threads, busy)
		}
		ours.stop()
		theirs.stop()
	}
	head := fmt.Sprintf(`# CPU speed and quality beside llama.cpp

Made by %cmake bench-cpu%c on %s, %s, %d threads each, %d alternating rounds; both measured over HTTP by the same
client with the same token ids. Speeds in tokens per second, medians; "x" is the median of the rounds'
ratios (ours / llama.cpp), with the least and the largest. "per CPU s" counts tokens per second of processor time.
"llama.cpp's tool" is llama-bench (decode, prefill) or llama-batched-bench (8 streams; its answer tokens over its whole
time, as for ours): the arithmetic without server and client, in the same rounds; ours is over HTTP there, too.
Read bandwidth of this machine in the same run: %.1f GB/s over %d threads.
`, '`', '`', time.Now().UTC().Format("2006-01-02"), cpuName(), o.threads, o.rounds, bandwidth/1e9, o.threads)
	report := head + speedTable(speeds, bandwidth) + page.String()
	if strings.Contains(o.only, "quality") {
		q, err := quality(o)
		if err != nil {
			return err
		}
		report += q
	}
	fmt.Print(report)
	return os.WriteFile(o.out, []byte(report), 0o644)
}

// pair is one workload measured on both servers.
type pair struct {
	model, work string
	ours        []sample
	theirs      []sample
	tools       []float64 // tok/s of llama.cpp's own benchmark programs
	bytes       float64   // of weights that one step reads
}

const (
	workDecode  = "decode, 1 stream"
	workPrefill = "prefill 512"
	workStreams = "decode, 8 streams"
)

func compare(ctx context.Context, o options, model, path string, ours, theirs *server) ([]pair, error) {
	works := []struct {
		name string
		run  func(*server, int) (sample, error)
	}{
		{workDecode, func(s *server, round int) (sample, error) { return s.decode(ctx, 1, 16, 96, round) }},
		{workPrefill, func(s *server, round int) (sample, error) { return s.prefill(ctx, 512, round) }},
		{workStreams, func(s *server, round int) (sample, error) { return s.decode(ctx, 8, 16, 24, round) }},
	}
	var pairs []pair
	for _, w := range works {
		p := pair{model: model, work: w.name, bytes: ours.weightBytes}
		for round := -1; round < o.rounds; round++ { // round -1 warms up
			order := []*server{ours, theirs}
			if round%2 == 0 {
				order[0], order[1] = theirs, ours
			}
			for _, s := range order {
				v, err := w.run(s, round)
				if err != nil {
					return nil, fmt.Errorf("%s, %s, %s: %w", s.name, model, w.name, err)
				}
				if round < 0 {
					continue
				}
				if s == ours {
					p.ours = append(p.ours, v)
				} else {
					p.theirs = append(p.theirs, v)
				}
			}
			if round >= 0 {
				v, err := ownTool(ctx, o, path, w.name)
				if err != nil {
					return nil, err
				}
				p.tools = append(p.tools, v)
			}
		}
		log.Printf("%s, %s: ours %.1f, llama.cpp's server %.1f, its own tool %.1f tok/s", model, w.name,
			median(rates(p.ours)), median(rates(p.theirs)), median(p.tools))
		pairs = append(pairs, p)
	}
	return pairs, nil
}

func speedTable(pairs []pair, bandwidth float64) string {
	var b strings.Builder
	b.WriteString("\n| model | work | ours | llama-server | x | least..most | llama.cpp's tool | x | least..most | ours per CPU s | llama-server's | weights read, share of bandwidth |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range pairs {
		var server, tool []float64
		for i := range p.ours {
			server = append(server, p.ours[i].rate/p.theirs[i].rate)
			tool = append(tool, p.ours[i].rate/p.tools[i])
		}
		share := ""
		if p.work == workDecode {
			share = fmt.Sprintf("%.0f %%", 100*median(rates(p.ours))*p.bytes/bandwidth)
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f | %.2f | %.2f..%.2f | %.1f | %.2f | %.2f..%.2f | %.1f | %.1f | %s |\n", p.model, p.work,
			median(rates(p.ours)), median(rates(p.theirs)), median(server), slices.Min(server), slices.Max(server),
			median(p.tools), median(tool), slices.Min(tool), slices.Max(tool), median(perCPU(p.ours)), median(perCPU(p.theirs)), share)
	}
	return b.String()
}

// besideBusyProcess measures decode of one stream with all cores free and with one taken.
func besideBusyProcess(ctx context.Context, o options, ours, theirs *server) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	kept := map[*server][]float64{}
	free := map[*server][]float64{}
	busy := map[*server][]float64{}
	for round := range o.rounds {
		for _, s := range []*server{ours, theirs} {
			quiet, err := s.decode(ctx, 1, 16, 128, round)
			if err != nil {
				return "", err
			}
			burn := exec.Command(self, "-burn", "60s", "-burn-core", fmt.Sprint(o.threads-1))
			if err := burn.Start(); err != nil {
				return "", err
			}
			time.Sleep(200 * time.Millisecond)
			loud, err := s.decode(ctx, 1, 16, 128, round)
			_ = burn.Process.Kill()
			_ = burn.Wait()
			if err != nil {
				return "", err
			}
			free[s] = append(free[s], quiet.rate)
			busy[s] = append(busy[s], loud.rate)
			kept[s] = append(kept[s], loud.rate/quiet.rate)
		}
	}
	var b strings.Builder
	b.WriteString("Decode of one stream, SmolLM2.\n\n| | tok/s, cores free | tok/s, one taken | kept |\n|---|---|---|---|\n")
	for _, s := range []*server{ours, theirs} {
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.0f %% |\n", s.name, median(free[s]), median(busy[s]), 100*median(kept[s]))
	}
	return b.String(), nil
}

func rates(s []sample) (v []float64) {
	for _, x := range s {
		v = append(v, x.rate)
	}
	return v
}

func perCPU(s []sample) (v []float64) {
	for _, x := range s {
		v = append(v, x.perCPU)
	}
	return v
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func cpuName() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}
