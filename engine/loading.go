package engine

import (
	"sync"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/sim"
)

// loading counts bytes of weights that start-up has packed, of those that the models have.
type loading struct {
	mu    sync.Mutex
	tell  func(done, all int64)
	sizes []int64 // of each model's weights as they are stored
	done  []int64
}

func newLoading(sizes []int64, tell func(done, all int64)) *loading {
	return &loading{tell: tell, sizes: sizes, done: make([]int64, len(sizes))}
}

// set says how much of model i is packed. What is packed may take other bytes than what is stored: it counts as no more.
func (l *loading) set(i int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[i] = min(bytes, l.sizes[i])
	var done, all int64
	for i := range l.sizes {
		done, all = done+l.done[i], all+l.sizes[i]
	}
	l.tell(done, all)
}

// counted is a device that counts the weights of model i that it is given.
type counted struct {
	kernels.Device
	loading *loading
	model   int
	mu      sync.Mutex
	bytes   int64
}

// Load implements kernels.Device.
func (c *counted) Load(parts ...kernels.Matrix) (*kernels.Weight, error) {
	w, err := c.Device.Load(parts...)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	for _, p := range parts {
		c.bytes += sim.PackedBytes(p)
	}
	bytes := c.bytes
	c.mu.Unlock()
	c.loading.set(c.model, bytes)
	return w, nil
}
