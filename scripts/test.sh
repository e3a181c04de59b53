#!/bin/sh
# The tests of `make test`: the short ones of what shares state between goroutines under the race
# detector (all of it would cost minutes, and it sees nothing in C), then everything, then real
# models, reports in a browser and real clients against the built binary. Prints where the time went.
set -eu
cd "$(dirname "$0")/.."
export OPENINFER_BIN="$PWD/openinfer"

start=$(date +%s)
stage() { now=$(date +%s); echo "== $1 (at $((now - start)) s)"; }

stage "what shares state between goroutines, race detector"
go test -race -short -timeout 15m ./api/... ./bench/load/... ./cmd/... ./engine/... ./internal/...
stage "everything"
go test -timeout 15m $(go list ./... | grep -v -e /test/ -e /internal/) ./test/answers/ ./test/calls/
stage "reference results, one table"
make -s golden
stage "real models, end to end"
go test -count=1 -timeout 10m ./test/e2e/ ./test/quality/
stage "reports in a browser"
go test -count=1 -timeout 5m ./test/pages/
stage "real clients"
go test -tags clients -count=1 -timeout 10m ./test/clients/...
stage "the server's page in a browser"
go test -count=1 -timeout 5m ./test/browser/
stage "done"
