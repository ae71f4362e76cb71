"""Reference results beside the user's own: in every query, never averaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.db.conftest import Call
from tests.docs.reference.given import SUITE, campaign, extended

COMMON = ("--with", "x.zip", "--json")


@pytest.fixture
def own(folder: Path, call: Call) -> None:
    """A reference with accuracies from 90, and own trials of `none` from 50 with two seeds."""
    campaign(folder / "theirs")
    extended(folder / "x.zip", folder / "theirs")
    campaign(folder / "runs", ["none"], base=50.0, seeds=(0, 1), whole=False)
    assert call("db", "rebuild").code == 0


def rows(call: Call, *arguments: str) -> list[dict[str, object]]:
    done = call(*arguments, *COMMON)
    assert done.code == 0, done.err
    content: list[dict[str, object]] = json.loads(done.out)
    return content


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("key", ["", "regularizer", "task", "schedule"])
def test_results_have_rows_of_either_origin(call: Call, key: str) -> None:
    found = rows(call, "results", "regularizer=none", *(("--group-by", key) if key else ()))
    assert sorted((row["origin"], row["n"], row["mean"]) for row in found) == [
        ("own", 2, pytest.approx(50.05)),
        ("reference", 5, pytest.approx(90.2)),
    ]
    assert rows(call, "results", "origin=own") == [row for row in rows(call, "results") if row["origin"] == "own"]


@pytest.mark.usefixtures("own")
def test_compare_pairs_own_with_reference_configurations(call: Call) -> None:
    [row] = rows(call, "compare", "origin=own", "origin=reference regularizer=none", "--metric", "accuracy")
    assert (row["old"], row["new"]) == ({"origin": "own"}, {"origin": "reference"})
    assert (row["old_mean"], row["new_mean"], row["pairs"]) == (pytest.approx(50.05), pytest.approx(90.2), 2)


@pytest.mark.usefixtures("own")
def test_own_results_take_precedence_in_a_ranking(call: Call) -> None:
    done = call("compare", "--rank", *COMMON)
    ranking = json.loads(done.out)
    improvement = {row["regularizer"]: row["improvement"] for row in ranking["rows"]}
    assert improvement["dropkey"] == pytest.approx(100 * (91.2 - 50.05) / 50.05)
    assert "1 of 2 results are the reference's; 1 are your own" in ranking["notes"]


@pytest.mark.usefixtures("own")
def test_reports_show_both_and_compare_each_with_its_own_baseline(call: Call, folder: Path) -> None:
    campaign(folder / "runs", ["dropout"], base=51.0, seeds=(0, 1, 2), whole=False)
    assert call("db", "rebuild").code == 0
    done = call("report", SUITE, *COMMON)
    assert done.code == 0, done.err
    cells = {cell["row"]: cell for cell in json.loads(done.out)["cells"] if cell["n"]}
    shown = {row: (cell["origin"], cell["n"], cell["delta"]) for row, cell in cells.items()}
    assert shown == {
        "none (reference)": ("reference", 5, None),
        "none": ("own", 2, None),
        "dropkey (reference)": ("reference", 5, pytest.approx(1.0)),
        "dropout": ("own", 3, pytest.approx(1.0)),
    }
    page = call("report", SUITE, "--with", "x.zip", "--format", "html", "-o", "page.html")
    assert page.code == 0, page.err
    assert "none (reference)" in (folder / "page.html").read_text(encoding="utf-8")


def test_a_fresh_folder_shows_the_reference_with_its_machine(call: Call, folder: Path) -> None:
    campaign(folder / "theirs", preset="mini")
    extended(folder / "x.zip", folder / "theirs")
    done = call("report", SUITE, "--with", "x.zip")
    assert done.code == 0, done.err
    assert "none (reference)" in done.out
    assert "A processor, 1 thread, Python 3.11.7, torch 2.13.0+cpu" in " ".join(done.out.split())
    assert "91.20 ± 0.16" in done.out
    assert not (folder / "dropbench.db").exists()


def test_rows_that_fit_no_site_leave_the_shipped_table_complete(call: Call) -> None:
    arguments = ("report", SUITE, "--preset", "small", "--data", "digits", "--with", "reference")
    done = call(*arguments, "--json")
    assert (done.code, done.err) == (0, "")
    cells = json.loads(done.out)["cells"]
    skipped = {cell["row"]: cell["incomplete"] for cell in cells if "skipped" in cell["states"]}
    assert skipped.keys() == {f"{row} (reference)" for row in ("learned-dropout", "token-dropout", "unidrop")}
    assert all(" fits none of " in reason for reason in skipped.values())
    assert [cell["row"] for cell in cells if cell["best"]] == ["masksub (reference)"]
    table = call(*arguments).out
    assert "skipped [3]" in table
    assert "choosing" not in table


@pytest.mark.usefixtures("own")
def test_a_reference_does_not_change_the_users_database(call: Call, folder: Path) -> None:
    before = call("results", "--json").out
    for arguments in (["results"], ["compare", "--rank"], ["report", SUITE]):
        assert call(*arguments, *COMMON).code == 0
    assert call("results", "--json").out == before
    assert "origin" not in before
    assert "reference" not in before


def test_a_wrong_file_ends_with_code_2(call: Call, folder: Path) -> None:
    (folder / "x.zip").write_text("no zip")
    for arguments in (["results"], ["compare", "--rank"], ["report", SUITE], ["compare", "none", "none"]):
        done = call(*arguments, *COMMON)
        assert (done.code, done.out) == (2, "")
        assert done.err.count("\n") == 1


@pytest.mark.slow
def test_results_in_postgresql_stand_beside_a_reference(
    call: Call, folder: Path, postgresql: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign(folder / "theirs", seeds=(0, 1, 2))
    extended(folder / "x.zip", folder / "theirs")
    campaign(folder / "runs", ["none"], base=50.0, seeds=(0, 1), whole=False)
    monkeypatch.setenv("DROPBENCH_DB", postgresql())
    assert call("db", "rebuild").code == 0
    found = rows(call, "results", "regularizer=none")
    assert sorted((row["origin"], row["n"]) for row in found) == [("own", 2), ("reference", 3)]
