#!/bin/sh
# What is too long for `make test`: every fuzz target for FUZZ_SECONDS (default 60), the long forms of
# the tests, random checkpoints against transformers where python3 has that, the kernels on emulated ARM, the
# comparison with llama.cpp. Writes docs/soak.md and docs/bench-cpu.md. SOAK_PARTS picks from "fuzz long oracle
# arm64 bench"; ORACLE_SEED (default: the day) and ORACLE_CASES (default 100) say which checkpoints.
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
parts=${SOAK_PARTS:-fuzz long oracle arm64 bench}
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
        for pkg in $(go list ./... | grep -v /test/clients); do
            if grep -lq OPENINFER_SOAK "$(go list -f '{{.Dir}}' "$pkg")"/*_test.go 2>/dev/null; then
                run "long tests of ${pkg##*openinfer/}" env OPENINFER_SOAK=1 go test -count=1 -timeout 60m "$pkg"
            fi
        done
        ;;
    oracle)
        if ! python3 -c 'import torch, transformers, safetensors, compressed_tensors' 2>/dev/null; then
            row "random checkpoints against transformers" 0 "skipped: python3 lacks torch, transformers or compressed-tensors"
            continue
        fi
        cases=$(mktemp -d)
        seed=${ORACLE_SEED:-$(date +%Y%m%d)}
        run "random checkpoints from seed $seed, made" python3 scripts/oracle/make.py "$seed" "${ORACLE_CASES:-100}" "$cases"
        run "random checkpoints from seed $seed, compared" env OPENINFER_ORACLE="$cases" go test -count=1 -timeout 60m -run TestOracle ./test/quality
        rm -rf "$cases"
        ;;
    arm64) run "kernels/cpu on emulated 64-bit ARM" sh scripts/test-arm64.sh ;;
    bench) run "bench-cpu (docs/bench-cpu.md)" sh scripts/bench-cpu.sh ;;
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
