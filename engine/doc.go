// Package engine is OpenInfer as a Go library: it opens devices and memory, loads models, runs
// the step loop and yields text and tokens.
//
//	e, err := engine.Open(ctx, engine.Options{Models: []engine.ModelSpec{{Name: "demo-tales"}}})
//	events, err := e.Generate(ctx, engine.Request{Model: "demo-tales", Prompt: ids})
//	for ev := range events { fmt.Print(ev.Text) }
//
// It is the only package that names a concrete device and the only one that sees both the
// scheduler (package sched: sequences and tokens) and the models (arrays and layers), and
// translates between them. It does no HTTP.
//
// The scheduler is behind one lock that nobody holds for longer than it takes to plan: callers submit
// and cancel in their own goroutines and are answered at once, whatever step is running. The step loop
// plans steps, has them computed and commits them; it may plan one while the one before is computed.
//
// Invariant: steps are computed one at a time, in the order of their plans; every sequence that Generate
// accepted gets exactly one final event, whatever happens.
package engine
