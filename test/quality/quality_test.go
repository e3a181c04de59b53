package quality

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"testing"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/cpu"
	"github.com/openinfer-go/openinfer/models/checkpoint"
	"github.com/openinfer-go/openinfer/models/modeltest"
	"github.com/openinfer-go/openinfer/models/registry"
)

// rival is what `llama-perplexity --kl-divergence-base FILE` writes: tokens in chunks of Context,
// and for each position of a chunk's second half but the last the log probabilities of all ids, as
// 16-bit steps above a least value.
type rival struct {
	context, vocab int
	tokens         []int32
	rows           *bytes.Reader
}

func readRival(path string) (*rival, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(data)
	var head struct {
		Magic                  [8]byte
		Context, Vocab, Chunks int32
	}
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return nil, err
	}
	if string(head.Magic[:]) != "_logits_" || head.Context < 2 || head.Vocab < 1 || head.Chunks < 1 {
		return nil, errors.New(path + ": not a file of log probabilities")
	}
	v := &rival{context: int(head.Context), vocab: int(head.Vocab), tokens: make([]int32, head.Context*head.Chunks), rows: r}
	return v, binary.Read(r, binary.LittleEndian, v.tokens)
}

// next returns the log probabilities of the next position.
func (v *rival) next() ([]float32, error) {
	row := make([]uint16, 2*((v.vocab+1)/2)+4)
	if err := binary.Read(v.rows, binary.LittleEndian, row); err != nil {
		return nil, err
	}
	word := func(i int) float32 { return math.Float32frombits(uint32(row[i]) | uint32(row[i+1])<<16) }
	scale, least := word(0), word(2)
	out := make([]float32, v.vocab)
	for i := range out {
		out[i] = scale*float32(row[4+i]) + least
	}
	return out, nil
}

// BenchmarkDivergence needs OPENINFER_QUALITY_MODEL, a .gguf file, and OPENINFER_QUALITY_RIVAL, what
// llama-perplexity wrote for it; `make bench-cpu` makes both.
func BenchmarkDivergence(b *testing.B) {
	model, path := os.Getenv("OPENINFER_QUALITY_MODEL"), os.Getenv("OPENINFER_QUALITY_RIVAL")
	if model == "" || path == "" {
		b.Skip("OPENINFER_QUALITY_MODEL and OPENINFER_QUALITY_RIVAL are not set")
	}
	for b.Loop() {
		v, err := readRival(path)
		if err != nil {
			b.Fatal(err)
		}
		exact := open(b, model, cpu.Options{Exact: true}, kernels.F32, v.context)
		fast := open(b, model, cpu.Options{}, kernels.F16, v.context)
		var ours, theirs divergence
		for at := 0; at < len(v.tokens); at += v.context {
			chunk := v.tokens[at : at+v.context]
			reference, got := logits(exact, chunk), logits(fast, chunk)
			for p := v.context / 2; p < v.context-1; p++ {
				row, err := v.next()
				if err != nil {
					b.Fatal(err)
				}
				ours.add(reference[p][:v.vocab], got[p][:v.vocab])
				theirs.add(reference[p][:v.vocab], row)
			}
		}
		if _, err := v.rows.ReadByte(); err != io.EOF {
			b.Fatal("log probabilities are left over: the positions do not match")
		}
		b.ReportMetric(float64(ours.n), "tokens")
		b.ReportMetric(ours.sum/float64(ours.n), "nats/ours")
		b.ReportMetric(theirs.sum/float64(theirs.n), "nats/llama.cpp")
		b.ReportMetric(100*float64(ours.top)/float64(ours.n), "%same-top/ours")
		b.ReportMetric(100*float64(theirs.top)/float64(theirs.n), "%same-top/llama.cpp")
	}
}

func open(b *testing.B, path string, o cpu.Options, kv kernels.DType, tokens int) *modeltest.Runner {
	d, err := cpu.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	c, err := checkpoint.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	m, err := registry.Load(c, d)
	if err != nil {
		b.Fatal(err)
	}
	return modeltest.NewRunner(b, d, m, kv, tokens)
}

func logits(r *modeltest.Runner, tokens []int32) [][]float32 {
	s := &modeltest.Sequence{Tokens: tokens}
	rows := r.Step(modeltest.Row{Sequence: s, N: len(tokens), All: true})
	r.Drop(s)
	return rows[0]
}

// divergence sums KL(p||q) in nats over rows.
type divergence struct {
	n, top int
	sum    float64
}

func (d *divergence) add(p, q []float32) {
	d.n++
	d.sum += modeltest.Divergence(p, q)
	if modeltest.Argmax(p) == modeltest.Argmax(q) {
		d.top++
	}
}
