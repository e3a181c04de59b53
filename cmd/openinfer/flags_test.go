package main

import (
	"io"
	"strings"
	"testing"
)

func TestFlagsThatDoNothingAreRefused(t *testing.T) {
	out := t.TempDir() + "/out"
	for _, c := range []struct{ args, want string }{
		{"serve --port 8000", "unknown flag: --port (openinfer serve --help"},
		{"run -m x", "-m (openinfer run --help"},
		{"quantize demo-tales " + out + " --calibration-tokens 32", "--calibration-tokens: does nothing without --calibration"},
		{"quantize demo-tales " + out + " --bf16 --asymmetric", "[asymmetric bf16]"},
		{"quantize demo-tales " + out + " --bf16 --group 32", "[bf16 group]"},
	} {
		cmd := root()
		cmd.SetArgs(strings.Fields(c.args))
		cmd.SetOut(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
