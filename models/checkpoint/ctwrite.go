package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/kernels/quant"
)

// CodedTensors are the tensors of a module [n,k] in compressed-tensors' pack-quantized: weight_packed,
// weight_shape, weight_scale and, when the scheme is not symmetric, weight_zero_point.
func CodedTensors(module string, s quant.Scheme, n, k int) []NewTensor {
	per := 32 / s.Bits
	list := []NewTensor{
		{module + ".weight_packed", "I32", []int{n, (k + per - 1) / per}},
		{module + ".weight_scale", "BF16", []int{n, k / s.Group}},
		{module + ".weight_shape", "I64", []int{2}},
	}
	if !s.Symmetric {
		list = append(list, NewTensor{module + ".weight_zero_point", "I32", []int{(n + per - 1) / per, k / s.Group}})
	}
	return list
}

// CodedRowStep is what the first row of each WriteCodes but the last must be a multiple of: zero points
// of that many rows share a word.
const CodedRowStep = 8

// WriteCodes writes rows [row, row+n) of a module of N rows, as r has them, of a Matrix of the scheme. The weight_shape
// is written with the first rows.
func (w *Writer) WriteCodes(module string, s quant.Scheme, m kernels.Matrix, r *kernels.Rows, row, n int) error {
	if row%CodedRowStep != 0 || n%CodedRowStep != 0 && row+n != m.N {
		return fmt.Errorf("%s: codes of rows [%d, %d) of %d", module, row, row+n, m.N)
	}
	if row == 0 {
		var shape [16]byte
		binary.LittleEndian.PutUint64(shape[:], uint64(m.N))
		binary.LittleEndian.PutUint64(shape[8:], uint64(m.K))
		if err := w.WriteAt(module+".weight_shape", 0, shape[:]); err != nil {
			return err
		}
	}
	per, groups := 32/s.Bits, m.Groups()
	rowBytes := (m.K + per - 1) / per * 4
	b := make([]byte, n*rowBytes)
	for i := range n {
		quant.Pack(b[i*rowBytes:(i+1)*rowBytes], s.Bits, r.Codes[i*m.K:(i+1)*m.K])
	}
	if err := w.WriteAt(module+".weight_packed", int64(row)*int64(rowBytes), b); err != nil {
		return err
	}
	b = b[:0]
	for _, x := range r.Scale[:n*groups] {
		b = binary.LittleEndian.AppendUint16(b, quant.ToBF16(x))
	}
	if err := w.WriteAt(module+".weight_scale", int64(row)*int64(groups)*2, b); err != nil {
		return err
	}
	if s.Symmetric {
		return nil
	}
	b = make([]byte, (n+per-1)/per*groups*4)
	quant.PackOutputs(b, s.Bits, r.Zero, n, groups)
	return w.WriteAt(module+".weight_zero_point", int64(row/per)*int64(groups)*4, b)
}

// ReadCodes is the reverse of WriteCodes.
func (w *Writer) ReadCodes(module string, s quant.Scheme, m kernels.Matrix, r *kernels.Rows, row, n int) error {
	per, groups := 32/s.Bits, m.Groups()
	rowBytes := (m.K + per - 1) / per * 4
	r.Reset(m, n)
	b := make([]byte, n*rowBytes)
	if err := w.ReadAt(module+".weight_packed", int64(row)*int64(rowBytes), b); err != nil {
		return err
	}
	for i := range n {
		quant.Packed(r.Codes[i*m.K:(i+1)*m.K], s.Bits, b[i*rowBytes:(i+1)*rowBytes])
	}
	b = make([]byte, n*groups*2)
	if err := w.ReadAt(module+".weight_scale", int64(row)*int64(groups)*2, b); err != nil {
		return err
	}
	quant.Floats(r.Scale, kernels.BF16, b)
	if s.Symmetric {
		for i := range r.Zero {
			r.Zero[i] = 1 << (s.Bits - 1)
		}
		return nil
	}
	first, last := row/per, (row+n+per-1)/per
	b = make([]byte, (last-first)*groups*4)
	if err := w.ReadAt(module+".weight_zero_point", int64(first)*int64(groups)*4, b); err != nil {
		return err
	}
	for i := range r.Zero {
		at := row + i/groups
		r.Zero[i] = quant.Code(b, (at/per-first)*groups+i%groups, at%per, s.Bits)
	}
	return nil
}

// CodedConfig is config.json with a quantization_config for the scheme, in place of the one it may
// have. ordered says that inputs were quantised in activation order; ignore are the modules that are not
// quantised.
func CodedConfig(config []byte, s quant.Scheme, ordered bool, ignore []string) ([]byte, error) {
	var order any
	if ordered {
		order = "weight"
	}
	quantization := map[string]any{
		"quant_method":        "compressed-tensors",
		"format":              packFormat,
		"quantization_status": "compressed",
		"ignore":              append([]string{}, ignore...),
		"config_groups": map[string]any{"group_0": map[string]any{
			"targets": []string{"Linear"},
			"weights": map[string]any{
				"num_bits": s.Bits, "type": "int", "symmetric": s.Symmetric, "strategy": "group", "group_size": s.Group,
				"dynamic": false, "actorder": order,
			},
			"input_activations": nil, "output_activations": nil,
		}},
		"kv_cache_scheme": nil,
	}
	value, err := json.Marshal(quantization, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	config, err = without(config, "quantization_config", "compression_config")
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	config = bytes.TrimSuffix(bytes.TrimSpace(config), []byte("}"))
	if trimmed := bytes.TrimSpace(config); len(trimmed) > 1 {
		config = append(config, ',')
	}
	config = append(append(append(config, `"quantization_config":`...), value...), '}')
	v := jsontext.Value(config)
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return append(v, '\n'), nil
}

// PlainConfig is config.json without a quantization_config.
func PlainConfig(config []byte) ([]byte, error) {
	b, err := without(config, "quantization_config", "compression_config")
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	v := jsontext.Value(b)
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return append(v, '\n'), nil
}

// without is a JSON object without some of its members, nor those of its text_config; others stay as they are, in order.
func without(object []byte, names ...string) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	out := []byte("{")
	err := jsonObject(d, func(d *jsontext.Decoder, key string) error {
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		for _, n := range names {
			if key == n {
				return nil
			}
		}
		v := []byte(value.Clone())
		if key == "text_config" && value.Kind() == '{' {
			if v, err = without(v, names...); err != nil {
				return err
			}
		}
		name, err := jsontext.AppendQuote(nil, key)
		if err != nil {
			return err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), v...)
		return nil
	})
	return append(out, '}'), err
}
