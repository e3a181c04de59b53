package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/openinfer-go/openinfer/kernels"
)

// Who asks for a model that is still loading waits, in a bounded queue, until it is there or
// loading has failed.
func TestAwait(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := fakeOptions()
			o.Models, o.MaxWaiting = o.Models[:1], 2
			o.Models[0].MaxNumSeqs = 1
			load, begun, proceed := o.loadModel, make(chan struct{}), make(chan struct{})
			o.loadModel = func(d kernels.Device, m *model) error {
				close(begun)
				<-proceed
				if fails {
					return errors.New("cut short")
				}
				return load(d, m)
			}
			e, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			loaded := make(chan error, 1)
			go func() { loaded <- e.Load(t.Context()) }()
			<-begun
			name := o.Models[0].Name
			waits := make(chan error, 3)
			for range 3 { // one runs, two wait
				go func() { waits <- e.Await(t.Context(), name) }()
			}
			synctest.Wait()
			if err := e.Await(t.Context(), name); !errors.Is(err, ErrOverCapacity) {
				t.Errorf("a fourth caller: %v, want ErrOverCapacity", err)
			}
			close(proceed)
			if err := <-loaded; (err != nil) != fails {
				t.Fatalf("Load: %v", err)
			}
			for range 3 {
				if err := <-waits; fails != errors.Is(err, ErrClosed) || !fails && err != nil {
					t.Errorf("Await: %v, loading failed: %v", err, fails)
				}
			}
			if open := e.awaiting[0]; open != 0 {
				t.Errorf("%d places are still taken", open)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	e, err := New(fakeOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Await(gone, e.models[0].name()); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that is gone: %v", err)
	}
	if err := e.Await(t.Context(), "nobody"); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("an unknown model: %v", err)
	}
}
