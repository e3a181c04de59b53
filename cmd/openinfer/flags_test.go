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

func TestWrongValuesAreNamed(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--weight demo-tales=", `--weight demo-tales=: "" is not a number above 0`},
		{"--weight demo-tales=0", `--weight demo-tales=0: "0" is not a number above 0`},
		{"--weight demo-tales=NaN", `--weight demo-tales=NaN: "NaN" is not a number above 0`},
		{"--weight 2", "--weight 2: is one model's share"},
		{"--keep-alive NaN", "--keep-alive NaN: NaN is not a number of seconds"},
		{"--keep-alive demo-bard=soon", `--keep-alive demo-bard=soon: "soon": want seconds`},
		{"--sla-ttft demo-bard=5", `--sla-ttft demo-bard=5: "5" is not a duration`},
		{"--device sim:rtx3090 --models qwen", "no embedded model of that name (there are demo-tales, demo-bard, and on a simulated card gemma-4-12b,"},
	} {
		cmd := root()
		cmd.SetArgs(strings.Fields("serve --listen nowhere " + c.args))
		cmd.SetOut(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
