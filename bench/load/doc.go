// Package load sends a load to servers that speak the OpenAI API and records what became of every request. All
// benchmarks are made of it: what differs between them is the load and what is made of the records.
//
// A load is a sequence of Requests (a dataset: Random, Prefixes, Agents or a file) with times at which they are due
// (Poisson, Gamma, Fixed, Thinned; see At). Run sends it to a Target, such as a Client, and returns one Record a request.
// A seed gives the same requests at the same times.
//
//   - Open loop: a request is sent when it is due, whatever became of those before it. A slow server does not slow the
//     arrivals. Options.MaxConcurrency makes requests wait for a place instead; their latency still begins when they were due.
//   - Closed loop (Options.Concurrency): so many at once; the next is due when one has ended.
//   - A conversation (Request.Then) goes on a think time after each answer, with the answer in its history.
//
// Latencies are from the time a request was due (coordinated omission corrected); Record has the time it was sent, too.
//
// Tokens are counted by the server's own usage: in every chunk where it gives continuous_usage_stats, else a chunk that
// carries text counts as one until the final usage says how many there were in all. Reasoning is output as any other text.
//
// Lengths are in tokens without a tokenizer: Calibrate asks the server what its words cost, or for the ids of plain words
// where prompts may be ids.
//
// Invariant: every request that was begun has exactly one Record with one Outcome, and times of a Record never decrease:
// Due, Ready, Sent, Wrote, Chunks, End. A time is taken when the bytes were read, before they are looked at.
//
// A generator can be too slow itself: Result.Generator says by how much sends and wake-ups were late.
package load
