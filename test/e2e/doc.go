// Package e2e runs the real engine behind the real HTTP handler, and the built binary, with real
// models: the two embedded ones and SmolLM2-135M-Instruct. Nothing is scripted; where a model would
// not say what a test needs, token ids of the prompt and logit_bias make it.
//
// Servers are shared between tests, so a test that reads counters or fills queues opens its own.
package e2e
