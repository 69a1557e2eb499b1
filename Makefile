# A table of contents. What the targets do is in harness/cmd/workshop.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# No C compiler is needed, but for the race detector.
export CGO_ENABLED ?= 0

# "make lesson 3" is "make lesson N=3".
ifeq (lesson,$(firstword $(MAKECMDGOALS)))
N ?= $(word 2,$(MAKECMDGOALS))
ifneq (,$(word 2,$(MAKECMDGOALS)))
$(eval $(word 2,$(MAKECMDGOALS)): ; @:)
endif
endif

# The workshop's command, built when its sources have changed. It ends when this make does.
define workshop
command -v go >/dev/null || { echo "There is no go command. Install Go 1.26 or newer: https://go.dev/dl" >&2; exit 1; }; \
(cd harness && GOWORK=off go env GOVERSION >/dev/null) || { echo "The workshop needs Go 1.26 or newer: https://go.dev/dl" >&2; exit 1; }; \
(cd harness && GOWORK=off go build -o ../.workshop/bin/bootstrap ./cmd/bootstrap) || exit 1; \
WORKSHOP_WATCH_PID=$$PPID exec .workshop/bin/bootstrap harness
endef

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: lesson
lesson: ## Play a lesson: make lesson 1. CLUSTER=up or CLUSTER=context:NAME: where (YES=1: do not ask). STEP=1: wait for Enter. KEEP=1: leave the cluster up
	@$(workshop) lesson "$(N)" --cluster "$(or $(CLUSTER),embedded)" $(if $(STEP),--step) $(if $(KEEP),--keep) $(if $(YES),--yes)

.PHONY: up
up: ## Start a cluster that stays, for your own terminal. NODES=3: how many
	@$(workshop) up $(if $(NODES),--nodes "$(NODES)")

.PHONY: env
env: ## Print what points a terminal at it: eval "$(make -s env)"
	@$(workshop) env

.PHONY: status
status: ## Say whether it runs
	@$(workshop) status

.PHONY: down
down: ## Stop it and keep its state
	@$(workshop) down

.PHONY: reset
reset: ## Stop it and throw its state away
	@$(workshop) reset

.PHONY: test
test: ## Run all checks and tests, and play every page. No Docker
	@$(MAKE) check
	@$(MAKE) tests

# Modules without packages of their own: they say which version of programs by others is used.
pins = tools harness/others 04-crd/tools
modules = $(filter-out $(pins),$(patsubst %/go.mod,%,$(shell git ls-files --cached --others --exclude-standard '*go.mod')))
packages = $(patsubst %,./%/...,$(modules))

# All modules at once, in the workspace, so that what they share is compiled and looked at once. That each of them
# builds without the workspace, and from the same versions, is a test: harness/repository.
.PHONY: check
check: tools ## Check formatting, module files, vet and staticcheck
	@files=$$($$(go env GOROOT)/bin/gofmt -l $(modules)); if [ -n "$$files" ]; then echo "not formatted; run gofmt -w on:" $$files >&2; exit 1; fi
	@for dir in $(pins) $(modules); do (cd $$dir && GOWORK=off go mod tidy -diff) || exit 1; done
	@echo "go vet" && go vet $(packages)
	@echo "staticcheck" && .workshop/bin/staticcheck $(packages)

# What cannot have changed is not run again: this is Go's test cache. Most tests wait most of the time, so there are
# more of them at a time than processors. Packages without tests are left out: with the race detector, the go command
# would compile all of Kubernetes to say that the control plane's has none.
.PHONY: tests
tests: tools ## Run the tests of every module with the race detector, on one control plane
	@rm -f .workshop/tests.json # or the counts of an earlier run would be printed if this one cannot begin
	@($(workshop) run --nodes 10 --shared .workshop/tests -- env CGO_ENABLED=1 GOGC=200 KUBE_CACHE_MUTATION_DETECTOR=true \
		.workshop/bin/gotestsum --format pkgname --jsonfile .workshop/tests.json -- -race -vet=off -ldflags=-s -p 4 -parallel 4 -timeout 30m \
		$$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(packages))); \
	status=$$?; .workshop/bin/bootstrap harness slowest .workshop/tests.json || exit 1; exit $$status

# What has nothing to do with a cloud is left out; "make tests" has it. The first command says so if there is no Neutron.
.PHONY: neutron
neutron: tools ## Run lesson 4's tests, and play its page, with OpenStack's own Neutron. Needs Debian's python3-neutron
	@cd 04-crd && GOWORK=off go build -o ../.workshop/bin/neutron ./cmd/neutron
	@.workshop/bin/neutron --real --address 127.0.0.1:0 true
	@$(workshop) run --nodes 1 -- env NEUTRON=real CGO_ENABLED=1 KUBE_CACHE_MUTATION_DETECTOR=true \
		.workshop/bin/neutron --address 127.0.0.1:0 .workshop/bin/gotestsum --format pkgname -- -race -count=1 -p 2 -timeout 10m \
		-skip '^Test(Generated|MarkersAreExplained|Torture|TheCatalogueCanBeRead|Lives|Validation|Updates|TheExample|Rights|Program|WhoAsks|WhatIsAnswered)$$' ./04-crd/neutron ./04-crd/neutrontest ./04-crd/test

.PHONY: bench
bench: ## Measure boots of the control plane beside envtest's, requests through the recorder beside direct ones, and what 1,000 Networks of lesson 4 take and cost. BOOTS=10, NETWORKS=1000: how many. BENCH="--events 0": flags
	@cd harness/bench && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run . --boots "$(or $(BOOTS),10)" $(BENCH)
	@cd 04-crd/test && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run ./bench --networks "$(or $(NETWORKS),1000)"

.PHONY: score
score: ## Measure what lessons 1 to 3 cost and what they lose, side by side, into docs/score.md. SCORE="--pods 10": flags
	@cd 03-workqueue/test && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run ./score $(SCORE)

# The scenario of a lesson: LESSON=3.
scenarios = $(wildcard 0*/test/torture/scenario.yaml)
scenario = $(or $(filter 0$(or $(LESSON),3)-% $(or $(LESSON),3)/%,$(scenarios)),$(error There is no torture for lesson $(LESSON). There is for: $(sort $(foreach s,$(scenarios),$(firstword $(subst /, ,$(s)))))))

.PHONY: torture
torture: ## Run a lesson's controller with everything going wrong once: LESSON=3. SCENARIO=file: another one. TORTURE="--seeds 100": flags
	@$(workshop) torture --scenario "$(or $(SCENARIO),$(scenario))" $(TORTURE)

.PHONY: mutants
mutants: ## Put bugs into a lesson's controller, and see whether torture finds them: LESSON=3. MUTANTS="--only hot-loop": flags
	@$(workshop) mutants --scenario "$(scenario)" --mutants "$(dir $(scenario))../mutants" $(MUTANTS)

# Where the generators start from nothing, nothing stays that they do not write any more.
.PHONY: generate
generate: ## Generate what follows from lesson 4's types: deep copies, clients, informers, the CustomResourceDefinition
	@cd 04-crd && find generated apis manifests \( -name '*.go' -path 'generated/*' -o -name 'zz_generated.*' -o -name 'samplecrd.k8s.io_*.yaml' \) -delete && \
		GOWORK=off go generate -x .

.PHONY: cross
cross: ## Check that everything cross-compiles for Linux and macOS, amd64 and arm64. Slow
	@for target in linux/arm64 darwin/arm64 darwin/amd64 linux/amd64; do \
		echo "cross-compile $$target"; \
		for dir in $(modules); do \
			(cd $$dir && GOWORK=off GOOS=$${target%/*} GOARCH=$${target#*/} go build -o /dev/null ./...) || exit 1; \
		done; \
	done

.PHONY: tools
tools:
	@cd tools && GOWORK=off go build -o ../.workshop/bin/ tool

.PHONY: clean
clean: reset ## Stop the cluster and remove what was built here
	@rm -rf .workshop
