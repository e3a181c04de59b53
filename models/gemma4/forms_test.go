//go:build cgo

package gemma4_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

// stored is a checkpoint of the reference data.
func stored(t *testing.T, name string) modeltest.Checkpoint {
	t.Helper()
	list := modeltest.Checkpoints("gemma4")
	i := slices.IndexFunc(list, func(c modeltest.Checkpoint) bool { return c.Name == "models/"+name })
	if i < 0 {
		t.Fatalf("no checkpoint %s", name)
	}
	return list[i]
}

// The same model, written otherwise: its results are those of the original.
func TestOtherFormsOfACheckpoint(t *testing.T) {
	const nested, layer1 = "model.language_model.", "model.language_model.layers.1."
	for name, change := range map[string]func(modeltest.Files) modeltest.Files{
		// As a text model is saved alone: one config, no nesting, nothing but text; what has a default
		// left out. The output layer is written although it is tied.
		"text alone": func(f modeltest.Files) modeltest.Files {
			alone := text(f)
			modeltest.Set(alone, keys{"rope_parameters": nil, "layer_types": nil, "rms_norm_eps": nil})
			tensors := map[string]testdata.Tensor{"lm_head.weight": f.Tensors[nested+"embed_tokens.weight"]}
			for name, x := range f.Tensors {
				if rest, ok := strings.CutPrefix(name, nested); ok {
					tensors["model."+rest] = x
				}
			}
			return modeltest.Files{Config: alone, Tensors: tensors}
		},
		// As newer versions of the library save it, keys and values in two tensors, the output layer untied.
		"per_layer_config, v_proj, lm_head": func(f modeltest.Files) modeltest.Files {
			modeltest.Set(text(f), keys{
				"global_head_dim": nil, "num_global_key_value_heads": nil, "attention_k_eq_v": false, "tie_word_embeddings": false,
				"per_layer_config": keys{"1": keys{"head_dim": 128, "num_key_value_heads": 1}},
			})
			f.Config["tie_word_embeddings"] = false
			f.Tensors[layer1+"self_attn.v_proj.weight"] = f.Tensors[layer1+"self_attn.k_proj.weight"]
			f.Tensors["lm_head.weight"] = f.Tensors[nested+"embed_tokens.weight"]
			return f
		},
		// The last layer's factor scales all that the last norm takes back: the residual stream holds
		// what fp16 cannot.
		"gemma4, large factor": func(f modeltest.Files) modeltest.Files {
			f.Config["model_type"], text(f)["model_type"] = "gemma4", "gemma4_text"
			scalar := binary.LittleEndian.Uint16(f.Tensors[layer1+"layer_scalar"].Data)
			f.Tensors[layer1+"layer_scalar"] = bf16(scalar + 12<<7) // times 4096
			return f
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored(t, "gemma4_multimodal").Compare(t, onCPU, change(readFiles(t, "gemma4_multimodal")).Write(t))
		})
	}
}

func TestGGUFEqualsReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gemma4.gguf")
	if err := os.WriteFile(path, ggufFile(t, nil, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	stored(t, "gemma4").Compare(t, onCPU, path)
}
