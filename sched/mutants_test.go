package sched

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mutant is a bug: old of a file, which is there once, read as new.
type mutant struct {
	name, file, old, new string
	quick                bool // planted in each run of the tests, and not only in the long ones
}

var mutants = []mutant{
	{"double free", "../kvcache/table.go",
		"\t\tfor j := len(g.blocks) - 1; j >= g.first; j-- {\n\t\t\tc.unref(g.blocks[j])\n",
		"\t\tfor j := len(g.blocks) - 1; j >= g.first; j-- {\n\t\t\tc.unref(g.blocks[j])\n\t\t\tif planted(%q) && j == 1 && t.tokens > 40 {\n\t\t\t\tc.unref(g.blocks[j])\n\t\t\t}\n", true},
	{"missing rollback", "admit.go",
		"\tif !ok {\n\t\tq.Cache.Release(seq.blocks)\n",
		"\tif !ok {\n\t\tif !planted(%q) {\n\t\t\tq.Cache.Release(seq.blocks)\n\t\t}\n", true},
	{"starvation by overtaking", "admit.go",
		"b != nil && b.overtaken >= s.limits.MaxOvertakes",
		"b != nil && !planted(%q) && b.overtaken >= s.limits.MaxOvertakes", true},
	{"starvation by preempting the oldest", "sched.go",
		"q.running[n-1].age > y.age",
		"(q.running[n-1].age > y.age) != planted(%q)", false},
	{"starvation by priority", "admit.go",
		"q.admitted%fairTurn == fairTurn-1",
		"q.admitted%%fairTurn == fairTurn-1 && !planted(%q)", false},
	{"starvation of a parked model", "room.go",
		"return false, !now.Before(w.stay) && !owes",
		"return false, !now.Before(w.stay) && !owes && !planted(%q)", false},
	{"a parked model that is never asked for again", "residency.go",
		"return q.weights.state == Parked && (q.called() || q.weights.wanted)",
		"return q.weights.state == Parked && (q.called() && !(planted(%q) && q.stats.Loads > 1) || q.weights.wanted)", false},
	{"parked under a running sequence", "residency.go",
		"return len(q.running) == 0 && !slices",
		"return (len(q.running) == 0 || planted(%q)) && !slices", true},
	{"parked under a row in flight", "residency.go",
		"func(p *Plan) bool { return p.queue == q })",
		"func(p *Plan) bool { return p.queue == q && !planted(%q) })", false},
	{"more weights than memory", "room.go",
		"return s.held() + q.WeightBytes - s.limits.WeightBytes",
		"if planted(%q) {\n\t\treturn s.held() - s.limits.WeightBytes\n\t}\n\treturn s.held() + q.WeightBytes - s.limits.WeightBytes", false},
	{"no minimum residency", "residency.go",
		"w.stay = stay.Add(s.minResident(q))",
		"if !planted(%q) {\n\t\tw.stay = stay.Add(s.minResident(q))\n\t}", false},
	{"requests lost with a failed load", "residency.go",
		"\t\tfor len(q.waiting) > 0 {\n\t\t\ts.Fail(",
		"\t\tif planted(%q) {\n\t\t\tq.waiting = q.waiting[:0]\n\t\t}\n\t\tfor len(q.waiting) > 0 {\n\t\t\ts.Fail(", true},
	{"two final events", "sched.go",
		"\tev.Seq = seq\n\ts.events = append(s.events, ev)\n",
		"\tev.Seq = seq\n\ts.events = append(s.events, ev)\n\tif planted(%q) && ev.Reason == Cancelled {\n\t\ts.events = append(s.events, ev)\n\t}\n", false},
	{"no final event", "sched.go",
		"\tev.Seq = seq\n\ts.events = append(s.events, ev)\n",
		"\tev.Seq = seq\n\tif planted(%q) && ev.Reason == Failed {\n\t\treturn\n\t}\n\ts.events = append(s.events, ev)\n", false},
	{"budget overrun", "plan.go",
		"\ts.shareOut(budget)\n",
		"\tif planted(%q) {\n\t\tbudget++\n\t}\n\ts.shareOut(budget)\n", false},
	{"prefix hit across salts", "../kvcache/prefix.go",
		"id.Regime, id.Salt}",
		"id.Regime, map[bool]string{false: id.Salt}[planted(%q)]}", true},
	{"prefix hit across regimes", "../kvcache/prefix.go",
		"id.Adapter, id.Regime,",
		"id.Adapter, map[bool]string{false: id.Regime}[planted(%q)],", false},
	{"prefix hit across groups", "../kvcache/prefix.go",
		"\tbinary.LittleEndian.PutUint64(n[:], uint64(group))\n",
		"\tif planted(%q) {\n\t\tgroup = 0\n\t}\n\tbinary.LittleEndian.PutUint64(n[:], uint64(group))\n", false},
	{"prefix hit on a block not computed", "commit.go",
		"\t\tn := seq.computed\n",
		"\t\tn := seq.computed\n\t\tif at := min(len(seq.tokens), seq.planned); planted(%q) && at > n && seq.pending == 0 {\n\t\t\tn, seq.computed = at, at\n\t\t}\n", false},
	{"a token lost on its way from the tail", "tokens.go",
		"q.tail[:q.fill-1]...)",
		"q.tail[:q.fill-1-uint8(len(map[bool][]int{true: {1}}[planted(%q) && q.fill > 6]))]...)", true},
	{"a tail of two sequences", "tokens.go",
		"\ts.tails = s.tails[:len(s.tails)-1]\n",
		"\tif !planted(%q) || len(s.tails)%%5 > 0 {\n\t\ts.tails = s.tails[:len(s.tails)-1]\n\t}\n", false},
	{"a block sealed late", "commit.go",
		"\tif n >= int(seq.quiet) {\n",
		"\tif n >= int(seq.quiet) && !(planted(%q) && n%%3 == 0) {\n", false},
	{"rejected drafts kept", "commit.go",
		"\t\ts.truncate(seq, seq.computed)\n",
		"\t\tif !planted(%q) {\n\t\t\ts.truncate(seq, seq.computed)\n\t\t}\n", false},
	{"preempted without computing again", "sched.go",
		"\tseq.rewind(0)\n",
		"\tif !planted(%q) {\n\t\tseq.rewind(0)\n\t}\n", false},
	{"a window that leaves too early", "../kvcache/table.go",
		"return max(0, n-g.Window+1) / g.BlockTokens",
		"if planted(%q) {\n\t\treturn n / g.BlockTokens\n\t}\n\treturn max(0, n-g.Window+1) / g.BlockTokens", false},
	{"a partial allocation not rolled back", "../kvcache/table.go",
		"\tif !c.room(need, pages) {\n\t\treturn false\n",
		"\tif !c.room(need, pages) {\n\t\tif planted(%q) && c.free > 0 {\n\t\t\tc.alloc(0)\n\t\t}\n\t\treturn false\n", false},
}

// plantedSource lets each copied package ask whether a bug is planted.
const plantedSource = "package %s\n\nimport \"os\"\n\nvar bug = os.Getenv(\"OPENINFER_MUTANT\")\n\nfunc planted(name string) bool { return bug == name }\n"

// TestMutants plants bugs, each by itself, into a copy of the source that only the compiler sees, and checks that random
// timelines find it.
func TestMutants(t *testing.T) {
	if os.Getenv("OPENINFER_MUTANT") != "" {
		t.Skip("planted already")
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		to := filepath.Join(dir, fmt.Sprint(len(overlay.Replace), ".go"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(here, path)] = to
	}
	sources := map[string]string{}
	for _, m := range mutants {
		text, ok := sources[m.file]
		if !ok {
			raw, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		if n := strings.Count(text, m.old); n != 1 {
			t.Fatalf("%s: %s has %d places for it, not 1", m.name, m.file, n)
		}
		sources[m.file] = strings.Replace(text, m.old, fmt.Sprintf(m.new, m.name), 1)
	}
	for file, text := range sources {
		write(file, text)
	}
	write("planted.go", fmt.Sprintf(plantedSource, "sched"))
	write("../kvcache/planted.go", fmt.Sprintf(plantedSource, "kvcache"))
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	listFile, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sched.test")
	if err := os.WriteFile(listFile, list, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", listFile, "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(name string, checks int) (string, error) {
		cmd := exec.Command(bin, "-test.run", "^TestRandom$", "-rapid.seed=1", fmt.Sprint("-rapid.checks=", checks), "-rapid.shrinktime=1ns")
		cmd.Env = append(os.Environ(), "OPENINFER_MUTANT="+name, "OPENINFER_SOAK=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("none", 20); err != nil {
		t.Fatalf("without a bug: %v\n%s", err, out)
	}
	soak := os.Getenv("OPENINFER_SOAK") == "1"
	for _, m := range mutants {
		if !m.quick && !soak {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			begun := time.Now()
			out, err := run(m.name, 20000)
			_, found, ok := strings.Cut(out, "[rapid] ")
			if err == nil || !ok {
				t.Fatalf("not found: %v\n%.2000s", err, out)
			}
			found, _, _ = strings.Cut(found, "\n")
			row(t, "planted: "+m.name, time.Since(begun), "%.120s", found)
		})
	}
}
