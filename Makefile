# Everything a developer or a new user needs, one target each. `make help` lists them.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
READY := $(VENV)/.ready
JOBS ?= 2
PYTEST = $(BIN)/python -m pytest
PARALLEL = -n $(JOBS) --dist worksteal
# Tests of many live processes are tried a second time, and the summary names those that needed it (RERUN).
AGAIN ?= --reruns 1 -raR
# Versions that the tests passed with: a newer solver finds other plans of the same cost, a newer linter other faults.
PINS := deploy/constraints.txt deploy/constraints-tools.txt
# What is neither a unit test nor on Ray, the control plane or an emulated machine, nor checked by `make check`.
PARTS = tests --ignore tests/unit --ignore tests/generated --ignore tests/size/test_size.py --ignore tests/ray \
  --ignore tests/controlplane --ignore tests/emulated --ignore tests/kernel

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F':.*## ' '/^[a-zA-Z_-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The first line of a recipe that can fail on a bare Debian says what to install.
$(READY): pyproject.toml $(PINS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Tonnage needs Python 3.11 or newer as '$(PYTHON)'; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing Tonnage and its developers' tools into $(VENV): about 1 GB, some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS:%=--constraint %) --editable '.[dev]'
	@touch $@

.PHONY: install
install: $(READY) ## Make .venv with Tonnage and its developers' tools

.PHONY: demo
demo: $(READY) ## Plan the example fleet, then let the controller run it for a day; writes out/day.html
	$(BIN)/tonnage plan -f examples/
	$(BIN)/tonnage simulate day -f examples/ --report out/day.html

# Both tiers run, whatever the first one finds; the exit status is that of both.
.PHONY: test
test: $(READY) ## Run the fast tests: all units and parts, no Kubernetes, guest kernel or Ray (minutes)
	@$(MAKE) --no-print-directory --keep-going --jobs=1 test-unit test-parts

.PHONY: test-all
test-all: ## Run every tier: `make test`, then slow tests, guest kernels, Ray and a real control plane (an hour)
	@$(MAKE) --no-print-directory --keep-going --jobs=1 test test-rest

.PHONY: test-unit
test-unit: $(READY)
	$(PYTEST) -p tests.without_ray -m "not slow" $(PARALLEL) tests/unit

.PHONY: test-parts
test-parts: $(READY)
	$(PYTEST) -m "not (slow or kernel or chart or controlplane)" $(PARALLEL) $(PARTS)

.PHONY: test-rest
test-rest: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS:%=--constraint %) --editable '.[dev,chart]'
	@$(BIN)/python -m simulator.controlplane --skippable >/dev/null || true
	@$(BIN)/python -m tests.rigs.kernel >/dev/null || echo "a guest kernel is missing: tests that need it are skipped" >&2
	@$(MAKE) --no-print-directory --keep-going --jobs=1 test-slow test-emulated test-ray test-controlplane

.PHONY: test-slow
test-slow: $(READY) ## Run what is slow, on a guest kernel, renders the chart, or is a contract with a real server
	$(PYTEST) -m "slow or kernel or chart or controlplane" $(PARALLEL) $(PARTS) tests/unit tests/kernel

.PHONY: test-emulated
test-emulated: $(READY) ## Run the tests on an emulated machine: two CPUs, PSI, cpusets
	$(PYTEST) tests/emulated # in one process: a second one would boot a machine of its own

.PHONY: test-ray
test-ray: $(READY) ## Run the tests on Ray
	$(PYTEST) --capture=sys $(AGAIN) tests/ray # Ray's native part may end a driver, whose last words must not be lost

.PHONY: test-controlplane
test-controlplane: $(READY) ## Run the tests on the real control plane
# Modules have servers or namespaces of their own and run side by side. Without the option, the longest would be last.
	$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder $(AGAIN) tests/controlplane

.PHONY: faults
faults: $(READY) ## Play random compositions of faults, half of the time on a real control plane: make faults SECONDS=7200
	$(BIN)/python -m tests.chaos --seconds $(or $(SECONDS),600) --first $(or $(SEED),0) --jobs $(JOBS)

.PHONY: mutation
mutation: $(READY) ## Break every rule of the safety code alone: the fast tests must notice 95 % (10 minutes)
	$(BIN)/python -m tests.mutation --jobs $(JOBS)

.PHONY: controlplane
controlplane: $(READY) ## Build the real control plane that tests and `tonnage controlplane` run (minutes, once)
	$(BIN)/python -m simulator.controlplane

.PHONY: check
check: $(READY) ## Style, types, import contracts, size, generated files up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q tests/size/test_size.py tests/generated

.PHONY: bench
bench: $(READY) ## Run a published measurement: make bench CASE=NAME; without CASE list them
	$(BIN)/python -m benchmarks $(if $(CASE),run $(CASE),list)

.PHONY: generated crds chart dashboards
generated crds chart dashboards: $(READY) ## Make again what is made from code: CRDs, reference of manifests, dashboards, the chart's files
	$(BIN)/python -m tests.generated.crd_files
	$(BIN)/python -m tests.generated.manifests_reference
	$(BIN)/python -m deploy.dashboards.generate
	$(BIN)/python -m deploy.chart_files

.PHONY: format
format: $(READY) ## Rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: release
release: $(READY) ## Build what a release ships and this machine can build: wheels and the chart's package, in out/release
	$(BIN)/python -m deploy.release_files build out/release

.PHONY: constraints
constraints: PIN = $(BIN)/uv pip compile -qU --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_36 pyproject.toml
constraints: IMAGE = --extra nvidia --extra ray --extra reports
constraints: $(READY) ## Take the newest releases that pyproject.toml allows, and pin the image and developers to them
	$(PIN) $(IMAGE) -o deploy/constraints.txt
	$(PIN) $(IMAGE) --constraint deploy/constraints.txt --generate-hashes -o deploy/requirements.txt
	$(PIN) --extra dev --extra chart --constraint deploy/constraints.txt -o deploy/constraints-tools.txt

.PHONY: clean
clean: ## Remove what these targets made
	rm -rf $(VENV) out build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
