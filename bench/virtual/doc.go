// Package virtual runs one load against several ways of serving the same models from the same simulated card, in virtual
// time: what a card would do if its data sheet, a fraction of it, were all there is to say about it.
//
// It owns loads (Load), rivals (fcfs.go, split.go, swap.go) and results. It does not own our own way, which is
// engine.Virtual: the scheduler, the cache and the memory plan that serve for real. What a step costs is asked of the same
// simulated device for all of them, so that they differ by what they decide and by nothing else.
//
// Invariant: a run is a function of its load, models and card; there is no clock and no goroutine in it.
package virtual
