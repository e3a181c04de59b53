#!/bin/sh
# Decode, prefill, quality and robustness beside llama.cpp, in one run; writes docs/bench-cpu.md.
# BENCH_ROUNDS sets how often each pair is alternated (default 5).
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
sh scripts/deps.sh
sh scripts/llama.sh
smol=$cache/gguf/SmolLM2-135M-Instruct.Q4_1.gguf
big=$cache/gguf/llama-1b-shape.Q4_0.gguf
[ -f "$big" ] || go run ./scripts/makegguf -shape llama-1b -type q4_0 -vocab-from "$smol" -o "$big"
text=$cache/bench-text.txt
cat LICENSE CONTRIBUTING.md README.md models/demo/*/README.md >"$text"
go run ./scripts/benchcpu -openinfer ./openinfer -llama "$cache/llama-0.3.36/bin" -rounds "${BENCH_ROUNDS:-5}" \
    -smol "$smol" -big "$big" -text "$text" -o docs/bench-cpu.md
