# make test     everything that a change must pass; installs redis-server if it is missing
# make lint     vet, staticcheck, gofumpt
# make race     tests only, with the race detector
# make interop  the cases of interop/ beside the real Redisson: needs java (17) and mvn
# make compare URL=redis://…  benchmarks beside other lock libraries
# make bench    Go benchmarks of the hot paths

GO    ?= go
TOOLS := $(GO) run -modfile=tools/go.mod
PKGS  ?= ./...

.PHONY: test lint race interop compare bench redis fmt

test: redis lint race

redis:
	@command -v redis-server >/dev/null || { \
		echo "installing redis-server"; \
		as=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq redis-server >/dev/null; }
	@redis-server --version

lint:
	$(GO) vet $(PKGS)
	$(TOOLS) honnef.co/go/tools/cmd/staticcheck $(PKGS)
	cd bench/compare && $(GO) vet ./...
	@unformatted=$$($(TOOLS) mvdan.cc/gofumpt -l .); \
		if [ -n "$$unformatted" ]; then echo "not formatted (gofumpt -w):"; echo "$$unformatted"; exit 1; fi

race:
	$(GO) test -race -timeout 10m $(PKGS)
	cd bench/compare && $(GO) test ./...

# Without a package argument, for with one go test keeps the tables to itself.
interop: redis
	@for tool in java mvn; do command -v $$tool >/dev/null || { echo "make interop needs $$tool (a JDK of at least 17, and Maven)"; exit 1; }; done
	cd interop && RLOCK_INTEROP=1 $(GO) test -race -count=1 -timeout 10m -run TestRedisson
	cd interop && RLOCK_INTEROP=1 $(GO) test -count=1 -timeout 10m -run TestFigures

# URL is a Redis server that does nothing else.
compare:
	cd bench/compare && $(GO) run . -url $(URL) -json $(CURDIR)/compare.json -svg $(CURDIR)/compare.svg

bench:
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

fmt:
	$(TOOLS) mvdan.cc/gofumpt -w .
