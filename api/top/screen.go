package top

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	"charm.land/lipgloss/v2"

	"github.com/openinfer-go/openinfer/api/state"
	"github.com/openinfer-go/openinfer/internal/page"
)

// screen is what is drawn: a pure function of two snapshots and of the size of the terminal.
type screen struct {
	url           string
	now, before   *state.State // before: an earlier one, for what is counted between two; nil: none
	width, height int          // height 0: as much as there is
	plain         bool         // no colours: letters in their place
	chosen        string       // key of the chosen line
}

// The colours of models, by their place: those of the page.
var (
	palette = []string{"#0072b2", "#c44e00", "#00805e", "#a8528a", "#8a6d00", "#5b4bc4", "#b3261e", "#7d8590"}
	bold    = lipgloss.NewStyle().Bold(true)
	faint   = lipgloss.NewStyle().Faint(true)
	warning = lipgloss.NewStyle().Foreground(lipgloss.Color("#c08000"))
	inverse = lipgloss.NewStyle().Reverse(true)
)

func (s *screen) style(st lipgloss.Style, text string) string {
	if s.plain || text == "" {
		return text
	}
	return st.Render(text)
}

func (s *screen) of(model int, text string) string {
	if model < 0 {
		return text
	}
	return s.style(lipgloss.NewStyle().Foreground(lipgloss.Color(palette[model%len(palette)])), text)
}

// String draws everything.
func (s *screen) String() string {
	st := s.now
	lines := []string{s.head(), s.totals()}
	m := st.Memory
	lines = append(lines, fmt.Sprintf("Memory  %s: weights %s of %s, KV cache %s, other %s", printable(m.Device), page.Bytes(s.resident()), page.Bytes(m.Weights), page.Bytes(m.KV),
		page.Bytes(max(0, m.Bytes-m.Weights-m.KV))))
	lines = append(lines, fmt.Sprintf("Pool    %d pages live, %d cached, %d free, %s each", st.Pool.Live, st.Pool.Cached, st.Pool.Free, page.Bytes(st.Pool.PageBytes)))
	if bar := s.pool(s.width - 8); bar != "" {
		lines = append(lines, "        "+bar)
	}
	lines = append(lines, "")
	lines = append(lines, s.models()...)
	lines = append(lines, "")
	lines = append(lines, s.requests(s.height-len(lines)-2)...)
	for i, l := range lines {
		lines[i] = strings.TrimRight(lipgloss.NewStyle().MaxWidth(max(s.width, 20)).Render(l), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func (s *screen) head() string {
	health := "ready"
	if !s.now.Ready {
		health = s.style(warning, printable(s.now.Reason))
	}
	parts := []string{s.style(bold, "OpenInfer"), printable(s.now.Version), s.url, health}
	if s.now.Simulated != "" {
		parts = append(parts, s.style(warning, "simulated "+printable(s.now.Simulated)+", nothing is computed"))
	}
	return strings.Join(parts, "  ")
}

func (s *screen) resident() (sum int64) {
	for _, m := range s.now.Models {
		if m.State == "resident" {
			sum += m.Weights
		}
	}
	return sum
}

// totals is the line over all models.
func (s *screen) totals() string {
	var rate float64
	var running, waiting int
	var refused, finished, cancelled, failed int64
	sums := []float64{}
	for i, m := range s.now.Models {
		rate += m.Rate
		running += m.Running
		waiting += m.Waiting
		refused += m.RefusedFull + m.RefusedSLA
		finished += m.Finished
		cancelled += m.Cancelled
		failed += m.Failed
		if i < len(s.now.History.Models) {
			for k, v := range s.now.History.Models[i].Rate {
				if k == len(sums) {
					sums = append(sums, 0)
				}
				sums[k] += v
			}
		}
	}
	parts := []string{s.style(bold, speed(rate)+" tok/s") + " " + sparkline(sums, 24), fmt.Sprintf("%d running, %d waiting", running, waiting), s.device()}
	parts = append(parts, fmt.Sprintf("%d refused, %d finished, %d cancelled, %d failed", refused, finished, cancelled, failed))
	return strings.Join(parts, "   ")
}

// device says how busy it is: what the card says, or else the share of the time between the snapshots that steps took.
func (s *screen) device() string {
	if c := s.now.Card; c != nil && c.Utilization != nil {
		text := fmt.Sprintf("card %.0f %% busy", *c.Utilization*100)
		if c.PowerWatts != nil {
			text += fmt.Sprintf(", %.0f W", *c.PowerWatts)
		}
		if c.Temperature != nil {
			text += fmt.Sprintf(", %.0f °C", *c.Temperature)
		}
		return text
	}
	if s.before == nil || s.now.Time <= s.before.Time {
		return "device –"
	}
	spent := 0.0
	for i, m := range s.now.Models {
		if i < len(s.before.Models) {
			spent += m.StepSeconds - s.before.Models[i].StepSeconds
		}
	}
	share := spent * 1000 / float64(s.now.Time-s.before.Time)
	return fmt.Sprintf("device %.0f %% busy", 100*min(max(share, 0), 1))
}

// pool is the page pool as a line: each place stands for as many pages, and is what most of them are.
func (s *screen) pool(width int) string {
	total := 0
	for _, r := range s.now.Pool.Map {
		total += r[2]
	}
	if width < 8 || total == 0 {
		return ""
	}
	width = min(width, total)
	type kind struct{ model, use int }
	counts := make([]map[kind]int, width)
	at := 0
	for _, r := range s.now.Pool.Map {
		for range r[2] {
			i := at * width / total
			if counts[i] == nil {
				counts[i] = map[kind]int{}
			}
			counts[i][kind{r[0], r[1]}]++
			at++
		}
	}
	var b strings.Builder
	for _, c := range counts {
		best, most := kind{-1, state.Free}, 0
		for k, n := range c {
			if n > most || n == most && (k.model < best.model || k.model == best.model && k.use < best.use) {
				best, most = k, n
			}
		}
		switch {
		case best.use == state.Free:
			b.WriteString("·")
		case s.plain && best.use == state.Live:
			b.WriteString(letter(best.model, 'A'))
		case s.plain:
			b.WriteString(letter(best.model, 'a'))
		case best.use == state.Live:
			b.WriteString(s.of(best.model, "█"))
		default:
			b.WriteString(s.of(best.model, "░"))
		}
	}
	return b.String()
}

func letter(model int, from rune) string {
	if model < 0 {
		return "#"
	}
	return string(from + rune(model%26))
}

// models is the table of models.
func (s *screen) models() []string {
	pages := map[int][2]int{}
	for _, r := range s.now.Pool.Map {
		p := pages[r[0]]
		switch r[1] {
		case state.Live:
			p[0] += r[2]
		case state.Cached:
			p[1] += r[2]
		}
		pages[r[0]] = p
	}
	rows := [][]string{{"  MODEL", "STATE", "WEIGHTS", "RUN", "WAIT", "TOK/S", "TTFT", "WORST", "TPOT", "LIVE", "CACHED", "REFUSED", "LATE"}}
	keys := []string{""}
	for i, m := range s.now.Models {
		mark := s.of(i, "■")
		if s.plain {
			mark = letter(i, 'A')
		}
		rows = append(rows, []string{
			mark + " " + printable(m.ID), m.State, page.Bytes(m.Weights), fmt.Sprint(m.Running), fmt.Sprint(m.Waiting), speed(m.Rate), latency(m.TTFT), latency(m.WorstTTFT), latency(m.TPOT),
			fmt.Sprint(pages[i][0]), fmt.Sprint(pages[i][1]), fmt.Sprint(m.RefusedFull + m.RefusedSLA), fmt.Sprint(m.Late),
		})
		keys = append(keys, modelKey(m.ID))
	}
	return s.columns(rows, keys, 2)
}

// requests is the table of requests, in at most so many lines; 0 or less: all.
func (s *screen) requests(most int) []string {
	if len(s.now.Requests) == 0 {
		return []string{s.style(faint, "No requests.")}
	}
	index := map[string]int{}
	for i, m := range s.now.Models {
		index[m.ID] = i
	}
	rows := [][]string{{"REQUEST", "MODEL", "STATE", "TOKENS", "OF", "AGE", "TTFT", "TARGET"}}
	keys := []string{""}
	shown := s.now.Requests
	if s.height > 0 && len(shown) > max(most-2, 1) {
		shown = shown[:max(most-2, 1)]
	}
	for _, r := range shown {
		done, of := r.Sampled, r.Max
		if r.State != state.Decode {
			done, of = r.Computed, r.Prompt
		}
		first := "–"
		if r.TTFT > 0 {
			first = page.Seconds(r.TTFT / 1000)
		}
		name := printable(r.Model)
		if i, ok := index[r.Model]; ok {
			name = s.of(i, name)
		}
		rows = append(rows, []string{short(r), name, r.State, fmt.Sprint(done), fmt.Sprint(of), page.Seconds(r.Age / 1000), first, target(r)})
		keys = append(keys, requestKey(r))
	}
	lines := s.columns(rows, keys, 3)
	if n := len(s.now.Requests) - len(shown) + s.now.Unlisted; n > 0 {
		lines = append(lines, s.style(faint, fmt.Sprintf("and %d more", n)))
	}
	return lines
}

// target is what a request was promised.
func target(r state.Request) string {
	var parts []string
	if r.TargetTTFT > 0 {
		parts = append(parts, "first in "+page.Seconds(r.TargetTTFT/1000))
	}
	if r.TargetTPOT > 0 {
		parts = append(parts, page.Seconds(r.TargetTPOT/1000)+" per token")
	}
	switch {
	case len(parts) == 0:
		return "–"
	case r.Late:
		parts = append(parts, "cannot be met")
	case r.Due < 0:
		parts = append(parts, "due")
	case r.Due > 0:
		parts = append(parts, "due in "+page.Seconds(r.Due/1000))
	}
	return strings.Join(parts, ", ")
}

// columns lines rows up: the first so many to the left, and the last one of requests; numbers to the right.
func (s *screen) columns(rows [][]string, keys []string, left int) []string {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], lipgloss.Width(c))
		}
	}
	lines := make([]string, len(rows))
	for k, r := range rows {
		var b strings.Builder
		for i, c := range r {
			fill := strings.Repeat(" ", widths[i]-lipgloss.Width(c))
			switch {
			case i < left || rows[0][i] == "TARGET":
				b.WriteString(c + fill)
			default:
				b.WriteString(fill + c)
			}
			b.WriteString("  ")
		}
		lines[k] = strings.TrimRight(b.String(), " ")
		switch {
		case k == 0:
			lines[k] = s.style(faint, lines[k])
		case keys[k] == s.chosen && s.chosen != "" && !s.plain:
			lines[k] = inverse.Render(lines[k])
		}
	}
	return lines
}

func speed(tokens float64) string {
	if tokens == 0 {
		return "0"
	}
	return page.Rate(tokens)
}

func modelKey(id string) string         { return "model " + id }
func requestKey(r state.Request) string { return fmt.Sprintf("request %s %d", r.ID, r.Index) }
func latency(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return page.Seconds(*ms / 1000)
}

// short is the beginning of a request's id, as the page shows it.
func short(r state.Request) string {
	id := printable(r.ID)
	for _, prefix := range []string{"chatcmpl-", "cmpl-", "req-"} {
		id = strings.TrimPrefix(id, prefix)
	}
	id = id[:min(len(id), 8)]
	if r.Index > 0 {
		id += fmt.Sprint(".", r.Index)
	}
	return id
}

// printable is a text of the server's without what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// sparkline is values as a line of at most width blocks, each the mean of those that fall into it.
func sparkline(values []float64, width int) string {
	width = min(width, len(values))
	means, most := make([]float64, width), 0.0
	for i := range means {
		from, to := i*len(values)/width, (i+1)*len(values)/width
		for _, v := range values[from:to] {
			means[i] += v / float64(to-from)
		}
		most = math.Max(most, means[i])
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range means {
		i := 0
		if most > 0 {
			i = min(int(v/most*float64(len(blocks))), len(blocks)-1)
		}
		b.WriteRune(blocks[max(i, 0)])
	}
	return b.String()
}
