#!/bin/sh
# Writes docs/fleet-pooled.md: pooled against dedicated nodes in virtual time, SEEDS runs of each setting (default 30) and
# FEW of each row of the table of sensitivities (default 3). Results stay in OUT (default: a new folder); what is there
# already is not run again.
set -eu
cd "$(dirname "$0")/.."
seeds=${SEEDS:-30}
few=${FEW:-3}
out=${OUT:-$(mktemp -d)}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin" ./cmd/openinfer ./scripts/fleetpooled
: >"$bin/list"

run() { # name, file, flags...
    name=$1 file=$out/$2.json
    shift 2
    if ! [ -s "$file" ]; then
        "$bin/openinfer" bench fleet --virtual --json "$file.part" "$@" >/dev/null
        mv "$file.part" "$file"
    fi
    printf '%s:%s\n' "$name" "$file" >>"$bin/list"
}

for card in a6000 rtx3090; do
    for preset in six four; do
        run "=$preset models, $preset nodes, $card" "$preset-$card" --preset "$preset" --card "$card" --seeds "$seeds"
    done
done
for x in 0.5 1.5 2 3; do run "six, a6000: $x times the requests" "load-$x" --load "$x" --seeds "$few"; done
for x in 0.67 0.83 1; do run "six, a6000: every wave asks for $x of what six nodes could do" "equal-$x" --equal --load "$x" --seeds "$few"; done
for x in 0 0.5; do run "six, a6000: waves $x apart (0: all at once, 1: one after the other)" "shift-$x" --shift "$x" --seeds "$few"; done
run "six, a6000: no waves" even --floor 1 --seeds "$few"
run "six, a6000: four waves of each model" waves-4 --waves 4 --seeds "$few"
for x in 0.5 2 4; do run "six, a6000: $x times the SLA" "sla-$x" --sla "$x" --seeds "$few"; done
for x in 50 800; do run "six, a6000: answers of $x tokens" "output-$x" --output-len "$x" --seeds "$few"; done
run "six, a6000: prompts of 1,000 tokens more" prompt-1150 --prompt-len 1150 --seeds "$few"
run "six, a6000: twice the requests, a balancer that knows nothing of models (least connections)" spread --load 2 --spread --seeds "$few"
for x in 16 256; do run "six, a6000: $x may wait at vLLM's gateway" "queue-$x" --vllm-queue "$x" --seeds "$few"; done

set --
while IFS= read -r line; do set -- "$@" "$line"; done <"$bin/list"
"$bin/fleetpooled" "$@" >"$bin/page"
cp "$bin/page" docs/fleet-pooled.md
