//go:build cgo

package cpu_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"

	"github.com/openinfer-go/openinfer/kernels/cpu"
)

func TestOpenChoosesTheFastestVariant(t *testing.T) {
	want := "portable"
	switch {
	case runtime.GOARCH == "amd64" && cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C):
		want = "avx2+fma+f16c"
	case runtime.GOARCH == "arm64" && cpuid.CPU.Supports(cpuid.ASIMDDP):
		want = "neon+dotprod"
	case runtime.GOARCH == "arm64":
		want = "neon, "
	}
	for _, c := range []struct{ variant, want string }{{"", want}, {"portable", "portable"}} {
		d, err := cpu.Open(cpu.Options{Variant: c.variant})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Info().Description; !strings.Contains(got, c.want) {
			t.Errorf("variant %q: %s, want %s", c.variant, got, c.want)
		}
		t.Log(d.Info().Description)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, o := range []cpu.Options{{Threads: -1}, {Variant: "sse9"}} {
		if d, err := cpu.Open(o); err == nil {
			d.Close()
			t.Errorf("%+v: no error", o)
		}
	}
}
