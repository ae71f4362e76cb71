"""Databases, run directories and exports that 969bcf6 wrote give the results that it printed."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.command import Done, dropbench
from tests.compatibility.written import FIRST_VERSIONS, RENAMED, WRITTEN, assert_same, lay_plugins, read_json, table

ALL = ("results", "--metric", "all", "--json")
TRIAL = (
    "trial_id config_id task data model regularizer ratio window_size schedule align preset params overrides seed state"
)
COST = "reason attempts gpu_hours cpu_hours waited_hours peak_memory_bytes started_at ended_at created_at updated_at"
VIEWS = {
    "v_trials": f"{TRIAL} {COST}",
    "v_results": f"{TRIAL} metric value",
    "v_curves": f"{TRIAL} metric step value",
}
IN_SPLITS = "SELECT * FROM attempts WHERE trial_id = '31d10206d3e6' ORDER BY number"


def printed(done: Done) -> Any:
    assert done.code == 0, done.err
    return done.json


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("results", "--json"), "results.json"),
        (ALL, "results-all.json"),
        (("results", "small", "--curve", "train/loss", "--every", "10", "--json"), "results-curve.json"),
        (("report", "small.yaml", "--plugin", "my.py", *FIRST_VERSIONS, "--format", "json"), "report.json"),
        (("status", "--json"), "status.json"),
        (("status", "--usage", "--json"), "usage.json"),
        (("db", "sql", "--json", "SELECT * FROM v_trials"), "views.json"),
    ],
)
def test_a_database_prints_the_same_values(kept: Path, arguments: tuple[str, ...], file: str) -> None:
    assert_same(read_json("printed", file), printed(dropbench(kept, *arguments)))


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("results", "small"), "results-table.txt"),
        (("report", "small.yaml", "--plugin", "my.py", *FIRST_VERSIONS), "report.txt"),
    ],
)
def test_a_database_prints_the_same_tables(kept: Path, arguments: tuple[str, ...], file: str) -> None:
    done = dropbench(kept, *arguments)
    assert done.code == 0, done.err
    assert table(done.out) == table((WRITTEN / "printed" / file).read_text(encoding="utf-8"))


def test_old_names_of_metrics_are_understood(kept: Path) -> None:
    for name in RENAMED.values():
        old = [row for row in read_json("printed", "results.json") if row["metric"] == name]
        assert old
        new = printed(dropbench(kept, "results", "task=language-modelling", "--metric", name, "--json"))
        assert_same(old, new)


@pytest.mark.parametrize("view", VIEWS)
def test_views_keep_their_columns(kept: Path, view: str) -> None:
    (row,) = printed(dropbench(kept, "db", "sql", "--json", f"SELECT * FROM {view} LIMIT 1"))
    columns = VIEWS[view].split()
    assert list(row)[: len(columns)] == columns


def test_an_upgrade_keeps_the_rows(complete: Path) -> None:
    done = dropbench(complete, "db", "upgrade")
    assert done.code == 0, done.err
    assert_same(read_json("printed", "results-all.json"), printed(dropbench(complete, *ALL)))


def test_run_directories_are_rebuilt_to_the_same_rows(trained: Path) -> None:
    done = dropbench(trained, "db", "rebuild")
    assert done.code == 0, done.err
    old = read_json("printed", "results-all.json")
    for row in old:  # trials in the queue have no directory yet
        row["state"] = "succeeded" if row["state"] == "queued" else row["state"]
    assert_same(old, printed(dropbench(trained, *ALL)))
    status = {**read_json("printed", "status.json"), "queued": 0}
    assert_same(status, printed(dropbench(trained, "status", "--json")))
    assert micro_batch_splits(trained) == [1, 2]
    old = [row for row in read_json("printed", "views.json") if row["state"] != "queued"]
    new = printed(dropbench(trained, "db", "sql", "--json", "SELECT * FROM v_trials"))
    assert_same(comparable(old), comparable(new))


def test_an_export_is_imported(place: Path) -> None:
    done = dropbench(place, "db", "import", str(WRITTEN / "export"))
    assert done.code == 0, done.out + done.err
    assert_same(read_json("printed", "results-all.json"), printed(dropbench(place, *ALL)))
    assert_same(read_json("printed", "status.json"), printed(dropbench(place, "status", "--json")))
    assert_same(read_json("printed", "usage.json"), printed(dropbench(place, "status", "--usage", "--json")))
    assert micro_batch_splits(place) == [1, 2]


def test_a_database_is_imported(complete: Path) -> None:
    done = dropbench(complete, "db", "upgrade")
    assert done.code == 0, done.err
    other = complete / "other"
    other.mkdir()
    lay_plugins(other)
    done = dropbench(other, "db", "import", "../dropbench.db")
    assert done.code == 0, done.out + done.err
    assert_same(read_json("printed", "results-all.json"), printed(dropbench(other, *ALL)))


CORRECTED = {
    ("dropkey/table5", "dropkey"): {"align": "finetune"},
    ("dropkey/table6", "dropout"): {"schedule": "decreasing"},
    ("dropkey/table7", "dropout"): {"schedule": "decreasing"},
}
"""Conditions that differed from the source until 969bcf6, by suite and regularizer."""


def test_published_values_are_listed_as_before(kept: Path) -> None:
    old = json.loads(lzma.decompress((WRITTEN / "printed" / "published.json.xz").read_bytes()))
    for row in old:
        row["conditions"] |= CORRECTED.get((row["suite"], row["conditions"]["regularizer"]), {})
    new = printed(dropbench(kept, "list", "published", "--json"))
    rows = [json.dumps(row, sort_keys=True) for row in new]
    assert len(old) > 100
    assert [row for row in old if json.dumps(row, sort_keys=True) not in rows] == []


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `v_trials` by id, without the times of the database itself, and with their JSON parsed."""
    own = ("created_at", "updated_at")
    for row in rows:
        row |= {"params": json.loads(row["params"]), "overrides": json.loads(row["overrides"])}
    kept = [{key: value for key, value in row.items() if key not in own} for row in rows]
    return sorted(kept, key=lambda row: str(row["trial_id"]))


def micro_batch_splits(folder: Path) -> list[int]:
    """Of the two attempts at a trial whose first one ran out of memory, by either name of the column."""
    rows = printed(dropbench(folder, "db", "sql", "--json", IN_SPLITS))
    return [row["pieces"] if "pieces" in row else row["micro_batch_splits"] for row in rows]
