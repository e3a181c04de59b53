package haproxy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// examples are the committed files. OPENINFER_UPDATE=1 writes them anew.
func examples() map[string]Fleet {
	pooled := Fleet{Listen: ":8080", Admin: "127.0.0.1:8404", RequestsPerMinute: 600, AtOnce: 64}
	for i := range 6 {
		host := fmt.Sprintf("10.0.0.%d", 11+i)
		pooled.Nodes = append(pooled.Nodes, Node{Name: fmt.Sprintf("node%d", i+1), Addr: host + ":8080", Agent: host + ":8081"})
	}
	byModel := pooled
	byModel.Models = []string{"qwen3.5-27b", "qwen3.5-9b", "llama-3.2-1b", "phi-4", "gemma-4-12b", "qwen3-1.7b"}
	return map[string]Fleet{"haproxy.cfg": pooled, "haproxy-by-model.cfg": byModel}
}

func TestExamples(t *testing.T) {
	for name, f := range examples() {
		var b bytes.Buffer
		if err := f.Write(&b); err != nil {
			t.Fatal(err)
		}
		if os.Getenv("OPENINFER_UPDATE") == "1" {
			if err := os.WriteFile(name, b.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, b.Bytes()) {
			t.Errorf("%s is not what the template makes (OPENINFER_UPDATE=1 go test ./deploy/haproxy writes it): %v", name, err)
		}
	}
}

// HAProxy reads what the template makes, odd names included.
func TestHAProxyReadsIt(t *testing.T) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		t.Fatal("haproxy is not installed: make deps does that")
	}
	odd := Fleet{Listen: "127.0.0.1:8080", Container: true, Nodes: []Node{{Name: "a", Addr: "127.0.0.1:1", Agent: "127.0.0.1:2"}},
		Models: []string{"org/it's a model:Q4_K_M", `a"b\c`, "x y#z", "$HOME"}}
	cases := examples()
	cases["odd"] = odd
	for name, f := range cases {
		file := filepath.Join(t.TempDir(), "haproxy.cfg")
		w, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write(w); err != nil {
			t.Fatal(err)
		}
		w.Close()
		out, err := exec.Command(path, "-c", "-f", file).CombinedOutput()
		if err != nil || strings.Contains(string(out), "WARNING") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestRefusesWhatCannotBe(t *testing.T) {
	one := []Node{{Name: "a", Addr: "h:1", Agent: "h:2", Models: []string{"x"}}}
	for want, f := range map[string]Fleet{
		"a fleet of no nodes":    {Listen: ":1"},
		`no node serves "y"`:     {Listen: ":1", Nodes: one, Models: []string{"x", "y"}},
		`"a/b" and "a_b" have`:   {Listen: ":1", Nodes: []Node{{Name: "a", Addr: "h:1", Agent: "h:2"}}, Models: []string{"a/b", "a_b"}},
		`"nowhere" is no host:p`: {Listen: ":1", Nodes: []Node{{Name: "a", Addr: "h:1", Agent: "nowhere"}}},
	} {
		if err := f.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
