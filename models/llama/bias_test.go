package llama_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/ref"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/llama"
	"github.com/openinfer-go/openinfer/models/modeltest"
)

// naive is a model with biases everywhere, computed from the definition in float64: the stored
// results of the reference library have none.
type naive struct {
	tensors map[string][]float32
	shapes  map[string][]int
}

const (
	nVocab, nHidden, nFF, nHeads, nKV, nDim, nLayers = 40, 32, 48, 4, 2, 16, 2
)

func newNaive() *naive {
	n := &naive{map[string][]float32{}, map[string][]int{}}
	rnd := rand.New(rand.NewPCG(5, 6))
	add := func(name string, size float64, shape ...int) {
		count := 1
		for _, s := range shape {
			count *= s
		}
		v := make([]float32, count)
		for i := range v {
			v[i] = float32(rnd.NormFloat64() * size)
		}
		n.tensors[name], n.shapes[name] = v, shape
	}
	add("model.embed_tokens.weight", 1, nVocab, nHidden)
	add("lm_head.weight", 0.3, nVocab, nHidden)
	add("model.norm.weight", 1, nHidden)
	for l := range nLayers {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm.weight", 1, nHidden)
		add(p+"post_attention_layernorm.weight", 1, nHidden)
		for name, s := range map[string][2]int{
			"self_attn.q_proj": {nHeads * nDim, nHidden}, "self_attn.k_proj": {nKV * nDim, nHidden}, "self_attn.v_proj": {nKV * nDim, nHidden},
			"self_attn.o_proj": {nHidden, nHeads * nDim}, "mlp.gate_proj": {nFF, nHidden}, "mlp.up_proj": {nFF, nHidden}, "mlp.down_proj": {nHidden, nFF},
		} {
			add(p+name+".weight", 0.2, s[0], s[1])
			add(p+name+".bias", 0.5, s[0])
		}
	}
	return n
}

// files returns the checkpoint as safetensors.
func (n *naive) files(t *testing.T) map[string][]byte {
	t.Helper()
	config, err := json.Marshal(map[string]any{
		"model_type": "llama", "vocab_size": nVocab, "hidden_size": nHidden, "intermediate_size": nFF, "num_hidden_layers": nLayers,
		"num_attention_heads": nHeads, "num_key_value_heads": nKV, "head_dim": nDim, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
		"attention_bias": true, "mlp_bias": true, "rope_theta": 100, "rope_scaling": map[string]any{"type": "linear", "factor": 2.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	header, body := map[string]any{}, []byte{}
	for name, v := range n.tensors {
		from := len(body)
		for _, x := range v {
			body = binary.LittleEndian.AppendUint32(body, math.Float32bits(x))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": n.shapes[name], "data_offsets": []int{from, len(body)}}
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(h)))
	return map[string][]byte{"config.json": config, "model.safetensors": append(append(file, h...), body...)}
}

func (n *naive) linear(x []float64, module string) []float64 {
	w, bias := n.tensors[module+".weight"], n.tensors[module+".bias"]
	y := make([]float64, len(w)/len(x))
	for i := range y {
		if bias != nil {
			y[i] = float64(bias[i])
		}
		for k, v := range x {
			y[i] += v * float64(w[i*len(x)+k])
		}
	}
	return y
}

func (n *naive) norm(x []float64, name string) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+1e-5) * float64(n.tensors[name][i])
	}
	return y
}

// rotate turns each head of x for a position.
func rotate(x []float64, position int) {
	for h := 0; h < len(x); h += nDim {
		for i := range nDim / 2 {
			angle := float64(position) / 2.5 * math.Pow(100, -2*float64(i)/nDim)
			a, b := x[h+i], x[h+nDim/2+i]
			x[h+i] = a*math.Cos(angle) - b*math.Sin(angle)
			x[h+nDim/2+i] = b*math.Cos(angle) + a*math.Sin(angle)
		}
	}
}

func plus(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

// forward returns the logits of every position.
func (n *naive) forward(ids []int32) [][]float64 {
	var xs [][]float64
	for _, id := range ids {
		x := make([]float64, nHidden)
		for i := range x {
			x[i] = float64(n.tensors["model.embed_tokens.weight"][int(id)*nHidden+i])
		}
		xs = append(xs, x)
	}
	for l := range nLayers {
		p := fmt.Sprintf("model.layers.%d.", l)
		var ks, vs [][]float64
		for t, x := range xs {
			h := n.norm(x, p+"input_layernorm.weight")
			q, k := n.linear(h, p+"self_attn.q_proj"), n.linear(h, p+"self_attn.k_proj")
			rotate(q, t)
			rotate(k, t)
			ks, vs = append(ks, k), append(vs, n.linear(h, p+"self_attn.v_proj"))
			out := make([]float64, nHeads*nDim)
			for head := range nHeads {
				g := head / (nHeads / nKV) * nDim
				var total float64
				weights := make([]float64, t+1)
				for s := range weights {
					var score float64
					for i := range nDim {
						score += q[head*nDim+i] * ks[s][g+i]
					}
					weights[s] = math.Exp(score / math.Sqrt(nDim))
					total += weights[s]
				}
				for s, w := range weights {
					for i := range nDim {
						out[head*nDim+i] += w / total * vs[s][g+i]
					}
				}
			}
			plus(x, n.linear(out, p+"self_attn.o_proj"))
		}
		for _, x := range xs {
			h := n.norm(x, p+"post_attention_layernorm.weight")
			gate, up := n.linear(h, p+"mlp.gate_proj"), n.linear(h, p+"mlp.up_proj")
			for i, g := range gate {
				up[i] *= g / (1 + math.Exp(-g))
			}
			plus(x, n.linear(up, p+"mlp.down_proj"))
		}
	}
	var logits [][]float64
	for _, x := range xs {
		logits = append(logits, n.linear(n.norm(x, "model.norm.weight"), "lm_head"))
	}
	return logits
}

func TestBiasesAndLinearScalingEqualTheDefinition(t *testing.T) {
	n := newNaive()
	c, err := checkpoint.OpenFiles("biased", n.files(t))
	if err != nil {
		t.Fatal(err)
	}
	d := ref.Open()
	m, err := llama.Load(c, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unload(d) })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ids := []int32{3, 39, 0, 17, 17, 5, 22, 8, 31, 2, 11, 38}
	got := modeltest.NewRunner(t, d, m, kernels.F32, 64).Step(modeltest.Row{Sequence: &modeltest.Sequence{Tokens: ids}, N: len(ids), All: true})[0]
	for p, want := range n.forward(ids) {
		for i, v := range want {
			if math.Abs(float64(got[p][i])-v) > 1e-4 {
				t.Fatalf("position %d, logit %d: got %v, want %v", p, i, got[p][i], v)
			}
		}
	}
}
