#!/bin/sh
# The long tests of sched and kvcache: random timelines, planted bugs, a day of a fleet. Writes docs/sched-soak.md.
set -eu
cd "$(dirname "$0")/.."
log=$(mktemp)
status=0
OPENINFER_SOAK=1 go test -count=1 -timeout 120m -v ./sched ./kvcache >"$log" 2>&1 || status=$?
[ $status = 0 ] || grep -v '^=== \|draw ' "$log" | tail -n 60
{
    echo "# The scheduler under random load"
    echo
    echo "Made by \`scripts/sched-soak.sh\` on $(date -u +%Y-%m-%d) at commit $(git rev-parse --short HEAD), $(nproc) cores: $([ $status = 0 ] && echo pass || echo FAIL)."
    echo "A planted bug is found by the timelines within the time given; the time of a model is device time."
    echo
    echo "| what | time | result |"
    echo "|---|---|---|"
    sed -n 's/.*row| /| /p' "$log"
} >docs/sched-soak.md
rm -f "$log"
exit $status
