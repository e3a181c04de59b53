#!/bin/sh
# Builds llama.cpp's server, perplexity and quantize tools from its Python binding's source package
# into .cache/llama: the rival that `make bench-cpu` measures beside us. Takes ten minutes once.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
version=0.3.36
dir=$cache/llama-$version
[ -x "$dir/bin/llama-server" ] && exit 0
command -v cmake >/dev/null 2>&1 || apt-get install -y --no-install-recommends cmake >/dev/null
mkdir -p "$dir/src"
python3 -m pip download -q --no-deps --no-binary :all: --disable-pip-version-check -d "$dir/src" "llama-cpp-python==$version"
tar xzf "$dir"/src/llama_cpp_python-*.tar.gz -C "$dir/src" --strip-components=1
cmake -S "$dir/src/vendor/llama.cpp" -B "$dir" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >"$dir/cmake.log"
cmake --build "$dir" -j"$(nproc)" --target llama-server llama-perplexity llama-bench llama-batched-bench >"$dir/build.log" 2>&1 || {
    tail -n 20 "$dir/build.log" >&2
    exit 1
}
rm -rf "$dir/src"
