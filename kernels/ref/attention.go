package ref

import (
	"math"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// RotaryStore implements kernels.Device.
func (d *Device) RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) {
	if d.err != nil || !d.ok(check.RotaryStore(q, kv, qkv, p)) || !d.ok(d.cacheType("rotaryStore", kv)) {
		return
	}
	l := kv.Layout
	head := make([]float32, max(l.KDim, l.VDim))
	turn := func(dst, src []float32, norm kernels.Tensor, angles []float32) {
		if norm.None() {
			copy(dst, src)
		} else {
			rmsNorm(dst, src, norm.Row(0), p.Eps)
		}
		rotate(dst, angles)
	}
	for t := range qkv.Rows {
		row, angles := qkv.Row(t), p.CosSin.Row(t)
		for h := 0; h < q.Cols; h += l.KDim {
			turn(q.Row(t)[h:h+l.KDim], row[h:h+l.KDim], p.QNorm, angles)
		}
		slot := int(kv.Slots.Host[t])
		if slot < 0 {
			continue
		}
		keys := row[q.Cols:]
		values := keys
		if !p.KeysAsValues {
			values = keys[l.Heads*l.KDim:]
		}
		for g := range l.Heads {
			key, value := entry(kv, int32(slot/l.BlockTokens), slot%l.BlockTokens, g)
			v := values[g*l.VDim : (g+1)*l.VDim]
			if p.VNorm {
				rmsNorm(head, v, nil, p.Eps)
				v = head[:l.VDim]
			}
			value.store(v, l.DType)
			turn(head[:l.KDim], keys[g*l.KDim:(g+1)*l.KDim], p.KNorm, angles)
			key.store(head[:l.KDim], l.DType)
		}
	}
}

// rotate turns the pairs (x[i], x[i+half]) by angle i.
func rotate(x, cosSin []float32) {
	half := len(cosSin) / 2
	for i := range half {
		cos, sin := float64(cosSin[i]), float64(cosSin[half+i])
		a, b := float64(x[i]), float64(x[half+i])
		x[i], x[half+i] = float32(a*cos-b*sin), float32(b*cos+a*sin)
	}
}

// Attention implements kernels.Device: for each token and query head the softmax over all
// positions that it sees, in float64, which needs no partitions.
func (d *Device) Attention(dst, q kernels.Tensor, kv kernels.KV, rows kernels.Ragged, p kernels.AttentionParams) {
	if d.err != nil || !d.ok(check.Attention(dst, q, kv, rows, p)) || !d.ok(d.cacheType("attention", kv)) {
		return
	}
	heads := q.Cols / kv.Layout.KDim
	for s, context := range rows.Contexts.Host {
		from, to := int(rows.Starts.Host[s]), int(rows.Starts.Host[s+1])
		table := kv.Tables.Host[s*kv.Stride:]
		d.each((to-from)*heads, func(first, last int) {
			a := newAttender(kv, int(context))
			for i := first; i < last; i++ {
				t, h := from+i/heads, i%heads
				position := int(context) - (to - t)
				low := 0
				if p.Window > 0 {
					low = max(0, position+1-p.Window)
				}
				l := kv.Layout
				a.head(dst.Row(t)[h*l.VDim:(h+1)*l.VDim], q.Row(t)[h*l.KDim:(h+1)*l.KDim], table, h/(heads/l.Heads), low, position, p)
			}
		})
	}
}

// attender holds one goroutine's scratch.
type attender struct {
	kv     kernels.KV
	key    []float32
	value  []float32
	scores []float64
	sums   []float64
}

func newAttender(kv kernels.KV, context int) *attender {
	l := kv.Layout
	return &attender{kv, make([]float32, l.KDim), make([]float32, l.VDim), make([]float64, context), make([]float64, l.VDim)}
}

// head attends from one query head to positions low to last of key head g.
func (a *attender) head(dst, q []float32, table []int32, g, low, last int, p kernels.AttentionParams) {
	l := a.kv.Layout
	largest := math.Inf(-1)
	for pos := low; pos <= last; pos++ {
		key, _ := entry(a.kv, table[pos/l.BlockTokens], pos%l.BlockTokens, g)
		var score float64
		for i, k := range key.load(a.key, l.DType) {
			score += float64(q[i]) * float64(k)
		}
		score *= float64(p.Scale)
		if c := float64(p.SoftCap); c > 0 {
			score = c * math.Tanh(score/c)
		}
		a.scores[pos] = score
		largest = max(largest, score)
	}
	clear(a.sums)
	var total float64
	for pos := low; pos <= last; pos++ {
		weight := math.Exp(a.scores[pos] - largest)
		total += weight
		_, value := entry(a.kv, table[pos/l.BlockTokens], pos%l.BlockTokens, g)
		for i, v := range value.load(a.value, l.DType) {
			a.sums[i] += weight * float64(v)
		}
	}
	for i, v := range a.sums {
		dst[i] = float32(v / total)
	}
}
