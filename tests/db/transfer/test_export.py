"""Exported files have every row and value of the database."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pandas
import pytest
from sqlalchemy import JSON, Table, select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import METADATA
from dropbench.db.store.store import Store
from dropbench.db.transfer.export import export
from dropbench.harness.errors import InputError


def cells_of(table: Table, row: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a row as texts; "" for none."""
    cells = {}
    for column in table.columns:
        value = row[column.name]
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            cells[column.name] = ""
        elif isinstance(column.type, JSON):
            cells[column.name] = repr(json.loads(value) if isinstance(value, str) else value)
        else:
            cells[column.name] = repr(column.type.python_type(value))
    return cells


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_value_is_exported(filled: Store, tmp_path: Path, kind: Literal["csv", "parquet"]) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    files = dict(export(filled, tmp_path / "out", kind))
    for table in METADATA.sorted_tables:
        file = tmp_path / "out" / f"{table.name}.{kind}"
        with reading(filled.engine) as connection:
            stored = [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]
        if kind == "csv":
            with file.open(newline="", encoding="utf-8") as content:
                exported: list[Any] = list(csv.DictReader(content))
        else:
            exported = pandas.read_parquet(file).to_dict("records")
        assert [cells_of(table, row) for row in exported] == [cells_of(table, row) for row in stored]
        assert files[file] == len(stored)


def test_a_folder_that_has_such_files_is_refused(filled: Store, tmp_path: Path) -> None:
    export(filled, tmp_path, "csv")
    with pytest.raises(InputError, match="exists already: expected an empty folder"):
        export(filled, tmp_path, "csv")
