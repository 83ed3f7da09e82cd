# Copyright 2026 The Kiln Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# CLUSTER=kind is the local cluster that cluster-up makes. CLUSTER=current is the
# one that KUBECONFIG names; images go to KO_DOCKER_REPO.
CLUSTER ?= kind

# PLATFORM is what the local cluster has besides Kubernetes and a registry: knative is Tekton,
# Knative Serving and Traefik; plain is metrics-server, and Kiln uses Jobs and Deployments.
PLATFORM ?= knative
export PLATFORM

SHELL := bash
.DEFAULT_GOAL := help

ifeq ($(CLUSTER),kind)
cluster := cluster-up
local := true
# What makes kubectl, ko and Go programs work with the cluster.
on_cluster = set -o pipefail; . build/cluster/env;
# Kiln's shipped ConfigMaps know no registry; the overlay tells them the cluster's.
resolve = ko resolve $(ko_flags) -R -f config/ 2>>build/install.log >build/cluster/overlay/kiln.yaml && kubectl kustomize build/cluster/overlay
else ifeq ($(CLUSTER),current)
cluster := build/bin/ko
local := false
on_cluster = set -o pipefail; export PATH="$(CURDIR)/build/bin:$$PATH";
resolve = ko resolve $(ko_flags) -R -f config/ 2>>build/install.log
# The images of functions go below Kiln's own, unless config-registry says otherwise.
configure = repo=$${KO_DOCKER_REPO:?}/functions; config="kubectl --namespace=kiln-system"; \
	$$config get configmap config-registry -o jsonpath={.data.push} | grep -q . || \
	$$config patch configmap config-registry --type=merge \
		-p "{\"data\": {\"push\": \"$${repo%%/*}\", \"prefix\": \"$${repo#*/}\"}}" >>build/install.log;
else
$(error CLUSTER is "$(CLUSTER)"; it must be kind or current)
endif

ko_flags := --sbom=none
# $(call program,MODULE,NAME) builds a program of a module of its own, hack or test/performance, and names its file.
program = go build -C $(1) -o "$(CURDIR)/build/programs/$(2)" ./$(2) && build/programs/$(2)
# Sets the shell's variable relay to the image of the pod that calls functions.
build_relay = relay=$$(ko build $(ko_flags) ./test/images/relay 2>build/relay.log) || { cat build/relay.log; exit 1; };
# Sets the shell's variables registries and htpasswd to the images of registries with credentials.
build_registries = registries=$$(ko build $(ko_flags) ./test/images/registries 2>build/registries.log) || { cat build/registries.log; exit 1; }; \
	htpasswd=$$(ko build $(ko_flags) github.com/kiln-dev/kiln/third_party/htpasswd 2>build/htpasswd.log) || { cat build/htpasswd.log; exit 1; };
# Sets the shell's variable sources to the image of a server of archives.
build_sources = sources=$$(ko build $(ko_flags) ./test/images/sources 2>build/sources.log) || { cat build/sources.log; exit 1; };
# Sets the shell's variable versitygw to the image of a store that speaks S3.
build_versitygw = versitygw=$$(ko build $(ko_flags) github.com/kiln-dev/kiln/third_party/versitygw 2>build/versitygw.log) || { cat build/versitygw.log; exit 1; };
# Sets the shell's variable git to the image of a Git server, or to nothing where there is no image to base it on.
build_git = { git=$$($(call program,hack,cluster) git-image 2>build/git.log) && { [[ -z "$$git" ]] || git=$$(KO_DEFAULTBASEIMAGE="$$git" ko build $(ko_flags) ./test/images/git 2>>build/git.log); }; } || { cat build/git.log; exit 1; };
wait = kubectl wait --timeout=3m

##@ Try it

.PHONY: run
run: install ## Bring up a cluster with Kiln, apply a Function, show it work and call it. PLATFORM=plain
	@$(on_cluster) $(build_relay) $(call program,hack,run) -local=$(local) -relay-image="$$relay"

##@ Cluster

.PHONY: cluster-up
cluster-up: ## Bring up the local kind cluster, or repair it. PLATFORM=plain makes one without Tekton and Serving.
	@$(call program,hack,cluster) up

.PHONY: cluster-down
cluster-down: ## Remove the local kind cluster and all that belongs to it.
	@$(call program,hack,cluster) down

.PHONY: cluster-status
cluster-status: ## Tell how the local kind cluster is; fail if it does not run.
	@$(call program,hack,cluster) status

##@ kubectl fn

.PHONY: kubectl-fn
kubectl-fn: ## Build the plugin kubectl fn, and its completion, into build/: put that on PATH.
	@go build -o build/kubectl-fn ./cmd/kubectl-fn
	@install -m 755 hack/kubectl_complete-fn build/kubectl_complete-fn

##@ Kiln on the cluster

.PHONY: install
install: $(cluster) ## Build Kiln and install it, or update it.
	@mkdir -p build && : >build/install.log && echo "Building and installing Kiln."
	@$(on_cluster) { $(resolve) | kubectl apply --server-side --force-conflicts -f - >>build/install.log 2>&1; } || { cat build/install.log; exit 1; }
	@$(on_cluster) kubectl rollout status --namespace=kiln-system --timeout=3m deployment >build/install.log || { cat build/install.log; exit 1; }
	@$(on_cluster) $(wait) --for='jsonpath={.webhooks[*].clientConfig.caBundle}' >build/install.log \
		mutatingwebhookconfiguration,validatingwebhookconfiguration --selector=app.kubernetes.io/part-of=kiln
	@$(on_cluster) $(configure)
	@echo "Kiln is installed."

.PHONY: uninstall
uninstall: ## Remove Kiln and all Functions.
	@$(on_cluster) kubectl delete --ignore-not-found functions.serverless.kiln.dev --all --all-namespaces
	@$(on_cluster) kubectl delete --ignore-not-found -R -f config/

##@ Checks

.PHONY: test
test: verify test-unit test-weather test-scale test-e2e $(if $(filter kind,$(CLUSTER)),test-kills test-no-tekton test-e2e-plain,test-e2e-job) ## Run all checks and tests.

.PHONY: verify
verify: ## Check headers, formatting, vet, lint, shell scripts and generated files.
	@hack/verify.sh

.PHONY: lint
lint: ## Run golangci-lint, which must be installed.
	@for module in . hack test/performance; do (cd $$module && golangci-lint run) || exit 1; done

.PHONY: test-unit
test-unit: ## Run the unit tests with the race detector. Needs no cluster.
	@go test -race ./...
	@go test -C hack -race ./...
	@go test -C test/performance -race ./...
	@cd third_party/kaniko && go test ./...

.PHONY: test-weather
test-weather: ## Run Kiln behind a proxy that fails 5 % of its requests. Needs no cluster. SEED=1 does the same again.
	@go run ./test/reliability $(if $(SEED),-seed=$(SEED))
	@go test -tags=controlplane -count=1 -v -run='^(TestWithoutTekton|TestDeployments)$$' ./test/controlplane

.PHONY: test-scale
test-scale: ## Create, edit and keep 20 Functions, and 60 of 900 KiB; fail if Kiln asks the API server for more than it must, or keeps sources in memory. Needs no cluster.
	@$(call program,test/performance,scale) -short

.PHONY: test-faults
test-faults: ## Search for faults for long: hours, where the runs of make test take seconds and minutes.
	@go test -count=1 -timeout=4h -run='^(TestCrash|TestEditedMeanwhile|TestModel)$$' ./pkg/reconciler/function/simulation -args -long
	@go run ./test/reliability -long $(if $(SEED),-seed=$(SEED))
	@for package in $$(grep -rl --include=*_test.go '^func Fuzz' pkg | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z]*' $$package/*_test.go | cut -c6-); do \
			echo "$$package: $$target, for $(FUZZTIME)"; \
			go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=50x ./$$package || exit 1; \
		done; \
	done
	$(if $(filter kind,$(CLUSTER)),@$(MAKE) --no-print-directory test-kills LONG=1)
	$(if $(filter kind,$(CLUSTER)),@$(MAKE) --no-print-directory test-neighbours LONG=1)

.PHONY: test-kills
test-kills: install ## Kill what Functions are built and served by, on the cluster. LONG=1 writes docs/reliability.md. FUNCTIONS=3 BUILT=1 ONLY=registry PLATFORM=plain
	@$(on_cluster) $(build_relay) go run ./test/reliability -local=$(local) -relay-image="$$relay" $(if $(LONG),-long) $(if $(FUNCTIONS),-functions=$(FUNCTIONS)) $(if $(BUILT),-built=$(BUILT)) $(if $(ONLY),-only='$(ONLY)')

.PHONY: test-neighbours
test-neighbours: install ## Let hostile tenants act beside a good one, on the cluster. LONG=1 writes docs/reliability.md. FILL=256 ONLY=storm
	@$(on_cluster) $(build_relay) go run ./test/reliability -neighbours -relay-image="$$relay" $(if $(LONG),-long) $(if $(FILL),-fill=$(FILL)) $(if $(ONLY),-only='$(ONLY)')

# How long each fuzz target looks for new inputs. One that breaks it is written to testdata/fuzz beside it.
FUZZTIME := 2m

# What runs the builds of the end-to-end tests: tekton or job.
BUILDER := $(if $(filter plain,$(PLATFORM)),job,tekton)
# What serves the Functions of the end-to-end tests: knative or kubernetes.
SERVER := $(if $(filter plain,$(PLATFORM)),kubernetes,knative)
# The end-to-end tests of what a Job does otherwise than a TaskRun.
JOB_TESTS := ^(TestArchiveServerFails|TestBaseImageMissing|TestBuildCancelled|TestBuildDeleted|TestBuildOutOfDisk|TestBuildOutOfMemory|TestBuildPodForcedAway|TestBuildPodGone|TestBuildScriptFails|TestBuildStripped|TestBuildTimeout|TestChildrenOfRunningFunction|TestDependenciesInstalledOnce|TestDependencyMissing|TestDev|TestForgedResults|TestFunctionWithDependency|TestGit|TestGitRefused|TestInstallationSeesNoCredentials|TestKubectlFn|TestOwnDockerfile|TestPackageRegistryDown|TestQuota|TestRegistryCredentials|TestRegistryDownThenFull)$$
# The end-to-end tests of a cluster without Tekton and Serving.
PLAIN_TESTS := $(JOB_TESTS)|^(TestAutoscaled|TestDeployments|TestEditsUnderLoad|TestExamples|TestFirstRevisionFails|TestKubectlFnWords|TestMinimumReplicas|TestMissingReferences|TestMounts|TestPersistentVolumeClaim|TestRollout|TestRolloutOnChange|TestRuntimesConform|TestSyntaxError)$$
# The tests to run. Without -run, go test runs all.
e2e_tests = $(or $(TEST),$(if $(filter plain,$(PLATFORM)),$(PLAIN_TESTS),$(if $(filter job,$(BUILDER)),$(JOB_TESTS))))
# $(call e2e,FLAGS) runs end-to-end tests with these flags.
e2e = go test -tags=e2e -count=1 -v -timeout=75m -parallel=$(E2E_PARALLEL) ./test/e2e/... -builder=$(BUILDER) -server=$(SERVER) $(if $(EDITS),-edits=$(EDITS)) -relay-image="$$relay" -registries-image="$$registries" -htpasswd-image="$$htpasswd" -sources-image="$$sources" -versitygw-image="$$versitygw" -git-image="$$git" $(1)

.PHONY: test-e2e
test-e2e: install kubectl-fn ## Run the end-to-end tests on the cluster. TEST=Name runs one. BUILDER=job SERVER=kubernetes PLATFORM=plain EDITS=100
	@$(on_cluster) $(build_relay) $(build_registries) $(build_sources) $(build_versitygw) $(build_git) $(call e2e,$(if $(e2e_tests),-run='$(e2e_tests)'))

.PHONY: test-e2e-job
test-e2e-job: ## Run the end-to-end tests of builds again, with Jobs.
	@$(MAKE) --no-print-directory test-e2e BUILDER=job

# It replaces the local cluster, so it is the last of all tests.
.PHONY: test-e2e-plain
test-e2e-plain: ## Run the end-to-end tests of a cluster without Tekton and Serving. It replaces the local cluster.
	@$(MAKE) --no-print-directory test-e2e PLATFORM=plain

# TestWithoutTekton deletes all TaskRuns of the cluster, so it runs after all other tests.
.PHONY: test-no-tekton
test-no-tekton: install ## Delete Tekton's TaskRuns from the local cluster; check that Kiln builds with Jobs, and with TaskRuns again.
	$(if $(filter kind,$(CLUSTER)),,$(error test-no-tekton needs CLUSTER=kind: it deletes all TaskRuns of the cluster))
	@$(on_cluster) $(build_relay) $(call e2e,-run='^TestWithoutTekton$$' -delete-tekton)

# Builds share the node's cores: more at once only wait for each other.
E2E_PARALLEL := 4

##@ Benchmarks

.PHONY: bench-latency
bench-latency: install ## Measure the time from apply to Ready, and of cold starts. ROUNDS=5
	@$(on_cluster) $(build_relay) $(call program,test/performance,latency) -rounds=$(or $(ROUNDS),5) -relay-image="$$relay"

.PHONY: bench-dev
bench-dev: install kubectl-fn ## Measure the time from a save until the new code answers, with kubectl fn dev and deploy. SAVES=20 DEPLOYS=5
	@$(on_cluster) $(build_relay) $(call program,test/performance,dev) -saves=$(or $(SAVES),20) -deploys=$(or $(DEPLOYS),5) -relay-image="$$relay"

.PHONY: bench-burst
bench-burst: install ## Apply 100 Functions at once; fail if more are built at once than may be. FUNCTIONS=100
	@$(on_cluster) $(call program,test/performance,burst) -functions=$(or $(FUNCTIONS),100)

.PHONY: bench-runtimes
bench-runtimes: ## Measure what the wrappers cost, beside bare servers and others; write the table of docs/runtimes.md. Needs npm. ROUNDS=20
	@$(call program,test/performance,runtimes) -rounds=$(or $(ROUNDS),20)

.PHONY: bench-scale
bench-scale: ## Measure Kiln with 100, 1,000 and 10,000 Functions, and 1,000 of 900 KiB; write docs/performance.md. Needs Linux. FUNCTIONS=100,1000
	@$(call program,test/performance,scale) $(if $(FUNCTIONS),-functions=$(FUNCTIONS))

##@ Development

.PHONY: generate
generate: ## Write the generated code, the CRD's schema and the ConfigMaps' checksums.
	@hack/update-codegen.sh

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## "; printf "make <target>\n" } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-16s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ko for CLUSTER=current; the local cluster brings its own.
build/bin/ko: third_party/ko/go.mod third_party/ko/go.sum
	@mkdir -p build/bin
	@GOWORK=off go -C third_party/ko build -trimpath -o $(CURDIR)/build/bin/ko github.com/google/ko
