package sched

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kvcache"
)

var update = flag.Bool("update", false, "write what the scenarios in testdata print into them")

// TestScenarios runs testdata/*.txt, one policy each. A line is a command; the lines after it that
// begin with ">" are what it should print.
//
//	pool PAGES                          pages of the pool, one of which is padding
//	limits waiting=N overtakes=N        Limits
//	model NAME block=16 perpage=1 context=N batch=N seqs=N waiting=N weight=N
//	      state=PAGES snapshots=N every=N regimes=N,N cost=N,N
//	                                    with state, the model has recurrent state; with a cost, its
//	                                    steps take so many us and so many more a token, which it is told
//	submit NAME MODEL prompt=N max=N n=1 salt=S text=NAME marks=N,N ttft=MS tpot=MS priority=N key=S
//	                                    a request; its prompt begins as that of request text, with
//	                                    the answer to it, or is its own
//	wait MS                             time goes by
//	steps N                             plans and commits N steps, of 10 ms without a cost, and prints
//	                                    their rows, as name position+tokens, and after a stroke where
//	                                    they are cut, and in brackets a regime above 0
//	quiet N                             the same, printing what ends only
//	cancel NAME | drain | show          show prints who runs and who waits
//	cached NAME                         prints how many tokens of its prompt were cached
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := runScenario(t, string(text))
			if *update {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("got:\n%s\nwant:\n%s", got, text)
			}
		})
	}
}

type scenario struct {
	t     *testing.T
	out   strings.Builder
	pool  *kvcache.Pool
	lim   Limits
	s     *Scheduler
	now   time.Time
	seqs  map[string]*Sequence
	names map[*Sequence]string
	costs map[string][]int
}

func runScenario(t *testing.T, text string) string {
	c := &scenario{t: t, now: time.Unix(0, 0), seqs: map[string]*Sequence{}, names: map[*Sequence]string{}}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, ">") {
			continue
		}
		c.out.WriteString(line + "\n")
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(line, "#") {
			c.do(f)
			if c.s != nil {
				if err := c.s.Verify(); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
			}
		}
	}
	return c.out.String()
}

func (c *scenario) print(format string, args ...any) { fmt.Fprintf(&c.out, "> "+format+"\n", args...) }

// options reads name=value words; number returns one as a number.
func options(words []string) (text map[string]string, number func(name string, or int) int) {
	text = map[string]string{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		text[k] = v
	}
	return text, func(name string, or int) int {
		if n, err := strconv.Atoi(text[name]); err == nil {
			return n
		}
		return or
	}
}

// numbers reads N,N.
func numbers(text string) (out []int) {
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		n, _ := strconv.Atoi(w)
		out = append(out, n)
	}
	return out
}

func (c *scenario) do(f []string) {
	text, number := options(f[1:])
	if c.s == nil && f[0] != "pool" && f[0] != "limits" {
		c.s = New(c.pool, c.lim)
	}
	switch f[0] {
	case "pool":
		n, _ := strconv.Atoi(f[1])
		c.pool = kvcache.NewPool(n)
	case "limits":
		c.lim = Limits{MaxWaiting: number("waiting", 0), MaxOvertakes: number("overtakes", 0)}
	case "model":
		cfg := kvcache.Config{Model: f[1], BlocksPerPage: number("perpage", 1), Groups: []kvcache.Group{{BlockTokens: number("block", 16)}},
			Snapshots: number("snapshots", 0), SnapshotTokens: number("every", 0)}
		if n := number("state", 0); n > 0 {
			cfg.Groups = append(cfg.Groups, kvcache.Group{Kind: kvcache.Recurrent, StatePages: n})
		}
		cache, err := c.pool.NewCache(cfg)
		if err != nil {
			c.t.Fatal(err)
		}
		if err := c.s.AddModel(Model{Name: f[1], Cache: cache, MaxTokens: number("context", 4096), MaxBatchTokens: number("batch", 64),
			MaxSeqs: number("seqs", 8), MaxWaiting: number("waiting", 100), Weight: float64(number("weight", 1)),
			Regimes: numbers(text["regimes"]), Prior: c.cost(f[1], numbers(text["cost"]))}); err != nil {
			c.t.Fatal(err)
		}
	case "submit":
		c.submit(f)
	case "steps", "quiet":
		n, _ := strconv.Atoi(f[1])
		for range n {
			c.step(f[0] == "steps")
		}
	case "cancel":
		c.s.Cancel(c.seqs[f[1]])
		c.events()
	case "cached":
		c.print("%d", c.seqs[f[1]].CachedTokens())
	case "wait":
		n, _ := strconv.Atoi(f[1])
		c.now = c.now.Add(time.Duration(n) * time.Millisecond)
	case "drain":
		c.s.Drain()
	case "show":
		for _, q := range c.s.queues {
			line := q.Name + " runs"
			for _, seq := range q.running {
				line += " " + c.names[seq]
			}
			line += "; waits"
			for _, seq := range q.waiting {
				line += " " + c.names[seq]
			}
			c.print("%s", line)
		}
	default:
		c.t.Fatalf("what is %q?", f[0])
	}
}

// cost notes what a model's steps take, and returns what a device would say of it.
func (c *scenario) cost(model string, us []int) (prior []Observation) {
	if len(us) != 2 {
		return nil
	}
	if c.costs == nil {
		c.costs = map[string][]int{}
	}
	c.costs[model] = us
	for n := 1; n <= 4096; n *= 2 {
		prior = append(prior, Observation{Work{Rows: 1, Tokens: n, Samples: 1}, float64(us[0]+n*us[1]) / 1e6})
	}
	return prior
}

func (c *scenario) took(p *Plan) time.Duration {
	if us := c.costs[p.Model]; us != nil {
		return time.Duration(us[0]+p.Tokens*us[1]) * time.Microsecond
	}
	return 10 * time.Millisecond
}

func (c *scenario) submit(f []string) {
	text, number := options(f[3:])
	prompt := make([]int32, number("prompt", 1))
	for i := range prompt {
		prompt[i] = int32(i)
	}
	prompt[0] = int32(1000 + len(c.seqs)) // nobody else's
	if o := text["text"]; o != "" {
		copy(prompt, c.seqs[o].Tokens())
	}
	var seqs []*Sequence
	n := number("n", 1)
	for i := range n {
		seq := &Sequence{Model: f[2], Identity: kvcache.Identity{Salt: text["salt"]}, Prompt: prompt, MaxTokens: number("max", 1), Marks: numbers(text["marks"]),
			Priority: number("priority", 0), Key: text["key"], SLA: SLA{TTFT: time.Duration(number("ttft", 0)) * time.Millisecond, TPOT: time.Duration(number("tpot", 0)) * time.Millisecond}}
		name := f[1]
		if n > 1 {
			name = fmt.Sprint(name, i+1)
		}
		c.seqs[name], c.names[seq] = seq, name
		seqs = append(seqs, seq)
	}
	if err := c.s.Submit(c.now, seqs...); err != nil {
		c.print("%s refused: %v", f[1], err)
	}
}

func (c *scenario) step(loud bool) {
	before := c.s.Stats()
	p := c.s.Plan(c.now)
	for i, m := range c.s.Stats() {
		if n := m.Preemptions - before[i].Preemptions; n > 0 && loud {
			c.print("%s: %d preempted", m.Model, n)
		}
	}
	if p == nil {
		c.now = c.now.Add(10 * time.Millisecond)
		if loud {
			c.print("nothing to do")
		}
		return
	}
	line := p.Model + ":"
	out := Output{Tokens: make([][]int32, len(p.Rows))}
	for i := range p.Rows {
		r := &p.Rows[i]
		line += fmt.Sprintf(" %s %d+%d", c.names[r.Seq], r.Start, r.N)
		for _, run := range r.Runs {
			if last := run.In == nil || run.In[0] == run.Out[0]; !last {
				line += fmt.Sprint("/", run.From)
			}
		}
		if n := r.Seq.Regime(); n > 0 {
			line += fmt.Sprintf("[%d]", n)
		}
		if r.Samples > 0 {
			out.Tokens[i] = []int32{7}
		}
	}
	if loud {
		c.print("%s", line)
	}
	c.now = c.now.Add(c.took(p))
	c.s.Commit(p, out, nil, c.now)
	c.events()
}

func (c *scenario) events() {
	for _, e := range c.s.Events() {
		if e.Reason != None {
			c.print("%s ends: %s, %d tokens", c.names[e.Seq], e.Reason, len(e.Seq.Sampled()))
		}
	}
}
