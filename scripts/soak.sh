#!/bin/sh
# What is too long for `make test`: every fuzz target for FUZZ_SECONDS (default 60), the long forms of
# the tests, random checkpoints against transformers, the quality of quantising and of KV cache types, the kernels on emulated ARM,
# checkpoints of full size, the comparison with llama.cpp, the speed test. Writes docs/soak.md, docs/quantize-quality.md, docs/kv-types.md,
# docs/shapes.md, docs/grammar-xgrammar.md, docs/sched-soak.md, docs/fleet.md, docs/fleet-pooled.md, docs/fleet-haproxy*, docs/bench-cpu.md, docs/bench-load.md and docs/matrix*.
# SOAK_PARTS picks from "fuzz long sched fleet pooled haproxy oracle quant kv masks arm64 shapes bench load matrix";
# ORACLE_SEED (default: the day) and ORACLE_CASES (default 100) say which checkpoints.
set -eu
cd "$(dirname "$0")/.."
cache=${OPENINFER_CACHE:-$PWD/.cache}
seconds=${FUZZ_SECONDS:-60}
parts=${SOAK_PARTS:-fuzz long sched fleet pooled haproxy oracle quant kv masks arm64 shapes bench load matrix}
log=$(mktemp)
table=$(mktemp)
failed=0

row() { # what, seconds, result
    printf '| %s | %s s | %s |\n' "$1" "$2" "$3" >>"$table"
    echo "soak: $1: $3 ($2 s)"
}

run() { # what, command...
    what=$1
    shift
    start=$(date +%s)
    if "$@" >"$log" 2>&1; then result=pass; else
        result=FAIL
        failed=1
        tail -n 40 "$log"
    fi
    case $what in
    fuzz*) result="$result, $(grep -o 'execs: [0-9]*' "$log" | tail -n 1)" ;;
    esac
    row "$what" "$(($(date +%s) - start))" "$result"
}

for part in $parts; do
    case $part in
    fuzz)
        for pkg in $(go list ./...); do
            for f in $(go test -list '^Fuzz' "$pkg" 2>/dev/null | grep '^Fuzz' || true); do
                run "fuzz ${pkg##*openinfer/} $f" go test -run '^$' -fuzz "^$f\$" -fuzztime "${seconds}s" -fuzzminimizetime 5x "$pkg"
            done
        done
        ;;
    long)
        run "packages of the long tests" sh scripts/deps-quant.sh
        for pkg in $(go list ./... | grep -v '/test/clients\|/sched$\|/kvcache$'); do
            if grep -lq OPENINFER_SOAK "$(go list -f '{{.Dir}}' "$pkg")"/*_test.go 2>/dev/null; then
                run "long tests of ${pkg##*openinfer/}" env OPENINFER_SOAK=1 go test -count=1 -timeout 60m "$pkg"
            fi
        done
        ;;
    sched) run "random timelines and a day (docs/sched-soak.md)" sh scripts/sched-soak.sh ;;
    fleet) run "one card, six models, in virtual time (docs/fleet.md)" sh scripts/fleet.sh ;;
    pooled) run "several nodes, several models, in virtual time (docs/fleet-pooled.md)" sh scripts/fleet-pooled.sh ;;
    haproxy) run "fleets in real time behind HAProxy (docs/fleet-haproxy.md)" sh scripts/fleet-haproxy.sh ;;
    oracle)
        run "packages of the reference library" sh scripts/deps-quant.sh
        cases=$(mktemp -d)
        seed=${ORACLE_SEED:-$(date +%Y%m%d)}
        run "random checkpoints from seed $seed, made" env PYTHONPATH="$cache/py-quant" HF_HUB_OFFLINE=1 python3 scripts/oracle/make.py "$seed" "${ORACLE_CASES:-100}" "$cases"
        run "random checkpoints from seed $seed, compared" env OPENINFER_ORACLE="$cases" go test -count=1 -timeout 60m -run TestOracle ./test/quality
        rm -rf "$cases"
        ;;
    quant) run "quality of quantisation (docs/quantize-quality.md)" sh scripts/quant-quality.sh ;;
    kv) run "what types of KV cache cost (docs/kv-types.md)" sh scripts/kv-types.sh ;;
    masks) run "token masks beside xgrammar's (docs/grammar-xgrammar.md)" sh scripts/maskdiff.sh ;;
    arm64) run "kernels/cpu on emulated 64-bit ARM" sh scripts/test-arm64.sh ;;
    shapes) run "checkpoints of full size (docs/shapes.md)" sh scripts/shapes.sh ;;
    bench) run "bench-cpu (docs/bench-cpu.md)" sh scripts/bench-cpu.sh ;;
    load) run "load generator against known delays (docs/bench-load.md)" sh scripts/loadcheck.sh ;;
    matrix) run "speed test, simulated and beside llama-server (docs/matrix.md)" sh scripts/matrix.sh ;;
    *)
        echo "soak: unknown part $part" >&2
        exit 2
        ;;
    esac
done

{
    echo "# Long tests"
    echo
    echo "Made by \`make soak\` on $(date -u +%Y-%m-%d) at commit $(git rev-parse --short HEAD), $(nproc) cores; fuzz targets ran ${seconds} s each."
    echo
    echo "| what | time | result |"
    echo "|---|---|---|"
    cat "$table"
} >docs/soak.md
rm -f "$log" "$table"
exit $failed
