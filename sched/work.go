package sched

// Work is what a step's time depends on.
type Work struct {
	Rows    int // sequences in the step
	Tokens  int // of all rows
	Samples int // rows of logits
	// Context is the sum, over the rows of one token, of the tokens that each attends to.
	Context int64
	// PromptContext is the sum, over the tokens of longer rows, of the tokens that each attends to.
	PromptContext int64
}

// add counts a row of n tokens from position start on, of which so many are sampled.
func (w *Work) add(start, n, samples int) {
	w.Rows++
	w.Tokens += n
	w.Samples += samples
	if n == 1 {
		w.Context += int64(start + 1)
	} else {
		w.PromptContext += int64(n)*int64(start) + int64(n)*int64(n+1)/2
	}
}

// Work is what the plan's time depends on.
func (p *Plan) Work() Work {
	var w Work
	for i := range p.Rows {
		r := &p.Rows[i]
		w.add(r.Start, r.N, r.Samples)
	}
	return w
}

// Observation is a step and the seconds it took, or is said to take.
type Observation struct {
	Work    Work
	Seconds float64
}
