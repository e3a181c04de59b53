// Command fleet runs the loads of the fleet benchmark in virtual time on simulated cards, against the other ways of
// serving the same models from the same card, and prints the tables of docs/fleet.md.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/bench/virtual"
	"github.com/openinfer-go/openinfer/engine"
)

// demands are the six models of the published fleet with what its pooled run served of each, and the latencies that are
// sold: an answer begins within two seconds, four for the largest, and goes on faster than people read.
var demands = []virtual.Demand{
	{Model: "qwen3.5-27b", Share: 637, SLA: sla(4000, 100)},
	{Model: "qwen3.5-9b", Share: 607, SLA: sla(2000, 100)},
	{Model: "llama-3.2-1b", Share: 1920, SLA: sla(2000, 100)},
	{Model: "phi-4", Share: 1700, SLA: sla(2000, 100)},
	{Model: "gemma-4-12b", Share: 530, SLA: sla(2000, 100)},
	{Model: "qwen3-1.7b", Share: 1664, SLA: sla(2000, 100)},
}

func sla(ttft, tpot int) engine.SLA {
	return engine.SLA{TTFT: time.Duration(ttft) * time.Millisecond, TPOT: time.Duration(tpot) * time.Millisecond}
}

type way struct {
	name string
	run  func(virtual.Setting, []virtual.Request, time.Duration) (virtual.Result, error)
}

func main() {
	log.SetFlags(0)
	length := flag.Duration("length", 2*time.Minute, "of a load")
	seeds := flag.Int("seeds", 3, "runs of each cell")
	parts := flag.String("parts", "together turn", "which settings")
	only := flag.String("ways", "", "those whose name has this in it; all if empty")
	flag.Var(&loads, "loads", "times the capacity, separated by commas")
	flag.Parse()
	f := fleet{length: *length, seeds: *seeds, only: *only}
	fmt.Printf(head, *length, *seeds)
	if strings.Contains(*parts, "together") {
		f.together("a6000")
	}
	if strings.Contains(*parts, "turn") {
		f.inTurn("rtx3090")
	}
	if f.err != nil {
		log.Print(f.err)
		os.Exit(1)
	}
}

const head = `# One card, six models

Written by scripts/fleet.sh. Everything here is **simulated**, in virtual time: steps take what the data sheet of a card says
(docs/simulated.md); no card was measured. The scheduler, the KV cache and the memory plan are those that serve.

Requests come open-loop for %v, drawn from %d seeds; prompts have 200 tokens that a model's requests share and 300 of
their own on average, answers 200; INT4 weights, fp8 KV cache. Sellable are the tokens of requests whose first token
and mean time per token met their targets. All ways have the same card, prices of steps and prefix hits:

- ours: deadlines, admission, one pool;
- first come, first served: one process with all models, one queue, no admission (vLLM's order, up to 2,048 tokens a step);
- split by hand: a process a model, the free memory split evenly, the card's time shared among those that have work;
- one model at a time: the models are swapped on request, in the order of requests as Ollama and llama-swap do, or, more kindly,
  with all that wait for a model served before the next comes. A swap takes a second and the weights over PCIe: they are in the
  host's memory.

Fair share is a model's device time over what max-min fairness gives it: all that its requests would have taken, or an even part.

`

// multiples are loads as times the capacity.
type multiples []float64

var loads = multiples{0.5, 0.75, 1, 1.5, 2, 3, 4}

func (m *multiples) String() string { return strings.Trim(fmt.Sprint([]float64(*m)), "[]") }

func (m *multiples) Set(text string) error {
	*m = nil
	for _, t := range strings.Split(text, ",") {
		x, err := strconv.ParseFloat(t, 64)
		if err != nil {
			return err
		}
		*m = append(*m, x)
	}
	return nil
}

type fleet struct {
	length time.Duration
	seeds  int
	only   string
	err    error
}

func setting(card string) virtual.Setting {
	s := virtual.Setting{Card: card, KVCacheDType: "fp8-e4m3"}
	for _, d := range demands {
		s.Models = append(s.Models, engine.ModelSpec{Name: d.Model})
	}
	return s
}

// mix is the demands, with that time to the first token, or their own if it is 0.
func mix(inTurn bool, ttft time.Duration) virtual.Mix {
	m := virtual.Mix{Prompt: 300, Shared: 200, Output: 200, InTurn: inTurn}
	for _, d := range demands {
		if ttft > 0 {
			d.SLA.TTFT = ttft
		}
		m.Demands = append(m.Demands, d)
	}
	return m
}

// run runs the seeds.
func (f *fleet) run(w way, s virtual.Setting, m virtual.Mix, rate float64) []virtual.Result {
	var out []virtual.Result
	for seed := range f.seeds {
		if f.err != nil {
			return nil
		}
		r, err := w.run(s, m.Load(uint64(seed), rate, f.length), 2*f.length)
		if err != nil {
			f.err = fmt.Errorf("%s on %s at %.2f requests/s: %w", w.name, s.Card, rate, err)
			return nil
		}
		out = append(out, r)
	}
	return out
}

// capacity is the rate at which the card can just serve all: what it serves a second when more than that comes and
// nobody is in a hurry.
func (f *fleet) capacity(s virtual.Setting, m virtual.Mix) float64 {
	m.Demands = slices.Clone(m.Demands)
	for i := range m.Demands {
		m.Demands[i].SLA = engine.SLA{}
	}
	r, err := virtual.Ours(s, m.Load(1, 30, f.length/2), time.Hour)
	if err != nil {
		f.err = err
		return 1
	}
	return float64(r.Sum().Served) / r.Length.Seconds()
}

func (f *fleet) together(card string) {
	s, m := setting(card), mix(false, 0)
	full := f.capacity(s, m)
	fmt.Printf("## All together: %s, 48 GB (simulated)\n\nTTFT within 2 s (the 27B: 4 s), TPOT within 100 ms; models in proportion to what the published pooled fleet served of them. Capacity: %.2f requests/s when nobody is in a hurry.\n\n", card, full)
	f.table(s, m, []way{{"ours", virtual.Ours}, {"first come, first served", virtual.FirstCome}, {"split by hand", virtual.Split}}, full)
}

func (f *fleet) inTurn(card string) {
	s, m := setting(card), mix(true, 10*time.Second)
	full := f.capacity(s, m)
	fmt.Printf("\n## Asked for in turn, more than fit: %s, 24 GB (simulated)\n\nEach request asks for the next model. TTFT within 10 s, TPOT within 100 ms. Weights move over PCIe at the data sheet's rate. Capacity: %.2f requests/s when nobody is in a hurry.\n\n", card, full)
	f.table(s, m, []way{{"ours", virtual.Ours}, {"first come, first served", virtual.FirstCome},
		{"one model at a time, in order", virtual.Swap}, {"one model at a time, by model", virtual.SwapGrouped}}, full)
}

// table prints sellable tokens by load and then each model at twice the capacity.
func (f *fleet) table(s virtual.Setting, m virtual.Mix, ways []way, full float64) {
	fmt.Print("Sellable tok/s, mean of the runs (least to most), and what part of the requests was answered in time:\n\n| way |")
	for _, l := range loads {
		fmt.Printf(" %gx |", l)
	}
	fmt.Printf(" switches at 2x |\n|---|%s---|\n", strings.Repeat("---|", len(loads)))
	var twice []virtual.Result
	var shares []string
	var cells []cell
	for _, w := range ways {
		if !strings.Contains(w.name, f.only) {
			continue
		}
		fmt.Printf("| %s |", w.name)
		switches := 0
		for _, l := range loads {
			rs := f.run(w, s, m, l*full)
			if f.err != nil {
				return
			}
			var mean, low, high, met float64
			for i, r := range rs {
				sum := r.Sum()
				x := float64(sum.SellableTokens) / f.length.Seconds()
				mean += x / float64(len(rs))
				met += float64(sum.Sellable) / float64(sum.Offered) / float64(len(rs))
				if i == 0 || x < low {
					low = x
				}
				high = max(high, x)
			}
			fmt.Printf(" %.0f (%.0f-%.0f) %.0f %% |", mean, low, high, 100*met)
			cells = append(cells, cell{w.name, l, mean, met})
			if l == 2 {
				twice = append(twice, rs[0])
				switches = rs[0].Switches
				shares = append(shares, leastShares(rs))
			}
		}
		fmt.Printf(" %d |\n", switches)
	}
	compare(cells)
	for i, r := range twice {
		fmt.Printf("\nAt 2x, %s (one run; the least share that a model has in each: %s):\n\n| model | offered | refused | served | in time | sellable tok/s | TTFT p95 | TPOT p95 | device time | fair share |\n|---|---|---|---|---|---|---|---|---|---|\n", r.Way, shares[i])
		for _, x := range r.Models {
			f.line(x)
			fmt.Printf(" %.0f %% |\n", 100*x.FairShare)
		}
		f.line(r.Sum())
		fmt.Println(" |")
	}
}

// cell is one way's result at one load.
type cell struct {
	way             string
	load, sold, met float64
}

// compare says of ours how it holds under load, and how many times the others' it is.
func compare(cells []cell) {
	var most float64
	for _, c := range cells {
		if c.way != "ours" {
			continue
		}
		if most = max(most, c.sold); c.load != 1 && c.load != 2 {
			continue
		}
		fmt.Printf("\nOurs at %gx: %.0f %% of the most that it sold at this load or a smaller one.", c.load, 100*c.sold/most)
		for _, o := range cells {
			if o.way != "ours" && o.load == c.load {
				fmt.Printf(" Against %s: %s the tokens sold, %s the requests answered in time (SLO attainment).", o.way, times(c.sold, o.sold), times(c.met, o.met))
			}
		}
		fmt.Println()
	}
}

func times(a, b float64) string {
	if b == 0 {
		return "infinitely many times"
	}
	return fmt.Sprintf("%.1f times", a/b)
}

func (f *fleet) line(x virtual.ModelResult) {
	fmt.Printf("| %s | %d | %d | %d | %d | %.0f | %.0f ms | %.1f ms | %.1f s |", x.Model, x.Offered, x.Refused, x.Served, x.Sellable,
		float64(x.SellableTokens)/f.length.Seconds(), ms(x.TTFT95), ms(x.TPOT95), x.DeviceTime.Seconds())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// leastShares is the smallest part of its fair share that a model has, of each run.
func leastShares(rs []virtual.Result) string {
	var out []string
	for _, r := range rs {
		least := math.Inf(1)
		for _, m := range r.Models {
			least = min(least, m.FairShare)
		}
		out = append(out, fmt.Sprintf("%.0f %%", 100*least))
	}
	return strings.Join(out, ", ")
}
