package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// Speller makes prompts of so many tokens for one model of one server, whose tokenizer it does not have.
type Speller struct {
	// IDs are ids of plain words: prompts are ids and exactly as long as wanted. Without them they are words.
	IDs []int32
	// PerWord is what a word costs in tokens, on average; Overhead what a prompt costs beside its words.
	PerWord, Overhead float64

	off float64 // by how much a probe's length missed what was wanted, relative
}

// String states the calibration.
func (s *Speller) String() string {
	if s.IDs != nil {
		return fmt.Sprintf("prompts are token ids, of exactly the length asked for (%d ids of plain words, by the server's /tokenize)", len(s.IDs))
	}
	return fmt.Sprintf("prompts are words, %.3f tokens each and %.0f a prompt beside them, by the server's usage; a probe was off by %+.1f %%", s.PerWord, s.Overhead, 100*s.off)
}

// The lengths of the probes in words, or ids: long enough for a mean, short enough for any model.
const probeShort, probeLong = 20, 220

// Calibrate asks c's server how it counts. A few requests of one token go through Client.Probe, so that afterwards c asks
// for no more usage than the server gives. Prompts are ids where the server takes them.
func Calibrate(ctx context.Context, c *Client) (*Speller, error) {
	if !c.chat {
		if ids, err := wordIDs(ctx, c); err == nil {
			s, r := &Speller{IDs: ids}, rand.New(rand.NewPCG(1, 11))
			if rec, err := c.Probe(ctx, &Request{IDs: s.ids(r, nil, probeShort), MaxTokens: 1}); err == nil && rec.PromptTokens == probeShort {
				return s, nil
			}
		}
	}
	return CalibrateWords(ctx, c)
}

// CalibrateWords is Calibrate for prompts that are text in any case, such as conversations.
func CalibrateWords(ctx context.Context, c *Client) (*Speller, error) {
	r := rand.New(rand.NewPCG(1, 12))
	count := func(text string) (float64, error) {
		rec, err := c.Probe(ctx, &Request{Messages: User(text), MaxTokens: 1})
		if err != nil {
			return 0, err
		}
		if rec.PromptTokens == 0 {
			return 0, errors.New("the server says nothing of prompt_tokens: lengths cannot be calibrated")
		}
		return float64(rec.PromptTokens), nil
	}
	short, err := count(text(r, probeShort))
	if err != nil {
		return nil, err
	}
	long, err := count(text(r, probeLong))
	if err != nil {
		return nil, err
	}
	s := &Speller{PerWord: (long - short) / (probeLong - probeShort)}
	if s.PerWord <= 0 {
		return nil, fmt.Errorf("%d words are %v tokens, %d words %v: lengths cannot be calibrated", probeShort, short, probeLong, long)
	}
	s.Overhead = math.Max(0, math.Round(short-s.PerWord*probeShort))
	const wanted = 150
	got, err := count(s.words(r, wanted, true))
	if err != nil {
		return nil, err
	}
	s.off = (got - wanted) / wanted
	return s, nil
}

// wordIDs asks for the ids of the words: those that are one token with the space before them.
func wordIDs(ctx context.Context, c *Client) ([]int32, error) {
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	// vLLM and OpenInfer read prompt, llama-server reads content.
	all := " " + strings.Join(words, " ")
	body := map[string]any{"model": c.Model, "prompt": all, "content": all, "add_special_tokens": false, "add_special": false}
	if err := c.do(ctx, http.MethodPost, "/tokenize", body, &out); err != nil {
		return nil, err
	}
	ids := slices.Compact(slices.Sorted(slices.Values(out.Tokens)))
	if len(ids) < 16 || ids[0] < 0 {
		return nil, fmt.Errorf("/tokenize: %d ids of %d words", len(ids), len(words))
	}
	return ids, nil
}

// CountTokens asks the server how many tokens a text has; false if it cannot tell.
func (c *Client) CountTokens(ctx context.Context, text string) (int, bool) {
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	body := map[string]any{"model": c.Model, "prompt": text, "content": text, "add_special_tokens": false, "add_special": false}
	if err := c.do(ctx, http.MethodPost, "/tokenize", body, &out); err != nil || len(out.Tokens) == 0 {
		return 0, false
	}
	return len(out.Tokens), true
}

// Prompt fills q with about n tokens, or exactly n where prompts are ids. head, made by the same Speller, comes first and
// counts.
func (s *Speller) Prompt(q *Request, r *rand.Rand, head Head, n int) {
	q.PromptTokens = n
	if s.IDs != nil {
		q.IDs = s.ids(r, head.ids, n)
		return
	}
	rest := s.words(r, n-head.tokens, head.tokens == 0)
	switch {
	case head.text == "":
		q.Messages = User(rest)
	case rest == "":
		q.Messages = User(head.text)
	default:
		q.Messages = User(head.text + " " + rest)
	}
}

// Head is what several prompts begin with.
type Head struct {
	ids    []int32
	text   string
	tokens int
}

// Head is a beginning of about n tokens, or exactly n where prompts are ids; of none it is empty.
func (s *Speller) Head(r *rand.Rand, n int) Head {
	if n <= 0 {
		return Head{}
	}
	if s.IDs != nil {
		return Head{ids: s.ids(r, nil, n), tokens: n}
	}
	return Head{text: s.words(r, n, true), tokens: n}
}

// ids are n ids that begin with head.
func (s *Speller) ids(r *rand.Rand, head []int32, n int) []int32 {
	out := append(make([]int32, 0, max(n, len(head))), head...)
	for len(out) < n {
		out = append(out, s.IDs[r.IntN(len(s.IDs))])
	}
	return out
}

// words are words of about n tokens; whole says that they are all of a prompt, whose overhead is part of n.
func (s *Speller) words(r *rand.Rand, n int, whole bool) string {
	tokens := float64(n)
	if whole {
		tokens -= s.Overhead
	}
	count := int(math.Round(tokens / s.PerWord))
	if whole {
		count = max(count, 1)
	}
	return text(r, count)
}

// text is n words.
func text(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String()
}

// words are common enough that most vocabularies have each as one token.
var words = strings.Fields(`
the of and to in is was for that on with as his they at be this from have or had by word but not what all were we when
your can said there use each which she how their will up other about out many then them these some her would make like him
into time has look two more write go see number no way could people my than first water been call who oil its now find long
down day did get come made may part over new sound take only little work know place year live me back give most very after
thing our just name good man think say great where help through much before line right too mean old any same tell boy follow
came want show also around form three small set put end does another well large must big even such because turn here why ask
went men read need land different home us move try kind hand picture again change off play air away house point page letter
mother answer found study still learn should world high every near add food between own below country plant last school
father keep tree never start city earth eye light thought head under story saw left few while along might close something
seem next hard open example begin life always those both paper together got group often run important until children side
feet car mile night walk white sea began grow took river four carry state once book hear stop without second later miss idea
enough eat face watch far real almost let above girl sometimes mountain cut young talk soon list song being leave family`)
