#!/bin/sh
# The CPU kernels on 64-bit ARM, under an emulator: both NEON variants pass the conformance suite, and
# their integers are those of plain C. The slowest cases are left out, since an emulator is 20 times slower.
# What it cannot show: speed, and mistakes of memory ordering, for which the emulated machine is too orderly.
#
# Installs (Debian, as root) the cross compiler and the emulator when they are missing.
set -eu
cd "$(dirname "$0")/.."
export GOTOOLCHAIN=go1.27.3

if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc go test -c -o "$dir/cpu.test" ./kernels/cpu

emulate() { # processor, tests
    echo "== $1"
    (cd kernels/cpu && OPENINFER_SOAK=1 qemu-aarch64 -cpu "$1" -L /usr/aarch64-linux-gnu "$dir/cpu.test" \
        -test.timeout 30m -test.v -test.run "$2") >"$dir/log" 2>&1 || {
        grep -v -e '^ *--- PASS' -e '^=== ' "$dir/log" | tail -n 40
        exit 1
    }
    grep -e 'open_test.go.*neon' "$dir/log"
    echo "$(grep -c '^ *--- PASS' "$dir/log") tests pass"
}

int8='^TestConformance$/^int8_one_thread$'
threads='^TestConformance$/^int8$'
exact='^TestConformance$/^exact_one_thread$'
linear='^(memory|load|linear.*|embedding_rows)$'
rows='^(norm|cos_and_sin|norm_.*|gate|soft_cap|followed.*|gather|errors|recurrent.*|attention_(shared|without|after).*|rotary_and_store|cache_codes|sample_[^d].*)$'
attention='^attention(_chunks)?$/^(4_heads_2_kv_32|16_heads_1_kv_16)' # two geometries of long contexts
both='^TestOpen|^TestExtremes$'

emulate cortex-a72 "$both|$int8/$linear|$int8/$rows|$int8/$attention" # no dot products
emulate max "$both|$int8/$linear|$int8/$attention|$exact/^linear|$threads/^(linear_exact|attention_without_store)$"
