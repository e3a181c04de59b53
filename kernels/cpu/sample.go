//go:build cgo

package cpu

// #include "cpu.h"
import "C"

import (
	"unsafe"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/sampling"
)

type sampler = *sampling.Sampler

// newSampler draws with the variant's passes over a row.
func newSampler(v *C.oi_variant) sampler {
	at := func(x []float32) (*C.float, C.int) {
		return (*C.float)(unsafe.Pointer(unsafe.SliceData(x))), C.int(len(x))
	}
	return sampling.New(sampling.Scans{
		Max: func(x []float32) (float32, bool) {
			p, n := at(x)
			var nan C.int
			m := C.oi_largest(v, p, n, &nan)
			return float32(m), nan != 0
		},
		Find: func(x []float32, value float32) int {
			p, n := at(x)
			return int(C.oi_find(v, p, n, C.float(value)))
		},
		SumExp: func(x []float32, largest, scale float32) float64 {
			p, n := at(x)
			return float64(C.oi_sumexp(v, p, n, C.float(largest), C.float(scale)))
		},
		CountGreater: func(x []float32, value float32) int {
			p, n := at(x)
			return int(C.oi_greater(v, p, n, C.float(value)))
		},
		AtLeast: func(ids []int32, x []float32, value float32) []int32 {
			p, n := at(x)
			from := len(ids)
			ids = append(ids, make([]int32, len(x))...)
			k := int(C.oi_select(v, p, n, C.float(value), (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(ids[from:])))))
			return ids[:from+k]
		},
	})
}

// Sample implements kernels.Device.
func (d *device) Sample(out []kernels.Sampled, logits kernels.Tensor, vocab int, params []kernels.SampleParams) {
	const op = "sample"
	for i := range out {
		out[i] = kernels.Sampled{ID: -1, NaN: true} // until drawn
	}
	if !d.dense(op, "logits", logits, len(out), logits.Cols) {
		return
	}
	if vocab <= 0 || vocab > logits.Cols || len(params) != len(out) {
		d.fail(op, "%d rows, %d parameters, vocabulary %d of logits %v", len(out), len(params), vocab, logits)
		return
	}
	d.run()
	for i := range out {
		out[i] = d.sampler.Row(logits.Row(i)[:vocab], &params[i])
	}
}
