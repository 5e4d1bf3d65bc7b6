# Every check is a step of .ci/run, which also runs alone: this file gives the
# steps names to type, and knobs that suit a person at work.

.DEFAULT_GOAL := help
.PHONY: help check test npm site race bench benchmarks conformance nodes fuzz properties soak explore mutants docs vuln cross demo fleet attacks ci

# Packages whose tests rewrite the generated pages under docs/ with -update.
GENERATED := ./conn ./internal/actor ./internal/architecture ./internal/tools/guarantees

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## vet, formatting, go.mod, repository rules, exported names and golangci-lint
	.ci/run vet fmt tidy rules api lint

test: ## every test that needs only Go: go test work
	.ci/run test

npm: ## the tests with the SDKs and servers of others, which npm installs
	.ci/run npm

site: ## the documentation as pages in site/.vitepress/dist, with every link followed, looked at in Chromium (npm)
	.ci/run site

race: ## every test under the race detector, shuffled
	.ci/run race

bench: ## Bowline beside other implementations, on a machine that does nothing else: writes docs/benchmarks.md (BENCH=-rounds 3)
	cd peers && go run ./cmd/bench -write ../docs/benchmarks.md $(BENCH)

benchmarks: ## every benchmark of the packages, and a quick run of the comparison (BENCHTIME=1s)
	BENCHTIME=$${BENCHTIME:-1s} .ci/run bench

conformance: ## the official suite against server and client, and the command against the reference server (npm)
	.ci/run conformance

nodes: ## faults of a cluster of three processes, with books, and the official suite against it (SEED)
	.ci/run nodes

fuzz: ## every fuzz target (FUZZTIME=20000x)
	.ci/run fuzz

properties: ## the property suites with more cases (CHECKS=1000)
	.ci/run properties

soak: ## 10,000 cases of every property, floods, and 1,000,000 calls, under the race detector, every mutant, 200 child processes that are killed, every fault of a cluster, and a gateway over servers that are killed (SOAK_CHECKS, SOAK_HISTORIES, SOAK_CALLS, SOAK_CHILDREN_DURATION, SOAK_CHAOS)
	.ci/run soak

explore: ## every interleaving of a small alphabet in the cores of a connection and a supervisor, printed as it goes
	go test -count=1 -timeout 20m -v ./conn ./supervisor -run '^TestExplore$$' -args -explore=full

mutants: ## break the code on purpose, and see which breaks no test notices (MUTANTS='-part 20 ./auth/guard'); all take hours
	nice -n 15 go run ./internal/tools/mutants $(MUTANTS)

docs: ## rewrite the generated pages under docs/
	go test -count=1 $(GENERATED) -update
	go run ./internal/tools/api -update
	go test -count=1 ./cmd/bowline/internal/command ./internal/tools/guide -run '^(TestPageOfTheCommand|TestCodeIsFresh|TestLimitsAreFresh)$$' -update
	cd peers && go test -tags npm -count=1 -run TestInterop . -update

vuln: ## known vulnerabilities in what we import
	.ci/run vuln

cross: ## build for Linux, macOS and Windows
	.ci/run cross

demo: ## watch a connection survive its faults
	.ci/run demo

attacks: ## measure how well a good client is served while others attack, some minutes
	go run ./internal/tools/attacks

fleet: ## watch 10,000 connections start, idle, be killed and drain in one process (FLEET_PAIRS)
	FLEET_PAIRS=$${FLEET_PAIRS:-10000} .ci/run fleet

ci: ## everything that must hold before a change lands
	.ci/run
