package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// cache is what scripts/deps-deploy.sh has filled.
func cache(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("OPENINFER_CACHE")
	if dir == "" {
		dir = filepath.Join(testdata.Repo(), ".cache")
	}
	dir = filepath.Join(dir, "deploy")
	if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
		if os.Getenv("OPENINFER_SHARED_OPTIONAL") == "1" { // make quick: Go and a C compiler only
			t.Skip("make quick has no schemas")
		}
		t.Fatalf("%v: make deps fetches it", err)
	}
	return dir
}

// Every object is valid by the published schemas, and each kind of fault in one is found.
func TestKubernetes(t *testing.T) {
	dir := cache(t)
	validate := func(files ...string) (string, error) {
		cmd := exec.Command("python3", append([]string{"kubernetes/validate.py", filepath.Join(dir, "crds")}, files...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(dir, "python"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	objects := 0
	broken := []string{}
	for _, c := range [][3]string{ // file, what is there, what is wrong
		{"kubernetes/openinfer.yaml", "maxUnavailable: 1}", "maxUnavailible: 1}"},
		{"kubernetes/openinfer.yaml", "replicas: 4", "replicas: four"},
		{"kubernetes/openinfer.yaml", "apiVersion: policy/v1", "apiVersion: policy/v7"},
		{"kubernetes/gateway.yaml", "failureMode: FailOpen", "failureMode: FailSometimes"},
		{"kubernetes/gateway.yaml", "targetPorts:", "targetPort:"},
		{"kubernetes/gateway.yaml", "type: PathPrefix", "type: Prefix"},
		{"kubernetes/gateway.yaml", "- number: 8080", "- number: 80800"},
	} {
		text, err := os.ReadFile(c[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), c[1]) {
			t.Fatalf("%s has no %q any more", c[0], c[1])
		}
		file := filepath.Join(t.TempDir(), strings.NewReplacer(":", "_", " ", "_", "/", "_").Replace(c[2])+".yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), c[1], c[2], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		broken = append(broken, file)
	}
	out, err := validate(files...)
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f)
		objects += strings.Count(string(text), "\napiVersion: ")
		if strings.HasPrefix(string(text), "apiVersion: ") {
			objects++
		}
	}
	if n := strings.Count(out, " is valid"); n == 0 || n != objects {
		t.Errorf("%d of %d objects were looked at:\n%s", n, objects, out)
	}
	out, err = validate(broken...)
	if err == nil {
		t.Error("faults were not found")
	}
	for _, file := range broken {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.HasPrefix(line, file) && !strings.Contains(line, "is valid")
		}
		if !found {
			t.Errorf("%s: its fault was not found:\n%s", filepath.Base(file), out)
		}
	}
}

func TestDockerfile(t *testing.T) {
	if out, err := exec.Command(filepath.Join(cache(t), "hadolint", "bin", "hadolint"), "docker/Dockerfile").CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// systemd reads the unit without a word about it.
func TestSystemdUnit(t *testing.T) {
	cache(t)
	text, err := os.ReadFile("systemd/openinfer.service")
	if err != nil {
		t.Fatal(err)
	}
	const program = "/usr/local/bin/openinfer" // need not be there
	if !strings.Contains(string(text), "\nExecStart="+program+" serve ") {
		t.Fatalf("the unit does not start %s", program)
	}
	unit := filepath.Join(t.TempDir(), "openinfer.service")
	verify := func(text string) string {
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
		if err != nil {
			return err.Error() + "\n" + string(out)
		}
		return string(out)
	}
	here := strings.ReplaceAll(string(text), program, "/bin/true")
	if out := verify(here); strings.Contains(out, "openinfer.service") {
		t.Errorf("%s", out)
	}
	if out := verify(strings.Replace(here, "TimeoutStopSec=45", "TimeoutStopSec=soon", 1)); !strings.Contains(out, "soon") {
		t.Errorf("a fault was not found: %s", out)
	}
}
