#!/bin/sh
# Writes docs/fleet-haproxy.md, and docs/fleet-haproxy-PRESET.json and .html: pooled against dedicated nodes in real time, each fleet
# behind a real HAProxy, all on this machine with simulated cards. PRESETS (default "six four") says which; ARGS (default: one run at
# the presets' full load, one fleet after the other, nodes told the SLA) are for "openinfer bench fleet".
set -eu
cd "$(dirname "$0")/.."
args=${ARGS:---seeds 1 --in-turn --send-sla}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin" ./cmd/openinfer ./scripts/fleethaproxy
{
    sed '1,/^exit$/d' "$0"
    for preset in ${PRESETS:-six four}; do
        # shellcheck disable=SC2086
        "$bin/fleethaproxy" -binary "$bin/openinfer" -preset "$preset" -- $args \
            --json "docs/fleet-haproxy-$preset.json" --html "docs/fleet-haproxy-$preset.html" >"$bin/$preset.txt"
        printf '\n## The preset %s\n\n```\n' "$preset"
        cat "$bin/$preset.txt"
        printf '```\n'
    done
} >"$bin/page"
cp "$bin/page" docs/fleet-haproxy.md
exit
