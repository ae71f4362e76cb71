"""Tables of swept cells before and after a candidate is selected."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.report.formats.documents import as_csv, as_json, as_latex, as_markdown
from dropbench.db.report.formats.layout import long_grid
from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.requests import look_up
from dropbench.db.report.view.view import View
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.db.tuning.select import PRUNED
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.search_space import parse_search, parse_space
from dropbench.harness.suites.suite import Suite, parse_suite
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import request_suite
from tests.db.report import tables
from tests.requests import table_of

SUITE: dict[str, Any] = {
    "title": "Choices",
    "source": "these tests",
    "metric": "accuracy",
    "trial": {"task": "tiny", "model": "tiny"},
    "columns": [{"label": "A", "trial": {"data": "a"}}, {"label": "B", "trial": {"data": "b"}}],
    "rows": [
        {"label": "none", "baseline": True, "trial": {"regularizer": "none"}},
        {
            "label": "dropkey",
            "trial": {"regularizer": "dropkey"},
            "params": [{"ratio": 0.5, "window": 3}, None],
            "published": [90.0, None],
            "sweep": {"ratio": [0.1, 0.3], "window": [1, 2]},
        },
    ],
    "presets": {"mini": {"seeds": 2}},
}
DEV = {(0.1, 1): 70.0, (0.1, 2): 80.0, (0.3, 1): 90.0, (0.3, 2): 60.0}
pytestmark = pytest.mark.usefixtures("tiny_task")


def suite(**changes: Any) -> Suite:
    return parse_suite({**SUITE, **changes}, "mine", "mine.yaml")


def fill(
    store: Store, column: str, dev: Mapping[tuple[float, int], float | str], choice: SuiteOptions | None = None
) -> None:
    """Record the trials of a column.

    A number: both seeds have that dev score, and 100 less on test; a text: the second seed was pruned or failed.
    """
    for cell, trials in trials_of(suite(), choice):
        for trial in trials if cell.column == column else ():
            if cell.baseline:
                final: Any = [("test/accuracy", -1, 5.0 + trial.seed)]
                store.record([RunRecord(trial, "succeeded", None, [], final)])
                continue
            params = trial.regularizer.params
            value = dev.get((float(params["ratio"]), int(params["window"])))
            if isinstance(value, str) and trial.seed == 1:
                store.record([RunRecord(trial, "cancelled" if value.startswith(PRUNED) else "failed", value)])
            elif value is not None:
                score = 0.0 if isinstance(value, str) else value
                final = [("dev/accuracy", -1, score), ("test/accuracy", -1, 100 - score + trial.seed)]
                store.record([RunRecord(trial, "succeeded", None, [], final)])


def view(store: Store, table: Suite | None = None, **options: Any) -> View:
    return build_view(table_of(table or suite(), store, **options), store, Path("runs"))


def trials_of(table: Suite, options: SuiteOptions | None = None) -> Iterator[tuple[Cell, list[Trial]]]:
    """Yield the cells with the trials of all candidates."""
    requested = request_suite(table, options or SuiteOptions(), Settings())
    for cell in requested.request.cells:
        yield cell, [requested.trials[id] for candidate in cell.candidates for id in candidate.trials]


def lines_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_selected_candidate_is_shown_with_its_values(store: Store) -> None:
    fill(store, "A", DEV)
    fill(store, "B", {**DEV, (0.1, 2): 99.0})
    table = view(store)
    cell = table.cells["dropkey", "A"]
    assert (cell.chosen, cell.mean, cell.n, cell.delta) == ({"ratio": 0.3, "window": 1}, 10.5, 2, 5.0)
    assert cell.delta_published == 10.5 - 90.0
    assert (cell.regularizer, cell.cell.request.params) == ({"ratio": 0.3, "window": 1},) * 2
    assert [seed.id for seed in cell.seeds] == [*cell.candidates[2].ids]
    assert table.cells["none", "A"].chosen is None
    lines = lines_of(tables.printed(table, 100))
    assert "chosen p=0.3, w=1 p=0.1, w=2" in lines
    assert "dropkey 10.50 ± 0.71 (2) * 1.50 ± 0.71 (2)" in lines
    about = "chosen: best mean dev accuracy over the seeds, from the grid ratio 0.1, 0.3 × window 1, 2"
    assert " ".join(lines).count(about) == 1
    assert "p: ratio, w: window" in lines
    assert "| &emsp;chosen | p=0.3, w=1 | p=0.1, w=2 |" in as_markdown(table)
    assert r"\quad chosen & p=0.3, w=1 & p=0.1, w=2 \\" in as_latex(table)
    single = suite(
        columns=SUITE["columns"][:1], rows=[{**row, "params": None, "published": None} for row in SUITE["rows"]]
    )
    assert "dropkey 10.50 ± 0.71 * 2 p=0.3, w=1 +5.00" in lines_of(tables.printed(view(store, single), 100))


def test_records_have_all_candidates(store: Store) -> None:
    fill(store, "A", {**DEV, (0.3, 1): "ValueError: a\x1b[31m\nb"})
    record = next(
        record
        for record in json.loads(as_json(view(store)))["cells"]
        if (record["row"], record["column"]) == ("dropkey", "A")
    )
    assert record["chosen"] == {"ratio": 0.1, "window": 2}
    assert [tuple(candidate[key] for key in ("params", "state", "dev", "n")) for candidate in record["candidates"]] == [
        ({"ratio": 0.1, "window": 1}, "succeeded", 70.0, 2),
        ({"ratio": 0.1, "window": 2}, "succeeded", 80.0, 2),
        ({"ratio": 0.3, "window": 1}, "failed", 0.0, 1),
        ({"ratio": 0.3, "window": 2}, "succeeded", 60.0, 2),
    ]
    assert [len(candidate["trials"]) for candidate in record["candidates"]] == [2] * 4
    assert (record["unasked"], record["incomplete"]) == (0, None)
    assert [trial["id"] for trial in record["trials"]] == record["candidates"][1]["trials"]
    rows = list(csv.DictReader(io.StringIO(as_csv(view(store)))))
    assert [row["chosen"] for row in rows] == ["", "", '{"ratio": 0.1, "window": 2}', ""]
    assert [len(json.loads(row["candidates"])) for row in rows] == [0, 0, 4, 4]
    assert "\x1b" not in as_csv(view(store))


def test_no_candidate_is_selected_before_all_are_done(store: Store) -> None:
    fill(store, "A", {(0.1, 1): 70.0, (0.1, 2): 80.0, (0.3, 1): f"{PRUNED}dev accuracy 3, median pruner"})
    table = view(store)
    cell: CellResult = table.cells["dropkey", "A"]
    assert (cell.chosen, cell.mean, cell.seeds, cell.delta, len(cell.candidates)) == (None, None, (), None, 4)
    lines = lines_of(tables.printed(table, 100))
    assert "dropkey 2/4 candidates done [1] 0/4 candidates done" in lines
    note = "of 4 candidates, 1 pruned (p=0.3, w=1: dev accuracy 3, median pruner)"
    assert f"[1] {note}" in lines
    assert not any(line.startswith("chosen p") for line in lines)
    for write in (as_markdown, as_latex, as_csv, as_json):
        assert "2/4 candidates done" in write(table)
    record = json.loads(as_json(table))["cells"][2]
    assert (record["chosen"], record["incomplete"]) == (None, f"2/4 candidates done; {note}")

    fill(store, "A", {(0.3, 2): "ValueError: boom"})
    lines = lines_of(tables.printed(view(store), 100))
    assert "chosen p=0.1, w=2 [1]" in lines
    assert f"[1] {note}, 1 failed (p=0.3, w=2: ValueError: boom)" in " ".join(lines)
    fill(store, "B", dict.fromkeys(DEV, "ValueError: boom"))
    lines = lines_of(tables.printed(view(store), 100))
    assert "dropkey 20.50 ± 0.71 (2) * no candidate left [1]" in lines
    assert "; and 1 more)" in " ".join(lines)


def test_a_search_counts_the_remaining_candidates(store: Store) -> None:
    search = parse_search("sampler=tpe,candidates=6,batch=2")
    table = view(store, sweep=parse_space(["set.lr=1e-4..1e-2:log"]), search=search)
    assert table.cells["none", "A"].selection is not None
    lines = lines_of(tables.printed(table, 120))
    assert "none 0/6 candidates done 0/6 candidates done" in lines
    assert "from 6 candidates by tpe in lr 0.0001 to 0.01" in " ".join(lines)


def test_selected_recipe_keys_are_no_overrides(store: Store) -> None:
    choice = SuiteOptions(sweep=parse_space(["set.lr=0.01"]), overrides={"batch_size": 16})
    for _, trials in trials_of(suite(), choice):
        final: Any = [("dev/accuracy", -1, 1.0), ("test/accuracy", -1, 1.0)]
        store.record([RunRecord(trial, "succeeded", None, [], final) for trial in trials])
    text = tables.printed(view(store, sweep=choice.sweep, overrides=choice.overrides), 120)
    assert "chosen lr=0.01 lr=0.01" in lines_of(text)
    assert "recipe overridden: batch_size=16\n" in text


def test_stored_requests_choose_as_the_one_that_was_made(store: Store) -> None:
    fill(store, "A", DEV)
    fill(store, "B", {(0.1, 1): 70.0})
    store.add_requests([request_suite(suite(), SuiteOptions(), Settings()).request])
    stored, expected = look_up(store, "mine"), view(store)
    assert stored is not None
    shown = build_view(stored, store, Path("runs"))
    assert shown.rows == expected.rows
    for position, cell in expected.cells.items():
        assert (shown.cells[position].mean, shown.cells[position].chosen) == (cell.mean, cell.chosen)
        assert long_grid(shown).lines == long_grid(expected).lines


def tuned(sweep: Mapping[str, Any] | None = None) -> Suite:
    rows: list[dict[str, Any]] = [
        {**SUITE["rows"][0], "sweep": sweep},
        {"label": "dropkey", "trial": {"regularizer": "dropkey"}},
    ]
    return suite(rows=rows, presets={"mini": {"seeds": 2, "tuned": True}})


def test_a_tuned_preset_shows_the_budget_of_its_cells(store: Store) -> None:
    legend = tables.printed(view(store, tuned({"set.lr": [1.0, 2.0, 3.0]})), 200)
    assert "budget of each cell: 3 candidates × 2 seeds\n" in legend
    assert "chosen: best mean dev score over the seeds, from each row's candidates\n" in legend
    assert "the grid" not in legend
    # The task has no recipe before it reads data, so that its learning rates are unknown.
    legend = tables.printed(view(store, tuned()), 200)
    assert "unequal budgets: 1 candidate × 2 seeds for none; 3 candidates × 2 seeds for the others\n" in legend


def test_a_regularizer_that_fits_no_candidate_is_skipped(store: Store) -> None:
    table = tuned({"set.lr": [1.0, 2.0, 3.0]})
    for cell, trials in trials_of(table):
        for trial in trials if (cell.row, cell.column) == ("dropkey", "A") else ():
            store.record([RunRecord(trial, "skipped", "it fits no site")])
    shown = view(store, table)
    assert shown.cells["dropkey", "A"].selection is None
    text = tables.printed(shown, 200)
    assert "dropkey skipped [1] 0/3 candidates done" in lines_of(text)
    assert "[1] it fits no site" in text
    assert "budget of each cell: 3 candidates × 2 seeds\n" in text
