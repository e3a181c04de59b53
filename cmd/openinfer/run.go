package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/openinfer-go/openinfer/api/reasoning"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/config"
)

func runCommand() *cobra.Command {
	var c config.Serve
	var m modelFlags
	var s session
	cmd := &cobra.Command{
		Use:   "run MODEL [PROMPT]",
		Short: "Answer a prompt in the terminal; without one, chat line by line",
		Long: `Answer a prompt in the terminal, or chat line by line when there is none.

MODEL is an embedded model (demo-tales, demo-bard), a checkpoint folder, a .gguf file, or a model that
"openinfer pull" has fetched: org/name, or org/name:Q4_K_M of several GGUF files.
A model without a chat template continues the prompt as plain text. What a model thinks before it
answers goes to standard error.

A chat ends with an empty line, Ctrl-D or Ctrl-C. Piped input is a chat too: each line is a message.`,
		Example: `  openinfer run demo-tales "Tell me a story about a fox and a king" --seed 3
  openinfer run SmolLM2-135M-Instruct.Q4_1.gguf --system "Answer in one sentence."`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return fmt.Errorf("run needs a model: an embedded one (%s), a checkpoint folder, a .gguf file or org/name of the hub cache", strings.Join(engine.EmbeddedModels(), ", "))
			case len(args) > 2:
				return fmt.Errorf("run takes a model and one prompt, got %d more words: put the prompt in quotes", len(args)-2)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			model, err := modelArgument(args[0])
			if err != nil {
				return err
			}
			c.Models = []config.Model{model}
			c.MaxNumSeqs = 1
			s.given = cmd.Flags().Changed
			if err := m.apply(&c); err != nil {
				return err
			}
			o, err := engineOptions(c)
			if err != nil {
				return err
			}
			e, err := engine.Open(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer e.Close()
			s.engine, s.info, s.out, s.thoughts = e, e.Models()[0], cmd.OutOrStdout(), cmd.ErrOrStderr()
			if len(args) == 2 {
				_, err := s.answer(cmd.Context(), args[1])
				return err
			}
			return s.chat(cmd.Context(), cmd.InOrStdin())
		},
	}
	deviceFlags(cmd, &c, &m)
	f := cmd.Flags()
	f.IntVar(&s.maxTokens, "max-tokens", 0, "longest answer in tokens (default: what the context has room for)")
	f.Float32Var(&s.temperature, "temperature", 0, "0 is greedy (default: the checkpoint's)")
	f.Int64Var(&s.seed, "seed", 0, "same seed, same answer (default: a new one each time)")
	f.StringVar(&s.system, "system", "", "system message")
	f.StringVar(&s.kwargs, "chat-template-kwargs", "", `variables of the chat template, a JSON object: '{"enable_thinking": false}'`)
	f.BoolVar(&s.verbose, "verbose", false, "print tokens and speed after each answer")
	return cmd
}

// session is a conversation in a terminal.
type session struct {
	engine      *engine.Engine
	info        engine.ModelInfo
	out         io.Writer
	thoughts    io.Writer // where reasoning goes
	maxTokens   int
	temperature float32
	seed        int64
	system      string
	kwargs      string
	verbose     bool
	given       func(flag string) bool // on the command line
	messages    []map[string]string
}

// chat answers line by line. Reading has its own goroutine, as nothing interrupts a read from a
// terminal and Ctrl-C must end a chat that waits for its next line.
func (s *session) chat(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan string)
	var readErr error // set before lines is closed
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
		readErr = scanner.Err()
	}()

	prompt, end := "", ""
	if isTerminal(in) {
		fmt.Fprintf(s.out, "%s. An empty line, Ctrl-D or Ctrl-C ends.\n", s.info.Name)
		prompt, end = ">>> ", "\n"
	}
	for {
		fmt.Fprint(s.out, prompt)
		select {
		case <-ctx.Done():
			fmt.Fprint(s.out, end)
			return ctx.Err()
		case line, ok := <-lines:
			if !ok {
				fmt.Fprint(s.out, end)
				return errors.Join(readErr, ctx.Err())
			}
			if strings.TrimSpace(line) == "" {
				return nil
			}
			if err := s.turn(ctx, line); err != nil {
				return err
			}
		}
	}
}

// turn answers a line of a chat. A conversation that has outgrown the context starts anew with it.
func (s *session) turn(ctx context.Context, line string) error {
	spoken := slices.ContainsFunc(s.messages, func(m map[string]string) bool { return m["role"] == "assistant" })
	_, err := s.answer(ctx, line)
	if errors.Is(err, engine.ErrContextLength) && s.info.HasChat && spoken {
		fmt.Fprintf(os.Stderr, "[the conversation is longer than the context of %d tokens: what was said before is forgotten]\n", s.info.MaxModelLen)
		s.messages = nil
		_, err = s.answer(ctx, line)
	}
	return err
}

// answer streams the model's answer to text and adds both to the conversation.
func (s *session) answer(ctx context.Context, text string) (string, error) {
	prompt, err := s.prompt(text)
	if err != nil {
		return "", err
	}
	r := engine.Request{
		Model: s.info.Name, Prompt: prompt.IDs, MaxTokens: s.maxTokens, Sampling: s.info.Defaults, Marks: s.info.Reasoning.Marks,
	}
	if s.given("max-tokens") && s.maxTokens < 1 {
		return "", fmt.Errorf("--max-tokens %d: must be at least 1", s.maxTokens)
	}
	if s.given("temperature") {
		r.Sampling.Temperature = s.temperature
	}
	if s.given("seed") {
		r.Sampling.Seed = &s.seed
	}
	start := time.Now()
	events, err := s.engine.Generate(ctx, r)
	if err != nil {
		return "", err
	}
	var full, thoughts strings.Builder
	parts := reasoning.NewAnswer(s.info.Reasoning, prompt.InReasoning, false)
	for ev := range events {
		for _, p := range parts.Add(ev) {
			to, all := s.out, &full
			if p.Reasoning {
				to, all = s.thoughts, &thoughts
			} else if full.Len() == 0 && thoughts.Len() > 0 {
				fmt.Fprint(s.thoughts, "\n\n")
			}
			if _, err := fmt.Fprint(to, p.Text); err != nil {
				return "", err
			}
			all.WriteString(p.Text)
		}
		if ev.Finish == engine.FinishError {
			return "", ev.Err
		}
		if ev.Finish != engine.FinishNone && s.verbose {
			rate := float64(ev.Usage.Completion-1) / (time.Since(start) - ev.Usage.FirstToken).Seconds()
			fmt.Fprintf(os.Stderr, "\n[%d prompt tokens (%d cached), %d answer tokens, first after %v, then %.1f tok/s, %v]",
				ev.Usage.Prompt, ev.Usage.Cached, ev.Usage.Completion, ev.Usage.FirstToken.Round(time.Millisecond), rate, ev.Finish)
		}
	}
	if _, err := fmt.Fprintln(s.out); err != nil {
		return "", err
	}
	turn := map[string]string{"role": "assistant", "content": full.String()}
	if thoughts.Len() > 0 {
		turn["reasoning_content"] = thoughts.String()
	}
	s.messages = append(s.messages, turn)
	return full.String(), ctx.Err()
}

func (s *session) prompt(text string) (engine.RenderedChat, error) {
	if !s.info.HasChat {
		ids, err := s.engine.Tokenize(s.info.Name, text, true)
		return engine.RenderedChat{IDs: ids}, err
	}
	if len(s.messages) == 0 && s.system != "" {
		s.messages = append(s.messages, map[string]string{"role": "system", "content": s.system})
	}
	s.messages = append(s.messages, map[string]string{"role": "user", "content": text})
	raw, err := json.Marshal(s.messages)
	if err != nil {
		return engine.RenderedChat{}, err
	}
	return s.engine.RenderChat(s.info.Name, engine.ChatPrompt{Messages: raw, AddGenerationPrompt: true, Kwargs: json.RawMessage(s.kwargs)})
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
