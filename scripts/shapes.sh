#!/bin/sh
# Makes checkpoints of full size (26 GB on disk; SHAPES picks some) from the configs beside the reference
# data, and measures what it takes to serve them. Writes docs/shapes.md.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
configs=${OPENINFER_SHARED:-../shared}/configs
dirs=
for shape in ${SHAPES:-llama-3.2-1b qwen3.5-9b qwen3.5-27b}; do
    dir=$cache/shapes/$shape
    if [ ! -f "$dir/model.safetensors.index.json" ]; then # written last
        rm -rf "$dir"
        go run ./scripts/makecheckpoint -config "$configs/$shape.json" -out "$dir"
    fi
    dirs="$dirs $dir"
done
# shellcheck disable=SC2086
go run ./scripts/shapes -openinfer ./openinfer -o docs/shapes.md $dirs
