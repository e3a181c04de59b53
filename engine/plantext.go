package engine

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// String prints the plan for a person.
func (p MemoryPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Device %s, %s free\n", p.Device, bytesText(p.FreeBytes))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	where := func(state string) string { // a column that is there only while models take turns
		if p.WeightLimit == 0 {
			return ""
		}
		return "\t" + state
	}
	fmt.Fprintf(w, "  model\tweights%s\tKV cache\tper token\tstate\tlongest sequence\ttokens that fit\n", where(""))
	for _, m := range p.Models {
		state := "resident"
		if m.Parked {
			state = "parked"
		}
		fmt.Fprintf(w, "  %s\t%s%s\t%s\t%s\t%s\t%d\t%d\n", m.Name, bytesText(m.WeightBytes), where(state), m.KVCacheDType, bytesText(m.TokenBytes), stateText(m.StateBytes), m.MaxModelLen, m.CacheTokens)
	}
	w.Flush()
	if p.WeightLimit > 0 {
		b.WriteString("Not all weights fit: models take turns, and a parked one is loaded when a request asks for it\n")
	}
	fmt.Fprintf(&b, "Memory: weights %s, KV cache %s (%d pages of %s, shared by all models), scratch %s; %s left free",
		bytesText(p.WeightBytes), bytesText(p.KVBytes), p.Pages, bytesText(p.PageBytes), bytesText(p.ScratchBytes), bytesText(p.ReserveBytes))
	return b.String()
}

// stateText writes the size of a sequence's recurrent state.
func stateText(n int64) string {
	if n == 0 {
		return "-"
	}
	return bytesText(n)
}
