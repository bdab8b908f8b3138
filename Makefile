# Every target sets itself up: all it needs is make and Python 3.11 or newer (PYTHON=python3.12 to choose one).
# .venv holds what developers need, .venv-demo what users get. A stamp in each says what it was made from, so a second
# call starts at once and a changed lock is installed again.

PYTHON ?= python3
# Many tests wait for processes and timers, so two for each core are faster than one.
JOBS ?= $(shell $(PYTHON) -c "import os; print(2 * (os.cpu_count() or 1))" 2>/dev/null || echo auto)
MARKED ?= not long and not thorough
LIVES ?= 400
PYTEST_ARGS ?=

# Errors only: what pip warns about concerns the machine, not the project.
PIP := -m pip --disable-pip-version-check -qq install
DEV := .venv/.installed
DEMO := .venv-demo/.installed
BIN := .venv/bin
PAGE := src/rerail/server/page/index.html

.PHONY: help demo web test test-all long simulate fuzz coverage mutate audit wheel check format bench bench-scale bench-load \
	bench-recovery bench-peers lock clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO) ## See a plan fail, heal, be killed and finish (offline, under a minute)
	@.venv-demo/bin/rerail demo

web: $(PAGE) ## Build the page that `rerail serve` shows

test: $(DEV) ## Run the tests but for the thorough ones (JOBS=0 in one process, PYTEST_ARGS="-k chain" to choose)
	@$(MAKE) --no-print-directory -s $(PAGE) HOW=--if-possible
	RERAIL_LIVES=$(LIVES) $(BIN)/python -m pytest -n $(JOBS) -m "$(MARKED)" $(PYTEST_ARGS)

# All of them, in many more simulated lives: part of `make check`.
test-all: MARKED := not long
test-all: LIVES := 1200
test-all: test ## Run the thorough tests too: a cluster, a browser, servers that come and go (15 minutes)

# One of these may take longer than any test of CI.
long: export PYTEST_TIMEOUT = 7200
long: $(DEV) ## Run the tests that take minutes: kill -9, laws with many examples, races of workers
	RERAIL_KILLS=200 RERAIL_LAWS=10 RERAIL_RACES=100 RERAIL_MANY=500 RERAIL_CRASHES=all RERAIL_SCHEMA_EXAMPLES=100 \
		$(BIN)/python -m pytest -n $(JOBS) tests/crash tests/laws tests/workers tests/stages/test_crashes.py \
		tests/server/test_schemathesis.py $(PYTEST_ARGS)
	RERAIL_CHAOS=200 $(BIN)/python -m pytest -n 0 -s tests/chaos $(PYTEST_ARGS)
	$(BIN)/python -m pytest -n $(JOBS) -m long tests/adapters/test_langgraph.py $(PYTEST_ARGS)
	RERAIL_LIVES=20000 $(BIN)/python -m pytest -n $(JOBS) -m "long or not long" tests/simulation $(PYTEST_ARGS)
	RERAIL_READERS=all $(BIN)/python -m pytest -n 0 tests/server/test_readers.py $(PYTEST_ARGS)

SEEDS ?= 100000

simulate: $(DEV) ## Live SEEDS (100000, or FIRST:LAST) simulated lives, and hold each against the laws
	$(BIN)/python -m tests.simulation $(SEEDS) --jobs 2

SECONDS ?= 600
TARGETS ?= plans references events settings answers schemas patterns outputs
FUZZ := .venv-fuzz/.installed

fuzz: $(FUZZ) ## Hunt for input that breaks what reads it, SECONDS (600) for each of TARGETS; what is found is in build/fuzz
	@for target in $(TARGETS); do \
		PYTHONPATH=src:. .venv-fuzz/bin/python -m tests.fuzz.hunt $$target build/fuzz -max_total_time=$(SECONDS) || exit 1; \
	done

# What chance draws is the same each time, so that what is reached is too.
MEASURED := tests/kernel tests/plan tests/values tests/recovery tests/views tests/i18n tests/mind tests/engine tests/scenarios tests/laws tests/architecture/test_texts.py

coverage: $(DEV) ## Measure the branches of the pure packages that the tests reach; less than all fails
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n 0 --hypothesis-profile=ci $(MEASURED) $(PYTEST_ARGS)
	$(BIN)/python -m coverage report --skip-covered --show-missing

MUTANTS ?= 1000
SEED ?= 7

mutate: $(DEV) ## Put MUTANTS (1000) small faults into the pure packages, drawn by SEED (7), and see the tests notice
	$(BIN)/python -m tests.mutation $(MUTANTS) --seed $(SEED) --least 90 $(MUTATE_ARGS)

audit: $(DEV) ## Look for known flaws in what is locked, and for licences that cannot be shipped with
	@$(call venv,.venv-audit)
	@.venv-audit/bin/python $(PIP) pip-audit || echo "pip-audit cannot be installed here"
	$(BIN)/python -m tests.supply.audit requirements.lock requirements-core.lock --pip-audit=.venv-audit/bin/python

wheel: $(DEV) ## Build the wheel twice, and see that both are the same to the byte
	$(BIN)/python -m tests.supply.wheel $(WHEEL_ARGS)

check: $(DEV) ## Everything that must hold before a change lands: format, lint, types, layers, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src $(wildcard benchmarks) tests/simulation
	$(BIN)/lint-imports --no-logo
	$(BIN)/python hatch_build.py check --if-possible
	@$(MAKE) --no-print-directory test-all

format: $(DEV) ## Format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-scale: $(DEV) ## Measure Ray, workers and stores against bare programs (minutes)
	$(BIN)/python -m benchmarks.scale

bench-recovery: $(DEV) bench-peers ## Run real tools with faults, by Rerail and by its peers (under half an hour)
	$(BIN)/python -m benchmarks.recovery $(RECOVERY_ARGS)

bench-load: $(DEV) ## Measure how costs grow with very many runs, steps and hours (minutes)
	$(BIN)/python -m benchmarks.load

bench: $(DEV) ## Measure speed against a bare asyncio and SQLite program
	$(BIN)/python -m benchmarks.speed

# The core lock is the part of the whole lock that users need: the second call takes its versions from the first.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command 'make lock' pyproject.toml

lock: ## Choose versions anew and write both lock files (UPGRADE= keeps the versions that still fit)
	@$(call venv,.venv)
	@test -x $(BIN)/uv || $(BIN)/python $(PIP) uv
	$(COMPILE) $(UPGRADE) --all-extras --group dev --output-file requirements.lock
	$(COMPILE) --upgrade --constraints requirements.lock --output-file requirements-core.lock

UPGRADE ?= --upgrade

clean: ## Remove caches, builds and the demo's environment (.venv stays)
	rm -rf .venv-demo .venv-fuzz build dist src/rerail/server/page web/node_modules .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- environments

define version_check
import sys
if sys.version_info < (3, 11):
    sys.exit("Rerail needs Python 3.11 or newer; this is {0}.{1}. Name another one: make PYTHON=python3.11".format(*sys.version_info))
endef
export version_check

# Make the environment $(1), or make it anew when its Python is gone or too old.
venv = if ! $(1)/bin/python -c "$$version_check" 2>/dev/null; then \
	command -v $(PYTHON) >/dev/null || { echo "No $(PYTHON) here. Name one: make PYTHON=/path/to/python3.11"; exit 1; }; \
	$(PYTHON) -c "$$version_check" && \
	{ $(PYTHON) -m venv --clear $(1) || { echo "$(PYTHON) cannot make environments (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }; }; \
	fi

$(DEV): pyproject.toml requirements.lock
	@$(call venv,.venv)
	@echo "Setting up .venv ..."
	@$(BIN)/python $(PIP) --require-hashes -r requirements.lock
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(FUZZ): requirements-core.lock tests/fuzz/requirements.txt
	@$(call venv,.venv-fuzz)
	@echo "Setting up .venv-fuzz ..."
	@.venv-fuzz/bin/python $(PIP) --require-hashes -r requirements-core.lock
	@.venv-fuzz/bin/python $(PIP) -r tests/fuzz/requirements.txt
	@touch $@

# The worlds and the peers of the recovery benchmark, each alone: `.venv-bench-NAME` from environments/NAME.txt.
PEERS := $(patsubst benchmarks/recovery/environments/%.txt,.venv-bench-%/.installed,$(wildcard benchmarks/recovery/environments/*.txt))
RECOVERY_ARGS ?=

bench-peers: $(PEERS)

.venv-bench-%/.installed: benchmarks/recovery/environments/%.txt
	@$(call venv,.venv-bench-$*)
	@echo "Setting up .venv-bench-$* ..."
	@.venv-bench-$*/bin/python $(PIP) $(if $(filter world,$*),--no-deps) -r $<
	@touch $@

# --- the page

$(PAGE): $(shell find web hatch_build.py -type f ! -path '*/node_modules/*') | $(DEV)
	@$(BIN)/python hatch_build.py build $(HOW)

# Not editable: the demo shows what a user gets, so it must be installed again when the source changes.
# The page is no part of it, and must not be built for it.
SOURCES := $(shell find src -type f ! -name '*.pyc' ! -path 'src/rerail/server/page/*')

$(DEMO): pyproject.toml requirements-core.lock $(SOURCES)
	@$(call venv,.venv-demo)
	@echo "Setting up .venv-demo ..."
	@.venv-demo/bin/python $(PIP) --require-hashes -r requirements-core.lock
	@RERAIL_BUILD_PAGE=0 .venv-demo/bin/python $(PIP) --no-deps --force-reinstall .
	@touch $@
