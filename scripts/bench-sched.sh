#!/bin/sh
# What a step and an admission cost in sched; writes docs/bench-sched.md from "## Measured" on. BENCH_BASE is the commit that it is compared with, its
# scheduler under the same benchmark and in turns with this one's (default: the commit before the last); BENCH_TURNS how many turns (default 5).
set -eu
cd "$(dirname "$0")/.."
turns=${BENCH_TURNS:-5}
base=$(git rev-parse --short "${BENCH_BASE:-HEAD~1}")
tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/base" 2>/dev/null || true; rm -rf "$tmp"' EXIT
git worktree add --quiet --detach "$tmp/base" "$base"
cp sched/bench_test.go "$tmp/base/sched/"
go test -c -o "$tmp/after" ./sched
(cd "$tmp/base" && go test -c -o "$tmp/before" ./sched)

# Each case in a process of its own: what one leaves to the collector is not the next one's. lines are "case value" of processor time.
cases=$(for w in 0 100 1000 10000; do echo "models=1/rows=256/waiting=$w models=16/rows=16/waiting=$w models=16/rows=256/waiting=$w"; done)
for turn in $(seq "$turns"); do
    for c in bare/rows=1 bare/rows=16 bare/rows=64 bare/rows=256 models=1/rows=1/waiting=0 models=1/rows=16/waiting=0 \
        models=1/rows=64/waiting=0 models=4/rows=256/waiting=0 $cases; do
        pattern=$(echo "BenchmarkStep/$c" | sed 's|[^/]*|^&$|g')
        for b in before after; do
            "$tmp/$b" -test.run xxx -test.bench "$pattern" -test.benchtime 6000x -test.benchmem >"$tmp/out"
            awk -v c="$c" '/^Benchmark/ { for (i = 2; i < NF; i++) if ($(i+1) == "cpu-us/op") v = $i; else if ($(i+1) == "allocs/op") a = $i; print c, v, a }' "$tmp/out" >>"$tmp/$b.step"
        done
    done
    for w in 0 100 1000 10000; do
        for b in before after; do
            "$tmp/$b" -test.run xxx -test.bench "^BenchmarkSubmit\$/^models=16\$/^waiting=$w\$" -test.benchtime 2000x >"$tmp/out"
            awk -v w="$w" '/^Benchmark/ { print w, $3 / 1000 }' "$tmp/out" >>"$tmp/$b.submit"
        done
    done
    uptime | sed 's/.*average: //; s/,.*//' >>"$tmp/load"
done

# least and median of a case's second column: pick FILE CASE
pick() { grep "^$2 " "$1" | sort -g -k2,2 | awk '{ v[NR] = $2 } END { printf "%.1f %.1f\n", v[1], v[int((NR+1)/2)] }'; }
row() { # row CASE BARE-ROWS
    set -- "$(pick "$tmp/before.step" "$1")" "$(pick "$tmp/after.step" "$1")" "$(pick "$tmp/after.step" "bare/rows=$2")" "$(grep "^$1 " "$tmp/after.step" | awk '$3 > m { m = $3 } END { print m+0 }')"
    echo "$1 $2 $3 $4" | awk '{ printf "%s | %s | %s | %s | %.2f | %.1f | %s |\n", $1, $2, $3, $4, $4/$2, $4/$6, $7 }'
}
{
    sed '/^## Measured/,$d' docs/bench-sched.md
    cat <<END
## Measured

Made by \`scripts/bench-sched.sh\` on $(date -u +%Y-%m-%d): microseconds of processor time for Plan, Commit and Events of one step, of this
scheduler (after) and of that at $base (before), in turns, $turns of each: the least and the median. The machine: $(nproc) cores of an
$(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'), shared with other work and other machines, under a load of $(sort -g "$tmp/load" | sed -n '1p;$p' | tr '\n' ' ' | sed 's/ $//; s/ / to /').
So compare a time with another in its row, or with "bare": the loop that any scheduler needs over as many rows of one model (a block for
each row that needs one, its tokens sealed, one appended, an event).

Of every three sequences one has a tight TPOT target, one a loose one, one none; those that wait have 50 keys. rows are those of a step: with 16
models of 256 rows 4,096 sequences run, of which a step sees 256 that have left the processor's caches since their last.

| models | rows | waiting | before: least | median | after: least | median | after / before | after / bare | allocations |
|---|---|---|---|---|---|---|---|---|---|
END
    for r in 1 16 64 256; do echo "| bare | $r | | $(row "bare/rows=$r" "$r")"; done
    for r in 1 16 64; do echo "| 1 | $r | 0 | $(row "models=1/rows=$r/waiting=0" "$r")"; done
    for m in "1 256" "16 16" "4 256" "16 256"; do
        set -- $m
        for w in 0 100 1000 10000; do
            grep -q "^models=$1/rows=$2/waiting=$w " "$tmp/after.step" && echo "| $1 | $2 | $w | $(row "models=$1/rows=$2/waiting=$w" "$2")"
        done || true
    done
    cat <<END

Ratios are of medians. Before and after hold for bare, too: it calls the same kvcache.

A request with an SLA that is asked about, accepted and cancelled (Check, Submit, Cancel), 16 models, microseconds:

| waiting | before: least | median | after: least | median |
|---|---|---|---|---|
END
    for w in 0 100 1000 10000; do
        echo "$w $(pick "$tmp/before.submit" "$w") $(pick "$tmp/after.submit" "$w")" | awk '{ printf "| %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5 }'
    done
} >"$tmp/report"
cp "$tmp/report" docs/bench-sched.md
