package ref

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
)

// TestE4M3: the values that the OCP specification names, and that a code's own value has that code.
func TestE4M3(t *testing.T) {
	for code, want := range map[byte]float64{
		0x00: 0, 0x01: 0x1p-9, 0x07: 0.875 * 0x1p-6, 0x08: 0x1p-6, 0x38: 1, 0x77: 240, 0x7e: 448, 0x81: -0x1p-9, 0xb8: -1, 0xfe: -448,
	} {
		if got := e4m3()[code]; float64(got) != want {
			t.Errorf("code %#02x is %v, want %v", code, got, want)
		}
	}
	for code := range 256 {
		v := e4m3()[code]
		if nan := code&0x7f == 0x7f; nan != (v != v) {
			t.Errorf("code %#02x is %v", code, v)
		} else if !nan && toE4M3(v) != byte(code) {
			t.Errorf("%v, the value of code %#02x, has code %#02x", v, code, toE4M3(v))
		}
	}
}

// TestE4M3IsTorchs: codes are those that torch rounds the same values to. Needs the packages of scripts/deps-quant.sh.
func TestE4M3IsTorchs(t *testing.T) {
	if os.Getenv("OPENINFER_SOAK") == "" {
		t.Skip("OPENINFER_SOAK is not set")
	}
	packages := testdata.Cache(t, "py-quant")
	out := filepath.Join(t.TempDir(), "codes")
	// Floats of all sizes up to 448, and then multiples of 2^-10, which are halfway between two codes where they are small.
	const sizes, step, multiples = 0x43e00000/0x1357 + 1, 0x1357, 448<<10 + 1
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `
import sys, torch
sizes, step, multiples = map(int, sys.argv[2:])
v = torch.cat([(torch.arange(sizes, dtype=torch.int32) * step).view(torch.float32), torch.arange(multiples) / 1024])
torch.cat([v, -v]).to(torch.float8_e4m3fn).view(torch.uint8).numpy().tofile(sys.argv[1])
`, out, strconv.Itoa(sizes), strconv.Itoa(step), strconv.Itoa(multiples))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("torch: %v\n%s", err, text)
	}
	codes, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	const half = sizes + multiples
	if len(codes) != 2*half {
		t.Fatalf("%d codes, want %d", len(codes), 2*half)
	}
	for i, want := range codes {
		v := float32(i%half-sizes) / 1024
		if i%half < sizes {
			v = math.Float32frombits(uint32(i % half * step))
		}
		if i >= half {
			v = -v
		}
		if got := toE4M3(v); got != want {
			t.Fatalf("%v has code %#02x, torch says %#02x", v, got, want)
		}
	}
	t.Logf("%d values", len(codes))
}
