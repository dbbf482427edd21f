# make test   everything that a change must pass; installs redis-server if it is missing
# make lint   vet, staticcheck, gofumpt
# make race   tests only, with the race detector
# make bench  Go benchmarks of the hot paths

GO    ?= go
TOOLS := $(GO) run -modfile=tools/go.mod
PKGS  ?= ./...

.PHONY: test lint race bench redis fmt

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
	@unformatted=$$($(TOOLS) mvdan.cc/gofumpt -l .); \
		if [ -n "$$unformatted" ]; then echo "not formatted (gofumpt -w):"; echo "$$unformatted"; exit 1; fi

race:
	$(GO) test -race -timeout 10m $(PKGS)

bench:
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

fmt:
	$(TOOLS) mvdan.cc/gofumpt -w .
