#!/bin/sh
# Fetches the public JSON Schema test suite (draft 7 and 2020-12), as a Go module carries it, into .cache.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
[ -f "$cache/jsonschema/draft7/ref.json" ] && exit 0
dir=$(cd "$(mktemp -d)" && go mod download -json github.com/google/jsonschema-go@v0.4.3 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
mkdir -p "$cache/jsonschema"
cp -r "$dir/jsonschema/testdata/draft2020-12" "$dir/jsonschema/testdata/draft7" "$cache/jsonschema/"
chmod -R u+w "$cache/jsonschema"
