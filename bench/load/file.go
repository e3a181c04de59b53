package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"strings"
)

// Datasets of files. Shuffle puts requests into an order by seed, Repeat makes more of them.

// maxLine bounds a line of a file.
const maxLine = 64 << 20

// ReadPrompts reads a file of prompts: JSON objects, one a line, with "prompt" and, if they like, "output_tokens"; or lines of
// plain text, each a prompt. output is the length of answers for which the file names none.
func ReadPrompts(path string, output int) ([]*Request, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*Request
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		text := string(line)
		tokens := output
		if line[0] == '{' {
			var object struct {
				Prompt *string `json:"prompt"`
				Output *int    `json:"output_tokens"`
			}
			if err := json.Unmarshal(line, &object); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n, err)
			}
			if object.Prompt == nil || *object.Prompt == "" {
				return nil, fmt.Errorf("%s:%d: prompt is missing", path, n)
			}
			text = *object.Prompt
			if object.Output != nil {
				if tokens = *object.Output; tokens < 1 {
					return nil, fmt.Errorf("%s:%d: output_tokens: %d is less than 1", path, n, tokens)
				}
			}
		}
		all = append(all, &Request{Messages: User(text), MaxTokens: tokens})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no prompts", path)
	}
	return all, nil
}

// Exchange is a question with its answer.
type Exchange struct{ Prompt, Answer string }

// ReadShareGPT reads a file of ShareGPT's form, a JSON array of {"conversations": [{"from", "value"}, ...]}: the first two
// messages of each conversation.
func ReadShareGPT(path string) ([]Exchange, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	if t, err := in.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%s: not a JSON array of conversations", path)
	}
	var all []Exchange
	for n := 0; in.More(); n++ {
		var entry struct {
			Conversations []struct {
				Value string `json:"value"`
			} `json:"conversations"`
		}
		if err := in.Decode(&entry); err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", path, n, err)
		}
		if c := entry.Conversations; len(c) >= 2 && strings.TrimSpace(c[0].Value) != "" {
			all = append(all, Exchange{c[0].Value, c[1].Value})
		}
	}
	if _, err := in.Token(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no conversation of two messages", path)
	}
	return all, nil
}

// The lengths in tokens that vLLM's benchmark takes of such a file, so that results can be compared.
const shareGPTLeast, shareGPTPrompt, shareGPTTotal = 4, 1024, 2048

// Choose makes up to n requests of all, in an order by seed, and leaves out what is very short or very long. An answer is as
// long as the one of the exchange, or output tokens if that is not 0. count says how many tokens a text has.
func Choose(seed uint64, n int, all []Exchange, output int, count func(string) int) []*Request {
	var out []*Request
	for _, i := range rand.New(rand.NewPCG(seed, 6)).Perm(len(all)) {
		if len(out) == n {
			break
		}
		tokens := output
		if tokens == 0 {
			if tokens = count(all[i].Answer); tokens < shareGPTLeast {
				continue
			}
		}
		prompt := count(all[i].Prompt)
		if prompt < shareGPTLeast || prompt > shareGPTPrompt || prompt+tokens > shareGPTTotal {
			continue
		}
		out = append(out, &Request{Messages: User(all[i].Prompt), PromptTokens: prompt, MaxTokens: tokens})
	}
	return out
}

// Shuffle puts all into an order by seed.
func Shuffle(seed uint64, all []*Request) {
	rand.New(rand.NewPCG(seed, 6)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// Repeat are all, again and again.
func Repeat(all []*Request) iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		for len(all) > 0 {
			for _, q := range all {
				if !yield(q) {
					return
				}
			}
		}
	}
}
