# The front door: every target makes what it needs in .venv, from an empty machine with Python 3.11
# or newer and make. Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
TORCH ?= torch==2.13.0
JAX ?= jax==0.10.2
FUZZ ?= --seconds 600
SHAPES ?=
TESTS ?=
PYTEST_ARGS ?=
# One process for each core; WORKERS= (empty) runs all tests in one.
WORKERS ?= $(filter-out 1,$(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)'))
BENCH ?=
REAL ?=
ECOSYSTEM ?=
HEALTHY ?=

VENV := .venv
BIN := $(VENV)/bin
PARALLEL = $(if $(strip $(WORKERS)),-n $(WORKERS) --dist loadfile)
FRAMEWORKS = $(if $(strip $(TORCH)),$(VENV)/torch.stamp) $(if $(strip $(JAX)),$(VENV)/jax.stamp)
PIP := $(BIN)/python -m pip --quiet --retries 5

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo check test test-slow lint house core-alone test-pythons test-minimum budget fuzz attacks faults browser distributed interop frameworks formats ecosystem real-files healthy bench bench-quick bench-paths bench-pretrained remote docs cli-page core-page versions-page release-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/demo.stamp ## save, map, slice, verify and damage a real-sized checkpoint
	$(BIN)/python examples/demo.py $(MODEL)

# TORCH= and JAX= (empty) leave them out: no test fails for their absence.
test: $(VENV)/real.stamp $(FRAMEWORKS) ## run the tests but the slow ones, a few minutes
	$(BIN)/python -m pytest -m "not slow and not fuzz and not interop" $(PARALLEL) $(PYTEST_ARGS)

test-slow: $(VENV)/real.stamp $(FRAMEWORKS) ## run the slow ones: processes, servers, examples, as long again
	$(BIN)/python -m pytest -m "slow and not fuzz and not interop" $(PARALLEL) $(PYTEST_ARGS)

# Before a commit: make check TESTS=tests/unit/spec/wire. Without TESTS, the tests that failed last run.
check: $(VENV)/dev.stamp ## check style, types and the tests in TESTS
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports
	$(BIN)/python -m pytest -q -m "not slow and not fuzz and not interop" $(or $(TESTS),--last-failed --last-failed-no-failures none) $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp ## check style, types and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Needs nothing but Python. After a change of the figures: python tools/house.py --write
house: ## print the size of the code beside the committed figures; fail where one rose
	$(PYTHON) tools/house.py

# The core may need nothing of the rest: `-m wing` marks tests of it that do.
core-alone: $(VENV)/dev.stamp ## run the tests of the core in an empty folder, with no other package of ours beside it
	$(BIN)/python tools/core_alone.py $(if $(strip $(WORKERS)),-n $(WORKERS)) $(PYTEST_ARGS)

test-pythons: ## run the framework-free suite on every CPython found (PYTHONS="python3.12 ...": on those)
	$(PYTHON) tests/pythons.py $(PYTHONS)

test-minimum: ## run it with the oldest releases of the dependencies that pyproject.toml allows
	$(PYTHON) tests/pythons.py --minimum $(PYTHON)

# SHAPES="--quick npz": small sizes, or some formats.
budget: $(VENV)/dev.stamp ## measure memory and time of the worst known files of every format, 1 kB to 16 MB
	$(BIN)/python tests/attacks/budget.py $(SHAPES)

# The long one, half an hour on two quiet cores: make fuzz FUZZ="--cases 20000000"
fuzz: $(VENV)/dev.stamp ## feed damaged files of every format to the reader, ten minutes
	$(BIN)/python fuzz/run.py $(FUZZ)

attacks: $(VENV)/dev.stamp $(FRAMEWORKS) ## attack every function and verb with all hostile files, wrong arguments and damage
	ZTENSOR_TESTS=full $(BIN)/python -m pytest -o timeout=1800 tests/attacks tests/property $(PARALLEL) $(PYTEST_ARGS)

faults: $(VENV)/dev.stamp ## kill, cut the power and fill the disk under every change to a file
	$(BIN)/python tests/faults/run.py

# A few minutes: every placement in every other, kills at every call of the system, other writers too.
distributed: $(VENV)/dev.stamp $(VENV)/torch.stamp ## save and load with several processes, kill and damage, beside torch's own writers
	ZTENSOR_TESTS=full $(BIN)/python -m pytest tests/distributed tests/unit/distributed/test_torch.py $(PYTEST_ARGS)
	$(BIN)/python -W ignore -m tests.distributed.matrix
	$(BIN)/python -W ignore -m tests.distributed.kills

remote: $(VENV)/dev.stamp ## read and write through S3, HTTP and a hub on loopback, under faults, and print what came of each
	ZTENSOR_TESTS=full $(BIN)/python -m pytest -o timeout=600 tests/remote $(PYTEST_ARGS)
	$(BIN)/python -m tests.remote.requests
	$(BIN)/python -m tests.remote.faults

# Debian's package is 86 MB; `playwright install` needs a host of its own and is never called.
browser: $(VENV)/browser.stamp ## install a browser where that is allowed, and click through the page of a model
	@$(BIN)/python tests/browser/installing.py
	$(BIN)/python -m pytest tests/browser $(PARALLEL) $(PYTEST_ARGS)

interop: $(VENV)/dev.stamp ## exchange files with the released wheels of each version
	$(BIN)/python tests/interop/run.py
	$(BIN)/python tests/interop/wheels_2.py

frameworks: $(VENV)/dev.stamp $(FRAMEWORKS) ## take every type and layout from every framework to all others, bit for bit
	$(BIN)/python tests/interop/frameworks.py

formats: $(VENV)/dev.stamp $(if $(strip $(TORCH)),$(VENV)/torch.stamp) ## hold what we read and write of each format to its own library, and refuse its hostile samples
	$(BIN)/python tests/interop/formats.py

# 3 GB of packages, kept in .venvs. ECOSYSTEM="peft timm-newest": some of them; "--list": what there is.
ecosystem: $(VENV)/dev.stamp $(VENV)/torch.stamp ## use our files from transformers, diffusers and others, each in an environment of its own
	$(BIN)/python -m tests.ecosystem.run $(ECOSYSTEM)

# Needs what `make ecosystem ECOSYSTEM=transformers-newest` makes.
bench-pretrained: ## load a model of transformers from .zt beside its own files: time and memory
	PYTHONPATH=src .venvs/ecosystem-transformers-newest/bin/python -m benchmarks.pretrained $(BENCH)

# 600 MB of packages, kept in .venv. REAL="--only onnx": some of them; "--write-docs" writes the page.
real-files: $(VENV)/dev.stamp $(VENV)/torch.stamp ## hold 400 real files of other programs to their own libraries
	$(BIN)/python -W ignore tests/real/run.py $(REAL)

# BENCH="--torch --write-docs" adds peers of gigabytes and writes the page.
bench: $(VENV)/dev.stamp $(VENV)/bench.stamp $(if $(strip $(TORCH)),$(VENV)/torch.stamp) ## measure everything beside other libraries, an hour and a half
	$(BIN)/python benchmarks/run.py --full $(BENCH)
	$(BIN)/python benchmarks/run.py --full --foreign --peers ztensor-2,ours-ztensor-2 --minutes 15 \
		--json build/benchmarks/2.x.json
	$(BIN)/python -m benchmarks.beside
	$(BIN)/python benchmarks/edit.py
	$(BIN)/python -m benchmarks.remote
	$(BIN)/python -m benchmarks.divided
	$(if $(strip $(TORCH)),$(BIN)/python -m benchmarks.training)

# 360 MB of packages, kept in .venv. HEALTHY="--only silero": some; "--write-docs" writes the table.
healthy: $(VENV)/real.stamp ## look at 38 checkpoints that are in use, where next to nothing may be found
	$(BIN)/python -W ignore tests/real/healthy.py $(HEALTHY)

bench-quick: $(VENV)/dev.stamp $(if $(strip $(TORCH)),$(VENV)/torch.stamp) ## measure what the budgets ask, ten minutes
	$(BIN)/python benchmarks/run.py $(BENCH)
	$(BIN)/python -m benchmarks.beside

bench-paths: $(VENV)/bench.stamp ## time our own hot paths, under two minutes, judging nothing
	$(BIN)/python -m pytest benchmarks/test_hot_paths.py --benchmark-columns=min,median,rounds \
		--benchmark-sort=name --benchmark-group-by=func $(PYTEST_ARGS)

release-check: $(VENV)/pip.stamp ## build both distributions, install each in an empty environment, try it
	$(PYTHON) tests/release.py $(if $(TORCH),'$(TORCH)') $(if $(JAX),'$(JAX)')

cli-page: $(VENV)/dev.stamp ## write docs/cli.md anew, from the help of the command
	$(BIN)/python docs/make_cli.py

core-page: ## write docs/core.md anew, from the docstrings of the core
	$(PYTHON) docs/make_core.py

versions-page: $(VENV)/dev.stamp ## write docs/versions.md anew, from what writes each version
	$(BIN)/python docs/make_versions.py

docs: $(VENV)/docs.stamp ## build the pages into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove everything these targets made, environments included
	rm -rf $(VENV) .venvs build dist site htmlcov .coverage .hypothesis
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- Environments: a stamp is as new as the pyproject.toml it was made from ---------------------

$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, try: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install 'pip>=25.1'
	@touch $@

$(VENV)/demo.stamp: pyproject.toml $(VENV)/pip.stamp
	$(PIP) install --editable . 'safetensors>=0.4.3'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/pip.stamp
	$(PIP) install --editable . --group dev
	@touch $@

$(VENV)/real.stamp: $(VENV)/dev.stamp
	$(PIP) install --no-deps --group real
	@touch $@

$(VENV)/torch.stamp: $(VENV)/dev.stamp
	$(PIP) install '$(TORCH)'
	@touch $@

$(VENV)/jax.stamp: $(VENV)/dev.stamp
	$(PIP) install '$(JAX)'
	@touch $@

$(VENV)/bench.stamp: pyproject.toml $(VENV)/pip.stamp
	$(PIP) install --editable . --group bench
	@touch $@

$(VENV)/browser.stamp: pyproject.toml $(VENV)/dev.stamp
	$(PIP) install --group browser
	@touch $@

$(VENV)/docs.stamp: pyproject.toml $(VENV)/pip.stamp
	$(PIP) install --editable . --group docs
	@touch $@
