package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
)

// allocations counts what is taken of a device's memory.
type allocations struct {
	kernels.Device
	n *atomic.Int64
}

func (d allocations) Alloc(bytes int64) (kernels.Buffer, error) {
	d.n.Add(1)
	return d.Device.Alloc(bytes)
}

// No device memory is taken while requests are served, however long their prompts are and however full the pool is.
func TestServingAllocatesNothing(t *testing.T) {
	for _, device := range []string{"cpu", "sim:rtx3090"} {
		var n atomic.Int64
		e, err := Open(t.Context(), Options{
			Device: device, Models: []ModelSpec{{Name: "demo-tales"}, {Name: "demo-bard"}}, KVMemory: 2 << 20,
			wrap: func(d kernels.Device) kernels.Device { return allocations{d, &n} },
		})
		if err != nil {
			t.Fatal(err)
		}
		atStart := n.Load()
		var wg sync.WaitGroup
		r := rand.New(rand.NewPCG(20, 1))
		for i := range 24 {
			model := []string{"demo-tales", "demo-bard"}[i%2]
			info, err := e.Model(model)
			if err != nil {
				t.Fatal(err)
			}
			ids := prompt(1+r.IntN(info.MaxModelLen/2), i)
			for k := range ids {
				ids[k] %= 2000
			}
			wg.Go(func() {
				if a := gather(t, e, Request{Model: model, Prompt: ids, MaxTokens: info.MaxModelLen / 3, IgnoreEOS: true})[0]; a.final.Finish != FinishLength {
					t.Errorf("%v, %v", a.final.Finish, a.final.Err)
				}
			})
		}
		wg.Wait()
		if atStart == 0 || n.Load() != atStart {
			t.Errorf("%s: %d allocations at start-up and %d while serving", device, atStart, n.Load()-atStart)
		}
		e.Close()
	}
}
