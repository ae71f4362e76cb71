# `make bench` and `make test` need Python 3.11, git and make. The lock files define what is installed into .venv.

# The first of these that is Python 3.11. To choose another one: `make PYTHON=/path/to/python3.11 bench`.
IS_311 := import sys; sys.exit(sys.version_info[:2] != (3, 11))
PYTHON ?= $(shell for python in python3.11 python3 python; do \
	$$python -c '$(IS_311)' 2>/dev/null && echo $$python && break; done)

BIN := .venv/bin
READY := .venv/.ready
# --no-compile: compiling all files would take longer than the rest of the installation, and most are never imported
# (see FIRST_IMPORT). --no-build-isolation: build source distributions with the locked setuptools, not the newest one.
# -qq: print errors only.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-compile --no-build-isolation
# Importing these once caches their bytecode, which makes all later starts faster.
unexport PYTHONDONTWRITEBYTECODE
FIRST_IMPORT := import dropbench, accelerate, alembic.command, matplotlib.pyplot, pandas, sklearn.datasets, submitit, timm, typer
FIRST_IMPORT_2 := import dropbench, fairseq, mmdet.models, pycocotools.cocoeval, sacrebleu, transformers.modeling_utils

# The tests of three SLURM clusters mostly wait for them, beside those that compute.
PROCESSES = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 3)))

.PHONY: help setup bench test test-all chaos docs results check lint format hooks clean

help:
	@echo "make bench    set up, run the suite quickstart and print its table"
	@echo "make test     set up, check, and run all tests except the slow ones: five minutes"
	@echo "make test-all run the slow tests: SLURM, PostgreSQL, browser, LaTeX, all combinations: twelve minutes"
	@echo "make chaos    run 200 trials on a private SLURM under random faults for 10 minutes"
	@echo "make docs     build the documentation site in site/"
	@echo "make results  before a release: train what the documentation quotes and shows, and write it anew"
	@echo "make check    run ruff, import-linter and mypy"
	@echo "make format   fix and format with ruff"
	@echo "make hooks    lint on every commit (pre-commit)"
	@echo "make setup    set up .venv; repeated if a lock file or pyproject.toml has changed"
	@echo "make clean    remove .venv and tool caches, but no runs or data"

bench: setup
	$(BIN)/dropbench run quickstart

test: check
	$(BIN)/python -m pytest -m "not slow" --numprocesses auto --maxprocesses 4 --durations=25

test-all: setup
	$(BIN)/python -m pytest -m slow --numprocesses $(PROCESSES) --durations=25

chaos: setup
	$(BIN)/python -m tests.cluster.chaos $(CHAOS)

docs: setup
	$(BIN)/python -m sphinx --quiet --fail-on-warning -c docs/generator . site
	@echo "Open site/index.html"

results: setup
	$(BIN)/python docs/update_results.py
	$(BIN)/python docs/draw_masks.py
	$(BIN)/python docs/draw_gallery.py
	$(BIN)/python docs/draw_screens.py

lint: check

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: setup
	$(BIN)/pre-commit install

setup: $(READY)

$(READY): requirements.lock requirements-no-deps.lock pyproject.toml
	@$(BIN)/python -c 'import pip; $(IS_311)' 2>/dev/null || { \
		'$(PYTHON)' -c '$(IS_311)' 2>/dev/null || { \
			echo "DropBench needs Python 3.11: $(if $(PYTHON),'$(PYTHON)' is not,python3.11 is not on the PATH)." \
				"Install it, or give its path: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }; \
		echo "Creating .venv with $$('$(PYTHON)' --version)"; \
		'$(PYTHON)' -m venv --clear .venv; }
	@echo "Installing requirements.lock (about a minute; longer for a CUDA build of torch)"
	@$(INSTALL) $$(grep -E '^(pip|setuptools(-scm)?)==' requirements.lock)
	@$(INSTALL) --no-warn-conflicts -r requirements.lock
	@echo "Installing requirements-no-deps.lock"
	@# READTHEDOCS=1 builds fairseq without its C++ extensions. adapters/compat replaces the required parts in Python, so
	@# setup needs no compiler, takes 15 s less, and gives the same environment everywhere.
	@READTHEDOCS=1 $(INSTALL) --no-deps -r requirements-no-deps.lock
	@echo "Installing DropBench"
	@$(INSTALL) --no-deps --editable .
	@echo "Importing the libraries for the first time"
	@$(BIN)/python -c '$(FIRST_IMPORT_2)' & $(BIN)/python -c '$(FIRST_IMPORT)' && wait $$!
	@touch $@

clean:
	rm -rf .venv build site *.egg-info .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
