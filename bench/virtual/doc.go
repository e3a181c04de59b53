// Package virtual runs one load against several ways of serving the same models, in virtual time: what cards would do if their
// data sheets, a fraction of them, were all there is to say about them. Ways to share one card have their loads, rivals and
// results here (load.go, rivals.go, fcfs.go, result.go). Fleets of several nodes behind a balancer (fleet.go, balancer.go,
// vllm.go) have theirs in bench/fleet.
//
// It does not own our own way, which is
// engine.Virtual: the scheduler, the cache and the memory plan that serve for real. What a step costs is asked of the same
// simulated device for all of them, so that they differ by what they decide and by nothing else.
//
// Invariant: a run is a function of its load, models and card; there is no clock in it, and no goroutine within a run.
package virtual
