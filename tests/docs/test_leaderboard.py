"""The leaderboard and docs/findings.md follow from the shipped file; a regularizer of twelve lines gets a row."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs import write_leaderboard
from tests.docs.reference.given import campaign, extended
from tests.paths import DOCS

FINDINGS = (DOCS / "findings.md").read_text(encoding="utf-8")
LEADERBOARD = (DOCS / "generated" / "leaderboard.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_page_is_what_its_script_writes() -> None:
    assert write_leaderboard.page() == (DOCS / "generated" / "leaderboard.md").read_text(encoding="utf-8"), (
        "python docs/write_leaderboard.py"
    )


def test_a_larger_file_shows_the_seeds_of_the_suite(tmp_path: Path) -> None:
    """Seeds that were added after the first results would make its tests too easy to pass."""
    campaign(tmp_path / "runs", ["none", "dropkey", "dropout", "r-drop"], seeds=tuple(range(7)))
    extended(tmp_path / "x.zip", tmp_path / "runs")
    write_leaderboard.write(tmp_path, str(tmp_path / "x.zip"))
    text = (tmp_path / "leaderboard.md").read_text(encoding="utf-8")
    assert "| dropkey | 91.20 ± 0.16 | 5 | +1.00" in text


def test_every_difference_of_the_findings_is_one_of_the_leaderboard() -> None:
    quoted = set(re.findall(r"[+−]\d+\.\d\d", FINDINGS))
    assert len(quoted) > 10
    assert quoted <= set(re.findall(r"[+−]\d+\.\d\d", LEADERBOARD))


@pytest.mark.parametrize("column", ["Digits", r"Digits \(few\)", "QC"])
def test_the_table_of_the_findings_has_every_interval_without_zero(column: str) -> None:
    (section,) = re.findall(rf"^### {column}\n(.*?)(?=^#|^- )", LEADERBOARD, re.MULTILINE | re.DOTALL)
    (row,) = re.findall(rf"^\| {column} \|.*$", FINDINGS, re.MULTILINE)
    rows = re.findall(r"^\| ([\w-]+) \|.*\| ([+−]\d+\.\d\d) \\\[(.)\d+\.\d\d, (.)\d+\.\d\d\\\]", section, re.MULTILINE)
    assert {f"{name} {delta}" for name, delta, low, high in rows if low == high} == set(
        re.findall(r"[\w-]+ [+−]\d+\.\d\d", row)
    )


@pytest.mark.parametrize(
    ("suite", "trials", "differences"),
    [("field/vision", "{} trials of the suite `field/vision`", "{} differences with"),
     ("field/text", "{} trials of the suite `field/text`", "on digits and {} on text")],
)  # fmt: skip
def test_the_findings_have_the_current_numbers_of_trials_and_comparisons(
    suite: str, trials: str, differences: str
) -> None:
    (section,) = re.findall(rf"^## {suite}:.*?(?=^## )", LEADERBOARD, re.MULTILINE | re.DOTALL)
    (count,) = re.findall(r"^- ([\d,]+) trials", section, re.MULTILINE)
    assert trials.format(count) in FINDINGS
    (count,) = re.findall(r"for the (\d+) differences of the table: 0; after Benjamini-Hochberg's: 0", section)
    assert differences.format(count) in FINDINGS


@pytest.mark.slow
def test_a_regularizer_of_twelve_lines_gets_a_row_with_two_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "near.py"
    plugin.write_text(write_leaderboard.PLUGIN)
    assert write_leaderboard.PLUGIN.count("\n") == 12
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(
        """
title: One row
source: a test
metric: accuracy
trial: {task: image-classification, data: digits, model: vit-digits}
plugin_rows: true
columns: [{label: Digits}]
rows: [{label: none, baseline: true, trial: {regularizer: none}}]
presets: {mini: {seeds: 2, overrides: {model.drop_path_rate: 0.1, steps: 2}}}
"""
    )
    campaign(tmp_path / "theirs", ["none"], suite="one.yaml")
    extended(tmp_path / "x.zip", tmp_path / "theirs", "one.yaml")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(DOCS.parent)}
    outputs = []
    for command in (["run", "--executor", "debug"], ["report"]):
        words = [command[0], "one.yaml", *command[1:], "--with", "x.zip", "--plugin", "near.py"]
        done = subprocess.run(
            [sys.executable, "-m", "dropbench.harness.cli.main", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert "none (reference)" in outputs[1]
    assert "dropnear" in outputs[1]
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 2
