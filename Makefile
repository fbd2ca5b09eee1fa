# The front doors: every target makes what it needs in .venv, from an empty machine with Python 3.11
# or newer and make. Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
TORCH ?= torch==2.13.0
JAX ?= jax==0.10.2
PYTEST_ARGS ?=
# One process for each core; WORKERS= (empty) runs all tests in one.
WORKERS ?= $(filter-out 1,$(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)'))
# Arguments of one target, such as make fuzz FUZZ="--cases 20000000"
FUZZ ?= --seconds 600
BENCH ?=
SUITE ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PARALLEL = $(if $(strip $(WORKERS)),-n $(WORKERS) --dist loadfile)
FRAMEWORKS = $(if $(strip $(TORCH)),$(VENV)/torch.stamp) $(if $(strip $(JAX)),$(VENV)/jax.stamp)
FAST := not slow and not fuzz and not interop
ALL := not fuzz and not interop
PIP := $(BIN)/python -m pip --quiet --retries 5

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
SUITES := attacks bench-paths bench-pretrained browser budget core-alone distributed ecosystem formats \
	frameworks healthy minimum mutants pages pythons real-files remote signatures
.PHONY: help demo test test-full lint fuzz faults interop bench docs release-check suite clean \
	$(SUITES:%=suite-%)

help: ## list the targets
	@awk -F ':[^#]*## ' '/^[a-z-]+:[^#]*## [^#]/ { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# --- Front doors --------------------------------------------------------------------------------

demo: $(VENV)/demo.stamp ## save, map, slice, verify and damage a real-sized checkpoint
	$(BIN)/python examples/demo.py $(MODEL)

# TORCH= and JAX= (empty) leave them out: no test fails for their absence.
test: $(VENV)/real.stamp $(FRAMEWORKS) ## run the tests but the slow ones, two or three minutes
	$(BIN)/python -m pytest -m "$(FAST)" $(PARALLEL) $(PYTEST_ARGS)

test-full: $(VENV)/real.stamp $(FRAMEWORKS) suite-browser suite-core-alone ## run all tests, those in a browser and of the core alone, too
	$(BIN)/python -m pytest -m "$(ALL)" --ignore=tests/browser $(PARALLEL) $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp ## check style, types, who imports whom, and the figures of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py

fuzz: $(VENV)/dev.stamp ## feed damaged files of every format to the reader, ten minutes
	$(BIN)/python fuzz/run.py $(FUZZ)

faults: $(VENV)/dev.stamp ## kill, cut the power and fill the disk under every change to a file
	$(BIN)/python tests/faults/run.py

interop: $(VENV)/dev.stamp ## exchange files with the released wheels of each version
	$(BIN)/python tests/interop/run.py
	$(BIN)/python tests/interop/readers.py

# Ten minutes. BENCH="--full --torch --write-docs": everything, an hour and a half, and the page.
bench: $(VENV)/dev.stamp $(if $(findstring full,$(BENCH)),$(VENV)/bench.stamp) $(if $(strip $(TORCH)),$(VENV)/torch.stamp) ## measure beside other libraries
	$(BIN)/python benchmarks/run.py $(BENCH)
	$(BIN)/python -m benchmarks.beside
ifneq ($(findstring full,$(BENCH)),)
	$(BIN)/python benchmarks/run.py --full --foreign --peers ztensor-2,ours-ztensor-2 --minutes 15 \
		--json build/benchmarks/2.x.json
	$(BIN)/python benchmarks/edit.py
	$(BIN)/python -m benchmarks.remote
	$(BIN)/python -m benchmarks.divided
	$(if $(strip $(TORCH)),$(BIN)/python -m benchmarks.training)
endif

docs: $(VENV)/docs.stamp ## build the pages into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

release-check: $(VENV)/pip.stamp ## build both distributions and try them as a stranger would
	$(PYTHON) tests/release.py $(if $(TORCH),'$(TORCH)') $(if $(JAX),'$(JAX)')

suite: ## run a special suite: make suite SUITE=remote; without SUITE, list them
ifeq ($(strip $(SUITE)),)
	@awk -F ':.*### ' '/^suite-.*### / { printf "  make suite SUITE=%-18s %s\n", substr($$1, 7), $$2 }' Makefile
else
	@$(MAKE) --no-print-directory suite-$(SUITE)
endif

# --- Special suites: make suite SUITE=budget ARGS="--quick npz" ---------------------------------

suite-attacks: $(VENV)/dev.stamp $(FRAMEWORKS) ### attack every function and verb with all hostile files, wrong arguments and damage
	ZTENSOR_TESTS=full $(BIN)/python -m pytest -o timeout=1800 tests/attacks tests/property $(PARALLEL) $(PYTEST_ARGS)

suite-bench-paths: $(VENV)/bench.stamp ### time our own hot paths, under two minutes, judging nothing
	$(BIN)/python -m pytest benchmarks/test_hot_paths.py --benchmark-columns=min,median,rounds \
		--benchmark-sort=name --benchmark-group-by=func $(PYTEST_ARGS)

# Needs what `make suite SUITE=ecosystem ARGS=transformers-newest` makes.
suite-bench-pretrained: ### load a model of transformers from .zt beside its own files: time and memory
	PYTHONPATH=src .venvs/ecosystem-transformers-newest/bin/python -m benchmarks.pretrained $(ARGS)

# Debian's package is 86 MB; `playwright install` needs a host of its own and is never called.
suite-browser: $(VENV)/browser.stamp ### install a browser where that is allowed, and click through the page of a model
	@$(BIN)/python tests/browser/installing.py
	$(BIN)/python -m pytest tests/browser $(PARALLEL) $(PYTEST_ARGS)

# ARGS="--quick npz": small sizes, or some formats.
suite-budget: $(VENV)/dev.stamp ### measure memory and time of the worst known files of every format, 1 kB to 16 MB
	$(BIN)/python tests/attacks/budget.py $(ARGS)

# The core may need nothing of the rest: `-m wing` marks tests of it that do.
suite-core-alone: $(VENV)/dev.stamp ### run the tests of the core in an empty folder, with no other package of ours beside it
	$(BIN)/python tools/core_alone.py $(if $(strip $(WORKERS)),-n $(WORKERS)) $(PYTEST_ARGS)

# Every placement is loaded in every other, and a process dies at every call of the system.
suite-distributed: $(VENV)/dev.stamp $(VENV)/torch.stamp ### save and load with several processes, kill and damage
	ZTENSOR_TESTS=full $(BIN)/python -m pytest -o timeout=3600 tests/distributed tests/unit/distributed/test_torch.py $(PYTEST_ARGS)

# 3 GB of packages, kept in .venvs. ARGS="peft timm-newest": some of them; "--list": what there is.
suite-ecosystem: $(VENV)/dev.stamp $(VENV)/torch.stamp ### use our files from transformers, diffusers and others, each in an environment of its own
	$(BIN)/python -m tests.ecosystem.run $(ARGS)

suite-formats: $(VENV)/dev.stamp $(if $(strip $(TORCH)),$(VENV)/torch.stamp) ### hold what we read and write of each format to its own library, and refuse its hostile samples
	$(BIN)/python tests/interop/formats.py

suite-frameworks: $(VENV)/dev.stamp $(FRAMEWORKS) ### take every type and layout from every framework to all others, bit for bit
	$(BIN)/python tests/interop/frameworks.py

# 360 MB of packages, kept in .venv. ARGS="--only silero": some; "--write-docs" writes the table.
suite-healthy: $(VENV)/real.stamp ### look at 38 checkpoints that are in use, where next to nothing may be found
	$(BIN)/python -W ignore tests/real/healthy.py $(ARGS)

suite-minimum: ### run the framework-free tests with the oldest releases that pyproject.toml allows
	$(PYTHON) tests/pythons.py --minimum $(PYTHON)

# Hours. ARGS="--sample 50 src/ztensor/spec": a few, of one package.
suite-mutants: $(VENV)/dev.stamp $(FRAMEWORKS) ### mutate spec, io, training and distributed by cosmic-ray, and count what the tests notice
	$(PIP) install --group mutants
	$(BIN)/python -m tools.mutants $(ARGS)

suite-pages: $(VENV)/dev.stamp ### write anew the pages that are made from the code
	$(PYTHON) docs/make_core.py
	$(BIN)/python docs/make_cli.py
	$(BIN)/python docs/make_versions.py

suite-pythons: ### run the framework-free tests on every CPython found (ARGS="python3.12 ...": on those)
	$(PYTHON) tests/pythons.py $(ARGS)

# 600 MB of packages, kept in .venv. ARGS="--only onnx": some of them; "--write-docs" writes the page.
suite-real-files: $(VENV)/dev.stamp $(VENV)/torch.stamp ### hold 400 real files of other programs to their own libraries
	$(BIN)/python -W ignore tests/real/run.py $(ARGS)

suite-remote: $(VENV)/dev.stamp ### read and write through S3, HTTP and a hub on loopback, under faults, and print what came of each
	ZTENSOR_TESTS=full $(BIN)/python -m pytest -o timeout=600 tests/remote $(PYTEST_ARGS)
	$(BIN)/python -m tests.remote.requests
	$(BIN)/python -m tests.remote.faults

# 95 MB of packages, kept in .venvs. ARGS=FOLDER: also the cases of a conformance suite in it.
suite-signatures: $(VENV)/dev.stamp ### exchange signatures with model-signing, both ways
	$(BIN)/python tests/interop/signatures.py $(ARGS)

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
