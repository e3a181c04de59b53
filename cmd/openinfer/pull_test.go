package main

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/models/demo"
	"github.com/openinfer-go/openinfer/models/hub/hubtest"
)

// execute runs the program on a command line.
func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

// TestPullAndUse: what is pulled is found by its name. The path alone goes to stdout, and plain lines to stderr.
func TestPullAndUse(t *testing.T) {
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_TOKEN", "hf_env")
	t.Setenv("HF_HUB_OFFLINE", "")
	disk, _ := demo.Open("demo-tales")
	files := map[string][]byte{"README.md": []byte("tales")}
	err := fs.WalkDir(disk, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[path], err = fs.ReadFile(disk, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h := hubtest.New(t, "org/tales", files)
	h.Token = "hf_env"
	t.Setenv("HF_ENDPOINT", h.URL()+"/")

	_, _, err = execute(t, "run", "org/tales", "Once")
	if err == nil || !strings.Contains(err.Error(), "openinfer pull org/tales") {
		t.Errorf("before it is pulled: %v", err)
	}
	out, errs, err := execute(t, "pull", "org/tales")
	if err != nil {
		t.Fatal(err)
	}
	if path := strings.TrimSuffix(out, "\n"); filepath.Base(path) != h.Commit || strings.Contains(path, "\n") {
		t.Errorf("stdout: %q, want a path that ends in %s", out, h.Commit)
	}
	if !strings.Contains(errs, "model.safetensors: fetched, ") || strings.ContainsAny(errs, "\x1b\r") || strings.Contains(errs, "README") {
		t.Errorf("stderr: %q", errs)
	}
	out, _, err = execute(t, "models")
	if err != nil || !strings.Contains(out, "\norg/tales ") || !strings.Contains(out, "\ndemo-tales ") {
		t.Errorf("models: %v\n%s", err, out)
	}
	if out, _, err = execute(t, "run", "org/tales", "Once", "--max-tokens", "3", "--temperature", "0"); err != nil || strings.TrimSpace(out) == "" {
		t.Errorf("run: %q, %v", out, err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	h.Asked()
	if _, _, err := execute(t, "pull", "org/tales"); err != nil || len(h.Asked()) > 0 {
		t.Errorf("offline: %v", err)
	}
	for want, args := range map[string][]string{
		"HF_HUB_OFFLINE":      {"pull", "org/other"},
		"takes one model":     {"pull"},
		"write org/name":      {"pull", "../x"},
		"names the revision":  {"pull", "org/tales@a", "--revision", "b"},
		"cannot be a revisio": {"pull", "org/tales", "--revision", "../b"},
	} {
		if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that says %q", args, err, want)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "0")
	if _, _, err := execute(t, "pull", "org/tales", "--token", "other"); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("with a wrong token: %v", err)
	}
}
