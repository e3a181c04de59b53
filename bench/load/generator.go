package load

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Generator is what the generator itself cost and how late it was. It sees how long it is kept from running; what a busy
// server on the same machine does to the network it cannot tell from the server's own time.
type Generator struct {
	Late Distribution // of sends, with connections made, behind the time that a request was due and had a place
	Wake Distribution // of a goroutine that sleeps 10 ms, behind its time: what a chunk waits for to be read
	CPU  time.Duration
	// CPUPerToken is all of this process's CPU time over the tokens of answers; 0: no tokens.
	CPUPerToken time.Duration
	// Doubt says why results are doubtful; "" if they are not.
	Doubt string
}

// String is one line.
func (g Generator) String() string {
	return fmt.Sprintf("sends late by %.2f ms (median; p99 %.2f, most %.2f), wake-ups by %.2f ms (p99 %.2f, most %.2f), %.2f s of CPU, %.1f us a token",
		ms(g.Late.Percentile(50)), ms(g.Late.Percentile(99)), ms(g.Late.Max()),
		ms(g.Wake.Percentile(50)), ms(g.Wake.Percentile(99)), ms(g.Wake.Max()), g.CPU.Seconds(), float64(g.CPUPerToken.Nanoseconds())/1e3)
}

// gauge measures how late this process is while a run goes on.
type gauge struct {
	quit, done chan struct{}
	late       []time.Duration
	cpu        time.Duration
}

// gaugeEvery is how often the gauge looks: rare enough to cost nothing.
const gaugeEvery = 10 * time.Millisecond

func startGauge() *gauge {
	g := &gauge{quit: make(chan struct{}), done: make(chan struct{}), cpu: cpuTime()}
	go func() {
		defer close(g.done)
		timer := time.NewTimer(gaugeEvery)
		defer timer.Stop()
		for {
			at := time.Now().Add(gaugeEvery)
			timer.Reset(gaugeEvery)
			select {
			case <-timer.C:
				g.late = append(g.late, time.Since(at))
			case <-g.quit:
				return
			}
		}
	}()
	return g
}

func (g *gauge) stop(result *Result) Generator {
	close(g.quit)
	<-g.done
	out := Generator{Wake: NewDistribution(g.late), CPU: cpuTime() - g.cpu}
	var late []time.Duration
	tokens := 0
	for _, r := range result.Records {
		tokens += r.Tokens
		if r.Sent >= 0 {
			late = append(late, r.Late())
		}
	}
	out.Late = NewDistribution(late)
	if tokens > 0 {
		out.CPUPerToken = out.CPU / time.Duration(tokens)
	}
	s := Summarize(result.Records)
	var why []string
	doubt := func(what string, late Distribution, of Distribution, name string) {
		if p := late.Percentile(99); p > max(2*time.Millisecond, of.Percentile(50)/50) {
			why = append(why, fmt.Sprintf("%s late by p99 %.1f ms where the median %s is %.1f ms", what, ms(p), name, ms(of.Percentile(50))))
		}
	}
	doubt("sends", out.Late, s.TTFT, "TTFT")
	doubt("wake-ups", out.Wake, s.ITL, "ITL")
	if len(why) > 0 {
		out.Doubt = "doubtful: the generator was too slow: " + strings.Join(why, ", ")
	}
	return out
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
