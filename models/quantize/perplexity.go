package quantize

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/tokenizer"
)

// Windows is how a long text is cut into sequences: Context tokens each, Stride tokens apart. A token's
// probability is taken from the first window it is in, so with a Stride below Context every token but the first few has
// at least Context-Stride before it.
type Windows struct {
	Context int
	Stride  int // 0: Context
}

func (w Windows) check(m models.Shape) (Windows, error) {
	if w.Stride == 0 {
		w.Stride = w.Context
	}
	switch {
	case w.Context < 2:
		return w, fmt.Errorf("context: %d: want 2 at least", w.Context)
	case w.Context > m.MaxPosition:
		return w, fmt.Errorf("context: %d is more than the model's %d", w.Context, m.MaxPosition)
	case w.Stride < 1 || w.Stride > w.Context:
		return w, fmt.Errorf("stride: %d is not within 1 and the context %d", w.Stride, w.Context)
	}
	return w, nil
}

// Text is a text as a model reads it: its tokens, and what the tokenizer puts before every text (BOS), which
// begins every window.
type Text struct {
	Tokens []int32
	Prefix []int32
}

// ReadText tokenises a text. Nothing in it becomes a control token.
func ReadText(t *tokenizer.Tokenizer, text string) Text {
	first := t.Encode("a", tokenizer.Options{AddSpecial: true})
	plain := t.Encode("a", tokenizer.Options{})
	var r Text
	for n := range len(first) {
		if slices.Equal(first[n:min(len(first), n+len(plain))], plain) {
			r.Prefix = first[:n]
			break
		}
	}
	r.Tokens = t.Encode(text, tokenizer.Options{NoControl: true})
	return r
}

// window is a sequence and the first of its positions whose token is predicted for the first time.
type window struct {
	ids []int32
	new int
}

// windows cuts the text. The last window may be shorter.
func (t Text) windows(w Windows) []window {
	room := w.Context - len(t.Prefix)
	step := min(w.Stride, room)
	var list []window
	scored := 0
	for from := 0; from < len(t.Tokens) && scored < len(t.Tokens); from += step {
		to := min(from+room, len(t.Tokens))
		first := max(scored-from, 0) + len(t.Prefix)
		list = append(list, window{slices.Concat(t.Prefix, t.Tokens[from:to]), max(first, 1)})
		scored = to
	}
	return list
}

// Perplexity is exp of the mean negative log probability of tokens.
type Perplexity struct {
	Value  float64
	Error  float64 // standard error of Value
	Tokens int     // that were predicted
}

func (p Perplexity) String() string {
	return fmt.Sprintf("%.4f +- %.4f over %d tokens", p.Value, p.Error, p.Tokens)
}

// stepTokens is the number of tokens in a step when weights stay on the device; streamTokens when each step loads
// them all.
const (
	stepTokens   = 1024
	streamTokens = 4096
)

// Measure computes the perplexity of a model on a device with a KV cache of the given type, stepTokens at a time. progress, when not
// nil, is told how many of how many windows are done.
func Measure(ctx context.Context, d kernels.Device, m models.Model, kv kernels.DType, t Text, w Windows, progress func(done, all int)) (Perplexity, error) {
	return measure(ctx, d, m, kv, t, w, stepTokens, progress)
}

func measure(ctx context.Context, d kernels.Device, m models.Model, kv kernels.DType, t Text, w Windows, tokens int, progress func(done, all int)) (Perplexity, error) {
	var p Perplexity
	w, err := w.check(m.Shape())
	if err != nil {
		return p, err
	}
	if len(t.Prefix)+2 > w.Context {
		return p, fmt.Errorf("context: %d tokens leave no room beside the %d that begin every text", w.Context, len(t.Prefix))
	}
	list := t.windows(w)
	if len(t.Tokens)+len(t.Prefix) < 2 {
		return p, fmt.Errorf("the text has %d tokens: none can be predicted", len(t.Tokens))
	}
	longest := 0
	for _, x := range list {
		longest = max(longest, len(x.ids))
	}
	r, err := newRunner(d, m, kv, max(longest, min(tokens, longest*len(list))), longest)
	if err != nil {
		return p, err
	}
	defer r.free()
	var sum, squares float64
	for done := 0; done < len(list); {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		var batch [][]int32
		var from []int
		n := 0
		for _, x := range list[done:] {
			if n += len(x.ids); n > r.tokens {
				break
			}
			batch, from = append(batch, x.ids), append(from, x.new-1)
		}
		bad := -1
		err := r.step(batch, from, func(s, at int, logits []float32) {
			if at+1 == len(batch[s]) {
				return
			}
			nll := logSumExp(logits) - float64(logits[batch[s][at+1]])
			if nll-nll != 0 {
				bad = at
			}
			sum, squares = sum+nll, squares+nll*nll
			p.Tokens++
		})
		if err == nil && bad >= 0 {
			err = fmt.Errorf("window %d, position %d: a logit is no number", done, bad)
		}
		if err != nil {
			return p, err
		}
		done += len(batch)
		if progress != nil {
			progress(done, len(list))
		}
	}
	if p.Tokens == 0 {
		return p, fmt.Errorf("the text has %d tokens: none can be predicted", len(t.Tokens))
	}
	n := float64(p.Tokens)
	mean := sum / n
	p.Value = math.Exp(mean)
	p.Error = p.Value * math.Sqrt(max(0, squares/n-mean*mean)/n)
	return p, nil
}

func logSumExp(x []float32) float64 {
	largest := x[0]
	for _, v := range x {
		largest = max(largest, v)
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v - largest))
	}
	return float64(largest) + math.Log(sum)
}
