# `make bench` and `make test` need Python 3.11, git and make. All else is installed into .venv, by the locks alone.

# The first of these that is Python 3.11; or say `make PYTHON=/path/to/python3.11 bench`.
IS_311 := import sys; sys.exit(sys.version_info[:2] != (3, 11))
PYTHON ?= $(shell for python in python3.11 python3 python; do \
	$$python -c '$(IS_311)' 2>/dev/null && echo $$python && break; done)

BIN := .venv/bin
READY := .venv/.ready
# To compile all files would take longer than all else, and most are never imported; see FIRST_IMPORT. Without build
# isolation the few source distributions are built by the setuptools of the lock, not by the newest. -qq: errors only.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-compile --no-build-isolation
# What Python compiles when it imports these is kept beside them, and all later starts are the faster for it.
unexport PYTHONDONTWRITEBYTECODE
FIRST_IMPORT := import accelerate, alembic.command, matplotlib.pyplot, pandas, sklearn.datasets, submitit, timm, typer
FIRST_IMPORT_2 := import fairseq, mmdet.models, pycocotools.cocoeval, sacrebleu, transformers.modeling_utils

.PHONY: help setup bench test chaos lint format hooks clean

help:
	@echo "make bench    set up, then run the quickstart suite and print its table"
	@echo "make test     set up, then lint and run the tests"
	@echo "make chaos    200 trials on a SLURM of its own, under random faults for 10 minutes"
	@echo "make lint     ruff, import-linter, mypy"
	@echo "make format   let ruff mend what it can"
	@echo "make hooks    lint at each commit (pre-commit)"
	@echo "make setup    only set up .venv; done again when a lock or pyproject.toml has changed"
	@echo "make clean    remove .venv and the caches of tools, never runs or data"

bench: setup
	$(BIN)/dropbench run quickstart

test: lint
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --durations=25

chaos: setup
	$(BIN)/python -m tests.cluster.chaos $(CHAOS)

lint: setup
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

$(READY): requirements.lock requirements-no-deps.lock pyproject.toml adapters/dropbench-compat.pth
	@$(BIN)/python -c 'import pip; $(IS_311)' 2>/dev/null || { \
		'$(PYTHON)' -c '$(IS_311)' 2>/dev/null || { \
			echo "DropBench needs Python 3.11: $(if $(PYTHON),'$(PYTHON)' is not,there is no python3.11 on the PATH)." \
				"Install it, or say where it is: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }; \
		echo "Making .venv with $$('$(PYTHON)' --version)"; \
		'$(PYTHON)' -m venv --clear .venv; }
	@echo "Installing the libraries of requirements.lock (a minute, and longer for a torch with CUDA)"
	@$(INSTALL) $$(grep -E '^(pip|setuptools(-scm)?)==' requirements.lock)
	@$(INSTALL) --no-warn-conflicts -r requirements.lock
	@echo "Installing the libraries of requirements-no-deps.lock"
	@# READTHEDOCS: fairseq leaves its C++ extensions out. adapters/compat has what of them is needed, in Python: set-up
	@# needs no compiler, takes 15 s less, and makes the same environment everywhere.
	@READTHEDOCS=1 $(INSTALL) --no-deps -r requirements-no-deps.lock
	@echo "Installing DropBench"
	@$(INSTALL) --no-deps --editable .
	@cp adapters/dropbench-compat.pth "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@echo "Importing the libraries for the first time"
	@$(BIN)/python -c '$(FIRST_IMPORT_2)' & $(BIN)/python -c '$(FIRST_IMPORT)' && wait $$!
	@touch $@

clean:
	rm -rf .venv build *.egg-info .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
