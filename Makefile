# Everything a developer or a new user needs, one target each. `make help` lists them.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
READY := $(VENV)/.ready
JOBS ?= 2
DATA := $(or $(TONNAGE_DATA),../shared/data)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F':.*## ' '/^[a-zA-Z_-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The first line of a recipe that can fail on a bare Debian says what to install.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Tonnage needs Python 3.11 or newer as '$(PYTHON)'; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.PHONY: install
install: $(READY) ## Make .venv with Tonnage and its developers' tools

.PHONY: demo
demo: $(READY) ## Plan the example services, replay a generated fleet under three policies, write out/placement.html
	$(BIN)/tonnage plan -f examples/
	$(BIN)/tonnage simulate placement --generate 300 --policies bestfit,fgd,tonnage --seeds 42-43 --jobs $(JOBS) \
	  --report out/placement.html

.PHONY: test
test: $(READY) ## Run all tests (those that need public data skip with a reason where it is not there)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: check
check: $(READY) ## Style, types, import contracts, generated files up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/generated

.PHONY: format
format: $(READY) ## Rewrite the code in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: clean
clean: ## Remove what these targets made
	rm -rf $(VENV) out build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
