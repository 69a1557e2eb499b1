# The targets, each with a line of help. The code behind most of them is in harness/cmd/workshop.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# In what "make bundle" has packed: its own Go, modules and compiled programs are used.
-include .bundle/settings.mk

# Only the race detector needs a C compiler.
export CGO_ENABLED ?= 0
# Nothing here depends on the revision, and the go command fails where it cannot find it out, as in a checkout that belongs to
# somebody else. Of a flag that is given twice, the last counts; each make that another runs finds it there already.
# A -mod flag does not go with the workspace of the modules.
export GOFLAGS := $(strip $(filter-out -buildvcs=false -mod=% -modfile=%,$(or $(GOFLAGS),$(shell go env GOFLAGS 2>/dev/null))) -buildvcs=false)
# What is built runs here, from these modules, whatever the caller builds otherwise.
unexport GOOS GOARCH GO111MODULE GOEXPERIMENT GOWORK

# "make lesson 3" is "make lesson N=3". What comes after these targets is no target, but what to play.
named = lesson exercise exercises guess new
ifneq (,$(filter $(named),$(firstword $(MAKECMDGOALS))))
names := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
N ?= $(firstword $(names))
ifneq (,$(names))
taken := $(firstword $(filter $(names),$(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile)))
$(if $(taken),$(error "$(taken)" is a target of make, so it cannot be named here; the workshop command of make env can: workshop $(firstword $(MAKECMDGOALS)) $(taken)))
.PHONY: $(names)
$(eval $(names): ; @:)
endif
endif

# STEP=0 is no, as STEP= is. yes-no leaves what is neither to the command.
on = $(filter-out 0 no false,$(1))
yes-no = $(if $(filter 1 yes,$(1)),true,$(if $(filter 0 no,$(1)),false,$(1)))

# Ends with a sentence where nothing could be built.
define has-go
command -v go >/dev/null || { echo "There is no go command. Install Go 1.26 or newer: https://go.dev/dl" >&2; exit 1; }
endef
define ready
$(has-go); \
(cd harness && GOWORK=off go env GOVERSION >/dev/null) || { echo "The workshop needs Go 1.26 or newer: https://go.dev/dl" >&2; exit 1; }; \
mkdir -p .workshop/bin && [ -w .workshop/bin ] || { echo "make cannot write to $(CURDIR)/.workshop, where it builds its programs. Clone the repository to a directory that belongs to you, and run make there." >&2; exit 1; }
endef

# Runs the workshop's command, after building it if its sources have changed. It ends when make does.
define workshop
$(ready); \
(cd harness && GOWORK=off go build -o ../.workshop/bin/bootstrap ./cmd/bootstrap) || exit 1; \
WORKSHOP_WATCH_PID=$$PPID exec .workshop/bin/bootstrap harness
endef

# What "make" lists: what a learner needs. "make help-all" lists the rest, too.
first = lesson exercise guess up env status down reset new view torture test help-all
list = columns=$$(stty size 2>/dev/null | cut -d ' ' -f 2 | grep '[1-9]' || echo 100); \
	awk -F ':.*\#\# ' -v only=" $1 " '/^[a-z0-9-]+:.*\#\# / { shown = only == "  " || index(only, " " $$1 " "); if (shown) printf "  make %-9s %s\n", $$1, $$2 } \
		/^\#\#  / { if (shown) { sub("^\#\#", "               "); print } }' Makefile | fold -s -w $$columns
.PHONY: help
help:
	@$(call list,$(first))

.PHONY: lesson
lesson: ## Play a lesson: make lesson 1. It waits for Enter before each command
##  STEP=0: do not wait; FROM="A stale cache": begin at that section
##  KEEP=1: leave the cluster up at the end
##  CLUSTER=up, CLUSTER=context:NAME: play it there (YES=1: without asking)
##  CLUSTER=kind: play it on containers, with Docker or Podman
##  VIEW=1: draw the requests of its programs meanwhile, as a page for your browser
	@$(workshop) lesson $(or $(names),"$(N)") --cluster "$(or $(CLUSTER),embedded)" $(if $(call on,$(VIEW)),--view) \
		$(if $(STEP),--step="$(call yes-no,$(STEP))") $(if $(FROM),--from "$(FROM)") $(if $(call on,$(KEEP)),--keep) $(if $(call on,$(YES)),--yes)

# make lesson1
lesson%:
	@$(MAKE) lesson N=$*

.PHONY: exercise exercises
exercises: exercise
exercise: ## Do the exercises: find the bug in a controller, and fix it
##  make exercise 7: begin with exercise 7
	@$(workshop) exercises $(or $(names),$(N))

.PHONY: guess
guess: ## Guess what Kubernetes really does, and watch it
##  LESSON=5, TOPIC=leases: only these questions; make guess NAME: only this one
##  ROOM=1: ask a room, and count hands; KEEP=1: leave the cluster up at the end
	@$(workshop) guess $(names) $(if $(LESSON),--lesson "$(LESSON)") $(if $(TOPIC),--topic "$(TOPIC)") $(if $(call on,$(STEP)),--step) \
		$(if $(call on,$(ROOM)),--room) $(if $(call on,$(KEEP)),--keep)

.PHONY: up
up: ## Start a cluster that keeps running, for your own terminal
##  NODES=3: number of simulated nodes
	@$(workshop) up $(if $(NODES),--nodes "$(NODES)")

.PHONY: env
env: ## Point a terminal at it: eval "$(make -s env)"
	@$(workshop) env

.PHONY: status
status: ## Say whether the cluster of "make up" is running
	@$(workshop) status

.PHONY: down
down: ## Stop that cluster, and keep its state
	@$(workshop) down

.PHONY: reset
reset: ## Stop that cluster, and delete its state
	@$(workshop) reset

.PHONY: new
new: ## Write the skeleton of a controller of your own: make new my-controller
##  DIR=PATH: there, and not beside this directory; MODULE=PATH: its module
	@$(workshop) new $(names) $(if $(names),--dir "$(or $(DIR),../$(firstword $(names)))") $(if $(MODULE),--module "$(MODULE)")

.PHONY: view
view: ## Draw a recording, as a page for your browser: make view RECORDING=FILE
##  OUT=FILE: write the page to a file instead, which needs no network
	@$(workshop) view $(if $(OUT),--out "$(OUT)") $(RECORDING)

# The cluster is created and deleted by a process of its own, so it is also deleted if the tests hang or are killed.
.PHONY: e2e
e2e: tools ## Run the lessons' controllers in Pods, on a kind cluster. Needs Docker or Podman
##  KEEP=1: leave the cluster up at the end; E2E="-run TestControllers": flags
##  KIND_NODE_IMAGE=kindest/node:v1.37.0: the image of its nodes
	@$(workshop) run --kind --workers 3 --audit-policy e2e/audit-policy.yaml $(if $(call on,$(KEEP)),--keep) -- \
		.workshop/bin/gotestsum --format testname --jsonfile .workshop/e2e.json -- -count=1 -timeout 30m $(E2E) ./e2e

.PHONY: kind-down
kind-down: ## Delete the kind cluster that KEEP=1 has left
	@$(workshop) kind-down

.PHONY: test
test: ## Run the checks, the unit tests, the exercises, and the pages of lessons 1 to 3:
##  minutes. Needs no C compiler
	@$(MAKE) check
	@$(MAKE) test-short

.PHONY: test-all
test-all: c-compiler ## Run all checks and tests, with the race detector, and play every page
	@$(MAKE) test
	@$(MAKE) test-rest
	@$(MAKE) test-change
	@.workshop/bin/bootstrap harness slowest .workshop/test.json .workshop/rest.json

# Modules without packages of their own: they pin the versions of other people's programs.
pins = tools tools/gremlins harness/others harness/others/descheduler harness/others/snapshot-controller 04-crd/tools
modules = $(shell sed -n 's|^[[:space:]]*\./||p' go.work)
packages = $(patsubst %,./%/...,$(modules))
# The tests in e2e need a kind cluster, so they are not among these.
tested = $(filter-out ./e2e/...,$(packages))
# The packages that "make test" leaves to "make test-all", because their tests take long, or need control planes of their own.
# Of the others, it leaves out the tests that package suite says.
left = ./03-workqueue/test/score/... ./04-crd/test/... ./05-reboot-operator/test/... ./06-secret-sync/test/... ./harness/bench/... \
	./harness/cluster ./harness/cmd/... ./harness/conformance/... ./harness/controlplane/... ./harness/image ./harness/lesson ./harness/machine ./harness/offline \
	./harness/repository/guesses ./harness/repository/yourcontroller ./harness/testinput ./harness/torturejob
# The packages whose tests take longest: they start first, so that the others run beside them. Those that mostly wait, such as
# ./04-crd/test, alternate with those that mostly compute, such as ./exercises.
longest = ./04-crd/test ./exercises ./harness/cmd/workshop ./harness/repository/guesses ./harness/skeleton ./03-workqueue/test ./06-secret-sync/test ./harness/torture ./05-reboot-operator/test \
	./harness/conformance ./harness/apiproxy ./harness/machine ./harness/exercise ./03-workqueue/test/score
with-tests = go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
short = $$($(with-tests) $(tested) | grep -vxF "$$($(with-tests) $(left))")
rest = $$($(with-tests) $(longest) $(tested))
# Directories whose code must be formatted: not the participant's, in exercises/my.
formatted = $(filter-out exercises,$(modules)) $(wildcard exercises/*.go exercises/[0-9]*)

# All modules at once, in the workspace, so that shared packages are compiled and checked once. A test in
# harness/repository makes sure that each module also builds without the workspace, from the same versions.
# harness/cmd/vet is the go command's vet, but does not analyze most dependencies. Still, the go command starts it for each of
# them, and the control plane has 2,000 more than all others, so it is left to "make test-all". It needs the packages that
# "make lesson" has compiled, so they have the same flags (gobuild.Program.Lean).
vet = "-vettool=$(CURDIR)/.workshop/bin/vet"
kubernetes = ./harness/controlplane/...
others = $(filter-out $(kubernetes),$(packages))
lean = $(foreach pattern,$(shell cat harness/controlplane/lean.txt),'-gcflags=$(pattern)=-dwarf=false -l')
.PHONY: check
check test-short test-rest: export GOGC = 200# of all processes, control planes too: memory for CPU time
check: tools ## Check formatting, module files, and vet
	@files=$$($$(go env GOROOT)/bin/gofmt -l $(formatted)); if [ -n "$$files" ]; then echo "not formatted; run gofmt -w on:" $$files >&2; exit 1; fi
	@for dir in $(pins) $(modules); do (cd $$dir && GOWORK=off go mod tidy -diff) || exit 1; done
	@echo "go vet" && go vet $(vet) $(others)

# Go's test cache leaves out tests whose inputs have not changed. Tests often wait, so each package runs more of them at a time
# than there are processors. Two processors would be idle for a quarter of the time with two packages, so there are three; with
# still more, a request takes a second, and leaders lose their Leases. Packages without tests are left out: the go command would
# compile all of Kubernetes just to report that the control plane has none.
at-a-time = -parallel 4 $(if $(filter 2,$(shell getconf _NPROCESSORS_ONLN)),-p 3)
# Runs go test on one control plane, with these flags, and writes the events to that file.
run-tests = rm -f $1; $(workshop) run --nodes 10 --shared .workshop/tests -- env KUBE_CACHE_MUTATION_DETECTOR=true $2 \
	.workshop/bin/gotestsum --format pkgname --jsonfile $1 -- -vet=off $(at-a-time) -timeout 45m
.PHONY: test-short
test-short: tools
	@($(call run-tests,.workshop/test.json,CGO_ENABLED=0 WORKSHOP_AFTER_MAKE_TEST=) -short '-ldflags=-s -w' $(short)); status=$$?; \
	.workshop/bin/bootstrap harness slowest .workshop/test.json \
		--ran "formatting, module files and vet; the tests of $$(echo $(short) | wc -w | tr -d ' ') packages" \
		--left "vet of the control plane; the tests of $$($(with-tests) $(left) | wc -w | tr -d ' ') packages; staticcheck; the race detector" || exit 1; exit $$status

# What "make test-all" runs beyond "make test". Nobody debugs what is compiled with the race detector here, so it has no debug
# information. Where the Go linker can link the race detector, it takes half as long as the C compiler's, which it would use for
# programs that import the package plugin.
race = -race -gcflags=all=-dwarf=false
link = -s$(if $(filter linux/amd64,$(shell go env GOOS)/$(shell go env GOARCH)), -linkmode=internal)
.PHONY: test-rest
test-rest: c-compiler tools
	@echo "go vet of the control plane" && go vet $(vet) $(lean) $(kubernetes)
	@echo "staticcheck" && GOFLAGS="$(strip $(GOFLAGS) $(lean))" .workshop/bin/staticcheck $(kubernetes) && \
		CGO_ENABLED=1 GOFLAGS="$(strip $(GOFLAGS) $(race))" .workshop/bin/staticcheck $(others)
	@($(call run-tests,.workshop/rest.json,CGO_ENABLED=1 WORKSHOP_AFTER_MAKE_TEST=1) $(race) '-ldflags=$(link)' $(rest)); status=$$?; \
	.workshop/bin/bootstrap harness slowest .workshop/rest.json || exit 1; exit $$status

# What a test compares with all tests that there are.
.PHONY: suites
suites:
	@for package in $(short); do echo "test-short $$package"; done; for package in $(rest); do echo "test-rest $$package"; done

.PHONY: c-compiler
c-compiler:
	@$(has-go)
	@set -- $$(go env CC); command -v "$$1" >/dev/null || { echo "The race detector needs a C compiler, and there is no $$1. Install one (Debian: gcc and libc6-dev; macOS: xcode-select --install), or run make test, which needs none." >&2; exit 1; }

# NEUTRON=real makes tests that need no cloud skip themselves; -short leaves out torture. The first command fails with
# instructions if Neutron is not installed.
.PHONY: neutron
neutron: tools ## Test lesson 4, and guesses about Neutron, with OpenStack's own. Needs Debian's python3-neutron
	@cd 04-crd && GOWORK=off go build -o ../.workshop/bin/neutron ./cmd/neutron
	@.workshop/bin/neutron --real --address 127.0.0.1:0 true
	@$(workshop) run --nodes 1 -- env NEUTRON=real CGO_ENABLED=1 KUBE_CACHE_MUTATION_DETECTOR=true \
		.workshop/bin/neutron --address 127.0.0.1:0 .workshop/bin/gotestsum --format pkgname -- $(race) -count=1 -short -p 2 -timeout 10m \
		./04-crd/neutron ./04-crd/neutrontest ./04-crd/test ./harness/repository/guesses

.PHONY: images
images: ## Build images of the lessons' controllers, for amd64 and arm64
##  in .workshop/images. LESSON=3, ARCH=arm64: only these
	@$(workshop) images $(LESSON) $(if $(ARCH),--arch "$(ARCH)")

kubelet_sizes = 100x400,1000x4000

.PHONY: bench
bench: ## Measure what the control plane, the recorder and lessons 4 to 6 cost
##  how long the control plane takes to start, and what it costs, beside envtest;
##  requests with and without recording; 1,000 Networks of lesson 4; the reboots
##  of 5,000 Nodes with lesson 5; and 2,000 copies of a Secret with lesson 6
##  PART=controlplane, recorder, networks, reboots or secrets: only that
##  PART=kubelets: simulated kubelets of 100 and 1,000 Nodes, beside KWOK's
##  program, which it downloads; only if named
##  BOOTS=5, KUBELETS=5000x20000, NETWORKS=1000, REBOOT_NODES=5000,
##  SECRETS=1x200,1x2000: how many
##  BENCH="--idle 0": flags of controlplane, recorder and kubelets
##  NETWORK_BENCH="--workers 8", REBOOT_BENCH="--reboots 1000",
##  SECRET_BENCH="--unrelated 0": flags of the others
	$(if $(filter-out controlplane kubelets recorder networks reboots secrets,$(PART)),\
		$(error PART is "$(PART)"; it must be one of controlplane, kubelets, recorder, networks, reboots and secrets))
	$(if $(filter controlplane,$(or $(PART),controlplane)),\
		@cd harness/bench && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run . --boots "$(or $(BOOTS),5)" $(BENCH) --kubelets "" --requests 0 --events 0)
	$(if $(filter kubelets,$(PART)),\
		@GOBIN="$(CURDIR)/.workshop/bin" go install sigs.k8s.io/kwok/cmd/kwok@$$(cd harness/bench && GOWORK=off go list -m -f '{{.Version}}' sigs.k8s.io/kwok))
	$(if $(filter kubelets,$(PART)),\
		@cd harness/bench && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run . $(BENCH) --boots 0 --requests 0 --events 0 \
			--kubelets "$(or $(KUBELETS),$(kubelet_sizes))" --kwok "$(CURDIR)/.workshop/bin/kwok")
	$(if $(filter recorder,$(or $(PART),recorder)),\
		@cd harness/bench && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run . $(BENCH) --boots 0 --kubelets "")
	$(if $(filter networks,$(or $(PART),networks)),\
		@cd 04-crd/test && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run ./bench --networks "$(or $(NETWORKS),1000)" $(NETWORK_BENCH))
	$(if $(filter reboots,$(or $(PART),reboots)),\
		@cd 05-reboot-operator/test && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run ./bench --nodes "$(or $(REBOOT_NODES),5000)" $(REBOOT_BENCH))
	$(if $(filter secrets,$(or $(PART),secrets)),\
		@cd 06-secret-sync/test && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run ./bench $(if $(SECRETS),--sizes "$(SECRETS)") $(SECRET_BENCH))

.PHONY: score
score: ## Measure what lessons 1 to 3 cost and what they lose, and write docs/score.md
##  SCORE="--pods 10": flags
	@cd 03-workqueue/test && WORKSHOP_WATCH_PID=$$PPID GOWORK=off go run ./score $(SCORE)

# The scenario of a lesson: LESSON=3.
scenarios = $(wildcard 0*/test/torture/scenario.yaml)
scenario = $(or $(filter 0$(or $(LESSON),3)-% $(or $(LESSON),3)/%,$(scenarios)),$(error There is no torture for lesson $(LESSON). There is for: $(sort $(foreach s,$(scenarios),$(firstword $(subst /, ,$(s)))))))

.PHONY: torture
torture: ## Run a lesson's controller again and again, each time with another fault
##  LESSON=3: which; SCENARIO=FILE: another scenario; TORTURE="--seeds 100": flags
	@$(workshop) torture --scenario "$(or $(SCENARIO),$(scenario))" $(TORTURE)

.PHONY: mutants
mutants: ## Put bugs into a lesson's controller, and see whether torture finds them
##  LESSON=3: which; MUTANTS="--only hot-loop": flags
	@$(workshop) mutants --scenario "$(scenario)" --mutants "$(dir $(scenario))../mutants" $(MUTANTS)

# Explains what survives in a lesson: LESSON=3.
survivors = $(or $(filter 0$(or $(LESSON),3)-%,$(wildcard 0*/test/survivors.txt)),$(error There is no survivors.txt for lesson $(LESSON). There is: $(wildcard 0*/test/survivors.txt)))

# Gremlins makes the changes. It runs the tests of one package at a time; they need no cluster.
.PHONY: mutation
mutation: ## Mutation testing: change one Go operator at a time, and see whether the
##  lesson's tests fail
##  LESSON=3: which; MUTATION="--only controller.go": flags
##  SINCE=HEAD~3: the lines of all lessons and of the harness that are not as in that
##  commit; BUDGET=10m: begin no mutant after that time
	@cd tools/gremlins && GOWORK=off go build -o ../../.workshop/bin/ tool
	@cd harness && GOWORK=off go build -o ../.workshop/bin/ ./cmd/mutation
	@KUBE_CACHE_MUTATION_DETECTOR=true WORKSHOP_WATCH_PID=$$PPID .workshop/bin/mutation --gremlins .workshop/bin/gremlins \
		$(if $(SINCE),--since "$(SINCE)") $(if $(BUDGET),--budget "$(BUDGET)") $(MUTATION) \
		$(if $(or $(LESSON),$(if $(SINCE),,3)),"$(firstword $(subst /, ,$(survivors)))",$(patsubst %/test/survivors.txt,%,$(wildcard 0*/test/survivors.txt)) harness)

# What was not pushed yet, or the last commit.
.PHONY: test-change
test-change:
	@base=$$(git merge-base HEAD '@{upstream}' 2>/dev/null) || base=; \
	if [ -z "$$base" ] || [ "$$base" = "$$(git rev-parse HEAD)" ]; then base=$$(git rev-parse --verify --quiet HEAD~1 2>/dev/null) || base=; fi; \
	if [ -z "$$base" ]; then echo "mutation testing: there is no commit before this one to compare it with"; exit 0; fi; \
	$(MAKE) mutation SINCE="$$base" BUDGET=2m LESSON=

# Old output is deleted first, so that files which the generators no longer write do not stay.
.PHONY: generate
generate: ## Generate lesson 4's deep copies, clients, informers and CustomResourceDefinition,
##  and lesson 5's diagram
	@cd 04-crd && find generated apis manifests \( -name '*.go' -path 'generated/*' -o -name 'zz_generated.*' -o -name 'samplecrd.k8s.io_*.yaml' \) -delete && \
		GOWORK=off go generate -x .
	@cd 05-reboot-operator && GOWORK=off go generate -x ./internal/diagram

.PHONY: page
page: ## Generate the page of "workshop view" anew. Needs npm
	@npm ci --ignore-scripts --no-audit --no-fund --prefix harness/view/page
	@cd tools/page && GOWORK=off go run . ../../harness/view/page

.PHONY: prefetch
prefetch: ## Download and compile everything once, and play lesson 1 without network as a proof
	@$(workshop) prefetch

.PHONY: bundle
bundle: ## Write an archive for machines without network: Go, modules, compiled programs
##  PLATFORM=darwin/arm64: for which; BUNDLE=FILE: the archive
	@$(workshop) bundle $(if $(PLATFORM),--platform "$(PLATFORM)") $(if $(BUNDLE),--output "$(BUNDLE)")

.PHONY: cross
cross: ## Check that everything compiles for Linux and macOS, amd64 and arm64. Slow
	@for target in linux/arm64 darwin/arm64 darwin/amd64 linux/amd64; do \
		echo "cross-compile $$target"; \
		for dir in $(modules); do \
			(cd $$dir && GOWORK=off GOOS=$${target%/*} GOARCH=$${target#*/} go build -o /dev/null ./...) || exit 1; \
		done; \
	done

# go build updates the modification time of a program even if it is up to date. The tests of the exercises depend on these
# programs, and their result would never be cached. So the programs are copied, and only if they have changed.
.PHONY: tools
tools:
	@$(ready)
	@cd tools && GOWORK=off go build -o ../.workshop/tools/ tool
	@cd harness && GOWORK=off go build -o ../.workshop/tools/vet ./cmd/vet
	@cd .workshop/tools && for tool in *; do cmp -s "$$tool" "../bin/$$tool" || cp -f "$$tool" ../bin || exit 1; done

.PHONY: clean
clean: reset ## Stop the cluster and remove what was built here
##  A kind cluster stays: make kind-down deletes it
	@if [ -d .workshop ]; then find .workshop -mindepth 1 -maxdepth 1 ! -name kind -exec rm -rf {} +; fi # kind: which clusters are ours

.PHONY: help-all
help-all: ## List all targets
	@$(call list,)
