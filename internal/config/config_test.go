package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseModels(t *testing.T) {
	got, err := ParseModels([]string{"demo-tales", "smol=/m/smol.gguf", "q=/m/a=b", "org/name:Q4_K_M", "id=org/name@rev", "/m/x=y.gguf", "./a=b"})
	want := []Model{{Path: "demo-tales"}, {Name: "smol", Path: "/m/smol.gguf"}, {Name: "q", Path: "/m/a=b"},
		{Path: "org/name:Q4_K_M"}, {Name: "id", Path: "org/name@rev"}, {Path: "/m/x=y.gguf"}, {Path: "./a=b"}}
	if err != nil || !cmp.Equal(got, want) {
		t.Fatalf("got %v, %v; want %v", got, err, want)
	}
	for item, says := range map[string]string{
		"": "empty", "=": "empty", "=/x": "name before", "a=": "model after",
	} {
		if _, err := ParseModels([]string{item}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want one that says %q", item, err, says)
		}
	}
	if err := Check([]Model{{Name: "a"}, {Name: "a"}}); err == nil {
		t.Error("a name used twice is accepted")
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1024": 1024, "512MiB": 512 << 20, "2g": 2 << 30, "1.5GB": 1_500_000_000, " 3 kib ": 3072, "7b": 7,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1e300GiB", "NaN", "12 parsecs"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
	if got := Size(3 << 20).String(); got != "3MiB" {
		t.Errorf("3 MiB prints as %s", got)
	}
}

func TestFile(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got := Serve{Listen: "127.0.0.1:8080", Device: "auto"}
	err := got.Read(write("models:\n  - name: a\n    path: /m/a\n    max_model_len: 4096\n    keep_alive: 300\n    sla_ttft: 1500ms\n    weight: 2.5\nkeep_alive: \"-1\"\nsla_tpot: 50ms\nweights_memory: 3GiB\nkv_memory: 2GiB\nlisten: 127.0.0.1:9\ndrain_timeout: 5s\n"), nil)
	want := Serve{Listen: "127.0.0.1:9", Device: "auto", KVMemory: 2 << 30, Drain: Duration(5 * time.Second),
		WeightsMemory: 3 << 30, KeepAlive: "-1", SLATPOT: Duration(50 * time.Millisecond),
		Models: []Model{{Name: "a", Path: "/m/a", MaxModelLen: 4096, KeepAlive: "300", SLATTFT: Duration(1500 * time.Millisecond), Weight: 2.5}}}
	if err != nil || !cmp.Equal(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	for _, nothing := range []string{"", "\n", "# a comment\n", "---\n", "{}\n"} {
		got := want
		if err := got.Read(write(nothing), nil); err != nil || !cmp.Equal(got, want) {
			t.Errorf("a file that says nothing, %q: got %+v, %v; want %+v", nothing, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"listen: x\nkv_memroy: 2GiB\n": "kv_memroy", "kv_memory: lots\n": "lots", "models: 3\n": "models", "drain_timeout: soon\n": "soon",
		"models: [\n":                     "models: [",
		"device: cpu\n---\ndevice: ref\n": "more than one document",
	} {
		if err := new(Serve).Read(write(text), nil); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line that says %q", text, err, says)
		}
	}
}

func TestPerModel(t *testing.T) {
	models := []Model{{Name: "a"}, {Name: "b"}}
	var all int
	setAll := func(s string) (err error) { all, err = Int(s); return err }
	setOne := func(m *Model, s string) (err error) { m.MaxNumSeqs, err = Int(s); return err }
	if err := PerModel("max-num-seqs", []string{"8", "b=2"}, models, setAll, setOne); err != nil || all != 8 || models[1].MaxNumSeqs != 2 || models[0].MaxNumSeqs != 0 {
		t.Fatalf("got all %d, models %v, %v", all, models, err)
	}
	for _, bad := range []string{"0", "x", "c=3", "a=", "a=-1"} {
		if err := PerModel("max-num-seqs", []string{bad}, models, setAll, setOne); err == nil || !strings.Contains(err.Error(), "--max-num-seqs "+bad) {
			t.Errorf("%q: error %v, want one that names the flag and value", bad, err)
		}
	}
}

func TestReadKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("# ours\nk1\n\n  k2  \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if keys, err := ReadKeys(path); err != nil || !cmp.Equal(keys, []Key{NewKey("key-1", "k1"), NewKey("key-2", "k2")}) {
		t.Errorf("got %v, %v", keys, err)
	}
	if err := os.WriteFile(path, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(path); err == nil {
		t.Error("a file without a key is accepted")
	}
}

func TestServeCheck(t *testing.T) {
	good := Serve{Listen: "127.0.0.1:0", MaxBodySize: 1 << 20, Drain: 0}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for says, spoil := range map[string]func(*Serve){
		"listen": func(s *Serve) { s.Listen = "" }, "8081: want ADDRESS:PORT": func(s *Serve) { s.Listen = "8081" }, "max-body-size": func(s *Serve) { s.MaxBodySize = 0 },
		"drain-timeout": func(s *Serve) { s.Drain = -1 },
	} {
		bad := good
		if spoil(&bad); bad.Check() == nil || !strings.Contains(bad.Check().Error(), says) {
			t.Errorf("%+v: %v, want an error about %s", bad, bad.Check(), says)
		}
	}
}

func TestTokens(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "8192": 8192, "8K": 8192, " 56k ": 57344, "-1": -1, "8.5K": -1, "K": -1, "": -1, "9999999999999999999": -1, "8M": -1} {
		if got, err := Tokens(text); (err != nil) != (want < 0) || err == nil && got != want || err != nil && !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}
