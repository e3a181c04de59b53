package api

import (
	"time"

	"github.com/openinfer-go/openinfer/api/reasoning"
	"github.com/openinfer-go/openinfer/engine"
)

// ollamaShape makes the objects of /api/chat and /api/generate.
type ollamaShape struct {
	model string // as the client wrote it
	chat  bool   // else generate
	raw   bool   // generate, without a template
}

// answer is one object: a piece of an answer or, with more members, its end.
func (s *ollamaShape) answer(at time.Time, text, thinking string, more ...pair) pairs {
	out := pairs{{"model", s.model}, {"created_at", at.UTC().Format(time.RFC3339Nano)}}
	if s.chat {
		m := pairs{{"role", "assistant"}, {"content", text}}
		if thinking != "" {
			m = append(m, pair{"thinking", thinking})
		}
		out = append(out, pair{"message", m})
	} else {
		out = append(out, pair{"response", text})
		if thinking != "" {
			out = append(out, pair{"thinking", thinking})
		}
	}
	return append(out, more...)
}

// ended are the members of an answer's end; durations are in nanoseconds.
func (s *ollamaShape) ended(g *generation, c *choice, now time.Time) []pair {
	reason := "stop"
	if c.finish == engine.FinishLength {
		reason = "length"
	}
	prefill, decode := time.Duration(0), time.Duration(0)
	if !c.firstToken.IsZero() {
		prefill, decode = c.firstToken.Sub(g.arrival), c.lastToken.Sub(c.firstToken)
	}
	return []pair{{"done", true}, {"done_reason", reason}, {"total_duration", int64(now.Sub(g.arrival))}, {"load_duration", 0},
		{"prompt_eval_count", len(c.prompt.ids)}, {"prompt_eval_duration", int64(prefill)},
		{"eval_count", c.usage.Completion}, {"eval_duration", int64(decode)}}
}

// scores are the log probabilities of tokens, when asked for.
func (s *ollamaShape) scores(g *generation, tokens []engine.Token) []pair {
	if g.logprobs == nil || len(tokens) == 0 {
		return nil
	}
	return []pair{{"logprobs", g.spell.chat(tokens, *g.logprobs).Content}}
}

func (s *ollamaShape) whole(g *generation) any {
	c, now := &g.choices[0], time.Now()
	return s.answer(now, c.text.String(), c.reasoning.String(), append(s.scores(g, c.tokens), s.ended(g, c, now)...)...)
}

func (s *ollamaShape) chunks(g *generation, c *choice, parts []reasoning.Part, tokens []engine.Token, end bool) []any {
	now := time.Now()
	if end {
		return []any{s.answer(now, "", "", s.ended(g, c, now)...)}
	}
	var out []any
	more := s.scores(g, tokens)
	if len(parts) == 0 && more != nil {
		parts = []reasoning.Part{{}}
	}
	for _, p := range parts {
		content, thinking := p.Text, ""
		if p.Reasoning {
			content, thinking = "", p.Text
		}
		out = append(out, s.answer(now, content, thinking, append(more, pair{"done", false})...))
		more = nil
	}
	return out
}

func (s *ollamaShape) usage(*generation) any { return nil }
