#!/bin/sh
# Fetches the part of CUDA 11.8 that compiles kernels to PTX (nvcc, ptxas, cuobjdump, headers) into
# .cache/cuda, without installing anything. A second run does nothing. Only who changes a kernel
# needs it: the PTX is committed. Use it through the wrappers in .cache/cuda/bin.
# OPENINFER_CACHE names another cache folder; "cutlass" as argument adds CUTLASS's headers.
set -eu
cache=${OPENINFER_CACHE:-$PWD/.cache}
dir=$cache/cuda
mkdir -p "$cache"

if [ ! -x "$dir/bin/nvcc" ]; then
    tmp=$(mktemp -d "$cache/dl.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    mkdir "$tmp/root"
    sh "$(dirname "$0")/nonfree.sh" "$tmp/root" nvidia-cuda-toolkit libnvvm4
    pip download -q --no-deps -d "$tmp" nvidia-cuda-runtime-cu11==11.8.89 nvidia-cuda-nvcc-cu11==11.8.89
    mkdir "$tmp/wheel"
    for whl in "$tmp"/*.whl; do python3 -m zipfile -e "$whl" "$tmp/wheel"; done
    mkdir -p "$tmp/root/include"
    cp -r "$tmp"/wheel/nvidia/*/include/. "$tmp/root/include/"
    rm -rf "$dir"
    mkdir -p "$dir"
    cp -r "$tmp/root/." "$dir/"
    mkdir -p "$dir/bin"
    # Debian's profile and compiler stand-ins name /usr and an older g++.
    profile=$dir/usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile
    rm -f "$profile"
    sed "s#/usr/lib/#$dir/usr/lib/#g" "$dir/etc/nvcc.profile" >"$profile"
    rm -f "$dir/usr/lib/nvidia-cuda-toolkit/bin/gcc" "$dir/usr/lib/nvidia-cuda-toolkit/bin/g++"
    for tool in nvcc ptxas cuobjdump nvdisasm; do
        real=$dir/usr/lib/nvidia-cuda-toolkit/bin/$tool
        [ -e "$real" ] || real=$dir/usr/bin/$tool
        extra=
        [ $tool != nvcc ] || extra="-ccbin /usr/bin/g++ --allow-unsupported-compiler -I$dir/include"
        cat >"$dir/bin/$tool.new" <<WRAPPER
#!/bin/sh
PATH=$dir/usr/lib/nvidia-cuda-toolkit/bin:$dir/usr/bin:\$PATH
LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu
export PATH LD_LIBRARY_PATH
exec $real $extra "\$@"
WRAPPER
        chmod +x "$dir/bin/$tool.new"
    done
    for tool in ptxas cuobjdump nvdisasm nvcc; do mv "$dir/bin/$tool.new" "$dir/bin/$tool"; done
fi

if [ "${1:-}" = cutlass ] && [ ! -d "$dir/cutlass/include" ]; then
    ctmp=$(mktemp -d "$cache/dl.XXXXXX")
    pip download -q --no-deps -d "$ctmp" nvidia-cutlass==3.5.1.0
    for whl in "$ctmp"/*.whl; do python3 -m zipfile -e "$whl" "$ctmp/w"; done
    inc=$(find "$ctmp/w" -type d -path '*include/cute' | head -n 1)
    [ -n "$inc" ] || { echo "cuda-toolkit: nvidia-cutlass holds no include/cute" >&2; exit 1; }
    mkdir -p "$dir/cutlass"
    cp -r "$(dirname "$inc")" "$dir/cutlass/include"
    rm -rf "$ctmp"
fi
