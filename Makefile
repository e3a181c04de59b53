# Everything a person does with this repository. `make help` lists it.
#
# Needs Go (it fetches the toolchain named here by itself), a C compiler and make; `make test`
# installs into .cache what else its tests need.

export GOTOOLCHAIN := go1.27.3
export CGO_ENABLED ?= 1

CACHE      := $(CURDIR)/.cache
STATICCHECK := $(CACHE)/bin/staticcheck
STATICCHECK_VERSION := v0.8.2
export OPENINFER_CACHE := $(CACHE)

.PHONY: help build serve test quick lint deps golden cuda kernel-report gpu-check bench-cpu soak clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

build: ## build ./openinfer
	go build -trimpath -o openinfer ./cmd/openinfer

serve: build ## build and serve the embedded models on 127.0.0.1:8080
	./openinfer serve

quick: ## vet and the tests that need only Go and a C compiler (a minute)
	go vet ./...
	OPENINFER_SHARED=none OPENINFER_CACHE=none OPENINFER_SHARED_OPTIONAL=1 go test -short $$(go list ./... | grep -v /test/)

lint: $(STATICCHECK) ## gofmt, go vet, staticcheck
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not gofmt'ed:"; echo "$$out"; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...

test: deps lint build ## what CI runs: installs what tests need, lint, all tests, real clients
	sh scripts/test.sh

deps: $(STATICCHECK) ## fetch what tests need into .cache
	sh scripts/deps.sh

$(STATICCHECK):
	GOBIN=$(CACHE)/bin go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

golden: ## one table: how far every stored result of the reference library is from ours
	@out=$$(OPENINFER_GOLDEN=1 go test -count=1 -run TestTable -v ./models/registry); status=$$?; \
	echo "$$out" | grep -v '^ *\(=== RUN\|--- PASS\)'; exit $$status

cuda: ## compile kernels/cuda/*.cu to the PTX beside them (fetches 115 MB of toolkit into .cache)
	sh scripts/cuda.sh

kernel-report: ## what the CUDA kernels cost on a card, predicted: writes docs/kernels.md (fetches the toolkit)
	sh scripts/cuda-toolkit.sh
	go run ./scripts/kernelreport --ptxas $(CACHE)/cuda/bin/ptxas

gpu-check: ## on a machine with a card: are the kernels right and how fast; a table, and gpu-check.json (eight minutes)
	go run ./scripts/gpucheck

bench-cpu: build ## side by side with llama.cpp on this machine; writes docs/bench-cpu.md
	sh scripts/bench-cpu.sh

soak: build deps ## fuzzing, rivals and what is long; writes its tables to docs/
	sh scripts/soak.sh

clean: ## remove what was built and fetched
	rm -rf openinfer .cache
