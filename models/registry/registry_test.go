package registry_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
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
	files := map[string][]byte{}
	for _, name := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(testdata.Shared(t, "golden/models/llama", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	files["config.json"] = bytes.Replace(files["config.json"], []byte(`"model_type": "llama"`), []byte(`"model_type": "llama5"`), 1)
	c, err := checkpoint.OpenFiles("made", files)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = registry.Load(c, untouched{})
	if err == nil || !strings.Contains(err.Error(), `model_type "llama5"`) {
		t.Fatal(err)
	}
	for _, a := range registry.Architectures() {
		if !strings.Contains(err.Error(), a.Name) {
			t.Errorf("%v: does not say that there is %s", err, a.Name)
		}
	}
}
