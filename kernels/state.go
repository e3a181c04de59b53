package kernels

// StateLayout is the shape of a recurrent cache group: what the state of one sequence holds for
// all layers. A state lies on whole pages that need not be neighbours.
//
// It is cut into units of KDim*VDim float32 values, so that each head's state lies within one page.
// A layer has Heads units, [KDim][VDim] each, and then as many as its convolution needs: each of
// these holds UnitChannels channels, [ConvColumns] each, oldest first. Unit u of a state lies on
// its page u/UnitsPerPage, as the (u%UnitsPerPage)-th of it.
type StateLayout struct {
	Layers       int
	Heads        int // value heads
	KDim, VDim   int
	ConvChannels int
	ConvColumns  int // of input before a token that the convolution sees: its width - 1
	PageBytes    int64
}

// UnitBytes is the size of one head's state.
func (l StateLayout) UnitBytes() int64 { return int64(l.KDim) * int64(l.VDim) * 4 }

// UnitsPerPage is 0 when a head's state does not fit a page.
func (l StateLayout) UnitsPerPage() int { return int(l.PageBytes / l.UnitBytes()) }

// UnitChannels is how many channels' columns a unit holds.
func (l StateLayout) UnitChannels() int { return l.KDim * l.VDim / l.ConvColumns }

// LayerUnits is the number of units of a layer.
func (l StateLayout) LayerUnits() int {
	per := l.UnitChannels()
	return l.Heads + (l.ConvChannels+per-1)/per
}

// StateBytes is the size of a state without what is left over at the end of pages.
func (l StateLayout) StateBytes() int64 {
	return int64(l.Layers) * int64(l.LayerUnits()) * l.UnitBytes()
}

// StatePages is how many pages a state takes.
func (l StateLayout) StatePages() int {
	per := l.UnitsPerPage()
	return (l.Layers*l.LayerUnits() + per - 1) / per
}

// Offset returns where a unit of a layer lies in the arena, in the state on these pages.
func (l StateLayout) Offset(pages []int32, layer, unit int) int64 {
	u, per := layer*l.LayerUnits()+unit, l.UnitsPerPage()
	return int64(pages[u/per])*l.PageBytes + int64(u%per)*l.UnitBytes()
}

// Runs are a step's T tokens in runs: run r has tokens Starts[r] to Starts[r+1]-1, begins with the
// state on pages In and leaves its own on pages Out, which may be the same. Runs of one sequence come in order,
// so that one's In may be an earlier one's Out. No run writes what a run of another sequence touches.
// A run without tokens does nothing.
type Runs struct {
	Starts Ints // [R+1]
	In     Ints // [R*StatePages]; a run whose first entry is 0 begins with zeros
	Out    Ints // [R*StatePages]
}

// State is one layer's recurrent state, with its group's arrays for the step.
type State struct {
	Pages  Buffer // the arena of pages
	Layout *StateLayout
	Layer  int // within the group
	Runs   Runs
}

// DeltaParams are constants of a layer's gated delta rule.
type DeltaParams struct {
	KeyHeads int
	Rate     Tensor  // [Heads]: how fast a head forgets, exp(A_log)
	DtBias   Tensor  // [Heads]
	Eps      float32 // of the norms of queries and keys
	Chunked  bool    // results may depend, in their last bits, on where runs begin: Info.ChunkedDelta
}
