package fleet

import (
	"bufio"
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// sources are the metrics that tell how busy a card is, the best first. A counter is of seconds; a gauge says what part of a
// recent moment it was.
var sources = []struct {
	name    string
	counter bool
	scale   float64
	mean    bool // over the cards of the node; else the sum, over models
}{
	{"openinfer_step_seconds_total", true, 1, false},
	{"DCGM_FI_DEV_GPU_UTIL", false, 0.01, true},          // NVIDIA's exporter
	{"nvidia_smi_utilization_gpu_ratio", false, 1, true}, // nvidia_gpu_exporter
	{"openinfer_card_utilization_ratio", false, 1, true},
}

// loads counts how often weights were brought to a card.
const loads = "openinfer_model_loads_total"

// reading is what a node's metrics said at one time.
type reading struct {
	at     time.Time
	source int // of sources; -1: none is there
	value  float64
	loads  float64
}

// readMetrics reads what Prometheus would be given. Other metrics are not parsed: a node has hundreds.
func readMetrics(text []byte) (r reading) {
	r.source = -1
	wanted := []string{loads}
	for _, s := range sources {
		wanted = append(wanted, s.name)
	}
	var kept bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		for _, name := range wanted {
			if rest, ok := strings.CutPrefix(lines.Text(), name); ok && (rest == "" || strings.ContainsRune("{ \t", rune(rest[0]))) {
				kept.WriteString(lines.Text() + "\n")
			}
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&kept)
	if err != nil {
		return r
	}
	sum := func(name string) (sum float64, n int) {
		for _, m := range families[name].GetMetric() {
			sum, n = sum+m.GetUntyped().GetValue(), n+1 // the line that says its type was not kept
		}
		return sum, n
	}
	for i, s := range sources {
		if v, n := sum(s.name); n > 0 {
			if r.source, r.value = i, v*s.scale; s.mean {
				r.value /= float64(n)
			}
			break
		}
	}
	r.loads, _ = sum(loads)
	return r
}

// meter reads the metrics of nodes while a load goes on, once a second.
type meter struct {
	get      func(ctx context.Context, url string) ([]byte, error)
	quit     chan struct{}
	readers  sync.WaitGroup
	readings [][]reading // by node
}

// startMeter returns when every node was read once.
func startMeter(ctx context.Context, get func(ctx context.Context, url string) ([]byte, error), nodes []string) *meter {
	m := &meter{get: get, quit: make(chan struct{}), readings: make([][]reading, len(nodes))}
	var first sync.WaitGroup
	first.Add(len(nodes))
	for n, url := range nodes {
		m.readers.Go(func() {
			m.read(ctx, n, url)
			first.Done()
			// Not all nodes at the same moment: answers would wait.
			next := time.NewTimer(time.Second * time.Duration(n) / time.Duration(len(nodes)))
			defer next.Stop()
			for {
				select {
				case <-next.C:
					next.Reset(time.Second)
					m.read(ctx, n, url)
				case <-m.quit:
					m.read(ctx, n, url)
					return
				}
			}
		})
	}
	first.Wait()
	return m
}

// end is when every node was read for the last time.
func (m *meter) end() {
	close(m.quit)
	m.readers.Wait()
}

func (m *meter) read(ctx context.Context, n int, url string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // a run that is ended is measured to its end
	defer cancel()
	asked := time.Now()
	text, err := m.get(ctx, url+"/metrics")
	if err != nil {
		return // the next one spans the gap
	}
	r := readMetrics(text)
	r.at = asked.Add(time.Since(asked) / 2)
	m.readings[n] = append(m.readings[n], r)
}

// record tells a recorder how busy the nodes were since begin, and says whether that is known of all.
func (m *meter) record(r *Recorder, begin time.Time) bool {
	known := true
	for n, list := range m.readings {
		some := false
		for i := 1; i < len(list); i++ {
			a, b := list[i-1], list[i]
			took := b.at.Sub(a.at)
			if a.source != b.source || b.source < 0 || took <= 0 {
				continue
			}
			part := b.value
			if sources[b.source].counter {
				part = (b.value - a.value) / took.Seconds()
			}
			if !(part >= 0) { // a node that was started again counts from zero
				continue
			}
			some = true
			r.Used(n, max(0, a.at.Sub(begin)), max(0, b.at.Sub(begin)), min(part, 1))
			if more := b.loads - a.loads; more > 0 {
				r.Switched(int(more))
			}
		}
		known = known && some
	}
	return known && len(m.readings) > 0
}
