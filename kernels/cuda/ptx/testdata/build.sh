#!/bin/sh
# Compiles every .cu here to PTX for compute_80, with the hash of its source (and of what it includes from here) and the compiler's
# version in the head, where a test looks. Needs `scripts/cuda-toolkit.sh cutlass`.
set -eu
cd "$(dirname "$0")"
cuda=${OPENINFER_CACHE:-$PWD/../../../../.cache}/cuda
for cu in ${*:-*.cu}; do
    ptx=${cu%.cu}.ptx
    "$cuda/bin/nvcc" -ptx -arch=compute_80 -std=c++17 --expt-relaxed-constexpr -lineinfo -I"$cuda/cutlass/include" -o "$ptx.tmp" "$cu"
    {
        echo "// source sha256 $(cat "$cu" $(sed -n 's/^#include "\(.*\)"/\1/p' "$cu") | sha256sum | cut -d' ' -f1)"
        "$cuda/bin/nvcc" --version | sed -n 's/^Cuda compilation tools, \(.*\)/\/\/ nvcc \1/p'
        # The debug sections hold paths of the machine that compiled.
        sed -e "s#\"$PWD/#\"#; s#\"$cuda/#\"cuda/#" -e '/^\t\.loc/s/, function_name.*//' -e '/^\t\.section/,$d' "$ptx.tmp"
    } >"$ptx"
    rm "$ptx.tmp"
done
g++ -std=gnu++17 -O1 -ffp-contract=off -frounding-math -fno-strict-aliasing -o diff_host diff_host.cpp
./diff_host >diff.expected
rm diff_host
