SHELL       := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c

# Tools are built on first use, outside the checkout; see hack/tools/tool.
TOOL := hack/tools/tool

# Modules whose tests `make test` runs: this one and those below test/, which
# need other versions of some packages.
TEST_MODULES := . $(patsubst %/go.mod,%,$(wildcard test/*/go.mod))

FUZZTIME  ?= 30s
# A regular expression of test names, empty for all.
E2E_RUN   ?=
TESTFLAGS ?=

# What the targets for clusters use. Nobody publishes an image of this name: it is
# made by `make image`, and brought into the cluster by you.
IMAGE    ?= accesspolicy-operator:dev
CONFIG   ?= config/default
AUDIENCE ?= mcp-gateway
KUBECTL  ?= kubectl

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2} /^##@ / {printf "\n%s\n", substr($$0, 5)}' Makefile

##@ Write

.PHONY: generate
generate: samples docs ## Write zz_generated.deepcopy.go from the types in api/, the samples, and tables in docs/.
	@"$$($(TOOL) controller-gen)" object paths=./api/...

.PHONY: manifests
manifests: ## Write the CRD and the operator's roles from the markers in api/ and controllers/.
	@"$$($(TOOL) controller-gen)" crd paths=./api/v1alpha1/... output:crd:dir=config/crd/bases
	@"$$($(TOOL) controller-gen)" rbac:roleName=accesspolicy-operator paths=./controllers/... output:rbac:dir=config/rbac

.PHONY: samples
samples: ## Write config/samples from golden cases of the translator.
	@config/samples/generate

.PHONY: docs
docs: ## Write the tables of flags and metrics in docs/operations.md from the operator's own.
	@go run ./hack/docs

.PHONY: golden
golden: ## Rewrite the expected files of the golden tests; read the diff.
	@# A package whose tests do not define the flag would refuse it.
	@packages=$$(grep -rl --include='*_test.go' '"update"' translator cmd | xargs -r -n1 dirname | sort -u | sed 's|^|./|'); \
	if [ -z "$$packages" ]; then echo "no test below translator/ and cmd/ takes -update" >&2; exit 1; fi; \
	echo "go test" $$packages "-update"; \
	go test $$packages -update

##@ Build and try

.PHONY: build
build: judge ## Build bin/manager, bin/kubectl-accesspolicy and bin/authorino-judge.
	CGO_ENABLED=0 go build -o bin/manager ./cmd/manager
	CGO_ENABLED=0 go build -o bin/kubectl-accesspolicy ./cmd/kubectl-accesspolicy

.PHONY: judge
judge: ## Build bin/authorino-judge, the real Authorino pipeline.
	CGO_ENABLED=0 go -C test/authorino build -o ../../bin/authorino-judge ./cmd/judge

.PHONY: quickstart demo quickstart-clean
quickstart: ## Tell the story of the quickstart with real components; needs no Docker. The first run builds them (about 25 minutes).
	@quickstart/quickstart

quickstart-clean: ## Delete what the quickstart made with Docker: clusters and images.
	@quickstart/kind/quickstart clean

demo: quickstart ## The same.

.PHONY: tour
tour: ## Show what the translator does, without a cluster.
	@hack/tour.sh

##@ Cluster

.PHONY: image
image: ## Build the operator's image IMAGE with docker or podman.
	@hack/image '$(IMAGE)'

.PHONY: install
install: ## Install the CRD in the cluster of the current kubeconfig.
	@"$$($(TOOL) kustomize)" build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: undeploy ## Remove the operator, then the CRD and with it every XAccessPolicy.
	@# In this order: the operator would take deleted policies for a wish to open the Gateways.
	@"$$($(TOOL) kustomize)" build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: ## Install CRD and operator (CONFIG) with the image IMAGE, which the cluster must have.
	@# The substitution leaves no trace in the checkout, as `kustomize edit` would.
	@"$$($(TOOL) kustomize)" build '$(CONFIG)' | \
		sed 's|image: accesspolicy-operator:dev$$|image: $(IMAGE)|' | \
		$(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove the operator; the CRD and what is in force stay.
	@{ "$$($(TOOL) kustomize)" build config/manager; echo ---; "$$($(TOOL) kustomize)" build config/rbac; } | \
		$(KUBECTL) delete --ignore-not-found -f -
	@# Deleting these as well would open the Gateways.
	@echo "What the operator wrote stays in force, until its Gateway is deleted or you open it:" >&2
	@for kind in authpolicies.kuadrant.io securitypolicies.gateway.envoyproxy.io; do \
		echo "  $(KUBECTL) delete $$kind -A -l app.kubernetes.io/managed-by=accesspolicy-operator" >&2; \
	done

.PHONY: run
run: ## Run the operator from the checkout, for tokens of the audience AUDIENCE.
	@# No lease: do not run it beside a deployed one.
	go run ./cmd/manager --token-audience='$(AUDIENCE)' --leader-elect=false --log-format=text \
		--metrics-bind-address=127.0.0.1:8080 --health-probe-bind-address=127.0.0.1:8081

##@ Check

.PHONY: test
test: judge ## Run every test but those of test-e2e. The first run builds an API server (about 12 minutes).
	@if [ -z "$${KUBEBUILDER_ASSETS:-}" ]; then KUBEBUILDER_ASSETS=$$(hack/components/build etcd kube-apiserver minikcm); fi; \
	export KUBEBUILDER_ASSETS ACCESSPOLICY_JUDGE="$$PWD/bin/authorino-judge"; \
	failed=; \
	for module in $(TEST_MODULES); do \
		echo "== $$module: go test ./..."; \
		begin=$$SECONDS; \
		packages=$$(cd "$$module" && go list ./... | grep -Ev '/test/(differential|stack|e2e|envoy|coverage|quickstart)$$'); \
		go -C "$$module" test $(TESTFLAGS) $$packages || failed="$$failed $$module"; \
		echo "== $$module: done in $$((SECONDS - begin)) s"; \
	done; \
	echo "== test/differential: the plan against the real Authorino, with seeds and counts"; \
	go test -v -count=1 $(TESTFLAGS) ./test/differential | grep -Ev '^(=== |    --- PASS|.*reaches no route)' || failed="$$failed test/differential"; \
	if [ -n "$$failed" ]; then echo "== failed in:$$failed"; exit 1; fi

.PHONY: test-e2e
test-e2e: ## Run the operator on the real components. The first run builds them (about 20 minutes).
	@hack/e2e.sh $(E2E_RUN)

.PHONY: test-unit
test-unit: ## Run the fast tests, those outside test/, which need no API server.
	go test $(TESTFLAGS) $$(go list ./... | grep -v '/test/')

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (30s).
	@FUZZTIME=$(FUZZTIME) hack/fuzz.sh

.PHONY: bench
bench: ## Run the benchmarks.
	@hack/bench.sh

.PHONY: bench-operator
bench-operator: ## Run the benchmarks of the operator on a real API server.
	@hack/e2e.sh bench

.PHONY: bench-envoy
bench-envoy: ## Measure what rules cost a request through the real Envoy.
	@hack/e2e.sh bench-envoy

.PHONY: lint
lint: ## Run golangci-lint on every module with own code.
	@lint="$$($(TOOL) golangci-lint)"; \
	for module in $(TEST_MODULES) hack/components/minikcm hack/components/mcpgateway hack/components/mcpagent hack/components/stubregistry; do \
		echo "== $$module: golangci-lint run"; \
		(cd "$$module" && "$$lint" run ./...); \
	done

.PHONY: verify
verify: ## Check in a copy that generated files, formatting and go.mod are current.
	@hack/verify.sh

.PHONY: vulncheck
vulncheck: ## Look the dependencies up in the Go vulnerability database (needs network).
	@vulncheck="$$($(TOOL) govulncheck)"; \
	for module in $(TEST_MODULES); do \
		echo "== $$module: govulncheck ./..."; \
		(cd "$$module" && "$$vulncheck" ./...); \
	done

.PHONY: clean
clean: ## Remove bin/ and profiles; the cache outside the checkout stays.
	rm -rf bin
	find . -name '*.out' -type f -not -path './.git/*' -delete
