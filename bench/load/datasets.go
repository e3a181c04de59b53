package load

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"
)

// The datasets made here. Each goes on for ever (see First), and a seed with the same Speller always gives the same
// requests.

// Random are prompts of random words or ids.
type Random struct {
	Input, Output int     // tokens
	Range         float64 // lengths are drawn evenly from within that share of Input and Output, 0 to 1
	Prefix        int     // tokens that all prompts begin with, over Input
}

// Check names what cannot be.
func (d Random) Check() error {
	switch {
	case d.Input < 0 || d.Prefix < 0 || d.Input+d.Prefix < 1:
		return fmt.Errorf("an input of %d and a prefix of %d tokens make no prompt", d.Input, d.Prefix)
	case d.Output < 1:
		return fmt.Errorf("an output of %d tokens: at least 1", d.Output)
	case !(d.Range >= 0 && d.Range < 1):
		return fmt.Errorf("a range ratio of %v is not in [0, 1)", d.Range)
	}
	return nil
}

// Requests draws them.
func (d Random) Requests(seed uint64, s *Speller) iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		r := rand.New(rand.NewPCG(seed, 3))
		prefix := s.Head(r, d.Prefix)
		for {
			q := &Request{MaxTokens: max(1, around(r, d.Output, d.Range))}
			s.Prompt(q, r, prefix, max(1, d.Prefix+around(r, d.Input, d.Range)))
			if !yield(q) {
				return
			}
		}
	}
}

// around draws evenly from mean·(1-share) to mean·(1+share), rounded outwards.
func around(r *rand.Rand, mean int, share float64) int {
	low, high := int(math.Floor(float64(mean)*(1-share))), int(math.Ceil(float64(mean)*(1+share)))
	return low + r.IntN(high-low+1)
}

// Prefixes are prompts that share their beginnings: each has one of Count prefixes, the k-th drawn in proportion to
// k^-Zipf, and a suffix of its own.
type Prefixes struct {
	Count                  int
	Prefix, Suffix, Output int     // tokens
	Zipf                   float64 // 0: all alike
}

// Check names what cannot be.
func (d Prefixes) Check() error {
	switch {
	case d.Count < 1:
		return fmt.Errorf("%d prefixes: at least 1", d.Count)
	case d.Prefix < 1 || d.Suffix < 0:
		return fmt.Errorf("a prefix of %d and a suffix of %d tokens: at least 1 and 0", d.Prefix, d.Suffix)
	case d.Output < 1:
		return fmt.Errorf("an output of %d tokens: at least 1", d.Output)
	case !(d.Zipf >= 0) || math.IsInf(d.Zipf, 1):
		return fmt.Errorf("a Zipf exponent of %v: at least 0", d.Zipf)
	}
	return nil
}

// Requests draws them. Tag is the prefix's number.
func (d Prefixes) Requests(seed uint64, s *Speller) iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		r := rand.New(rand.NewPCG(seed, 4))
		heads, upTo := make([]Head, d.Count), make([]float64, d.Count)
		sum := 0.0
		for k := range heads {
			heads[k] = s.Head(r, d.Prefix)
			sum += math.Pow(float64(k+1), -d.Zipf)
			upTo[k] = sum
		}
		for {
			k, x := 0, r.Float64()*sum
			for k < d.Count-1 && x >= upTo[k] {
				k++
			}
			q := &Request{MaxTokens: d.Output, Tag: fmt.Sprint("prefix ", k)}
			s.Prompt(q, r, heads[k], d.Prefix+d.Suffix)
			if !yield(q) {
				return
			}
		}
	}
}

// Agents are conversations with an agent: all begin with the same instructions; each turn brings a message (a tool's
// result, say) after a while and has all that was said before it in its prompt.
type Agents struct {
	System, First, Turn, Output int           // tokens: of the instructions, the first message, later ones, each answer
	Turns                       int           // of a conversation
	Think                       time.Duration // mean time between an answer and the next turn; exponential
	Range                       float64       // of First, Turn and Output, as Random's
}

// Check names what cannot be.
func (d Agents) Check() error {
	switch {
	case d.Turns < 1:
		return fmt.Errorf("%d turns: at least 1", d.Turns)
	case d.System < 0 || d.First < 1 || d.Turn < 1 || d.Output < 1:
		return fmt.Errorf("lengths of %d, %d, %d and %d tokens: at least 0, 1, 1 and 1", d.System, d.First, d.Turn, d.Output)
	case d.Think < 0:
		return fmt.Errorf("a think time of %v", d.Think)
	case !(d.Range >= 0 && d.Range < 1):
		return fmt.Errorf("a range ratio of %v is not in [0, 1)", d.Range)
	}
	return nil
}

// Requests draws them. A conversation is text, for its answers are part of it; chats have the instructions as a system
// message. PromptTokens counts what the request brings itself.
func (d Agents) Requests(seed uint64, s *Speller) iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		r := rand.New(rand.NewPCG(seed, 5))
		system := ""
		if d.System > 0 {
			system = s.words(r, d.System, true)
		}
		for {
			first := &Request{}
			q := first
			for turn := range d.Turns {
				length, before := d.Turn, "\n"
				if turn == 0 {
					length = d.First
					if system != "" {
						q.Messages = []Message{{Role: "system", Content: system}}
						q.PromptTokens = d.System
					} else {
						before = ""
					}
				}
				n := max(1, around(r, length, d.Range))
				// Where there is a system message, it has paid for the overhead.
				text := before + s.words(r, n, turn == 0 && system == "") + "\n"
				q.Messages = append(q.Messages, User(text)...)
				q.PromptTokens += n
				q.MaxTokens = max(1, around(r, d.Output, d.Range))
				q.Tag = fmt.Sprint("turn ", turn)
				if turn < d.Turns-1 {
					q.Then = &Request{Think: seconds(r.ExpFloat64() * d.Think.Seconds())}
					q = q.Then
				}
			}
			if !yield(first) {
				return
			}
		}
	}
}
