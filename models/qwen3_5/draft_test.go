package qwen3_5

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/loader"
)

// TestDraftHeadIsWhatItsTensorsSay computes the draft head with the model's own operators: its layer is one
// with attention, over the embedding of the next token beside the hidden state.
func TestDraftHeadIsWhatItsTensorsSay(t *testing.T) {
	dir := testdata.Shared(t, "golden/models/qwen3_5_mtp_vision")
	raw, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Prompts []struct {
			Name string
			IDs  []int32
		}
		MTP struct {
			Next []int32 `json:"next_ids"`
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	tensors := testdata.Tensors(t, filepath.Join(dir, "golden.safetensors"))
	hidden := tensors["p2.hidden_states"] // [layers+1, tokens, hidden]; the last is normed
	next, T := golden.MTP.Next, len(golden.MTP.Next)

	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	cfg, err := ReadConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	d := ref.Open()
	g := &gatherer{Loader: loader.New(c), c: c, cfg: &cfg}
	D := cfg.Hidden
	var embed, fc *kernels.Weight
	var enorm, hnorm, norm kernels.Tensor
	l := &layer{}
	g.Weight(&embed, loader.Part{Module: "model.language_model.embed_tokens", N: cfg.Vocab, K: D})
	g.Weight(&fc, loader.Part{Module: "mtp.fc", N: D, K: 2 * D})
	g.norm(&enorm, "mtp.pre_fc_norm_embedding.weight", D)
	g.norm(&hnorm, "mtp.pre_fc_norm_hidden.weight", D)
	g.norm(&norm, "mtp.norm.weight", D)
	l.attention = g.attention("mtp.layers.0.")
	g.feedForward(l, "mtp.layers.0.")
	c.Skip("model.")
	if _, err := g.Load(d); err != nil {
		t.Fatal(err)
	}

	m := &Model{cfg: cfg}
	alloc := func(n int64) kernels.Buffer {
		b, err := d.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	v := m.carve(kernels.NewCarver(alloc(m.ScratchBytes(T, T))), T, 0)
	vector := func(rows, cols int) kernels.Tensor {
		return kernels.NewCarver(alloc(int64(rows*cols*4)+64)).Tensor(kernels.F32, rows, cols)
	}
	both, logits, states := vector(T, 2*D), vector(T, cfg.Vocab), vector(T, D)
	values := hidden.Float32()
	copy(states.Float32(), values[len(values)-T*D:])
	layout := kernels.CacheLayout{Layers: 1, Heads: cfg.KVHeads, KDim: cfg.HeadDim, VDim: cfg.HeadDim, BlockTokens: 32, BlocksPerPage: 1}
	layout.BlockBytes = 32 * layout.TokenBytes()
	layout.PageBytes = layout.BlockBytes
	counting := make([]int32, T)
	for i := range counting {
		counting[i] = int32(i)
	}
	ints := func(v ...int32) kernels.Ints { return d.Upload(kernels.Ints{Host: v}) }

	d.Begin()
	batch := &models.Batch{Positions: ints(counting...), Ragged: kernels.Ragged{Starts: ints(0, int32(T)), Contexts: ints(int32(T))}}
	kv := kernels.KV{Pages: alloc(layout.PageBytes), Layout: &layout, Slots: ints(counting...), Tables: ints(0), Stride: 1}
	d.EmbedRows(v.h, embed, ints(next...), 1)
	d.RMSNorm(both.ColRange(0, D), v.h, enorm, cfg.RMSEps)
	d.RMSNorm(both.ColRange(D, 2*D), states, hnorm, cfg.RMSEps)
	d.Linear(v.x, both, fc)
	cfg.Rotary.CosSin(d, v.cosSin, batch)
	d.RMSNorm(v.h, v.x, l.inputNorm, cfg.RMSEps)
	m.attend(d, &v, l.attention, kv, batch.Ragged)
	m.feedForward(d, &v, l)
	d.RMSNorm(v.h, v.x, norm, cfg.RMSEps)
	d.Linear(logits, v.h, embed)
	if err := d.End(); err != nil {
		t.Fatal(err)
	}
	want := tensors["mtp.logits_positions_same"].Float32()
	for i, got := range logits.Float32()[:T*cfg.Vocab] {
		if diff := math.Abs(float64(got) - float64(want[i])); !(diff <= 1e-3) {
			t.Fatalf("token %d, logit %d: got %v, want %v", i/cfg.Vocab, i%cfg.Vocab, got, want[i])
		}
	}
}
