"""The suites of DropKey against the tables of the source."""

from __future__ import annotations

import pytest

from dropbench.harness.analysis.occlusion import LOSSES
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite

TABLES = {
    "table1": """
        T2T14 + Dropout   96.7 96.9 97.2 77.0 77.8 78.4
        T2T14 + DropKey   97.0 97.4 97.6 77.2 78.6 79.2
        T2T19 + Dropout   96.6 97.1 97.4 77.3 78.1 78.5
        T2T19 + DropKey   97.1 97.2 97.9 78.0 78.4 80.1
        T2T24 + Dropout   96.4 97.0 97.5 76.7 77.3 78.2
        T2T24 + DropKey   96.6 97.2 97.7 76.9 78.3 79.3
        VOLOd1 + Dropout  95.8 96.4 96.6 77.3 78.2 79.0
        VOLOd1 + DropKey  96.2 96.7 97.1 78.1 78.6 79.6
        VOLOd2 + Dropout  95.6 96.1 96.4 77.0 78.4 79.0
        VOLOd2 + DropKey  95.7 96.6 97.0 77.7 79.0 79.9
        VOLOd3 + Dropout  96.0 96.3 96.6 77.1 77.9 78.5
        VOLOd3 + DropKey  96.2 96.4 96.9 77.4 78.1 78.7""",
    "table2": """
        T2T14 + Dropout   78.4 78.1 77.1 77.9 76.8
        T2T14 + DropKey   79.2 78.7 77.5 78.6 77.4
        VOLOd1 + Dropout  78.6 78.0 76.7 77.6 76.4
        VOLOd1 + DropKey  79.2 78.5 77.5 78.3 77.1""",
    "table3": """
        T2T19            78.4 77.6 75.6 73.1 65.1 28.2
        T2T19 + Dropout  78.5 77.4 76.5 73.9 66.0 30.2
        T2T19 + DropKey  80.1 79.4 78.2 75.8 68.7 32.7
        T2T24            77.8 77.1 75.2 72.7 63.5 23.7
        T2T24 + Dropout  78.2 77.3 75.7 72.8 65.3 27.9
        T2T24 + DropKey  79.3 78.6 78.0 74.3 66.9 29.7""",
    "table4": """
        T2T14 + Dropout   78.4 - - 78.4
        T2T14 + DropKey   78.8 78.9 79.1 79.2
        T2T19 + Dropout   78.5 - - 78.6
        T2T19 + DropKey   79.3 79.5 80.2 80.1""",
    "table5": """
        backbone             81.76±0.05 82.56±0.09 84.27±0.12 85.24±0.05
        + Dropout (dr=0.05)  81.65±0.04 82.63±0.05 84.35±0.11 85.22±0.08
        + Dropout (dr=0.1)   81.53±0.08 82.68±0.04 84.31±0.04 85.21±0.03
        + DropKey (dr=0.05)  82.04±0.14 82.71±0.02 84.53±0.03 85.33±0.12
        + DropKey (dr=0.1)   81.93±0.09 82.94±0.04 84.39±0.02 85.38±0.06""",
    "table6": """
        DETR            41.9 62.1 44.2 20.6 45.7 60.7
        DETR + Dropout  42.2 62.3 44.3 20.8 45.9 61.1
        DETR + DropKey  42.9 63.4 44.7 21.1 46.7 61.8""",
    "table8": """
        QPIC-ResNet101 + Dropout (dr=0.1)  29.96 24.03 31.63 32.42 26.01 34.31
        QPIC-ResNet101 + Dropout (dr=0.3)  30.02 24.17 31.72 32.49 26.13 34.41
        QPIC-ResNet101 + DropKey (dr=0.3)  30.87 24.63 32.24 33.21 26.66 34.94""",
    "table7": """
        METRO            57.8 51.5 39.9
        METRO + Dropout  57.9 51.6 39.7
        METRO + DropKey  57.1 51.0 39.5""",
}


def format_published(published: float | tuple[float, float] | None) -> str:
    if published is None:
        return "-"
    if isinstance(published, tuple):
        return f"{published[0]:.2f}±{published[1]:.2f}"
    return f"{published:.1f}" if round(published, 1) == published else f"{published:.2f}"


@pytest.mark.parametrize("name", list(TABLES))
def test_the_published_cells_are_those_of_the_source(name: str) -> None:
    values: dict[str, list[str]] = {}
    for cell in load_suite(f"dropkey/{name}").cells(SuiteOptions(preset="paper")):
        values.setdefault(cell.row, []).append(format_published(cell.published))
    rows = [line.strip().split("  ") for line in TABLES[name].strip().splitlines()]
    assert values == {row[0]: row[-1].split() for row in rows}


def test_the_columns_of_table_3_are_measured_on_the_same_trials() -> None:
    cells = list(load_suite("dropkey/table3").cells(SuiteOptions()))
    assert [cell.metric for cell in cells[:6]] == [f"occlusion/accuracy@{loss:g}" for loss in LOSSES]
    assert [f"{float(cell.column):g}" for cell in cells[:6]] == [f"{loss:g}" for loss in LOSSES]
    assert len({cell.request.model_dump_json() for cell in cells}) == 6 == len({cell.row for cell in cells})


def test_figure_3_is_over_the_ratio_and_starts_without_a_regularizer() -> None:
    cells = list(load_suite("dropkey/fig3").cells(SuiteOptions(preset="paper", models=("t2t-vit-14",))))
    assert len(cells) == 24
    first = {
        row: next(cell.request for cell in cells if cell.row == row) for row in ("T2T14 + Dropout", "T2T14 + DropKey")
    }
    assert len({request.model_dump_json() for request in first.values()}) == 1
    for cell in cells:
        ratio = float(cell.column.split(", ")[1])
        assert cell.request.params.get("ratio", 0) == ratio
        assert cell.request.regularizer == (cell.row.split()[-1].lower() if ratio else "none")
        assert cell.column.split(", ")[0].lower() == cell.request.data
    assert [(cell.row, cell.column) for cell in cells if cell.published] == [("T2T14 + DropKey", "CIFAR100, 0.3")]
