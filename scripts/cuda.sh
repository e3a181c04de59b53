#!/bin/sh
# Compiles kernels/cuda/*.cu and scripts/gpucheck/*.cu (or those named, from kernels/cuda) to PTX for compute_80. Each .ptx says in its head the hash of its
# source, with what it includes from there, and the compiler's version: a test compares both.
set -eu
cd "$(dirname "$0")/.."
sh scripts/cuda-toolkit.sh
cuda=${OPENINFER_CACHE:-$PWD/.cache}/cuda
cd kernels/cuda
for cu in ${*:-*.cu ../../scripts/gpucheck/*.cu}; do
    ptx=${cu%.cu}.ptx
    "$cuda/bin/nvcc" -ptx -arch=compute_80 -std=c++17 -lineinfo -o "$ptx.tmp" "$cu"
    {
        echo "// source sha256 $(cat "$cu" $(sed -n 's/^#include "\(.*\)"/\1/p' "$cu") | sha256sum | cut -d' ' -f1)"
        "$cuda/bin/nvcc" --version | sed -n 's/^Cuda compilation tools, \(.*\)/\/\/ nvcc \1/p'
        # The debug sections hold paths of the machine that compiled; what is inlined would name functions in them.
        sed -e "s#\"$PWD/#\"#; s#\"$cuda/#\"cuda/#" -e '/^\t\.loc/s/, function_name.*//' -e '/^\t\.section/,$d' "$ptx.tmp"
    } >"$ptx"
    rm "$ptx.tmp"
done
