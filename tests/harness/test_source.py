"""No process trains with two states of the code, and what a trial was trained with is recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dropbench.harness.errors import Interrupted
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.source import FOLDERS
from tests.paths import ROOT
from tests.training import after, make_trial, run

Python = Callable[[str], "subprocess.CompletedProcess[str]"]

START = """
import sys
from pathlib import Path
from dropbench.harness.source import at_start, code_digest, require_unchanged

before = {file.removeprefix(sys.path[0]) for file in at_start()}
first = code_digest()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.zip"))
    shutil.copytree(ROOT / "dropbench", tmp_path / "dropbench", symlinks=True)
    return tmp_path


@pytest.fixture
def python(package: Path) -> Python:
    """A program after `START` → its process, with the copy of the package in its working folder."""

    def call(program: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(package)}
        command = [sys.executable, "-c", START + program]
        return subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)

    return call


def test_a_module_that_changed_is_not_imported(python: Python) -> None:
    done = python("""
import dropbench.harness.training.checkpoint
for name in ("harness/training/checkpoint.py", "harness/training/train_state.py", "jobs/worker/retry.py"):
    with open(name, "a") as file:
        file.write("# another state\\n")
import dropbench.harness.training.checkpoint  # as it was
import dropbench.harness.training.processes  # unchanged
for name in ("dropbench.harness.training.train_state", "dropbench.jobs.worker.retry"):
    try:
        __import__(name)
    except Exception as error:
        print(type(error).__name__, error)
assert code_digest() == first
""")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" has changed since this process started")[0].rpartition("/")[2] for line in lines] == [
        "train_state.py",
        "retry.py",
    ]
    assert all(line.startswith("CodeChangedError ") for line in lines)


@pytest.mark.parametrize("file", ["cpu_fused.c", "mask.h"])
def test_a_kernel_whose_source_changed_is_not_compiled(python: Python, file: str) -> None:
    done = python(f"""
with open("harness/attention/kernels/{file}", "a") as source:
    source.write("// another state\\n")
from dropbench.harness.attention.kernels.c_library import load_library
try:
    print(load_library("cpu_fused"))
except Exception as error:
    print(type(error).__name__, error)
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CodeChangedError ")
    assert f"/{file} has changed since this process started" in done.stdout


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ("Path('tasks/classifier.py').touch()", ""),
        ("Path('README.md').write_text('x')", ""),
        ("Path('tasks/classifier.py').write_text('x = 1')", "classifier.py"),
        ("Path('tasks/new.py').write_text('')", "new.py"),
        ("Path('tasks/classifier.py').unlink()", "classifier.py"),
        ("Path('harness/attention/kernels/mask.h').write_text('')", "mask.h"),
    ],
)
def test_a_change_is_named(python: Python, change: str, changed: str) -> None:
    done = python(f"""
{change}
try:
    require_unchanged()
except Exception as error:
    print(str(error).split(" ")[0].rpartition("/")[2])
""")
    assert (done.returncode, done.stdout.strip()) == (0, changed), done.stderr


def test_the_digest_is_that_of_the_folders_that_train(python: Python, package: Path) -> None:
    digests = []
    for file in ("", "db/report/page/charts.py", "tasks/classifier.py", "harness/attention/kernels/cpu_fused.c"):
        if file:
            with open(package / file, "a", encoding="utf-8") as opened:
                opened.write("\n")
        digests.append(python("print(first)").stdout)
    assert len(digests[0].strip()) == 12
    assert digests[1] == digests[0]
    assert len(set(digests)) == 3


def test_a_trial_that_other_code_trained_half_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(steps=4, evaluate_every=4)
    for calls, code in ((2, "a" * 12), (1, "a" * 12), (1, "b" * 12)):
        monkeypatch.setattr("dropbench.harness.training.train_state.code_digest", lambda code=code: code)
        with pytest.raises(Interrupted):
            run(tmp_path, trial, after(calls))
    result = run(tmp_path, trial)
    note = "trained by several states of the code: aaaaaaaaaaaa from step 0, bbbbbbbbbbbb from step 3"
    assert note in result["notes"]
    assert RunDirectory(tmp_path / trial.id).read("environment.json")["codes"] == [[0, "a" * 12], [3, "b" * 12]]
    whole = run(tmp_path / "whole", trial)
    assert not any("states of the code" in note for note in whole["notes"])
    assert whole["metrics"] == result["metrics"]
    assert len(RunDirectory(tmp_path / "whole" / trial.id).read("environment.json")["codes"]) == 1
