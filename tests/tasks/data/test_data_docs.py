"""docs/data.md agrees with the cards."""

from __future__ import annotations

import re

import pytest

from dropbench.tasks.data import DATASETS
from tests.paths import DOCS

PAGE = DOCS / "data.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)}


def test_the_table_has_every_set_in_order() -> None:
    assert list(ROWS) == list(DATASETS)


@pytest.mark.parametrize("name", list(DATASETS))
def test_the_row_of_a_set(name: str) -> None:
    dataset = DATASETS.get(name)
    folder, files, splits = ROWS[name]
    assert folder == ("comes with scikit-learn" if dataset.package else f"`{dataset.folder}`")
    assert splits == dataset.splits
    for layout in dataset.layouts:
        for file in (layout.files[0], layout.files[-1]):
            assert f"`{file}" in files


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(example, {})  # noqa: S102
    assert "'train': 324" in capsys.readouterr().out
