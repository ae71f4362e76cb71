"""Exports of earlier versions, whose columns and metrics had other names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from db.store.store import Store
from db.transfer.export import export
from db.transfer.merge import transfer
from db.transfer.source import open_source
from harness.errors import InputError
from harness.trials.trial import Trial
from tests.db.transfer.given import Dump, Kind, attempt, outcome

METRICS = [("test/bits-per-byte", -1, 1.5), ("dev/bits-per-byte", 3, 2.5), ("occlusion/bits-per-byte@0.3", -1, 3.5)]


def rename_as_before(folder: Path, kind: Kind) -> None:
    """Give an export the names of version 0.1."""
    if kind == "csv":
        for file in folder.glob("*.csv"):
            text = file.read_text(encoding="utf-8").replace("bits-per-byte", "bits-a-byte")
            file.write_text(text.replace("micro_batch_splits", "pieces"), encoding="utf-8")
        return
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    attempts = parquet.read_table(folder / "attempts.parquet")
    names = [name.replace("micro_batch_splits", "pieces") for name in attempts.column_names]
    parquet.write_table(attempts.rename_columns(names), folder / "attempts.parquet")
    metrics = parquet.read_table(folder / "metrics.parquet")
    old = pyarrow.array([name.replace("bits-per-byte", "bits-a-byte") for name in metrics["name"].to_pylist()])
    position = metrics.column_names.index("name")
    parquet.write_table(metrics.set_column(position, "name", old), folder / "metrics.parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_old_export_is_imported_under_current_names(
    source_store: Store, store: Store, kind: Kind, tmp_path: Path, make_trial: Callable[..., Trial], dump: Dump
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    source_store.record([outcome(make_trial(), attempts=[attempt(1, micro_batch_splits=4)], metrics=METRICS)])
    export(source_store, tmp_path / "out", kind)  # type: ignore[arg-type]
    rename_as_before(tmp_path / "out", kind)
    with open_source(str(tmp_path / "out"), "sqlite://") as source:
        assert transfer(source, store).added == 1
    assert dump(store) == dump(source_store)


def test_a_column_under_both_names_is_refused(source_store: Store, tmp_path: Path) -> None:
    export(source_store, tmp_path / "out", "csv")
    file = tmp_path / "out" / "attempts.csv"
    file.write_text(file.read_text(encoding="utf-8").strip() + ",pieces\n", encoding="utf-8")
    with (
        pytest.raises(InputError, match="duplicate column 'micro_batch_splits'"),
        open_source(str(file.parent), "x://"),
    ):
        pass
