// Package cuda is the device for NVIDIA cards from sm_80 on: kernels in CUDA C++ beside their committed PTX, and the Go
// that launches them through driver.Driver.
//
// It owns the arithmetic of kernels.Device on a card, the layout of weights there, and a card's memory. It does not
// own the driver (driver), nor knows whether a card or the interpreter (ptx) runs a launch.
//
// A .cu is compiled by `make cuda`; its .ptx records the hash of the source and the compiler, and a test holds the two
// together. A launcher refuses what its kernel does not take before anything runs.
//
// Activations are float32 in memory; products round a row of x to fp16 after scaling it by a power of two of its own, so
// that no activation overflows, and accumulate in float32.
//
// Invariant: that of package kernels: a row's result depends on that row alone, bit for bit. Nothing is allocated on
// the card during a step, and everything of a step runs on one stream in the order of the calls.
package cuda
