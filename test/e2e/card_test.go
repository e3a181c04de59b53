package e2e

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// debianLibcuda is a folder with the libcuda.so.1 that Debian ships, as scripts/libcuda.sh fetches it. On a machine without
// a card it says so.
func debianLibcuda(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("OPENINFER_CACHE")
	if cache == "" {
		cache = filepath.Join(testdata.Repo(), ".cache")
	}
	dir := filepath.Join(cache, "libcuda")
	if _, err := os.Stat(filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Skipf("%v: run `make deps`", err)
	}
	return dir
}

// fakeLibraries is a folder with a libcuda.so.1 that has three cards and computes nothing, and an NVML that has two.
func fakeLibraries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for lib, source := range map[string]string{"libcuda.so.1": "fakecuda.c", "libnvidia-ml.so.1": "fakenvml.c"} {
		path := filepath.Join(testdata.Repo(), "kernels", "cuda", "driver", "testdata", source)
		if b, err := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(dir, lib), path).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, b)
		}
	}
	return dir
}

func doctor(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(t), "doctor").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		found := false
		for _, line := range strings.Split(text, "\n") {
			found = found || strings.Join(strings.Fields(line), " ") == want
		}
		if !found {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
}

func TestDoctorOnCards(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for libcuda.so.1")
	}
	if said := doctor(t); strings.Contains(said, "no NVIDIA driver") { // else this machine has one
		wantLines(t, said, "auto uses cpu")
	}
	t.Run("a driver without a card", func(t *testing.T) {
		t.Setenv("LD_LIBRARY_PATH", debianLibcuda(t))
		wantLines(t, doctor(t), "device cuda not usable: cuInit: no CUDA-capable device is detected (100)", "auto uses cpu, as no card can be used")
	})
	t.Run("cards", func(t *testing.T) {
		t.Setenv("LD_LIBRARY_PATH", fakeLibraries(t))
		wantLines(t, doctor(t),
			"NVIDIA driver 550.54.14",
			"cards Fake 0, Fake 1 (NVML)",
			"CUDA 12.4, through purego",
			"device cuda:0 Fake 100, compute capability 8.6, 82 multiprocessors, 24.00 GiB",
			"6.00 GiB of 24.00 GiB used, 75 % busy, 320 W, limit 350 W, 1695 MHz, at most 2100 MHz, memory 9751 MHz, 61 degrees",
			"6.00 GiB of 24.00 GiB used, 75 % busy, 61 degrees", // the second measures less
			"device cuda:2 not usable: Fake 102 has compute capability 7.5; 8.0 is the least",
			"auto uses cuda:0")
	})
}

func TestAutoFallsBackToTheProcessorAndSaysSo(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", debianLibcuda(t))
	p := launch(t, "--models", tales)
	if !strings.Contains(p.log(), "no card can be used: models run on the processor") ||
		!strings.Contains(p.log(), "no CUDA-capable device is detected") {
		t.Errorf("logged %s", p.log())
	}
}

// A server on a card tells what NVML says of that card. It is the fake: nothing is asked of it.
func TestServeOnACardHasItsMetrics(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", fakeLibraries(t))
	p := launch(t, "--models", tales, "--kv-memory", "64MiB")
	if !strings.Contains(p.said, "Device Fake 100, compute capability 8.6, 82 multiprocessors, ") {
		t.Errorf("said %s", p.said)
	}
	r, err := http.Get(p.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, string(b), `openinfer_card_info{card="Fake 100"} 1`, "openinfer_card_power_watts 320.5", "openinfer_card_memory_used_bytes 6.442450944e+09",
		"openinfer_card_utilization_ratio 0.75", "openinfer_card_clock_hertz 1.695e+09")
}
