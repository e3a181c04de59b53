// Package sim is a kernels.Device without arithmetic: it says how long a step of a language model takes
// on a card that nobody here owns, and how much of its memory it needs.
//
// Every operator charges the time that its shapes cost by the roofline: the larger of bytes over the
// card's bandwidth and floating-point operations over its rate, both of the data sheet times the share
// of it that kernels reach, and a launch. Operators run one after the other. Activations count two
// bytes a value, as a card holds them, weights what Load says they take packed.
//
// A Meter only adds up; a Device lets the time pass as well, with time.Sleep, so that in a bubble of
// testing/synctest it is virtual. cards.go has the cards with the source of each number.
//
// Buffers have addresses and no bytes behind them. Sampled tokens are a function of SampleParams
// alone: what Given says, else a hash of Seed and Index. A Meter may be given weights that another
// device has loaded, and tensors without buffers: it looks at shapes, never at Impl.
//
// Invariant: what is charged for a step depends on the arguments of its operators and the Spec alone.
package sim
