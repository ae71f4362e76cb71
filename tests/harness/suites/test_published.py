"""Published numbers: every cell is listed, with the value that its source prints."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.cli.main import run
from dropbench.harness.suites.suite import load_suite, suite_names
from dropbench.jobs.cli.listing import list_items

SOURCES = {"dropkey": "000_*.txt", "dropattention": "001_*.txt", "learned-dropout": "002_*.txt"}
PRINTED = {
    "dropattention/table3": """
        80.00 93.30 76.92 88.40 88.13 61.49
        82.75 94.10 78.80 90.80 88.87 62.34
        78.25 93.10 77.30 89.60 88.49 62.27
        81.25 93.50 78.51 89.60 88.66 61.79
        81.25 93.50 75.33 88.80 88.47 61.46""",
    "dropattention/table5": """
        95.92 87.23 89.09
        96.21 88.51 90.56
        96.17 88.63 90.85""",
    "dropattention/table6": """
        27.30
        27.96 27.87 27.98 27.87 28.04 27.95
        28.16 28.03 28.07 27.92 28.32 27.87""",
    "dropattention/table7": "83.36 84.38 84.48",
    "dropattention/table8": "88.13 25.42 88.43 27.3 88.50 26.3 88.70 28.32",
    "learned-dropout/baseline": "2.845 3.475 15441192 2.937 3.384 0.6167 15335424",
    "learned-dropout/dropout": """
        2.845 3.475 15441192 2.937 3.384 0.6167 15335424
        3.1 3.354 15441192 3.213 3.425 15441192 3.319 3.512 15441192""",
    "learned-dropout/penalty": "2.937 3.384 0.6167 2.911 3.403 0.9609",
    "learned-dropout/precomputed": "2.937 3.384 0.6167 15335424 2.937 3.425 0.7752 15418368",
    "learned-dropout/shift": "2.937 3.384 0.6167 2.967 3.405 0.5955 3.055 3.457 0.2507",
}
"""Values by suite, row by row; those of DropKey are in `test_dropkey_suites`."""
LEARNED_DROPOUT = ["train-loss", "loss", "kept", "parameters"]
"""The metrics of its columns."""


OTHERS = {
    "early-late-dropout/early": [73.9, 67.9, 72.6, 74.4],
    "early-late-dropout/late": [81.6, 82.3],
    "hiddenkey/glue": [
        *(84.48, 89.95, 91.96, 95.99, 67.96),
        *(87.00, 90.69, 91.94, 96.10),
        *(87.36, 90.93, 92.25, 96.22),
        *(88.10, 91.20, 92.30, 96.44, 69.91),
    ],
    "layerdrop/translation": [30.17],
    "masksub/imagenet": [80.4, 83.5, 81.1, 84.1],
    "mixout/glue": [69.5, 90.8, 89.0, 63.0, 71.3, 90.4, 89.2, 61.6],
    "r-drop/glue": [72.24, 90.67, 63.63, 75.21, 91.84, 65.06],
    "r-drop/translation": [30.91],
}
"""Values of READMEs and abstracts of other sources, and of tables that could be read."""


@pytest.fixture(scope="module")
def listed() -> list[dict[str, Any]]:
    return list_items("published")


def test_every_printed_cell_is_listed(listed: list[dict[str, Any]]) -> None:
    assert len(listed) >= 297
    assert {key for item in listed for key in item} == {"suite", "metric", "value", "std", "conditions"}
    cells = {(item["suite"], item["conditions"]["row"], item["conditions"]["column"]) for item in listed}
    assert len(cells) == len(listed)
    counts = {item["name"]: item["published"] for item in list_items("suites")}
    assert sum(counts.values()) == len(listed)


@pytest.mark.parametrize("name", PRINTED)
def test_the_cells_are_those_of_the_source(name: str, listed: list[dict[str, Any]]) -> None:
    items = [item for item in listed if item["suite"] == name]
    assert [item["value"] for item in items] == [float(text) for text in PRINTED[name].split()]
    if name.startswith("learned"):
        for row in {item["conditions"]["row"] for item in items}:
            metrics = [item["metric"] for item in items if item["conditions"]["row"] == row]
            assert metrics == [metric for metric in LEARNED_DROPOUT if metric in metrics]


def test_the_cells_of_other_sources_are_those_of_their_readmes(listed: list[dict[str, Any]]) -> None:
    others = [item for item in listed if item["suite"].partition("/")[0] not in SOURCES]
    assert {item["suite"] for item in others} == {*OTHERS}
    for name, values in OTHERS.items():
        assert [item["value"] for item in others if item["suite"] == name] == values


def test_conditions_distinguish_cells(listed: list[dict[str, Any]]) -> None:
    """Recipe changes of a row are conditions; those of a preset are not."""
    classified = [
        (item["value"], item["conditions"]["regularizer"], item["conditions"]["overrides"])
        for item in listed
        if item["suite"] == "dropattention/table8" and item["conditions"]["column"] == "Classification"
    ]
    assert classified == [
        (88.13, "none", {"model.dropout": 0.0}),
        (88.43, "none", {}),
        (88.50, "dropattention-e", {"model.dropout": 0.0}),
        (88.70, "dropattention-e", {}),
    ]


def test_two_values_for_one_configuration_are_in_the_notes_of_both_tables() -> None:
    published: dict[tuple[str, str], dict[str, float]] = {}
    for suite in map(load_suite, suite_names()):
        for cell in suite.published():
            if isinstance(cell.published, float):
                cells = published.setdefault((cell.metric, cell.request.model_dump_json()), {})
                cells[suite.name] = cell.published
    conflicts = [cells for cells in published.values() if len(set(cells.values())) > 1]
    assert len(conflicts) == 3
    for cells in conflicts:
        for name, other in ((name, other) for name in cells for other in cells if other != name):
            assert f"{cells[other]}" in " ".join(load_suite(name).notes), (name, other)


@pytest.mark.parametrize(
    "name", [name for name in suite_names() if name.partition("/")[0] in SOURCES and load_suite(name).published()]
)
def test_each_row_occurs_in_its_source(name: str) -> None:
    """The texts of the sources may not be redistributed: rows are looked up if the texts are next to the data."""
    folder = Path(os.environ.get("DROPBENCH_DATA", "data")).parent / "seeds"
    files = list(folder.glob(SOURCES[name.partition("/")[0]]))
    if not files:
        pytest.skip("the texts of the sources are not next to the data")
    lines = [numbers(line) for line in files[0].read_text(encoding="utf-8").splitlines()]
    for row in load_suite(name).rows:
        cells = [cell if isinstance(cell, tuple) else (cell,) for cell in row.published or () if cell is not None]
        # Table 5 of DropKey prints the backbones of a row below each other.
        with_std = any(len(cell) > 1 for cell in cells)
        parts = [list(cell) for cell in cells] if with_std else [[cell[0] for cell in cells]]
        for part in filter(None, parts):
            assert any(part == line[at : at + len(part)] for line in lines for at in range(len(line))), (row, part)


def numbers(line: str) -> list[float]:
    """Return the numbers of a line, except those in superscripts and in names."""
    bare = re.sub(r"\^\{[^}]*\}|,(?=\d)", "", line)
    return [float(text) for text in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)", bare)]


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str], listed: list[dict[str, Any]]) -> None:
    assert run(["list", "published", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == listed
    assert run(["list", "published"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(listed) + 2
    assert any(line.split()[:3] == ["learned-dropout/baseline", "parameters", "15441192"] for line in lines)
