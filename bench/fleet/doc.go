// Package fleet compares two ways of serving several models from several nodes under one load: dedicated nodes, with one
// model each, and pooled ones, with every model on every node.
//
// It owns the load (Scenario), what is counted (Recorder) and what is reported (Result): the tables and curves of the
// published comparison. It is the same for nodes that are reached over HTTP and for those of bench/virtual, which serve in
// virtual time: a seed draws the same requests for both.
//
// Invariant: the load is open loop and every request offered has one end: served, refused or failed. Latencies count
// from when a request was due.
package fleet
