package engine_test

import (
	"context"
	"fmt"
	"log"

	"github.com/openinfer-go/openinfer/engine"
)

// Two models in one process; one is asked for a story.
func Example() {
	ctx := context.Background()
	e, err := engine.Open(ctx, engine.Options{
		Device: "ref",
		Models: []engine.ModelSpec{{Name: "demo-tales"}, {Name: "demo-bard"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()

	prompt, err := e.RenderChat("demo-tales", engine.ChatPrompt{
		Messages:            []byte(`[{"role": "user", "content": "Tell me a story about a fox and a king"}]`),
		AddGenerationPrompt: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	events, err := e.Generate(ctx, engine.Request{Model: "demo-tales", Prompt: prompt.IDs, MaxTokens: 24})
	if err != nil {
		log.Fatal(err)
	}
	for ev := range events {
		fmt.Print(ev.Text)
		if ev.Finish != engine.FinishNone {
			fmt.Printf("\n[%v after %d tokens]\n", ev.Finish, ev.Usage.Completion)
		}
	}
	// Output:
	// Once there was a fox and a king.
	//
	// The King, seeing this, was very much astonished, and could
	// [length after 24 tokens]
}

// A stop string ends the sequence where it is matched, over token borders.
func ExampleEngine_Generate_stop() {
	ctx := context.Background()
	e, err := engine.Open(ctx, engine.Options{Device: "ref", Models: []engine.ModelSpec{{Name: "demo-bard"}}})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	ids, err := e.Tokenize("demo-bard", "ROMEO:\n", true)
	if err != nil {
		log.Fatal(err)
	}
	events, err := e.Generate(ctx, engine.Request{Model: "demo-bard", Prompt: ids, MaxTokens: 60, Stop: []string{","}})
	if err != nil {
		log.Fatal(err)
	}
	for ev := range events {
		fmt.Print(ev.Text)
		if ev.Finish == engine.FinishStop {
			fmt.Printf("\n[stopped by %q]\n", ev.StopReason)
		}
	}
	// Output:
	// I am not a word.
	//
	// ROMEO:
	// I am not able to be
	// [stopped by ","]
}
