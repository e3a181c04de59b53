#!/bin/sh
# Compares token masks with xgrammar's (its build for JavaScript, of a pinned version, put into the cache folder) and writes
# docs/grammar-xgrammar.md. Fails where a difference is of no known kind.
set -eu
xgrammar=0.1.27
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
js=$cache/js-xgrammar
if [ "$(cat "$js/.version" 2>/dev/null)" != "$xgrammar" ]; then
    rm -rf "$js"
    mkdir -p "$js"
    (cd "$js" && echo '{"private":true}' >package.json &&
        npm install --silent --no-audit --no-fund --no-update-notifier --ignore-scripts --save-exact "@mlc-ai/web-xgrammar@$xgrammar")
    echo "$xgrammar" >"$js/.version"
fi
OPENINFER_CACHE=$cache go run ./scripts/maskdiff -xgrammar "$js/node_modules/@mlc-ai/web-xgrammar/lib/index.js" "$@"
