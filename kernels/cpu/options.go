package cpu

// Options choose how a device computes.
type Options struct {
	Threads int    // 0: as many as the process may use
	Exact   bool   // float32 activations instead of int8 in groups of 32
	Variant string // "portable" forces plain C; "": the fastest that the processor has
}
