"""The main job as a user runs it: from a suite to a table, with real processes and real data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forkserver
from tests.paths import ROOT

Finished = tuple[Path, subprocess.CompletedProcess[str]]
"""The folder of a run, and what it printed."""
SHORT = ("--seeds", "2", "--set", "steps=25", "--device", "cpu")


def dropbench(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forkserver.run(arguments, cwd=cwd, env=environment())


def environment() -> dict[str, str]:
    """The environment of a user who has set nothing."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DROPBENCH_")}
    return {**own, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def readme_plugin() -> str:
    """The plug-in that the README shows."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("```python\n# my.py\n")[1].split("```")[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("quickstart")
    (folder / "my.py").write_text(readme_plugin(), encoding="utf-8")
    command = [sys.executable, "-m", "dropbench.harness.cli.main", "run", "quickstart", "--plugin", "my.py", *SHORT]
    return folder, subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, env=environment())


def rows(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = dropbench(folder, "results", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_plug_in_of_the_readme_has_20_lines_at_most() -> None:
    assert len(readme_plugin().strip().splitlines()) <= 20


@pytest.mark.slow
def test_every_row_of_the_suite_and_the_plug_in_are_in_the_table(finished: Finished) -> None:
    folder, done = finished
    assert done.returncode == 0, done.stderr
    for label in ("none", "dropout 0.2", "dropkey 0.1, decreasing", "dropattention-e 0.2, w=2", "dropself"):
        assert f"\n{label} " in done.stdout
    assert "\ntest accuracy in %" in done.stdout
    assert "±" in done.stdout
    assert "run directories: runs" in done.stderr
    assert "of T2T-ViT on few" in done.stdout
    assert len(list((folder / "runs").glob("*/result.json"))) == 10


@pytest.mark.slow
def test_results_are_what_the_run_directories_hold(finished: Finished) -> None:
    folder, _ = finished
    found = {row["regularizer"]: row for row in rows(folder, "--metric", "test/accuracy")}
    values: dict[str, list[float]] = {}
    for file in (folder / "runs").glob("*/result.json"):
        trial = json.loads((file.parent / "trial.json").read_text())
        value = json.loads(file.read_text())["metrics"]["test/accuracy"]
        values.setdefault(trial["regularizer"]["name"], []).append(value)
    assert set(found) == set(values)
    for name, seeds in values.items():
        assert found[name]["n"] == len(seeds) == 2
        assert found[name]["mean"] == pytest.approx(sum(seeds) / 2)


@pytest.mark.slow
def test_the_same_command_again_trains_nothing_and_prints_the_same_table(finished: Finished) -> None:
    folder, done = finished
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("[0-9a-f]*/*.json*")}
    again = dropbench(folder, "run", "quickstart", "--plugin", "my.py", *SHORT)
    assert again.returncode == 0, again.stderr
    assert "nothing to train" in again.stdout + again.stderr
    table = done.stdout[done.stdout.index("quickstart: ") :]
    assert again.stdout.endswith(table)
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("[0-9a-f]*/*.json*")} == before


@pytest.mark.slow
def test_more_seeds_train_only_what_is_new(finished: Finished) -> None:
    folder, _ = finished
    done = dropbench(folder, "run", "quickstart", *SHORT[2:], "--seeds", "3")
    assert done.returncode == 0, done.stderr
    results = list((folder / "runs").glob("*/result.json"))
    assert len(results) == 10 + 4
    for file in results:
        assert len(list((file.parent / "attempts").glob("*.json"))) == 1


@pytest.mark.slow
def test_an_empty_database_is_rebuilt_to_the_same_rows(finished: Finished) -> None:
    folder, _ = finished
    before = rows(folder)
    status = json.loads(dropbench(folder, "status", "--json").stdout)
    for file in folder.glob("dropbench.db*"):
        file.unlink()
    done = dropbench(folder, "db", "rebuild")
    assert done.returncode == 0, done.stderr
    assert rows(folder) == before
    after = json.loads(dropbench(folder, "status", "--json").stdout)
    assert {**after, "as_of": None} == {**status, "as_of": None}


@pytest.mark.slow
def test_a_failing_plug_in_fails_its_trials_alone(tmp_path: Path) -> None:
    # Batches of the check before queueing are smaller.
    failing = "if shape[0] > 7:\n            raise RuntimeError('broken [red]regularizer')\n        return own"
    text = readme_plugin().replace("return own", failing)
    (tmp_path / "my.py").write_text(text, encoding="utf-8")
    done = dropbench(tmp_path, "run", "quickstart", "--plugin", "my.py", "--seeds", "1", *SHORT[2:])
    assert done.returncode == 1
    assert "broken [red]regularizer" in done.stdout + done.stderr
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 4
