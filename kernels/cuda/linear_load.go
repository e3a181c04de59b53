package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/check"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// part is one or more matrices of a weight that follow each other and have one scheme: they are multiplied in one launch.
type part struct {
	packing
	first                       int // of its outputs within the weight
	addr                        uint64
	host                        []byte // where the part lies when not on the card
	codes, scales, bias, orders uint64 // addresses; 0: none
}

type weight []part

// chunkRows is how many rows of a matrix are read and packed at a time by one goroutine.
const chunkRows = 64

// stagingBytes is about the size of each of the two pinned buffers through which a part goes to the card.
const stagingBytes = 8 << 20

// Load implements kernels.Device. A weight whose parts are all only looked up stays in pinned host memory.
func (d *Device) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	if err := check.Matrices(parts); err != nil {
		return nil, err
	}
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	lookedUp := !slices.ContainsFunc(parts, func(m kernels.Matrix) bool { return !m.LookedUp })
	w := &kernels.Weight{Name: parts[0].Name, K: parts[0].K}
	var ps weight
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && sameScheme(parts[0], parts[n]) {
			n++
		}
		p, bytes, err := d.loadPart(parts[:n], lookedUp)
		if err != nil {
			d.unload(ps)
			return nil, err
		}
		p.first = w.N
		w.N += p.N
		w.Bytes += bytes
		for _, other := range ps {
			if p.order != nil && slices.Equal(p.order, other.order) {
				p.orders = other.orders // x is prepared once for both
			}
		}
		ps, parts = append(ps, p), parts[n:]
	}
	w.Impl = ps
	return w, nil
}

func sameScheme(a, b kernels.Matrix) bool {
	return a.Bits == b.Bits && a.Group == b.Group && a.HasMin == b.HasMin && a.Symmetric == b.Symmetric && a.Type == b.Type &&
		a.ScaleType == b.ScaleType && slices.Equal(a.Perm, b.Perm)
}

// Unload implements kernels.Device.
func (d *Device) Unload(w *kernels.Weight) {
	leave, err := d.enter()
	if err != nil {
		return // the context is gone, and its memory with it
	}
	defer leave()
	d.unload(w.Impl.(weight))
	w.Impl = nil
}

func (d *Device) unload(ps weight) {
	for _, p := range ps {
		if p.host != nil {
			d.drv.FreeHost(p.host)
		} else {
			d.giveBytes(p.addr)
		}
	}
}

// loadPart packs matrices of one scheme, stacked, and returns the bytes of card memory that they take.
func (d *Device) loadPart(ms []kernels.Matrix, lookedUp bool) (p part, bytes int64, err error) {
	N, biased := 0, false
	for _, m := range ms {
		N += m.N
		biased = biased || m.Bias != nil
	}
	if p.packing, err = packingOf(ms[0], N); err != nil {
		return p, 0, err
	}
	var total int64
	cut := func(n int) (at int64) {
		at = total
		total += (int64(n) + 255) &^ 255
		return at
	}
	codes, scales := cut(p.strips()*p.stripBytes()), cut(p.strips()*p.scaleBytes())
	order, bias := cut(len(p.order)*4), int64(0)
	if biased {
		bias = cut(N * 4)
	}
	if lookedUp {
		if p.host, p.addr, err = d.drv.AllocHost(total); err != nil {
			return p, 0, fmt.Errorf("load %s: %d bytes of pinned host memory: %w", ms[0].Name, total, err)
		}
	} else {
		if p.addr, err = d.takeBytes(total); err != nil {
			return p, 0, fmt.Errorf("load %s: %d bytes: %w", ms[0].Name, total, err)
		}
		bytes = total
	}
	p.codes = p.addr + uint64(codes)
	p.scales = p.addr + uint64(scales)
	if p.order != nil {
		p.orders = p.addr + uint64(order)
	}
	if biased {
		p.bias = p.addr + uint64(bias)
	}
	if err = d.fill(&p, ms, total); err != nil {
		d.unload(weight{p})
		return p, 0, err
	}
	for _, m := range ms {
		if m.Release != nil {
			m.Release()
		}
	}
	return p, bytes, nil
}

// fill packs ms into p's memory of total bytes, a batch of strips at a time.
func (d *Device) fill(p *part, ms []kernels.Matrix, total int64) error {
	up, err := d.uploader(p, total)
	if err != nil {
		return err
	}
	defer up.close()
	if p.order != nil {
		if err := up.put(p.orders, bytesOf(p.order)); err != nil {
			return err
		}
	}
	if p.bias != 0 {
		all := make([]float32, 0, p.N)
		for _, m := range ms {
			if m.Bias == nil {
				all = append(all, make([]float32, m.N)...)
			} else {
				all = append(all, m.Bias...)
			}
		}
		if err := up.put(p.bias, bytesOf(all)); err != nil {
			return err
		}
	}
	const chunkStrips = chunkRows / stripRows
	each := p.stripBytes() + p.scaleBytes()
	batch := roundUp(max(stagingBytes/each, 1), chunkStrips)
	for strip := 0; strip < p.strips(); strip += batch {
		n := min(batch, p.strips()-strip)
		if err := up.reserve(n * each); err != nil {
			return err
		}
		c := up.room(n*p.stripBytes(), p.codes+uint64(strip*p.stripBytes()))
		s := up.room(n*p.scaleBytes(), p.scales+uint64(strip*p.scaleBytes()))
		if err := p.pack(c, s, ms, strip, n); err != nil {
			return err
		}
		if err := up.flush(); err != nil {
			return err
		}
	}
	return up.wait()
}

// pack fills codes and scales with strips [strip, strip+n) of the stacked matrices, on all threads.
func (p *packing) pack(codes, scales []byte, ms []kernels.Matrix, strip, n int) error {
	const chunkStrips = chunkRows / stripRows
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		next  int
		first error
	)
	for range min(runtime.GOMAXPROCS(0), (n+chunkStrips-1)/chunkStrips) {
		wg.Go(func() {
			room := make([]kernels.Rows, len(ms))
			for {
				mu.Lock()
				at := next
				next += chunkStrips
				stop := first != nil || at >= n
				mu.Unlock()
				if stop {
					return
				}
				rows, err := outputs(room, ms, (strip+at)*stripRows, min(chunkRows, p.N-(strip+at)*stripRows))
				if err != nil {
					mu.Lock()
					first = errors.Join(first, err)
					mu.Unlock()
					return
				}
				for i := at; len(rows) > 0; i++ {
					k := min(stripRows, len(rows))
					p.strip(codes[i*p.stripBytes():][:p.stripBytes()], scales[i*p.scaleBytes():][:p.scaleBytes()], rows[:k])
					rows = rows[k:]
				}
			}
		})
	}
	wg.Wait()
	return first
}

// outputs reads rows [row, row+n) of the stacked matrices into room, of which each has its own.
func outputs(room []kernels.Rows, ms []kernels.Matrix, row, n int) (rows []output, err error) {
	for i, m := range ms {
		if row >= m.N {
			row -= m.N
			continue
		}
		k := min(n, m.N-row)
		if k == 0 {
			break
		}
		r := &room[i]
		r.Reset(m, k)
		if err := m.Read(r, row, k); err != nil {
			return nil, fmt.Errorf("load %s: rows %d to %d: %w", m.Name, row, row+k, err)
		}
		groups := m.Groups()
		for i := range k {
			var o output
			if m.Bits == 0 {
				o.float = r.Float[i*m.K:][:m.K]
			} else {
				o.codes, o.scale = r.Codes[i*m.K:][:m.K], r.Scale[i*groups:][:groups]
				if m.HasMin {
					o.min = r.Min[i*groups:][:groups]
				} else {
					o.zero = r.Zero[i*groups:][:groups]
				}
			}
			rows = append(rows, o)
		}
		row, n = 0, n-k
	}
	return rows, nil
}

// uploader brings bytes to a part: through two pinned buffers, one of which is filled while the other is copied, or
// nowhere, when the part lies in the host's memory.
type uploader struct {
	d       *Device
	p       *part
	total   int64 // bytes of the part
	stream  driver.Stream
	buffers [2][]byte
	now     int // buffer that is being filled
	used    int
	copies  []copyJob
}

type copyJob struct {
	to   uint64
	from []byte
}

func (d *Device) uploader(p *part, total int64) (*uploader, error) {
	u := &uploader{d: d, p: p, total: total}
	if p.host != nil {
		return u, nil
	}
	var err error
	u.stream, err = d.drv.NewStream()
	return u, err
}

// reserve makes sure of n bytes of room, after sending off what was filled before when there is not enough.
func (u *uploader) reserve(n int) error {
	if u.p.host != nil || len(u.buffers[u.now])-u.used >= n {
		return nil
	}
	if u.used > 0 {
		if err := u.flush(); err != nil {
			return err
		}
	}
	b := u.buffers[u.now]
	if len(b) >= n {
		return nil
	}
	if b != nil {
		u.d.drv.FreeHost(b)
		u.buffers[u.now] = nil
	}
	b, _, err := u.d.drv.AllocHost(max(int64(n), min(stagingBytes, u.total)))
	if err != nil {
		return fmt.Errorf("load: pinned host memory: %w", err)
	}
	u.buffers[u.now] = b
	return nil
}

// room returns n of the bytes that were reserved, which flush brings to an address of the part.
func (u *uploader) room(n int, to uint64) []byte {
	if u.p.host != nil {
		return u.p.host[to-u.p.addr:][:n:n]
	}
	b := u.buffers[u.now][u.used:][:n:n]
	u.used += n
	u.copies = append(u.copies, copyJob{to, b})
	return b
}

func (u *uploader) put(to uint64, b []byte) error {
	if err := u.reserve(len(b)); err != nil {
		return err
	}
	copy(u.room(len(b), to), b)
	return nil
}

// flush starts copying what was filled and waits until the other buffer is free.
func (u *uploader) flush() error {
	if err := u.wait(); err != nil {
		return err
	}
	for _, c := range u.copies {
		if len(c.from) == 0 {
			continue
		}
		if err := u.d.drv.CopyToDevice(c.to, c.from, u.stream); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	u.copies, u.used, u.now = u.copies[:0], 0, 1-u.now
	return nil
}

func (u *uploader) wait() error {
	if u.p.host != nil {
		return nil
	}
	return u.d.drv.SyncStream(u.stream)
}

func (u *uploader) close() {
	if u.p.host != nil {
		return
	}
	u.d.drv.SyncStream(u.stream)
	u.d.drv.CloseStream(u.stream)
	for _, b := range u.buffers {
		if b != nil {
			u.d.drv.FreeHost(b)
		}
	}
}
