// Package clients runs the official OpenAI clients for Go, Python and JavaScript against the server.
//
// Each client runs the same checks: against a scripted generator, always, and against the built
// binary with its embedded models when OPENINFER_BIN names it. The checks know no model: they
// compare what the server says in different ways (streamed and whole, one and many, text and log
// probabilities). They need what scripts/deps-clients.sh installs, so they have the build tag clients.
package clients
