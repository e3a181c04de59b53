// Package cpu runs the operators in C with SIMD, on its own threads: the device that a machine
// without a card serves from.
//
// It owns packed weights, the threads and the operators' code. It does not own what an operator
// means (kernels/ref) nor what is drawn from logits (kernels/sampling).
//
// Operators are recorded in a list and run together, in one call into C, when a result is needed
// (step.go, pool.c). They are written once, in words of 8 float lanes, and compiled for each
// instruction set (vec_*.h, variant_*.c).
//
// Invariant: that of package kernels, a row's bits depend on that row alone. Integer sums are exact, and
// every floating-point sum has one order whatever the tile, so a chunk of work may be cut, moved to
// another thread or computed twice without changing a bit.
//
// # Weights
//
// Eight rows of a matrix are a panel, in which a vector lane is a row: no sum ever runs across
// lanes, and scales multiply as vectors. Rows beyond N and inputs beyond K are codes of weight 0.
//
//	panel:  group 0 | group 1 | ...                            in order of K, so it is read as a stream
//	group:  8 scales | 8 minima or zero points | block | ...   one block for each 32 inputs
//	block, 4 bits: 4 vectors of 32 bytes
//
//	          row 0                    row 1          ...  row 7
//	byte       0     1     2     3      4     5            28 .. 31
//	vector 0  k0|k4 k1|k5 k2|k6 k3|k7  k0|k4 ...                      low nibble | high nibble
//	vector 1  k8|k12 ...
//
//	block, 8 bits: 8 vectors; vector i holds k4i .. k4i+3 of each row as signed codes, code - 128
//	block, float:  32 vectors; vector i holds input i of the 8 rows
//
// Scales and minima are fp16 or bf16 when the matrix says that they are exactly so, else float32
// when exact, else fp16 after multiplication by 2^14 (relative error at most 2^-11 of a scale that a
// file keeps as a product of two numbers, as Q4_K does; an eighth of the activations' own rounding).
// A zero point that all groups share is not stored. Groups of 16 have two scales and minima a block.
//
// # Activations
//
// A matrix whose inputs are stored in another order is multiplied with rows of x gathered in that order;
// stacked parts that share one are multiplied together.
//
// By default rows of x are rounded to int8 in groups of 32, each with a float32 scale: largest
// magnitude / 127. Float weights, and with Options.Exact all weights, are multiplied by float32 activations.
//
// # Cache blocks
//
//	block:  layer | layer | ...     layer: head | head | ...     head: keys | values | scales
//	keys:   BlockTokens/16 tiles [KDim][16 tokens], so that a vector lane is a position
//	values: [BlockTokens][VDim], so that a vector lane is an output
//	scales: [BlockTokens] of keys, [BlockTokens] of values, where the type has them
//
// # Recurrent state
//
// A state lies as kernels.StateLayout says. GatedDelta makes unit keys and queries, decays and betas of all tokens once;
// then a chunk takes the columns of one head's state, 16 at a time, through all tokens of a chain of
// runs. The columns are worked on in scratch and written to the run's pages after its last token, so a
// run may end where it began. Chains are independent: a run that begins with what another leaves is in its chain.
//
// With kernels.DeltaParams.Chunked each 16 tokens of a run, from its start, are taken together by products of
// matrices, and what is left at its end token by token (delta.h).
package cpu
