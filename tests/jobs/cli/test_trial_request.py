"""Requests are checked before anything is queued."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.jobs.cli.options import RunOptions

SUITE = """\
title: A table
source: these tests
metric: accuracy
trial: {task: image-classification, data: digits}
columns: [{label: ViT, trial: {model: vit-digits}}]
rows: [{label: base, trial: {regularizer: none}}]
presets: {mini: {seeds: 2}}
"""


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("acuracy", "unknown metric of image-classification 'acuracy': did you mean accuracy"),
        ("test/accuracy", "metric: test/accuracy: tables show the test set: write `accuracy`"),
    ],
)
def test_the_metric_of_a_suite(metric: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SUITE)
    assert len(RunOptions().requested(str(file), Settings.from_environment()).trials) == 2
    file.write_text(SUITE.replace("metric: accuracy", f"metric: {metric}"))
    with pytest.raises(InputError, match=message):
        RunOptions().requested(str(file), Settings.from_environment())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"overrides": ["lr=nan"]}, "trial: overrides.lr=nan: expected "),
        ({"overrides": ["lr=inf"]}, "trial: overrides.lr=inf: expected "),
        ({"overrides": ["model.x=nan"]}, "trial: overrides.model.x=nan: expected "),
        ({"regularizer": ["dropkey:ratio=1e400"]}, "trial: params.ratio=inf: expected "),
    ],
)
def test_numbers_are_finite(given: dict[str, list[str]], message: str) -> None:
    options = RunOptions(task="image-classification", data=["digits"], model=["vit-digits"], **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        options.requested(None, Settings.from_environment())


def test_a_table_without_a_suite_has_a_column_for_each_metric_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "a,0\nb,1\n" * 20)
    (tmp_path / "card.yaml").write_text("metrics: [f1, matthews]\n")
    named = RunOptions(task="text-classification", data=[f"csv:own={tmp_path}"], model=["text-transformer"])
    options = replace(named, regularizer=["none", "dropkey"])
    request = options.requested(None, options.settings(here=True)).request
    assert request.columns == ("f1", "matthews", "accuracy")
    assert {cell.selected_by.name for cell in request.cells if cell.selected_by} == {"f1"}
