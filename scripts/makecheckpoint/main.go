// Command makecheckpoint writes a checkpoint of a given shape with random INT4 weights, as published
// ones lie on disk: shards of safetensors with an index, compressed-tensors pack-quantized in groups
// of 128, embeddings and output layer in bf16, a tokenizer and a chat template. What such a model
// says means nothing; how it loads, what memory it takes and how fast it is are those of the real one.
//
// It owns the tensors' names and shapes by architecture (tensors.go), a tokenizer of bytes
// (tokenizer.go) and the stream to disk (write.go), which holds one piece of a tensor at a time.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	config := flag.String("config", "", "config.json of the shape")
	out := flag.String("out", "", "folder to write")
	seed := flag.Uint64("seed", 1, "of the weights")
	layers := flag.Int("layers", 0, "keep this many layers only; 0: all")
	shard := flag.Int64("shard", 5<<30, "bytes of a shard, about")
	flag.Parse()
	if *config == "" || *out == "" {
		fmt.Fprintln(os.Stderr, "makecheckpoint: -config and -out are needed")
		os.Exit(2)
	}
	begin := time.Now()
	n, err := run(*config, *out, *seed, *layers, *shard)
	if err != nil {
		fmt.Fprintln(os.Stderr, "makecheckpoint:", err)
		os.Exit(1)
	}
	took := time.Since(begin)
	fmt.Printf("%s: %.2f GB in %.1f s\n", *out, float64(n)/1e9, took.Seconds())
}

func run(config, out string, seed uint64, layers int, shard int64) (int64, error) {
	raw, err := os.ReadFile(config)
	if err != nil {
		return 0, err
	}
	var whole map[string]any
	if err := json.Unmarshal(raw, &whole); err != nil {
		return 0, fmt.Errorf("%s: %w", config, err)
	}
	c, err := readShape(whole)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", config, err)
	}
	if layers > 0 {
		c.keep(layers)
	}
	tensors, ignore, err := c.tensors()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", config, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return 0, err
	}
	whole["quantization_config"] = map[string]any{
		"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
		"ignore": ignore,
		"config_groups": map[string]any{"group_0": map[string]any{
			"targets": []string{"Linear"},
			"weights": map[string]any{
				"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": groupSize, "dynamic": false, "actorder": nil,
			},
			"input_activations": nil, "output_activations": nil,
		}},
	}
	c.endToken(whole)
	if err := writeJSON(filepath.Join(out, "config.json"), whole); err != nil {
		return 0, err
	}
	if err := writeTokenizer(out, c.vocab); err != nil {
		return 0, err
	}
	return writeShards(out, tensors, seed, shard)
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
