"""Completion as shells ask for it, of names that need neither a database nor torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forkserver
from tests.paths import ROOT

PROGRAM = """
import os, sys
sys.argv = ["dropbench"]
from dropbench.harness.cli.main import main
try:
    main()
finally:
    print("HEAVY", sorted({"torch", "numpy", "timm", "sqlalchemy"} & set(sys.modules)))
"""


def complete(folder: Path, *words: str, shell: str = "bash") -> list[str]:
    """Return what a shell is offered for the last word; bash has split the words at colons and equals signs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_DROPBENCH_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        environment |= {"COMP_WORDS": "\n".join(["dropbench", *words]), "COMP_CWORD": str(len(words))}
    else:
        environment |= {"_TYPER_COMPLETE_ARGS": " ".join(["dropbench", *words])}
        environment |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = forkserver.run([], cwd=folder, env=environment)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]  # shells ignore empty lines


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["run", "quick"], ["quickstart", "quickstart/full"]),
        (["report", "dropattention/fig"], ["dropattention/fig2", "dropattention/fig3"]),
        (["enqueue", "quickstart", "dropkey/table8"], ["dropkey/table8"]),
        (["run", "--model", "t2t-vit-d"], ["t2t-vit-digits"]),
        (["run", "--task", "text"], ["text-classification", "text-regression", "textual-entailment"]),
        (["run", "--preset", ""], ["mini", "small", "paper"]),
        (["list", "schedules", "in"], ["increasing"]),
        (["run", "--backend", "e"], ["eager"]),
        (["submit", "--executor", ""], ["local", "slurm", "debug"]),
        (["results", "--metric", "sacre"], ["sacrebleu"]),
        (["list", "mod"], ["models"]),
        (["list", "models", "deit-b"], ["deit-base"]),
        (["list", "regularizers", "dropkey-"], ["dropkey-block", "dropkey-cross"]),
        (["analyze", "quickstart", "ent"], ["entropy"]),
        (["run", "--regularizer", "dropattention-c"], ["dropattention-c"]),
        (["run", "--regularizer", "dropkey", ":", "ra"], ["ratio=", "ratio=0.1"]),
        (["run", "--regularizer", "=", "dropkey", ":", "w"], ["window=", "window=1"]),
        (["run", "--regularizer", "=", "dropk"], ["dropkey", "dropkey-block", "dropkey-cross"]),
        (["run", "--regularizer", "dropkey", ":", "ratio", "=", "0.3,schedule", "=", "de"], ["decreasing"]),
        (["run", "--regularizer", "dropkey", ":", "rescale", "="], ["renormalize", "inverse", "detached"]),
        (["run", "--regularizer", "dropky", ":", "ra"], []),
        (["run", "--data", "trec", "=", "/tm"], []),
        (["unknown", "--regularizer", "x"], []),
    ],
    ids=" ".join,
)
def test_what_bash_is_offered(words: list[str], offered: list[str], tmp_path: Path) -> None:
    found = complete(tmp_path, *words)
    assert sorted(found) == sorted(offered)  # bash sorts them


def test_other_shells_split_no_words_and_show_help(tmp_path: Path) -> None:
    assert complete(tmp_path, "run", "--regularizer", "dropkey:rat", shell="fish") == [
        "dropkey:ratio=",
        "dropkey:ratio=0.1",
    ]
    (line,) = complete(tmp_path, "run", "--model", "vit-digit", shell="fish")
    assert line == "vit-digits\tViT: patch 2, 64-d, 4 layers (timm)"


def test_trained_trials_are_those_with_a_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    assert complete(tmp_path, "logs", "") == []
    for name in ("3fa900000000", "3fb000000000", "4fa900000000", "figures"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert complete(tmp_path, "logs", "3f") == ["3fa900000000", "3fb000000000"]
    assert "4fa900000000" in complete(tmp_path, "analyze", "4")


@pytest.mark.parametrize(
    "words", [["run", "q"], ["run", "--regularizer", "dropkey", ":", "ra"], ["logs", "3"], ["run", "--data", ""]]
)
def test_completion_loads_no_heavy_library(words: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_DROPBENCH_COMPLETE": "complete_bash"}
    environment |= {"COMP_WORDS": "\n".join(["dropbench", *words]), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_completes_in_bash(tmp_path: Path) -> None:
    """The script that `--show-completion` prints, with words as bash splits them."""
    (tmp_path / "dropbench").write_text(f'#!/bin/sh\nexec {sys.executable} -m dropbench.harness.cli.main "$@"\n')
    (tmp_path / "dropbench").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    code = """
eval "$(dropbench --show-completion bash)"
COMP_WORDS=(dropbench run --regularizer dropkey : ra) COMP_CWORD=5
_dropbench_completion dropbench
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["ratio=", "ratio=0.1"]
