# One door to everything a developer runs. CI calls the same targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DISTRIBUTIONS := $(sort $(wildcard packages/*/pyproject.toml plugins/*/pyproject.toml) tests/support/pyproject.toml)
STAMP := $(VENV)/.installed
RUNS := $(VENV)/.runs
SOURCES := packages plugins tools tests bench conftest.py
WORKERS ?= 2
N ?= 50
TYPED_TESTS := bench packages/*/tests plugins/*/tests tests conftest.py
# What is built into the package, where the page's sources are.
CONSOLE := $(if $(wildcard console/package.json),console)
BUILD_CONSOLE := $(if $(CONSOLE),--build-console tools/build_console.py)
SEED ?= 1
export PYTHONDONTWRITEBYTECODE :=
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed; set PYTHON=…"; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help setup quickstart browser prometheus pgbouncer console test test-all test-kubernetes test-failed bench chaos sequences mutants fmt lint types imports docs screenshots proto pins metadata dist

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## install everything into .venv
	@$(BIN)/python -m compileall -q packages plugins

$(STAMP): requirements.lock requirements-dev.lock $(DISTRIBUTIONS)
	@$(CHECK_PYTHON)
	@$(PYTHON) tools/install.py $(VENV) --developing
	@touch $@ $(RUNS)

$(RUNS): requirements.lock $(DISTRIBUTIONS)
	@$(CHECK_PYTHON)
	@$(PYTHON) tools/install.py $(VENV)
	@touch $@

quickstart: $(RUNS) ## start everything, make a first deployment, show where to look
	@$(BIN)/python -m compileall -q packages plugins
	@$(BIN)/pipecd quickstart --data-dir .quickstart $(BUILD_CONSOLE) $(ARGS)

browser: ## install Debian's Chromium for the tests of the console, where it is missing and can be
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		command -v google-chrome >/dev/null || [ -n "$$PIPECD_CHROMIUM" ] || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update --quiet >/dev/null && \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends chromium >/dev/null; } || \
		echo "There is no Chromium, and it cannot be installed here: the tests of the console are skipped."

prometheus: ## unpack Debian's Prometheus into the user's cache, for the test of its provider, where it can be had
	@$(BIN)/python -m pipecd_test_support.prometheus

pgbouncer: ## unpack Debian's PgBouncer into the user's cache, for the tests of poolers, where it can be had
	@$(BIN)/python -m pipecd_test_support.pgbouncer

console: $(RUNS) ## build the web page into the package of the control plane
	@$(BIN)/python tools/build_console.py $(ARGS)

test: setup browser prometheus pgbouncer ## the whole suite but the slow platforms; STORE=postgresql: all of it on that store
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(if $(STORE),--store $(STORE)) $(ARGS)

test-all: setup ## `make test` with its slow tests, the tests on a real cluster, 300 deaths
	$(MAKE) test ARGS="-m 'not kubernetes'"
	$(MAKE) test-kubernetes
	$(MAKE) chaos N=300

test-kubernetes: setup ## what needs a real cluster, which is built once and kept in the user's cache
	$(BIN)/python -m pipecd_test_support.kubernetes.prepare
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m kubernetes tests/kubernetes $(ARGS)

test-failed: setup ## the few tests that failed in the last run once more, alone; names those that pass now
	$(BIN)/python tools/rerun_failed.py $(ARGS)

bench: setup ## measure what we claim
	@for program in bench/bench_*.py; do $(BIN)/python $$program || exit 1; done

chaos: setup ## kill things at random and check what is left
	@PYTHONPATH=tests $(BIN)/python -m chaos.run --deaths $(N) --seed $(SEED) $(ARGS)

sequences: setup ## random sequences of commits, commands, deaths and moves of the clock, judged by a model
	@PYTHONPATH=tests $(BIN)/python -m sequences.run --sequences $(N) --seed $(SEED) $(ARGS)

mutants: setup ## change what decides, and see whether a test notices
	$(BIN)/python tools/mutate.py $(ARGS)

fmt: setup ## format the code
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix --quiet $(SOURCES)

lint: setup imports ## style, generated files, import contracts
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/python tools/gen_wire.py --check
	$(BIN)/python tools/check_proto.py
	$(BIN)/python tools/pin.py --check
	$(BIN)/python tools/metadata.py --check
	$(BIN)/python tools/check_names.py

types: setup ## mypy strict
	$(BIN)/mypy $(wildcard packages/*/src plugins/*/src) tools $(TYPED_TESTS)

imports: setup ## the import contracts
	$(BIN)/lint-imports

docs: setup ## build the generated reference, and what follows from plugins/
	$(BIN)/python tools/gen_schemas.py
	$(BIN)/python tools/gen_docs.py
	$(BIN)/python tools/gen_pictures.py

screenshots: setup browser ## take the pictures of the console anew, of a quickstart
	$(BIN)/python tools/gen_screenshots.py $(ARGS)

pins: setup ## write the locks from constraints*.txt and tools/protoc.txt
	$(BIN)/python tools/pin.py

metadata: setup ## write what all distributions share into their pyproject.toml
	$(BIN)/python tools/metadata.py

dist: setup $(CONSOLE) ## build the wheels and source archives of all distributions into dist/
	$(BIN)/python tools/dist.py

proto: setup ## generate the wire package from proto/
	$(BIN)/python tools/gen_wire.py
