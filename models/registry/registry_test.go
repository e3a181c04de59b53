package registry_test

import (
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata/negative"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/registry"
)

// untouched is a device that nothing may be asked of.
type untouched struct{ kernels.Device }

func TestBrokenCheckpointsAreRefusedBeforeTheDeviceIsTouched(t *testing.T) {
	for _, c := range negative.Make(t) {
		t.Run(c.Name, func(t *testing.T) {
			err := open(t, c.Dir)
			if err == nil {
				t.Fatalf("%s: loaded", c.Change)
			}
			for _, name := range c.Names {
				if strings.Contains(err.Error(), name) {
					return
				}
			}
			t.Fatalf("%s: error %q holds none of %q", c.Change, err, c.Names)
		})
	}
}

func open(t *testing.T, dir string) error {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = registry.Load(c, untouched{})
	return err
}

func TestUnknownArchitecturesAreNamed(t *testing.T) {
	c, err := checkpoint.OpenFiles("made", map[string][]byte{
		"config.json":       []byte(`{"model_type":"made_up"}`),
		"model.safetensors": append([]byte{2, 0, 0, 0, 0, 0, 0, 0}, "{}"...),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = registry.Load(c, untouched{})
	if err == nil || !strings.Contains(err.Error(), `"made_up"`) || !strings.Contains(err.Error(), "llama") {
		t.Errorf("%v", err)
	}
}
