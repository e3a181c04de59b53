// Command makegguf writes a GGUF file of the llama architecture with random weights: a model to
// measure speed with, whose texts mean nothing. The same flags write the same bytes.
//
// Weights are normal with the deviation that keeps activations near 1 through the layers. The
// vocabulary is another file's, padded with tokens that nothing encodes to.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

// shape is a model's geometry.
type shape struct {
	vocab, hidden, intermediate, layers, heads, kvHeads, headSize, context int
	ropeBase                                                               float64
	ropeFactor, lowFactor, highFactor, originalContext                     float64 // llama3 scaling; factor 0: none
}

var shapes = map[string]shape{
	// Llama-3.2-1B, output layer tied to the embedding.
	"llama-1b": {vocab: 128256, hidden: 2048, intermediate: 8192, layers: 16, heads: 32, kvHeads: 8, headSize: 64, context: 131072,
		ropeBase: 500000, ropeFactor: 32, lowFactor: 1, highFactor: 4, originalContext: 8192},
	// The first two layers of it, for a quick look.
	"llama-1b-2-layers": {vocab: 128256, hidden: 2048, intermediate: 8192, layers: 2, heads: 32, kvHeads: 8, headSize: 64, context: 131072,
		ropeBase: 500000, ropeFactor: 32, lowFactor: 1, highFactor: 4, originalContext: 8192},
}

func main() {
	name := flag.String("shape", "llama-1b", "geometry: "+strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
	kind := flag.String("type", "q4_0", "type of the layers' weights")
	embd := flag.String("embd-type", "q8_0", "type of the embedding, which is the output layer, too")
	from := flag.String("vocab-from", "", "GGUF file whose vocabulary to take (required)")
	seed := flag.Uint64("seed", 1, "of the weights")
	out := flag.String("o", "", "file to write (required)")
	flag.Parse()
	if err := run(*name, *kind, *embd, *from, *seed, *out); err != nil {
		fmt.Fprintln(os.Stderr, "makegguf:", err)
		os.Exit(1)
	}
}

func run(name, kind, embd, from string, seed uint64, out string) error {
	s, ok := shapes[name]
	if !ok {
		return fmt.Errorf("-shape %s is unknown", name)
	}
	if from == "" || out == "" {
		return errors.New("-vocab-from and -o are required")
	}
	types := [2]ggufwrite.Type{}
	for i, n := range []string{kind, embd} {
		t, err := ggufwrite.ParseType(n)
		if err != nil {
			return err
		}
		types[i] = t
	}
	f, err := model(name, s, types[0], types[1], from, seed)
	if err != nil {
		return err
	}
	// Under another name until it is whole: a build that finds the file uses it.
	part := out + ".part"
	w, err := os.Create(part)
	if err != nil {
		return err
	}
	_, err = f.WriteTo(w)
	if err := errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, out)
}

// fileTypes are llama.cpp's numbers of a file by its most common tensor type, for people.
var fileTypes = map[string]uint32{"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q4_k": 15, "q6_k": 18}

func model(name string, s shape, kind, embd ggufwrite.Type, from string, seed uint64) (*ggufwrite.File, error) {
	f := &ggufwrite.File{}
	f.Set("general.architecture", "llama")
	f.Set("general.name", "random "+name)
	for _, p := range []pair{
		{"block_count", s.layers}, {"context_length", s.context}, {"embedding_length", s.hidden}, {"feed_forward_length", s.intermediate},
		{"attention.head_count", s.heads}, {"attention.head_count_kv", s.kvHeads}, {"attention.key_length", s.headSize},
		{"attention.value_length", s.headSize}, {"vocab_size", s.vocab}, {"rope.dimension_count", s.headSize},
	} {
		f.Set("llama."+p.key, uint32(p.v))
	}
	f.Set("llama.rope.freq_base", float32(s.ropeBase))
	f.Set("llama.attention.layer_norm_rms_epsilon", float32(1e-5))
	f.Set("general.quantization_version", uint32(2))
	f.Set("general.file_type", fileTypes[kindName(kind)])
	if err := setVocabulary(f, from, s.vocab); err != nil {
		return nil, err
	}

	add := func(name string, t ggufwrite.Type, rows, cols int, deviation float64) error {
		if cols%t.Values() != 0 {
			return fmt.Errorf("%s: rows of %d are not whole blocks of %d", name, cols, t.Values())
		}
		f.Add(ggufwrite.Tensor{Name: name, Type: t, Shape: []int{rows, cols}, Write: func(w io.Writer) error {
			return random(w, t, rows, cols, deviation, seed, name)
		}})
		return nil
	}
	constant := func(name string, v []float32) {
		f.Add(ggufwrite.Tensor{Name: name, Type: ggufwrite.F32, Shape: []int{len(v)}, Write: func(w io.Writer) error {
			b := make([]byte, 4*len(v))
			ggufwrite.F32.Encode(b, v)
			_, err := w.Write(b)
			return err
		}})
	}
	var errs []error
	norm := slices.Repeat([]float32{1}, s.hidden)
	errs = append(errs, add("token_embd.weight", embd, s.vocab, s.hidden, 0.02))
	if s.ropeFactor != 0 {
		constant("rope_freqs.weight", ropeFactors(s))
	}
	q, kv := s.heads*s.headSize, s.kvHeads*s.headSize
	in := 1 / math.Sqrt(float64(s.hidden))
	// Two additions to the residual a layer: each adds so little that all together add about 1.
	residual := 1 / math.Sqrt(2*float64(s.layers))
	for i := range s.layers {
		p := fmt.Sprintf("blk.%d.", i)
		constant(p+"attn_norm.weight", norm)
		constant(p+"ffn_norm.weight", norm)
		errs = append(errs,
			add(p+"attn_q.weight", kind, q, s.hidden, in),
			add(p+"attn_k.weight", kind, kv, s.hidden, in),
			add(p+"attn_v.weight", kind, kv, s.hidden, in),
			add(p+"attn_output.weight", kind, s.hidden, q, residual/math.Sqrt(float64(q))),
			add(p+"ffn_gate.weight", kind, s.intermediate, s.hidden, in),
			add(p+"ffn_up.weight", kind, s.intermediate, s.hidden, in),
			add(p+"ffn_down.weight", kind, s.hidden, s.intermediate, residual/math.Sqrt(float64(s.intermediate))))
	}
	constant("output_norm.weight", norm)
	return f, errors.Join(errs...)
}

type pair struct {
	key string
	v   int
}

func kindName(t ggufwrite.Type) string {
	for name := range fileTypes {
		if got, err := ggufwrite.ParseType(name); err == nil && got == t {
			return name
		}
	}
	return ""
}

// setVocabulary copies the tokenizer of a GGUF file, padded to n tokens.
func setVocabulary(f *ggufwrite.File, from string, n int) error {
	c, err := checkpoint.Open(from)
	if err != nil {
		return err
	}
	defer c.Close()
	v, err := c.Vocabulary()
	if err != nil {
		return err
	}
	if len(v.Tokens) > n || len(v.Types) != len(v.Tokens) {
		return fmt.Errorf("%s: %d tokens with %d types do not go into a vocabulary of %d", from, len(v.Tokens), len(v.Types), n)
	}
	const unused = 5
	for i := len(v.Tokens); i < n; i++ {
		v.Tokens = append(v.Tokens, fmt.Sprintf("<|unused_%d|>", i))
		v.Types = append(v.Types, unused)
	}
	f.Set("tokenizer.ggml.model", v.Model)
	f.Set("tokenizer.ggml.pre", v.Pre)
	f.Set("tokenizer.ggml.tokens", v.Tokens)
	f.Set("tokenizer.ggml.token_type", v.Types)
	f.Set("tokenizer.ggml.merges", v.Merges)
	for _, p := range []pair{{"bos", int(v.BOS)}, {"eos", int(v.EOS)}, {"unknown", int(v.Unknown)}, {"padding", int(v.Padding)}} {
		if p.v >= 0 {
			f.Set("tokenizer.ggml."+p.key+"_token_id", uint32(p.v))
		}
	}
	f.Set("tokenizer.ggml.add_bos_token", v.AddBOS != nil && *v.AddBOS)
	if t, ok := c.ChatTemplate(); ok {
		f.Set("tokenizer.chat_template", t)
	}
	return nil
}

// ropeFactors are what llama3 scaling divides each frequency by.
func ropeFactors(s shape) []float32 {
	factors := make([]float32, s.headSize/2)
	for i := range factors {
		wave := 2 * math.Pi * math.Pow(s.ropeBase, 2*float64(i)/float64(s.headSize))
		smooth := (s.originalContext/wave - s.lowFactor) / (s.highFactor - s.lowFactor)
		smooth = min(max(smooth, 0), 1)
		factors[i] = float32(1 / ((1-smooth)/s.ropeFactor + smooth))
	}
	return factors
}

// normals is a table to draw from: a draw costs two bytes of the generator.
var normals = func() (table [1 << 16]float32) {
	r := rand.New(rand.NewPCG(7, 7))
	for i := range table {
		table[i] = float32(r.NormFloat64())
	}
	return table
}()

// random writes rows x cols normal values of the given deviation. The generator starts from the seed and the name,
// so that a tensor does not depend on those before it.
func random(w io.Writer, t ggufwrite.Type, rows, cols int, deviation float64, seed uint64, name string) error {
	hash := uint64(14695981039346656037)
	for _, c := range []byte(name) {
		hash = (hash ^ uint64(c)) * 1099511628211
	}
	r := rand.NewPCG(seed, hash)
	x, b := make([]float32, cols), make([]byte, t.Bytes(cols))
	for range rows {
		var bits uint64
		for i := range x {
			if i%4 == 0 {
				bits = r.Uint64()
			}
			x[i] = normals[uint16(bits)] * float32(deviation)
			bits >>= 16
		}
		t.Encode(b, x)
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
