// Package kernels says what a device can do: the fused operators of a decoder-only language
// model over typed device buffers, the weights they read and the KV cache they fill.
//
// It owns the Device interface and the types that cross it. It does not own any arithmetic:
// kernels/ref is the specification in plain Go, kernels/cpu the fast one in C, and both are held
// to one conformance suite, kernels/kerneltest. Nothing here knows models, requests or pages.
//
// Conventions. Letters: T tokens of the step, S sequences of the step, D hidden width, N outputs,
// K inputs, H query heads, G key/value heads, V vocabulary. Destination first. No operator
// allocates device memory: scratch is given by the caller. An operator may run later than its
// call; results on the device are there for later operators, results on the host after Sample
// or End. The device keeps the first error of a step with operator and shapes, ignores the rest
// of the step and returns it from End.
//
// Invariant: a row's result depends on that row alone, bit for bit: not on how many rows the
// step has, on tiles, on where a prompt was cut into chunks, or on whether its keys and values
// were computed in this step or found in the prefix cache. Sums over K run in ascending order of
// K with one fixed association; attention that reduces a context in parts cuts it into partitions
// of AttentionPartition positions counted from position 0, and merges them in ascending order.
package kernels

// AttentionPartition is the number of context positions that attention reduces on their own
// before partitions are merged in ascending order. It is part of a device's result: it may
// not depend on batch or chunk.
const AttentionPartition = 256
