//go:build linux && cgo

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// ownTool measures a workload with llama.cpp's own benchmark programs, which have no server and no
// client beside the arithmetic: the rival at its best. Tokens per second.
func ownTool(ctx context.Context, o options, path, work string) (float64, error) {
	threads := fmt.Sprint(o.threads)
	var argv []string
	var field string
	switch work {
	case workDecode:
		argv, field = []string{"llama-bench", "-m", path, "-t", threads, "-p", "0", "-n", "96", "-r", "1", "-o", "jsonl"}, "avg_ts"
	case workPrefill:
		argv, field = []string{"llama-bench", "-m", path, "-t", threads, "-p", "512", "-n", "0", "-r", "1", "-o", "jsonl"}, "avg_ts"
	case workStreams:
		argv, field = []string{"llama-batched-bench", "-m", path, "-t", threads, "-c", "4096", "-npp", "16", "-ntg", "24", "-npl", "8",
			"--output-format", "jsonl"}, "speed"
	}
	out, err := exec.CommandContext(ctx, filepath.Join(o.llama, argv[0]), argv[1:]...).Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", argv[0], err)
	}
	for line := range strings.Lines(string(out)) {
		var row map[string]any
		if json.Unmarshal([]byte(line), &row) != nil {
			continue
		}
		if v, ok := row[field].(float64); ok && v > 0 {
			if work == workStreams { // of prompt and answer tokens together; an HTTP round counts answers alone
				v *= 24.0 / (16 + 24)
			}
			return v, nil
		}
	}
	return 0, fmt.Errorf("%s printed no %s:\n%s", argv[0], field, out)
}
