#!/bin/sh
# Installs llm-compressor and transformers, of pinned versions, into the ignored cache folder: what `openinfer quantize` is
# compared with, and what reads its folders. 5.6 GB with torch, so only `make soak` asks for it. A second run does nothing.
set -eu
llmcompressor=0.14.0.1
torch=2.14.0
transformers=5.17.0
compressed_tensors=0.19.0

cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-.cache}
mkdir -p "$cache"
py=$(cd "$cache" && pwd)/py-quant
version="$llmcompressor $torch $transformers $compressed_tensors"
if [ "$(cat "$py/.version" 2>/dev/null)" != "$version" ]; then
  rm -rf "$py"
  mkdir -p "$py"
  if ! python3 -m pip --version >/dev/null 2>&1; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-pip
  fi
  python3 -m pip install --quiet --no-warn-conflicts --disable-pip-version-check --no-input --no-compile --root-user-action ignore \
    --target "$py" "llmcompressor==$llmcompressor" "torch==$torch" "transformers==$transformers" "compressed-tensors==$compressed_tensors"
  echo "$version" > "$py/.version" # last, so an install that was cut short is done again
fi
echo "quantisers: llmcompressor $llmcompressor, torch $torch, transformers $transformers, compressed-tensors $compressed_tensors in $py"
