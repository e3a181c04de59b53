package importgraph

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

const module = "github.com/openinfer-go/openinfer"

// allowed are the edges between top folders. A package counts as its top folder, except where a
// longer path stands here; internal/ may be imported by all and imports nothing of ours.
var allowed = map[string][]string{
	"cmd":           {"api", "bench", "bench/virtual", "engine", "models"},
	"bench":         {},
	"bench/virtual": {"engine", "bench"},
	"api":           {"engine", "engine/grammar"},
	"engine":        {"engine/text", "engine/grammar", "sched", "kvcache", "models", "kernels", "kernels/ref", "kernels/cpu", "kernels/cuda", "kernels/sim"},
	"sched":         {"kvcache"},
	"models":        {"kernels"},

	"engine/text":    {},
	"engine/grammar": {},
	"kvcache":        {},
	"kernels":        {},
	"kernels/ref":    {"kernels"},
	"kernels/cpu":    {"kernels"},
	"kernels/cuda":   {"kernels"},
	"kernels/sim":    {"kernels"},
	"internal":       {},
	"deploy":         {},

	// Suites that tests of other packages run.
	"kernels/kerneltest": {"kernels", "kernels/ref"},
	"models/modeltest":   {"models", "kernels", "kernels/ref"},
}

// tools are programs and suites outside the product: they may look anywhere, nothing may
// import them.
var tools = map[string]bool{"scripts": true, "test": true}

// testOnly may be imported by tests beside what allowed says: suites that run over packages
// further down.
var testOnly = map[string][]string{
	"api":          {"engine"},
	"models":       {"kernels/ref", "kernels/cpu", "kernels/sim", "models/modeltest"},
	"kernels":      {"kernels/ref", "kernels/cpu", "kernels/kerneltest"},
	"kernels/ref":  {"kernels/kerneltest"},
	"kernels/cpu":  {"kernels/ref", "kernels/kerneltest"},
	"kernels/cuda": {"kernels/ref", "kernels/kerneltest"},
}

type pkg struct {
	ImportPath, ForTest                string
	Imports, TestImports, XTestImports []string
}

func TestImportsPointOneWay(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages: too few to mean anything", len(pkgs))
	}
	for _, p := range pkgs {
		from := folder(p.ImportPath)
		if from != "" && !tools[from] && allowed[from] == nil {
			t.Errorf("%s: folder %q is not in the table", p.ImportPath, from)
			continue
		}
		for _, imp := range p.Imports {
			check(t, p.ImportPath, imp, nil)
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			check(t, p.ImportPath, imp, testOnly[from])
		}
	}
}

func check(t *testing.T, fromPath, toPath string, more []string) {
	t.Helper()
	if !strings.HasPrefix(toPath, module+"/") {
		return
	}
	from, to := folder(fromPath), folder(toPath)
	if from == to || to == "internal" || tools[from] {
		return
	}
	for _, ok := range append(allowed[from], more...) {
		if ok == to {
			return
		}
	}
	t.Errorf("%s imports %s: %s -> %s is not an allowed edge", fromPath, toPath, from, to)
}

// folder maps an import path to the longest entry of the table that it lies under.
func folder(importPath string) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
	for dir := rel; dir != "." && dir != ""; dir = path.Dir(dir) {
		if allowed[dir] != nil || tools[dir] {
			return dir
		}
	}
	return rel
}

func TestAnExtraEdgeIsSeen(t *testing.T) {
	if folder(module+"/models/llama") != "models" || folder(module+"/kernels/cpu") != "kernels/cpu" ||
		folder(module+"/kernels/quant") != "kernels" || folder(module+"/engine/text") != "engine/text" {
		t.Fatal("packages are counted under the wrong folders")
	}
	for _, edge := range [][2]string{{"sched", "models"}, {"models", "engine"}, {"api", "sched"}, {"kernels", "models"}, {"engine/text", "engine"}} {
		for _, ok := range allowed[edge[0]] {
			if ok == edge[1] {
				t.Errorf("%s -> %s must not be allowed", edge[0], edge[1])
			}
		}
	}
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,ForTest,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = testdata.Repo()
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}
