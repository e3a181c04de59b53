#!/bin/sh
# Writes docs/fleet.md: six models on one simulated card, against other ways of serving them.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
go run ./scripts/fleet "$@" > "$out"
{
    printf '\n## Refusals\n\n'
    go run ./scripts/refusals
} >> "$out"
cp "$out" docs/fleet.md
