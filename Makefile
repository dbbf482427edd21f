# make test      everything that a change must pass; installs redis-server if it is missing
# make lint      vet, staticcheck, gofumpt
# make race      tests only, with the race detector
# make verify    histories of many clients under faults, checked; prints a table
# make soak D=10m  mixed load under faults for so long: memory, goroutines, violations
# make mutate    deliberate defects, each of which a named test must find
# make model     the waiting protocol, checked by Spin; installs spin and gcc if they are missing
# make topology  Sentinel and cluster failovers, slot moves, under load
# make interop   the cases of interop/ beside the real Redisson: needs java (17) and mvn
# make compare URL=redis://…  benchmarks beside other lock libraries
# make bench     Go benchmarks of the hot paths
# make bench-report  the numbers and the picture of README.md, in about 16 minutes: bench.md, bench.json, docs/bench.svg;
#                on private servers, or with URL=redis://… NODES=redis://…,redis://…
# make bench-budget  throughput against the longest wait for other budgets of hand-offs: budget.md, budget.svg

GO    ?= go
TOOLS := $(GO) run -modfile=tools/go.mod
PKGS  ?= ./...

.PHONY: test lint race verify soak mutate model topology interop compare bench bench-report bench-budget redis spin fmt

test: redis lint race

redis:
	@command -v redis-server >/dev/null || { \
		echo "installing redis-server"; \
		as=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq redis-server >/dev/null; }
	@redis-server --version

spin:
	@command -v spin >/dev/null && command -v gcc >/dev/null || { \
		echo "installing spin and gcc"; \
		as=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq spin gcc libc6-dev >/dev/null; }

lint:
	$(GO) vet $(PKGS)
	$(TOOLS) honnef.co/go/tools/cmd/staticcheck $(PKGS)
	cd bench/compare && $(GO) vet ./...
	@unformatted=$$($(TOOLS) mvdan.cc/gofumpt -l .); \
		if [ -n "$$unformatted" ]; then echo "not formatted (gofumpt -w):"; echo "$$unformatted"; exit 1; fi

race:
	$(GO) test -race -timeout 10m $(PKGS)
	cd bench/compare && $(GO) test ./...

verify: redis
	cd internal/verify && RLOCK_VERIFY=1 $(GO) test -count=1 -timeout 15m -run 'TestVerify$$'

D ?= 10m
soak: redis
	RLOCK_SOAK=$(D) $(GO) test -count=1 -v -timeout 0 -run 'TestSoak$$' ./internal/verify

mutate: redis
	RLOCK_MUTATE=1 $(GO) test -count=1 -v -timeout 20m ./internal/mutation

model: spin
	RLOCK_MODEL=1 $(GO) test -count=1 -v -timeout 20m ./model

topology: redis
	RLOCK_TOPOLOGY=1 $(GO) test -count=1 -v -timeout 15m ./internal/topology

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

PORTS ?= 7391 7392 7393
bench-report: SCENARIOS = uncontended-*,uncontended-64@1ms,readers-64,wakeup-*,wakeup-*@1ms,hot-*,foreign-*,idle-100,held-10000
bench-report: COMPARE = rlock,no-handoff,fair,readers,quorum,pubsub
bench-report: FILES = --json bench.json --markdown bench.md --svg docs/bench.svg
bench-budget: SCENARIOS = hot-8x8,hot-8x8-200us,foreign-*
bench-budget: COMPARE = rlock,no-handoff,handoff-*
bench-budget: PORTS = 7391
bench-budget: FILES = --json budget.json --markdown budget.md --svg budget.svg
ROUNDS ?= 3

# A server that does not start, because its port is taken, would let another one be measured.
bench-report bench-budget: redis
	@set -e; dir=$$(mktemp -d); pids=; url='$(URL)'; nodes='$(NODES)'; \
	trap 'set +e; kill $$pids 2>/dev/null; wait; rm -rf "$$dir"' EXIT; trap 'exit 130' INT TERM; \
	$(GO) build -o "$$dir/rlock" ./cmd/rlock; \
	if [ -z "$$url" ]; then for port in $(PORTS); do \
		redis-server --port $$port --bind 127.0.0.1 --save '' --dir "$$dir" >"$$dir/$$port.log" & pids="$$pids $$!"; \
		until redis-cli -p $$port ping >/dev/null 2>&1; do kill -0 $$!; sleep 0.1; done; sleep 0.2; kill -0 $$!; \
		if [ -z "$$url" ]; then url=redis://127.0.0.1:$$port; else nodes="$$nodes$${nodes:+,}redis://127.0.0.1:$$port"; fi; \
	done; fi; \
	"$$dir/rlock" --url "$$url" bench $${nodes:+--node "$$nodes"} --scenario '$(SCENARIOS)' --compare '$(COMPARE)' --rounds $(ROUNDS) $(FILES)

fmt:
	$(TOOLS) mvdan.cc/gofumpt -w .
