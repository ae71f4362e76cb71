"""Figures of suites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from db.report.figures.figures import figure
from db.store.store import Store
from harness.errors import InputError
from harness.suites.schema import FigureSpec

if TYPE_CHECKING:
    from tests.db.report.conftest import Tables


@pytest.mark.parametrize("over", ["ratoi", "unit"])
def test_curves_over_no_number_are_an_error(store: Store, tables: Tables, tmp_path: Path, over: str) -> None:
    suite = tables.suite(["TREC"]).model_copy(update={"figure": FigureSpec(kind="curves", over=over)})
    cells = tables.resolve(suite)
    tables.fill(store, cells, tables.values)
    with pytest.raises(InputError, match=f"no figure over {over}: it is no number of row 'dropkey 0.3'"):
        figure(tables.view(store, cells, suite), tmp_path)
