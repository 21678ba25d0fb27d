# One door to everything a developer runs. CI calls the same targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
DISTRIBUTIONS := $(sort $(wildcard packages/*/pyproject.toml plugins/*/pyproject.toml) tests/support/pyproject.toml)
FOLDERS := $(patsubst %/pyproject.toml,%,$(DISTRIBUTIONS))
STAMP := $(VENV)/.installed
SOURCES := packages plugins tools tests bench conftest.py
WORKERS ?= 2
N ?= 50
TYPED_TESTS := \
	bench \
	packages/controlplane/tests/*.py \
	packages/controlplane/tests/api \
	packages/controlplane/tests/auth \
	packages/controlplane/tests/http \
	packages/controlplane/tests/matrix \
	packages/controlplane/tests/ops \
	packages/controlplane/tests/serve \
	packages/controlplane/tests/signin \
	packages/controlplane/tests/site \
	packages/controlplane/tests/store \
	packages/controlplane/tests/usecases \
	packages/controlplane/tests/web \
	packages/controlplane/tests/wire \
	packages/piped/tests/appconfig \
	packages/model/tests \
	packages/pipectl/tests \
	packages/piped/tests/*.py \
	packages/piped/tests/controlplane \
	packages/piped/tests/git \
	packages/piped/tests/livestate \
	packages/piped/tests/plan \
	packages/piped/tests/plugins \
	packages/piped/tests/preview \
	packages/piped/tests/programs \
	packages/piped/tests/report \
	packages/piped/tests/schedule \
	packages/piped/tests/secrets \
	packages/piped/tests/source \
	packages/piped/tests/trigger \
	packages/runtime/tests \
	packages/sdk/tests \
	packages/wire/tests \
	plugins/dummy/tests \
	plugins/files/tests \
	plugins/scriptrun/tests \
	plugins/wait/tests \
	plugins/waitapproval/tests \
	tests/chaos \
	tests/conformance \
	tests/docs \
	tests/e2e \
	tests/integration/config \
	tests/integration/floods \
	tests/integration/interop \
	tests/integration/pipectl \
	tests/integration/piped \
	tests/packaging \
	tests/support/src
SEED ?= 1
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-all bench chaos mutants fmt lint types imports docs proto pins

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## install everything into .venv
	@$(BIN)/python -m compileall -q packages plugins

$(STAMP): requirements.lock $(DISTRIBUTIONS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) …"
	@$(PIP) install --quiet --compile --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --quiet --compile --no-deps --no-build-isolation $(addprefix -e ./,$(FOLDERS))
	@$(PIP) check > $(VENV)/.requirements || { cat $(VENV)/.requirements; exit 1; }
	@touch $@

quickstart: setup ## start everything, make a first deployment, show where to look
	@$(BIN)/pipecd quickstart --data-dir .quickstart $(ARGS)

test: setup ## the whole suite but the slow platforms
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

test-all: setup ## `make test` and the slow platforms
	@echo "The slow platforms (Kubernetes, Terraform, AWS) are not built yet; running \`make test\`."
	$(MAKE) test
	$(MAKE) chaos N=300

bench: setup ## measure what we claim
	@for program in bench/bench_*.py; do $(BIN)/python $$program || exit 1; done

chaos: setup ## kill things at random and check what is left
	@PYTHONPATH=tests $(BIN)/python -m chaos.run --deaths $(N) --seed $(SEED) $(ARGS)

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
	$(BIN)/python tools/check_names.py

types: setup ## mypy strict
	$(BIN)/mypy $(wildcard packages/*/src plugins/*/src) tools $(TYPED_TESTS)

imports: setup ## the import contracts
	$(BIN)/lint-imports

docs: setup ## build the generated reference, and what follows from plugins/
	$(BIN)/python tools/gen_schemas.py
	$(BIN)/python tools/gen_docs.py

pins: setup ## write requirements.lock from constraints.txt
	$(BIN)/python tools/pin.py

proto: setup ## generate the wire package from proto/
	$(BIN)/python tools/gen_wire.py
