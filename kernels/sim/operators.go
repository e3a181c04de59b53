package sim

import (
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
)

// valueBytes is the size of an activation on a card, whatever a Tensor holds here.
const valueBytes = 2

// values is the bytes of all elements of tensors.
func values(ts ...kernels.Tensor) int64 {
	n := int64(0)
	for _, t := range ts {
		n += int64(t.Rows) * int64(t.Cols)
	}
	return n * valueBytes
}

// EmbedRows implements kernels.Device. The rows of a table in host memory come over the bus.
func (m *Meter) EmbedRows(dst kernels.Tensor, table *kernels.Weight, ids kernels.Ints, _ float32) {
	if m.checked && !m.ok(check.EmbedRows(dst, table, ids)) {
		return
	}
	if table.Bytes == 0 {
		m.copied(values(dst))
		m.charge(values(dst))
		return
	}
	m.charge(values(dst) + int64(dst.Rows)*table.Bytes/int64(table.N))
}

// RMSNorm implements kernels.Device.
func (m *Meter) RMSNorm(dst, x, w kernels.Tensor, _ float32) {
	if m.checked && !m.ok(check.RMSNorm(dst, x, w)) {
		return
	}
	m.charge(values(dst, x))
}

// RMSNormAdd implements kernels.Device.
func (m *Meter) RMSNormAdd(dst, x, w kernels.Tensor, _, _ float32) {
	if m.checked && !m.ok(check.RMSNormAdd(dst, x, w)) {
		return
	}
	m.charge(values(dst, dst, x))
}

// NormGate implements kernels.Device.
func (m *Meter) NormGate(dst, x, gate, w kernels.Tensor, _ float32) {
	if m.checked && !m.ok(check.NormGate(dst, x, gate, w)) {
		return
	}
	m.charge(values(dst, x, gate))
}

// Linear implements kernels.Device.
func (m *Meter) Linear(dst, x kernels.Tensor, w *kernels.Weight) {
	if !m.checked || m.ok(check.Linear("linear", dst, x, w)) {
		m.product(dst, x, w, values(dst, x))
	}
}

// LinearAdd implements kernels.Device.
func (m *Meter) LinearAdd(dst, x kernels.Tensor, w *kernels.Weight) {
	if !m.checked || m.ok(check.Linear("linearAdd", dst, x, w)) {
		m.product(dst, x, w, values(dst, dst, x))
	}
}

// product reads the weight once.
func (m *Meter) product(dst, x kernels.Tensor, w *kernels.Weight, activations int64) {
	flops := 2 * float64(x.Rows) * float64(x.Cols) * float64(dst.Cols)
	m.roofline(w.Bytes+activations, flops, m.productRate(w))
}

// CosSin implements kernels.Device.
func (m *Meter) CosSin(dst kernels.Tensor, r kernels.Rotary, positions kernels.Ints) {
	if m.checked && !m.ok(check.CosSin(dst, r, positions)) {
		return
	}
	m.charge(values(dst))
}

// RotaryStore implements kernels.Device. Arrays are the same for all layers of a group, so they are
// checked for the first.
func (m *Meter) RotaryStore(q kernels.Tensor, kv kernels.KV, qkv kernels.Tensor, p kernels.RotaryParams) {
	if m.checked && kv.Layer == 0 && !m.ok(check.RotaryStore(q, kv, qkv, p)) {
		return
	}
	m.charge(values(q, qkv, p.CosSin) + int64(q.Rows)*kv.Layout.LayerBytes())
}

// Attention implements kernels.Device. The keys and values that a row's tokens see are read once: a
// tile of queries shares them, and the tiles of a long row find them in the card's cache.
func (m *Meter) Attention(dst, q kernels.Tensor, kv kernels.KV, rows kernels.Ragged, p kernels.AttentionParams) {
	if m.checked && kv.Layer == 0 && !m.ok(check.Attention(dst, q, kv, rows, p)) {
		return
	}
	var read int64    // positions whose keys and values are read
	var pairs float64 // of a query and a key
	starts := rows.Starts.Host
	for s, c := range rows.Contexts.Host {
		n, c := int64(starts[s+1]-starts[s]), int64(c)
		if n == 0 {
			continue
		}
		first := c - n + 1 // positions that the row's first token sees
		if w := int64(p.Window); w > 0 {
			read += min(c, w+n-1)
			pairs += windowed(first, n, w)
		} else {
			read += c
			pairs += float64(n) * float64(first+c) / 2
		}
	}
	l := kv.Layout
	flops := 2 * pairs * float64(q.Cols/l.KDim) * float64(l.KDim+l.VDim)
	m.roofline(read*l.LayerBytes()+values(dst, q), flops, m.attentionRate())
}

// windowed is the sum of min(first+i, w) for i below n.
func windowed(first, n, w int64) float64 {
	growing := min(max(w-first, 0), n) // tokens whose window does not cut yet
	return float64(growing)*(float64(first)+float64(growing-1)/2) + float64(n-growing)*float64(w)
}

// GateMul implements kernels.Device.
func (m *Meter) GateMul(dst, gate, x kernels.Tensor, f kernels.Activation) {
	if m.checked && !m.ok(check.GateMul(dst, gate, x, f)) {
		return
	}
	m.charge(values(dst, gate, x))
}

// SoftCap implements kernels.Device.
func (m *Meter) SoftCap(x kernels.Tensor, c float32) {
	if m.checked && !m.ok(check.SoftCap(x, c)) {
		return
	}
	m.charge(values(x, x))
}

// runs counts a step's runs with tokens, and those of them that read a state.
func runs(r kernels.Runs, pages int) (all, reading int64) {
	starts := r.Starts.Host
	for i := range len(starts) - 1 {
		if starts[i] == starts[i+1] {
			continue
		}
		all++
		if r.In.Host[i*pages] != 0 {
			reading++
		}
	}
	return all, reading
}

// CausalConv implements kernels.Device. Each run reads and writes the columns before its tokens.
func (m *Meter) CausalConv(dst, x, w kernels.Tensor, s kernels.State) {
	if m.checked && s.Layer == 0 && !m.ok(check.CausalConv(dst, x, w, s)) {
		return
	}
	all, reading := runs(s.Runs, s.Layout.StatePages())
	m.charge(values(dst, x, w) + (all+reading)*int64(s.Layout.ConvChannels)*int64(s.Layout.ConvColumns)*4)
}

// deltaChunk is how many tokens the chunked form of the delta rule takes together.
const deltaChunk = 64

// GatedDelta implements kernels.Device. Each run reads and writes its state once. In chunks of C a token and
// head cost products with the state (query, key, update: 6 KDim VDim) and within the chunk (queries with
// keys, keys with keys, the triangle's solution and the scores with values: C (6 KDim + 4 VDim)).
func (m *Meter) GatedDelta(dst, qkv, a, b kernels.Tensor, p kernels.DeltaParams, s kernels.State) {
	if m.checked && s.Layer == 0 && !m.ok(check.GatedDelta(dst, qkv, a, b, p, s)) {
		return
	}
	l := s.Layout
	all, reading := runs(s.Runs, l.StatePages())
	var flops float64
	starts := s.Runs.Starts.Host
	K, V := float64(l.KDim), float64(l.VDim)
	for i := range len(starts) - 1 {
		n := float64(starts[i+1] - starts[i])
		flops += n * float64(l.Heads) * (6*K*V + min(n, deltaChunk)*(6*K+4*V))
	}
	m.roofline((all+reading)*int64(l.Heads)*l.UnitBytes()+values(dst, qkv, a, b), flops, m.attentionRate())
}

// Drop implements kernels.Device. What a card saves by it is within the shares of its rates.
func (m *Meter) Drop(t kernels.Tensor) {
	if m.checked {
		m.ok(check.Drop(t))
	}
}

// GatherRows implements kernels.Device.
func (m *Meter) GatherRows(dst, x kernels.Tensor, rows kernels.Ints) {
	if m.checked && !m.ok(check.GatherRows(dst, x, rows)) {
		return
	}
	m.charge(values(dst, dst))
}
