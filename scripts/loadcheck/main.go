// Command loadcheck measures the load generator (bench/load): it sends loads to a stub in a process of its own on the same
// machine, whose delays are known, and prints the table of docs/bench-load.md, which compares what was measured with what is
// known. It ends with an error where a percentile is off by more than 2 % and 2 ms.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"iter"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/openinfer-go/openinfer/bench/load"
	"github.com/openinfer-go/openinfer/bench/load/loadtest"
)

// setting is one load whose delays are known.
type setting struct {
	name        string
	streams     int // at once, about
	first, gap  delay
	tokens      int // of an answer
	requests    int
	concurrency int // closed loop
}

// delay is a log-normal distribution, cut off at most.
type delay struct {
	median, sigma, most float64 // milliseconds
}

func (d delay) draw(r *rand.Rand) time.Duration {
	return time.Duration(min(d.median*math.Exp(d.sigma*r.NormFloat64()), d.most) * float64(time.Millisecond))
}

var settings = []setting{
	{name: "open loop, 500 streams", streams: 500, first: delay{100, 0.6, 5000}, gap: delay{50, 0.3, 500}, tokens: 200, requests: 1500},
	{name: "open loop, 2,000 streams", streams: 2000, first: delay{400, 0.6, 5000}, gap: delay{200, 0.3, 1000}, tokens: 100, requests: 5000},
	{name: "closed loop, 2,000 streams", concurrency: 2000, streams: 2000, first: delay{2000, 0.6, 10000}, gap: delay{200, 0.3, 1000}, tokens: 80, requests: 5000},
}

// ramp is over how long a closed loop begins: two thousand connections made at once take this machine longer than what is
// to be measured.
const ramp = 5 * time.Second

// delays are those of the i-th answer.
func (s setting) delays(i int) (first time.Duration, gaps []time.Duration) {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	first = s.first.draw(r)
	for range s.tokens - 1 {
		gaps = append(gaps, s.gap.draw(r))
	}
	return first, gaps
}

func main() {
	log.SetFlags(0)
	stub := flag.Int("stub", -1, "serve the stub of this setting (for this program itself)")
	only := flag.Int("setting", -1, "run only this setting")
	profile := flag.String("cpuprofile", "", "write a profile of the generator to this file")
	flag.Parse()
	if *stub >= 0 {
		serve(settings[*stub])
		return
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	fmt.Printf(head, runtime.NumCPU(), cpuName(), priority())
	good := true
	for i, s := range settings {
		if *only >= 0 && i != *only {
			continue
		}
		ok, err := check(i, s)
		if err != nil {
			log.Fatal(err)
		}
		good = good && ok
	}
	if !good {
		os.Exit(1)
	}
}

const head = `# How exact the load generator is

Written by scripts/loadcheck.sh, on %d cores (%s). A stub in a process of its own on the same machine answers with delays that are known: log-normal, drawn
per answer and per token. The load generator of ` + "`openinfer bench`" + ` (bench/load) measures them over loopback HTTP. A
percentile is right if it is within 2 %% or 2 ms, whichever is more. What is off includes what the stub itself is late, which has the same cores.
%s
`

func serve(s setting) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	handler := &loadtest.Stub{Usage: 2, Answer: func(i int, _ loadtest.Request) loadtest.Answer {
		first, gaps := s.delays(i)
		return loadtest.Answer{First: first, Gap: func(k int) time.Duration { return gaps[k-1] }}
	}}
	go func() { // ends with the process that started it
		bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	log.Fatal(http.Serve(l, handler))
}

func check(i int, s setting) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.Command(self, "-stub", strconv.Itoa(i))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return false, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	defer func() {
		stdin.Close()
		cmd.Wait()
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return false, err
	}
	c, err := load.NewClient(load.ClientOptions{URL: "http://" + strings.TrimSpace(address), Model: "stub"})
	if err != nil {
		return false, err
	}
	defer c.Close()

	var ttft, itl, span []time.Duration
	for i := range s.requests {
		first, gaps := s.delays(i)
		ttft, itl = append(ttft, first), append(itl, gaps...)
		for _, g := range gaps {
			first += g
		}
		span = append(span, first)
	}
	requests := prompts(s)
	if s.concurrency == 0 {
		rate := float64(s.streams) / load.NewDistribution(span).Mean().Seconds()
		requests = load.At(requests, load.Poisson(1, rate))
	}
	result := load.Run(context.Background(), c, load.First(s.requests, requests), load.Options{Concurrency: s.concurrency, Ramp: ramp})
	sum := load.Summarize(result.Records)
	if sum.OK != s.requests {
		return false, fmt.Errorf("%s: %d of %d requests were answered: %v", s.name, sum.OK, s.requests, sum.Reasons)
	}
	most := 0
	for _, p := range result.Series(time.Second) {
		most = max(most, p.Most)
	}
	fmt.Printf("## %s\n\n%d requests of %d tokens in %.0f s, at most %d at once, %.0f tokens/s.\n\n", s.name, s.requests, s.tokens, result.Length.Seconds(), most,
		float64(sum.Tokens)/result.Length.Seconds())
	fmt.Print("| | known | measured | off | within |\n|---|---|---|---|---|\n")
	good := true
	row := func(name string, p float64, known, measured load.Distribution) {
		want, got := known.Percentile(p), measured.Percentile(p)
		limit := max(2*time.Millisecond, want/50)
		verdict := "yes"
		if (got - want).Abs() > limit {
			verdict, good = "NO", false
		}
		fmt.Printf("| %s p%v | %.2f ms | %.2f ms | %+.2f ms | %s |\n", name, p, ms(want), ms(got), ms(got-want), verdict)
	}
	for _, p := range []float64{50, 90, 99} {
		row("TTFT", p, load.NewDistribution(ttft), sum.TTFT)
	}
	for _, p := range []float64{50, 90, 99} {
		row("ITL", p, load.NewDistribution(itl), sum.ITL)
	}
	doubt := result.Generator.Doubt
	if doubt == "" {
		doubt = "not doubtful"
	}
	fmt.Printf("\nThe generator says of itself: %v; %s.\n\n", result.Generator, doubt)
	return good, nil
}

func prompts(s setting) iter.Seq[*load.Request] {
	return func(yield func(*load.Request) bool) {
		for yield(&load.Request{Messages: load.User("a prompt"), MaxTokens: s.tokens}) {
		}
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// priority says if this process, and so the stub, goes before others.
func priority() string {
	if a, err := unix.SchedGetAttr(0, 0); err == nil && (a.Policy == unix.SCHED_RR || a.Policy == unix.SCHED_FIFO) {
		return "Both ran under real-time priority, because the machine had other work at the time.\n"
	}
	return ""
}

func cpuName() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, line := range strings.Split(string(b), "\n") {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown"
}
