#!/bin/sh
# Fetches into .cache/libcuda what tests of the CUDA driver's bindings need, 10 MB: Debian's libcuda, which answers that
# there is no card, and cuda.h. A second run does nothing. OPENINFER_CACHE names another cache folder.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
dir=$cache/libcuda
[ ! -f "$dir/include/cuda.h" ] || exit 0
mkdir -p "$cache"
tmp=$(mktemp -d "$cache/dl.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/root" "$tmp/new"
sh scripts/nonfree.sh "$tmp/root" libcuda1
lib=$(find "$tmp/root" -type f -name 'libcuda.so.*' | head -n 1)
[ -n "$lib" ] || { echo "libcuda: libcuda1 holds no libcuda.so" >&2; exit 1; }
cp "$lib" "$tmp/new/libcuda.so.1"
ln -s libcuda.so.1 "$tmp/new/libcuda.so"
python3 -m pip download -q --no-deps --disable-pip-version-check -d "$tmp" nvidia-cuda-runtime-cu11==11.8.89
python3 -m zipfile -e "$tmp"/nvidia_cuda_runtime_cu11-*.whl "$tmp/wheel"
cp -r "$tmp/wheel/nvidia/cuda_runtime/include" "$tmp/new/include"
rm -rf "$dir"
mv "$tmp/new" "$dir"
