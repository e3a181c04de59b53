package modeltest

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models"
)

// tracer is a device that keeps the residual stream as it was at first and after each addition to it.
type tracer struct {
	kernels.Device
	r      *Runner
	stream kernels.Tensor
	trace  []kernels.Tensor
}

// EmbedRows implements kernels.Device.
func (d *tracer) EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints, scale float32) {
	d.Device.EmbedRows(dst, table, ids, scale)
	d.stream = dst
	d.note(dst)
}

// LinearAdd implements kernels.Device.
func (d *tracer) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	d.Device.LinearAdd(dst, x, w)
	d.note(dst)
}

// RMSNormAdd implements kernels.Device.
func (d *tracer) RMSNormAdd(dst, x, w kernels.Tensor, eps, scale float32) {
	d.Device.RMSNormAdd(dst, x, w, eps, scale)
	d.note(dst)
}

func (d *tracer) note(dst kernels.Tensor) {
	if dst.Buf.Addr != d.stream.Buf.Addr || unsafe.SliceData(dst.Buf.Host) != unsafe.SliceData(d.stream.Buf.Host) {
		return
	}
	rows := make([]int32, dst.Rows)
	for t := range rows {
		rows[t] = int32(t)
	}
	kept := kernels.Tensor{Buf: d.r.alloc(int64(dst.Rows*dst.Cols) * 4), Rows: dst.Rows, Cols: dst.Cols, Stride: dst.Cols}
	d.GatherRows(kept, dst, d.Upload(kernels.Ints{Host: rows}))
	d.trace = append(d.trace, kept)
}

// traced runs f and returns what entered the first layer and what each layer left, [tokens, hidden] each.
func (r *Runner) traced(f func()) [][]float32 {
	d := &tracer{Device: r.device, r: r}
	r.device = d
	defer func() { r.device = d.Device }()
	f()
	// A layer adds twice: its attention or what stands for it, and its feed-forward network.
	if layers := r.model.Shape().Layers; len(d.trace) != 1+2*layers {
		r.tb.Fatalf("%d additions to the residual stream in %d layers", len(d.trace)-1, layers)
	}
	var out [][]float32
	for i := 0; i < len(d.trace); i += 2 {
		out = append(out, slices.Concat(r.read(d.trace[i])...))
	}
	return out
}

// State returns what a recurrent group's layer holds of a sequence: heads [Heads, KDim, VDim] and the
// convolution's columns [ConvChannels, ConvColumns].
func (r *Runner) State(s *Sequence, layer int) (heads, columns []float32) {
	i := slices.IndexFunc(r.groups, func(g group) bool { return g.Kind == models.Recurrent })
	if i < 0 || s.cache == nil || s.cache[i].state == nil {
		r.tb.Fatal("no state")
	}
	g := &r.groups[i]
	l := &g.state
	unit := func(u, values int) []float32 {
		off := l.Offset(s.cache[i].state, layer, u)
		return r.read(kernels.Tensor{Buf: g.pages.Slice(off, int64(values)*4), Rows: 1, Cols: values, Stride: values})[0]
	}
	for h := range l.Heads {
		heads = append(heads, unit(h, l.KDim*l.VDim)...)
	}
	for u, channel := l.Heads, 0; channel < l.ConvChannels; u++ {
		n := min(l.UnitChannels(), l.ConvChannels-channel)
		columns = append(columns, unit(u, n*l.ConvColumns)...)
		channel += n
	}
	return heads, columns
}

// inside compares what is stored of a prompt's hidden states and of the state after it.
func (r *Runner) inside(t *testing.T, m *measure, p prompt, s *Sequence, hidden [][]float32) {
	t.Helper()
	for i, got := range hidden {
		if i == len(hidden)-1 {
			break // the reference has normed its last one
		}
		n := len(got)
		m.hidden(t, fmt.Sprintf("%s: after %d layers", p.name, i), got, p.hidden[i*n:(i+1)*n], n/len(p.ids))
	}
	for _, st := range p.states {
		heads, columns := r.State(s, st.layer)
		what := fmt.Sprintf("%s: recurrent layer %d", p.name, st.layer)
		m.state(t, what+", heads", heads, st.heads)
		// The reference keeps one column more than is needed, the oldest.
		kept := len(columns) / (len(st.columns) / st.kernel)
		var want []float32
		for c := 0; c < len(st.columns); c += st.kernel {
			want = append(want, st.columns[c+st.kernel-kept:c+st.kernel]...)
		}
		m.state(t, what+", convolution", columns, want)
	}
}
