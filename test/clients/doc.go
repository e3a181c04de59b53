// Package clients runs the official clients of the APIs, and frameworks that stand on them, against the server.
//
// Each client runs the same checks: against a scripted generator, always, and against the built
// binary with its embedded models when OPENINFER_BIN names it. The checks know no model: they
// compare what the server says in different ways (streamed and whole, one and many, text and log
// probabilities). Tools and objects are tried against a scripted model alone, whose answers the checks
// know and which keeps to the grammar that a request asked for. They need what scripts/deps-clients.sh
// installs, so they have the build tag clients.
package clients
