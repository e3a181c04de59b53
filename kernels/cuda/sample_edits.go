package cuda

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/sampling"
)

// sampleEdit is what changes the logit of one id, as sample.cuh has it.
type sampleEdit struct {
	id        int32
	times     int32 // in the output
	kind      int32
	from, end int32 // its biases
}

// Kinds of sampleEdit, added.
const (
	editRepeat = 1 // in the prompt or the output, when there are penalties
	editBan    = 2
)

// edits turns the lists of kernels.SampleParams into at most one edit for each id, so that the card applies them in any
// order. The cost is that of reading the lists once; only ids that differ are sent.
type edits struct {
	sorted []sampleEdit // by stretch
	starts []int32      // of each stretch in sorted, and the end
	biases []float32    // those of an id together, in their order

	found []sampleEdit
	at    []int32 // of an id: its place in found, and 1; all 0 between rows
	vocab int
}

// of returns id's edit, or nil when there is no such id.
func (e *edits) of(id int32) *sampleEdit {
	if uint(id) >= uint(e.vocab) {
		return nil
	}
	if e.at[id] == 0 {
		e.found = append(e.found, sampleEdit{id: id})
		e.at[id] = int32(len(e.found))
	}
	return &e.found[e.at[id]-1]
}

// collect fills sorted, starts and biases with p's.
func (e *edits) collect(p *kernels.SampleParams, vocab int) {
	if e.vocab = vocab; len(e.at) < vocab {
		e.at = make([]int32, vocab)
	}
	e.found = e.found[:0]
	if sampling.Penalised(p) {
		for _, id := range p.Output {
			if f := e.of(id); f != nil {
				f.times++
				f.kind |= editRepeat
			}
		}
		for _, id := range p.Prompt {
			if f := e.of(id); f != nil {
				f.kind |= editRepeat
			}
		}
	}
	for _, id := range p.Banned {
		if f := e.of(id); f != nil {
			f.kind |= editBan
		}
	}
	e.placeBiases(p.Bias)
	e.sort()
	for _, f := range e.found {
		e.at[f.id] = 0
	}
}

func (e *edits) placeBiases(all []kernels.TokenBias) {
	e.biases = e.biases[:0]
	for _, b := range all {
		if f := e.of(b.ID); f != nil {
			f.end++ // a count, until there is room
			e.biases = append(e.biases, 0)
		}
	}
	if len(e.biases) == 0 {
		return
	}
	from := int32(0)
	for i := range e.found {
		f := &e.found[i]
		f.from, f.end, from = from, from, from+f.end
	}
	for _, b := range all {
		if f := e.of(b.ID); f != nil {
			e.biases[f.end] = b.Bias
			f.end++
		}
	}
}

// sort orders what was found by stretch: a counting sort.
func (e *edits) sort() {
	stretches := (e.vocab + sampleStretch - 1) / sampleStretch
	e.starts = append(e.starts[:0], make([]int32, stretches+2)...)
	for _, f := range e.found {
		e.starts[f.id/sampleStretch+2]++
	}
	for i := 2; i < len(e.starts); i++ {
		e.starts[i] += e.starts[i-1]
	}
	e.sorted = append(e.sorted[:0], e.found...)
	for _, f := range e.found { // starts[s+1] runs from the start of stretch s to its end
		at := &e.starts[f.id/sampleStretch+1]
		e.sorted[*at] = f
		*at++
	}
	e.starts = e.starts[:stretches+1]
}
