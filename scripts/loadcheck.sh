#!/bin/sh
# How exact the load generator is: writes docs/bench-load.md (four minutes). Where the machine has other work, run it under
# `chrt -r 10`: a generator that does not get the cores cannot be exact, and says so itself.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
bin=$(mktemp)
trap 'rm -f "$out" "$bin"' EXIT
go build -o "$bin" ./scripts/loadcheck
"$bin" >"$out" || {
    cat "$out"
    exit 1
}
cp "$out" docs/bench-load.md
