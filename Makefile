SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Everything is compiled with the same flags, so that the build cache holds each library once, whichever tool
# or test needs it (and hack/tools/*/go.mod ask for the versions that ./go.mod has, where they can).
# Debuggers' tables would cost a fifth of the time, and `make lint` vets.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false -vet=off
# Of what we ship: see hack/conntrack.
TAGS := grpcnotrace

# The compiler, which spends a quarter of its time on collecting garbage otherwise.
unit fuzz simulations former build image test-images release-check lint: export GOGC := 400
bin/%: export GOGC := 400

K8S := bin/k8s
RUNTIME := bin/node
MONITORING := bin/monitoring
GITOPS := bin/gitops
AUTOSCALER := bin/autoscaler
OPERATORS := bin/operators

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

NODE := simulated

.PHONY: demo
demo: demo-$(NODE) ## Show a rollout in place beside the built-in one (NODE=real: on a real node, as root)

.PHONY: demo-simulated
demo-simulated: tools build
	@go run ./test/demo --bin $(K8S) --controller bin/inplace-rollout

.PHONY: demo-initial-resources
demo-initial-resources: tools monitoring-tools build ## Show pods that get a first size by what others of their image have used
	@go run ./test/demo --bin $(K8S) --controller bin/inplace-rollout --show initial-resources

.PHONY: picture
picture: tools build ## Draw docs/rollout.svg from what the demo measures
	@go run ./test/demo --bin $(K8S) --controller bin/inplace-rollout --picture docs/rollout.svg

.PHONY: screens
screens: ## Draw docs/plan.svg and docs/status.svg: what the commands print on a terminal
	go test ./cmd/inplace-rollout -run '^TestPictures$$' -update

.PHONY: demo-real
demo-real: root tools node-tools image test-images
	@go run ./test/demo --bin $(K8S) --node real
	@$(GUARDED)

GUARDED = go run ./test/demo --bin $(K8S) --node real --show guarded

.PHONY: demo-guarded
demo-guarded: root tools node-tools image test-images ## Show what comes of a memory limit that is too small, on a real node, as root (PICTURE=docs/guarded.svg draws it)
	@$(GUARDED) $(if $(PICTURE),--picture $(PICTURE))

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "A real node needs root, for cgroups and namespaces. Without it: make demo" >&2; exit 1; }

.PHONY: check
check: build lint unit ## Run what is quick: build, linters, unit tests

.PHONY: test
test: unit integration ## Run the tests that every change must pass: unit tests, then a control plane with nothing beside it

.PHONY: test-all
test-all: ## Run everything, one part after the other, and print a table; goes on where it was cut off (ONLY=around/docs,matrix LIST=true)
	@go run ./test/all $(if $(ONLY),--only $(ONLY)) $(if $(LIST),--list)

# What runs in several goroutines is tested with the race detector; what is pure, or simulated in one goroutine, without. On one
# processor each: the runtime crashes where two fire timers of one bubble of testing/synctest with the race detector (all timers of
# a bubble share one race context).
RACED = $(shell grep -rlE --include='*.go' '^\s+go [a-z]|sync\.|WaitGroup' cmd initialresources pkg | grep -v _test.go | xargs -n 1 dirname | sort -u | grep -vE 'pkg/deployment|backtest' | sed 's|^|./|')

# The gate draws the same cases each time, so that it fails for what was changed alone. `make fuzz` draws others.
# What takes longest goes first, so that no processor waits for it at the end.
.PHONY: unit
unit: export RAPID_SEED ?= 1
unit: ## Run the unit tests
	CGO_ENABLED=1 go test -race -cpu 1 ./pkg/webhook $(RACED)
	go test ./pkg/statefulset $$(go list ./... | grep -vxF "$$(go list $(RACED))")
	go test -C hack/tools/image ./...
	go test -C hack/tools/govulncheck ./...
	go test -C initialresources/backtest ./...

FUZZTIME := 20s
CHECKS := 3000

.PHONY: fuzz
fuzz: ## Fuzz what reads input, and what plans, and draw new cases of each property (FUZZTIME=20s CHECKS=3000 each)
	RAPID_CHECKS=$(CHECKS) go test -count=1 -timeout 60m $$(grep -rl --include='*_test.go' pgregory.net/rapid deploy initialresources pkg | xargs -n 1 dirname | sort -u | sed 's|^|./|')
	@grep -rl --include='*_test.go' '^func Fuzz' initialresources pkg | while read -r file; do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' "$$file"); do \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "./$$(dirname "$$file")"; \
		done; \
	done

# The folders whose tests have this tag.
TAGGED = $(shell grep -rl --include='*_test.go' '^//go:build.*$(1)' test | xargs -n 1 dirname | sort -u | sed 's|^|./|')

# Tests on control planes, one package after the other. A control plane that may use more memory spends less time on collecting garbage.
ON_CONTROL_PLANES = GOGC=800 go test -count=1 -timeout 60m -p 1 $(if $(RUN),-run '$(RUN)')

.PHONY: integration
integration: tools build ## Run the tests on a control plane that every change must pass (RUN=^TestUndo$$)
	$(ON_CONTROL_PLANES) -tags integration -parallel 6 ./test/integration ./initialresources/test/admission

# What a folder of the ring around needs beside a control plane. ./test/integration has them all.
NEEDED_BY_chart := gitops-tools
NEEDED_BY_prometheus := monitoring-tools
NEEDED_BY_matrix := $(K8S)-1.35/.kubernetes
NEEDED_BY_integration := $(K8S)-1.35/.kubernetes monitoring-tools gitops-tools autoscaler-tools operator-tools

.PHONY: around
around: tools build $(foreach folder,$(notdir $(or $(ONLY),integration)),$(NEEDED_BY_$(folder))) ## Run those with other tools, an older version, or much time (ONLY=./test/docs)
	$(ON_CONTROL_PLANES) -tags around -parallel 4 $(or $(ONLY),$(call TAGGED,around))

.PHONY: initial-resources
initial-resources: tools monitoring-tools build ## Run the tests of initial resources on a control plane, with the real Prometheus
	$(ON_CONTROL_PLANES) -tags integration,around -parallel 4 ./initialresources/test/...

OLDER := $(patsubst hack/tools/kubernetes-%,$(K8S)-%/.kubernetes,$(wildcard hack/tools/kubernetes-*))

# A real node needs root: without it, choose other cells.
.PHONY: matrix
matrix: tools $(OLDER) $(OLDER:.kubernetes=.kubelet) node-tools monitoring-tools build image test-images ## Run the tests on each version of Kubernetes, for the table of docs/compatibility.md (ONLY=1.35/webhook)
	GOGC=200 go run ./test/matrix $(if $(ONLY),--only $(ONLY))

SIMULATIONS := 20

.PHONY: simulations
simulations: ## Simulate each kind as often as the unit tests do, times this (SIMULATIONS=20 ONLY=daemonset)
	SIMULATIONS=$(SIMULATIONS) go test -timeout 3h -v -run '^TestSimulation' $(addprefix ./pkg/,$(or $(ONLY),statefulset deployment daemonset))

# Whoever writes policies otherwise, and means the same, compares them with what is committed.
FORMER := HEAD

.PHONY: former
former: ## Ask the policies of another commit about all writes of the simulations, too: do they say the same? (FORMER=HEAD)
	@rm -rf bin/former && mkdir -p bin/former && git archive $(FORMER) deploy/cluster | tar --extract --directory bin/former
	FORMER_POLICIES=$(CURDIR)/bin/former/deploy go test -timeout 1h -count=1 -run '^TestSimulation' ./pkg/statefulset ./pkg/deployment ./pkg/daemonset

WORLDS := 300
SEED := 1

.PHONY: soak
soak: tools build ## Play random worlds under faults, and check what users are promised (WORLDS=300 SEED=1)
	@GOGC=200 go run ./test/worlds run --worlds $(WORLDS) --seed $(SEED)

# Its module builds the scheduler, which takes minutes the first time: `make test` leaves it out.
.PHONY: scheduler-oracle
scheduler-oracle: ## Compare what pkg/capacity says with kube-scheduler's own plugins, in random worlds (WORLDS=6000 SEED=1)
	WORLDS=$(WORLDS) SEED=$(SEED) go test -C test/scheduler -count=1 -v ./...
scheduler-oracle: WORLDS = 6000

.PHONY: mutants
mutants: tools ## Take the safeties out one at a time, and show that each is missed (ONLY=live-read,leader)
	@GOGC=200 go run ./test/mutants $(if $(ONLY),--only $(ONLY))

# Where a real node cannot run, the tests are skipped, or fail with E2E=required.
ON_REAL_NODES = go test -tags e2e -count=1 -timeout 30m -p 1 -v

.PHONY: e2e
e2e: tools node-tools monitoring-tools image test-images ## Run the tests on a real node: kubelet, containerd and cgroups (needs root)
	$(ON_REAL_NODES) ./test/e2e/... ./test/demo/...

EDITS = -run 'TestEdits|TestQOSClass' ./test/e2e

.PHONY: e2e-edits
e2e-edits: tools node-tools image test-images ## Run those of them that edit a workload of each kind (needs root)
	$(ON_REAL_NODES) $(EDITS)

.PHONY: e2e-cgroup-v2
e2e-cgroup-v2: tools node-tools image test-images ## The same on cgroup v2 (needs root, and Debian where the machine has v1)
	$(ON_REAL_NODES) -exec $(CURDIR)/hack/cgroup-v2.sh $(EDITS)

SHAPES :=
ROUNDS := 3
BENCH := go run ./test/benchmark
RESULTS := --bin $(K8S) --json bin/benchmark.json

.PHONY: bench
bench: tools build ## Measure what rollouts cost, in place and built in (SHAPES=statefulset:1x100,deployment:20x10 ROUNDS=3)
	@$(BENCH) rollouts $(RESULTS) --rounds $(ROUNDS) $(if $(SHAPES),--shapes $(SHAPES))

.PHONY: bench-report
bench-report: ## Bring what was measured into docs/performance.md
	@$(BENCH) report

.PHONY: backtest
backtest: ## Compare estimates with what pods went on to use, beside other rules, for docs/estimates.md
	@go run -C initialresources/backtest . --page $(CURDIR)/docs/estimates.md --picture $(CURDIR)/docs/backtest.svg

.PHONY: bench-stuck
bench-stuck: tools build ## Measure an edit beside 500 workloads that are stuck (STUCK=1000)
	STUCK=$(STUCK) go test -tags around -count=1 -timeout 30m -run '^TestStuckNeighbours$$' -v ./test/integration
bench-stuck: STUCK := 500

.PHONY: lint
lint: bin/golangci-lint bin/govulncheck build ## Run the linters, and look for changed modules and known vulnerabilities
	bin/golangci-lint run --build-tags integration,around,e2e ./...
	go vet -tags around ./test/integration # which shares files with those of the other ring
	cd hack/tools/image && $(CURDIR)/bin/golangci-lint run --build-tags release ./...
	cd hack/tools/govulncheck && $(CURDIR)/bin/golangci-lint run ./...
	cd hack/tools/argocd && $(CURDIR)/bin/golangci-lint run ./...
	cd initialresources/backtest && $(CURDIR)/bin/golangci-lint run ./...
	cd test/scheduler && $(CURDIR)/bin/golangci-lint run ./...
	cd hack/conntrack && $(CURDIR)/bin/golangci-lint run ./...
	go mod verify
	hack/vulnerabilities.sh bin/govulncheck bin/inplace-rollout

.PHONY: build
build: ## Build the controller, and the plugin of kubectl, into bin/
	go build -tags $(TAGS) -o bin/ ./cmd/inplace-rollout
	@ln -sf inplace-rollout bin/kubectl-inplace_rollout
	@ln -sf inplace-rollout bin/kubectl_complete-inplace_rollout

NATIVE = linux/$(shell go env GOARCH)
PLATFORMS := linux/amd64,linux/arm64
# The real node needs its own only.
matrix e2e e2e-edits e2e-cgroup-v2 demo-real demo-guarded: PLATFORMS = $(NATIVE)

.PHONY: image
image: bin/image ## Build the controller's image and its SBOM into bin/images/ (without Docker)
	@bin/image --package ./cmd/inplace-rollout --name inplace-rollout:dev --version v0.0.0-dev --platforms $(PLATFORMS) --output bin/images/inplace-rollout.tar

VERSION :=
IMAGE := inplace-rollout
RELEASE_URL :=

.PHONY: release
release: tools gitops-tools bin/release ## Build everything of a release into dist/, unsigned (VERSION=v0.1.0 IMAGE=registry.example.com/inplace-rollout)
	@rm -rf dist
	@bin/release --version "$(VERSION)" --image "$(IMAGE)" --url "$(RELEASE_URL)"

# PLATFORMS=linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64 builds all that is released, twice.
release-check: PLATFORMS = $(NATIVE)
.PHONY: release-check
release-check: tools gitops-tools bin/krew/.krew ## Build the release of this commit from two clones, compare them, and use it (PLATFORMS=linux/amd64,darwin/arm64)
	PLATFORMS=$(PLATFORMS) go test -C hack/tools/image -tags release -count=1 -timeout 30m -run '^TestRelease$$' -v ./release

.PHONY: bin/release
bin/release:
	@go build -C hack/tools/image -o $(CURDIR)/bin/release ./release

# What the real node and the tests on it run.
.PHONY: test-images
test-images: bin/image
	@for name in pause counter; do \
		bin/image --package ./test/images/$$name --name inplace-rollout-$$name:test --platforms $(NATIVE) --output bin/images/$$name.tar; \
	done
	@go build -o $(RUNTIME)/ ./test/images/pause

.PHONY: bin/image
bin/image:
	@go build -C hack/tools/image -o $(CURDIR)/bin/image .

.PHONY: tools
tools: $(K8S)/.kubernetes $(K8S)/.etcd $(K8S)/.kwok ## Build the pinned Kubernetes (without the kubelet), etcd and kwok into bin/k8s/ (once)

.PHONY: node-tools
node-tools: $(K8S)/.kubelet $(RUNTIME)/.containerd $(RUNTIME)/.runc $(RUNTIME)/.cni ## Build the pinned kubelet, containerd, runc and CNI plugins into bin/k8s/ and bin/node/ (once)

.PHONY: monitoring-tools
monitoring-tools: $(MONITORING)/.prometheus $(MONITORING)/.kube-state-metrics ## Build the pinned Prometheus, promtool and kube-state-metrics into bin/monitoring/ (once)

.PHONY: gitops-tools
gitops-tools: $(GITOPS)/.helm $(GITOPS)/.helm-3 $(GITOPS)/.argocd ## Build the pinned Helm 3 and 4, and what asks Argo CD for the health of objects, into bin/gitops/ (once)

.PHONY: autoscaler-tools
autoscaler-tools: $(AUTOSCALER)/.vpa ## Build the pinned Vertical Pod Autoscaler into bin/autoscaler/ (once)

.PHONY: operator-tools
operator-tools: $(OPERATORS)/.prometheus-operator ## Build the pinned Prometheus Operator into bin/operators/ (once)

# bin/k8s-1.35/.kubernetes says that the same of an older Kubernetes are there, as hack/tools/kubernetes-1.35 pins it.
bin/k8s-%/.kubernetes: hack/tools/kubernetes-%/go.mod hack/build-tools.sh
	@hack/build-tools.sh kubernetes-$* $(@D)
	@touch $@

# The kubelet is the largest of Kubernetes' binaries, and only a real node runs it.
$(K8S)/.kubelet: hack/tools/kubernetes/go.mod hack/build-tools.sh
	@hack/build-tools.sh kubernetes $(@D) kubelet
	@touch $@

bin/k8s-%/.kubelet: hack/tools/kubernetes-%/go.mod hack/build-tools.sh
	@hack/build-tools.sh kubernetes-$* $(@D) kubelet
	@touch $@

# bin/k8s/.etcd says that the tools of hack/tools/etcd are in bin/k8s/. bin/golangci-lint is one itself.
.SECONDEXPANSION:
bin/%: hack/tools/$$(subst .,,$$(@F))/go.mod hack/build-tools.sh
	@hack/build-tools.sh $(subst .,,$(@F)) $(@D)
	@touch $@

.PHONY: cluster
cluster: tools ## Start the demo's control plane and leave it running
	@go run ./test/cluster up --dir .cluster --bin $(K8S)

.PHONY: try
try: tools build ## The same with inplace-rollout running in it, and a StatefulSet to edit
	@go run ./test/cluster try --dir .cluster --bin $(K8S)

.PHONY: cluster-down
cluster-down: ## End what `make cluster` or `make try` started
	@go run ./test/cluster down --dir .cluster

.PHONY: clean
clean: cluster-down ## Remove what was built
	rm -rf bin
