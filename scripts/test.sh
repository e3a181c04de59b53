#!/bin/sh
# The tests of `make test`: under the race detector what has goroutines that share state, the rest
# (arithmetic, readers) without it, where it would cost minutes and see nothing in C; then real
# models and real clients against the built binary. Prints where the time went.
set -eu
cd "$(dirname "$0")/.."
export OPENINFER_BIN="$PWD/openinfer"

start=$(date +%s)
stage() { now=$(date +%s); echo "== $1 (at $((now - start)) s)"; }

stage "pure Go packages, race detector"
go test -race -timeout 15m $(go list ./... | grep -v -e /kernels -e /models -e /test/)
stage "kernels and models"
go test -timeout 15m $(go list ./... | grep -e /kernels -e /models)
stage "real models, end to end"
go test -count=1 -timeout 10m ./test/e2e/ ./test/quality/
stage "real clients"
go test -tags clients -count=1 -timeout 10m ./test/clients/...
stage "done"
