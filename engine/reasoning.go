package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/models/chat"
)

// Reasoning says how a model's answers part reasoning from the rest. The zero value: they do not.
// The engine says where the marks are (Request.Marks, Event.Marks); who shows an answer parts it.
type Reasoning struct {
	Parser string // its name, one of ReasoningParsers; "" when the model does not reason
	// Open and Close stand around reasoning.
	Open, Close string
	// Label is what a model writes after Open to say that reasoning follows; "" for most.
	Label string
	// Marks are the ids of Open and Close. There are none when the vocabulary lacks one of the
	// two: then what the model spells out is the mark. With them, the same characters spelled
	// out are text.
	Marks []int32
	// inside: an answer begins inside reasoning unless the prompt says that it is over.
	inside bool
}

// reasoningParsers are the known formats, named as vLLM's parsers. The one to use is found by Close
// in the chat template: templates drop the reasoning of earlier turns by it. Left alone: formats
// whose reasoning is a message of its own (gpt-oss channels).
var reasoningParsers = []Reasoning{
	{Parser: "qwen3", Open: "<think>", Close: "</think>"}, // GLM, SmolLM3 and most others, too
	{Parser: "gemma4", Open: "<|channel>", Close: "<channel|>", Label: "thought\n"},
	{Parser: "mistral", Open: "[THINK]", Close: "[/THINK]"},
	// Never found, only asked for: models that begin to reason without a mark.
	{Parser: "deepseek_r1", Open: "<think>", Close: "</think>", inside: true},
}

// ReasoningParsers returns the values of ModelSpec.ReasoningParser.
func ReasoningParsers() []string {
	names := []string{"auto", "none"}
	for _, r := range reasoningParsers {
		names = append(names, r.Parser)
	}
	return names
}

// checkReasoningParser reports a name that is none of ReasoningParsers; "" is auto.
func checkReasoningParser(name string) error {
	if known := ReasoningParsers(); name != "" && !slices.Contains(known, name) {
		return fmt.Errorf("reasoning parser %q: want one of %q", name, known)
	}
	return nil
}

// findReasoning picks the format by name, or by the source of the chat template. id finds the id of
// a token.
func findReasoning(name, template string, id func(string) (int32, bool)) Reasoning {
	i := slices.IndexFunc(reasoningParsers, func(r Reasoning) bool {
		if name == "" || name == "auto" {
			return !r.inside && strings.Contains(template, r.Close)
		}
		return r.Parser == name
	})
	if i < 0 {
		return Reasoning{}
	}
	r := reasoningParsers[i]
	open, hasOpen := id(r.Open)
	end, hasClose := id(r.Close)
	if hasOpen && hasClose {
		r.Marks = []int32{open, end}
	}
	return r
}

// goesOn reports whether an answer to prompt begins inside reasoning. What somebody typed into a
// message opens and closes nothing. continued: the prompt ends with text of the answer itself, so
// that a block may hold some; else an open one is empty.
func (r *Reasoning) goesOn(prompt chat.Prompt, continued bool) bool {
	if r.Parser == "" {
		return false
	}
	opened, closed, end := -1, -1, 0
	for _, s := range prompt.Segments {
		if s.Control || r.Marks == nil {
			if at := strings.LastIndex(s.Text, r.Open); at >= 0 {
				opened = end + at
			}
			if at := strings.LastIndex(s.Text, r.Close); at >= 0 {
				closed = end + at
			}
		}
		end += len(s.Text)
	}
	atEnd := func(at int, mark string) bool {
		rest := strings.TrimSpace(prompt.Text[at+len(mark):])
		return continued || rest == "" || rest == strings.TrimSpace(r.Label)
	}
	switch {
	case opened > closed:
		return atEnd(opened, r.Open)
	case closed >= 0 && atEnd(closed, r.Close):
		return false
	}
	return r.inside
}
