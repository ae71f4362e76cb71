"""Files that 969bcf6 wrote (`tests/data/written_by_969bcf6`), laid out as in a user's folder."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

WRITTEN = Path(__file__).parents[1] / "data" / "written_by_969bcf6"
FIRST_VERSIONS = ("--plugin", "first_versions.py")
"""Options with which the engine and the models have the result versions that they had then."""
PLUGIN = """\
import harness.trials.result_versions as versions
from harness.models.catalog import MODELS

versions.ENGINE = 1
for name in MODELS:
    MODELS.entry(name).facts.pop("result_version", None)
"""
RENAMED = {"bits-per-byte": "bits-a-byte"}
"""Metrics by the name that they may have now, and the one they had."""
REWORDED = {
    "test accuracy in %: mean ± sample standard deviation over n seeds (0, 1); bold: best in its column":
        "test accuracy in %: mean ± sample standard deviation over n seeds (0, 1); bold: best of its column",
    "test accuracy in %: mean ± sample standard deviation over n seeds (0, 1, 2); bold: best in its column":
        "test accuracy in %: mean ± sample standard deviation over n seeds (0, 1, 2); bold: best of its column",
    "Δ base: difference from 'none', paired by seed": "Δ base: difference to 'none', seed by seed",
    "Δ base: difference from 'none', paired by seed; [low, high]: 95 % confidence interval (paired t-test)":
        "Δ base: difference to 'none', seed by seed; [low, high]: its 95 % confidence interval (paired t)",
    "no confidence interval: row and baseline share fewer than 3 seeds":
        "too few seeds for a confidence interval: it takes 3 that row and baseline both have",
    "published: value in the source; Δ: ours − published": "published: as the source prints it, Δ: ours − published",
}  # fmt: skip
"""Lines of a table's legend as they read now, and as they read then."""
ADDED = ("noise floor ", "†: ")
"""Parts of lines that legends have since."""
ANY = {"as_of"}
"""Keys whose value is different each time."""


def unpack_runs(archive: Path, folder: Path) -> None:
    """Extract run directories, with the times of their files."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def lay_plugins(folder: Path) -> None:
    """Copy the plug-ins and suites, and write the plug-in of `FIRST_VERSIONS`."""
    (folder / FIRST_VERSIONS[1]).write_text(PLUGIN)
    for file in WRITTEN.glob("*.py.txt"):
        shutil.copyfile(file, folder / file.stem)
    for file in WRITTEN.glob("*.yaml"):
        shutil.copyfile(file, folder / file.name)


def restore_database(folder: Path) -> None:
    """Make `dropbench.db` from its dump."""
    with closing(sqlite3.connect(folder / "dropbench.db")) as database:
        database.executescript((WRITTEN / "dropbench.sql").read_text(encoding="utf-8"))
        database.execute("PRAGMA journal_mode = WAL")


def read_json(*parts: str) -> Any:
    """A file of JSON."""
    return json.loads(WRITTEN.joinpath(*parts).read_bytes())


def assert_same(old: Any, new: Any, where: str = "") -> None:
    """Compare parsed JSON; new keys may have been added since."""
    if isinstance(old, dict):
        assert isinstance(new, dict), where
        for key in old:
            assert key in new, f"{where}: {key} is missing"
            if key not in ANY:
                assert_same(old[key], new[key], f"{where}.{key}")
    elif isinstance(old, list):
        assert isinstance(new, list), where
        new = [value for value in new if not (isinstance(value, str) and any(part in value for part in ADDED))]
        assert len(old) == len(new), where
        for index, (expected, value) in enumerate(zip(old, new, strict=True)):
            assert_same(expected, value, f"{where}[{index}]")
    elif isinstance(old, float):
        assert new == pytest.approx(old, rel=1e-12), where
    else:
        assert (old_name(new) if isinstance(new, str) else new) == old, where


def old_name(text: str) -> str:
    """The words and the name that a line or a metric had; other texts as they are."""
    text = REWORDED.get(text, text)
    split, slash, name = text.rpartition("/")
    return f"{split}{slash}{RENAMED.get(name, name)}"


def table(text: str) -> list[str]:
    """A printed table without the notes below it."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return lines[: lines.index("")] if "" in lines else lines
