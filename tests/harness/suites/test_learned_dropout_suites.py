"""The suites of Learned Dropout against the tables of the source."""

from __future__ import annotations

import pytest

from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite

SHIFT_0 = (2.937, 3.384, 0.6167, 15_335_424)
BASELINE = (2.845, 3.475, None, 15_441_192)
TABLES: dict[str, dict[str, tuple[float | None, ...]]] = {
    "penalty": {"with penalty": SHIFT_0[:3], "without penalty": (2.911, 3.403, 0.9609)},
    "shift": {
        "shift_init = 0": SHIFT_0[:3],
        "shift_init = π/2": (2.967, 3.405, 0.5955),
        "shift_init = π": (3.055, 3.457, 0.2507),
    },
    "baseline": {"shift_init = 0": SHIFT_0, "baseline": BASELINE},
    "dropout": {
        "shift_init = 0": SHIFT_0,
        "baseline": BASELINE,
        "0.2 dropout baseline": (3.1, 3.354, None, 15_441_192),
        "0.3 dropout baseline": (3.213, 3.425, None, 15_441_192),
        "0.4 dropout baseline": (3.319, 3.512, None, 15_441_192),
    },
    "precomputed": {"shift_init = 0": SHIFT_0, "pre-computed masks": (2.937, 3.425, 0.7752, 15_418_368)},
}
METRICS = ("train-loss", "loss", "kept", "parameters")


@pytest.mark.parametrize("name", list(TABLES))
def test_the_paper_preset_is_the_table_of_the_source(name: str) -> None:
    values: dict[str, tuple[float | None, ...]] = {}
    for cell in load_suite(f"learned-dropout/{name}").cells(SuiteOptions(preset="paper")):
        row = values.get(cell.row, ())
        assert cell.metric == METRICS[len(row)]
        assert cell.request.data == "enwiki"
        assert isinstance(cell.published, float | int | None)
        values[cell.row] = (*row, cell.published)
    assert values == TABLES[name]
