package modeltest

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/openinfer-go/openinfer/models/registry"
)

// Table holds devices to the stored results of the checkpoints of all architectures, in one pass and
// continued, and logs one table of the differences. devices are those for an architecture.
func Table(t *testing.T, devices func(architecture string) []Device) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "case\tdevice\tlargest\tmean\ttolerance\tdivergence\tgreedy equal\tstates")
	for _, a := range registry.Architectures() {
		for _, c := range Checkpoints(a.Name) {
			for _, dev := range devices(a.Name) {
				t.Run(c.Name+"/"+dev.Name, func(t *testing.T) {
					_, m, _ := c.compare(t, dev, c.at(t, c.Path))
					fmt.Fprintf(w, "%s\t%s\t%.2g\t%.2g\t%s\t%.2g\t%d of %d\t%s\n",
						c.Name, dev.Name, m.largest, m.meanDiff(), dev.tolerance(), m.divergence(), m.equal, m.steps, m.stateColumn())
				})
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("differences of logits from the reference's (divergence in nats; states: largest difference, %g allowed in float32)\n%s", stateTolerance, &text)
}

func (dev Device) tolerance() string {
	if dev.Logits > 0 {
		return fmt.Sprintf("%g", dev.Logits)
	}
	return fmt.Sprintf("mean %g", dev.MeanDiff)
}

func (m *measure) stateColumn() string {
	if m.states == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2g", m.states)
}
