# `make bench` and `make test` need Python 3.11, 3.12 or 3.13, git and make. requirements.lock defines what is installed
# into .venv.

# The first of these that is supported. To choose another one: `make PYTHON=/path/to/python3.13 bench`.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	$$python -c '$(SUPPORTED)' 2>/dev/null && echo $$python && break; done)

BIN := .venv/bin
READY := .venv/.ready
UV := $(BIN)/python .ci/run_uv.py pip
# --no-build-isolation: build source distributions with the locked setuptools, not the newest one. READTHEDOCS=1 builds
# fairseq without its C++ extensions. adapters/compat replaces the required parts in Python, so setup needs no compiler,
# takes 15 s less, and gives the same environment everywhere. -q: print errors only. uv compiles no bytecode: compiling
# all files would take longer than the rest of the installation, and most are never imported (see FIRST_IMPORT).
INSTALL := READTHEDOCS=1 $(UV) install -q --no-build-isolation
# Importing what every suite needs caches its bytecode, which makes all later starts faster. Two halves for two cores.
unexport PYTHONDONTWRITEBYTECODE
FIRST_IMPORT := import dropbench, timm, dropbench.db.report.view.build
FIRST_IMPORT_2 := import alembic.command, matplotlib.pyplot, pandas, sklearn.datasets, submitit, typer, accelerate
# Compiled within a second. Otherwise the first start of each command would compile its modules, and where
# PYTHONDONTWRITEBYTECODE is set, every start, which adds up to 0.3 s.
COMPILED := adapters db dropbench harness jobs tasks

# The tests of three SLURM clusters mostly wait for them, beside those that compute.
PROCESSES = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 3)))

.PHONY: help setup bench test test-fast test-all chaos paper zoo docs results check lint types format hooks lock clean

help:
	@echo "make bench    set up, run the suite quickstart and print its table: two minutes"
	@echo "make test     set up, check, and run all tests except the slow ones: four minutes"
	@echo "make test-all run the slow tests: SLURM, PostgreSQL, browser, LaTeX, all combinations: fifteen minutes"
	@echo "make chaos    run 200 trials on a private SLURM under random faults for 10 minutes"
	@echo "make paper    stop and continue a small trial of each suite's preset paper on a private SLURM: half an hour"
	@echo "make zoo      regularize every model of timm and transformers and write docs/generated/models.md: ten minutes"
	@echo "make docs     build the documentation site in site/"
	@echo "make results  before a release: train what the documentation quotes and shows, and write it anew"
	@echo "make check    run ruff, import-linter and mypy"
	@echo "make format   fix and format with ruff"
	@echo "make hooks    lint on every commit (pre-commit)"
	@echo "make setup    set up .venv; repeated if requirements.lock or pyproject.toml has changed"
	@echo "make lock     bring requirements.lock in line with pyproject.toml"
	@echo "make clean    remove .venv and tool caches, but no runs or data"

bench: setup
	$(BIN)/dropbench run quickstart

# mypy takes one core for half a minute: it runs beside the linters, and then beside the tests.
test: setup
	@$(MAKE) --no-print-directory -j2 check test-fast

test-fast: setup
	$(BIN)/python -m pytest -m "not slow" --numprocesses auto --maxprocesses 4 --durations=25

test-all: setup
	$(BIN)/python -m pytest -m slow --numprocesses $(PROCESSES) --durations=25

chaos: setup
	$(BIN)/python -m tests.cluster.chaos $(CHAOS)

paper: setup
	$(BIN)/python -m tests.zoo.paper $(SUITES)

zoo: setup
	$(BIN)/python -m tests.zoo $(MODELS)

docs: setup
	$(BIN)/python -m sphinx --quiet --fail-on-warning -c docs/generator . site
	@echo "Open site/index.html"

results: setup
	$(BIN)/python docs/update_results.py
	$(BIN)/python docs/draw_masks.py
	$(BIN)/python docs/draw_gallery.py
	$(BIN)/python docs/draw_screens.py

check: lint types

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: setup
	$(BIN)/pre-commit install

setup: $(READY)

$(READY): requirements.lock .ci/run_uv.py pyproject.toml
	@$(BIN)/python -c 'import pip; $(SUPPORTED)' 2>/dev/null || { \
		'$(PYTHON)' -c '$(SUPPORTED)' 2>/dev/null || { \
			echo "DropBench needs Python 3.11, 3.12 or 3.13: $(if $(PYTHON),'$(PYTHON)' is none,none is on the PATH)." \
				"Install one, or give its path: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }; \
		echo "Creating .venv with $$('$(PYTHON)' --version)"; \
		'$(PYTHON)' -m venv --clear .venv; }
	@echo "Installing requirements.lock (longer for a CUDA build of torch)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-compile $$(grep '^uv==' requirements.lock)
	@$(INSTALL) $$(grep -E '^setuptools(-scm)?==' requirements.lock)
	@# uv adds what a CUDA build of torch requires, which the lock leaves out.
	@$(INSTALL) -r requirements.lock
	@echo "Installing DropBench"
	@$(INSTALL) --no-deps --editable .
	@echo "Importing the libraries for the first time"
	@$(BIN)/python -m compileall -q $(COMPILED)
	@$(BIN)/python -c '$(FIRST_IMPORT_2)' & $(BIN)/python -c '$(FIRST_IMPORT)' && wait $$!
	@touch $@

# Keeps the locked versions, unless their lines are removed before. The libraries of CUDA depend on the build of torch.
lock: setup
	READTHEDOCS=1 UV_CUSTOM_COMPILE_COMMAND='make lock' $(UV) compile -q --universal --python-version 3.11 \
		--extra dev --extra docs --extra notebook --group unresolvable --group build --no-annotate \
		-o requirements.lock pyproject.toml
	sed -i -E '/^(nvidia-|cuda-|triton==)/d' requirements.lock

clean:
	rm -rf .venv build site *.egg-info .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
