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

# Fleets behind HAProxy

Written by scripts/fleet-haproxy.sh: both fleets of a preset in real time, each behind a HAProxy of its own with the configuration of
deploy/haproxy; nodes are processes of the real program whose cards are **simulated**. Nodes, balancers and the load are on one machine. The
same in virtual time, thirty runs of each, is [fleet-pooled.md](fleet-pooled.md); as pages with charts:
[six models](fleet-haproxy-six.html), [four models](fleet-haproxy-four.html).

How these were made: on two cores, one fleet after the other (`--in-turn`), nodes told the SLA (`--send-sla`), everything with real-time
priority (`chrt -r 20`), as others used the machine. Each run took two thirds of a core on average, with
peaks of both: the notes below a result say that the load generator was late by some milliseconds at times.

Beside virtual time:

- Requests served agree. Six models: pooled 5,254 of 5,256 (virtual, mean of thirty loads: 99.6 %), dedicated 71.2 % (72.7 %), so the pooled fleet
  serves 1.40 times as many (1.37). Four models: pooled 70.3 % (82.4 %), dedicated 29.8 % (30.2 %): 2.36 times (2.73).
- Tokens sold do not agree for the two smallest models, whose nodes send 15,000 and more tokens a second: their first tokens reach the client
  some 0.2 s after the card has made them, on cores that all share, and dedicated nodes are promised to answer at just under 2 s. So a
  third of what the dedicated nodes of these two served was late here, and the factors, 1.90 and 2.93, are greater than the 1.43 and 2.86
  of virtual time. The latter are the ones to go by.
- The pooled fleet looks busier (96 % against 46 %): what is measured is the time in which a node has a step running, and nodes with time to
  spare run more and smaller steps.
