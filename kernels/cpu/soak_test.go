//go:build cgo

package cpu_test

import (
	"os"
	"testing"
	"time"

	"github.com/openinfer-go/openinfer/kernels/cpu"
)

// TestIdle wants threads that have nothing to do to take no processor time.
func TestIdle(t *testing.T) {
	if os.Getenv("OPENINFER_SOAK") == "" {
		t.Skip("takes a second: OPENINFER_SOAK=1 runs it")
	}
	d, err := cpu.Open(cpu.Options{Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	x, err := d.LoadVector(make([]float32, 64))
	if err != nil {
		t.Fatal(err)
	}
	d.Begin()
	d.RMSNorm(x, x, x, 1)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	before := cpuSeconds()
	time.Sleep(time.Second)
	if used := cpuSeconds() - before; used > 0.005 {
		t.Errorf("an idle device used %.1f ms of processor time in a second", used*1e3)
	}
}
