"""Tables of swept cells: what was chosen, and what stands there before."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from db.report import ask, build_view
from db.report.dashboard.suites import variants, view_of
from db.report.formats import as_csv, as_json, as_latex, as_markdown
from db.report.layout import long_grid
from db.report.view import Outcome, View
from db.selection import PRUNED
from db.snapshot import Snapshot
from db.store import Store
from harness.settings import Settings
from harness.suite import Choice, Suite, parse_suite
from harness.sweep import parse_search, parse_space

if TYPE_CHECKING:
    from tests.db.report.conftest import Tables

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


def fill(store: Store, column: str, dev: Mapping[tuple[float, int], float | str], choice: Choice | None = None) -> None:
    """A number: both seeds have that dev score, and 100 less on test; a text: the second was given up or failed."""
    for cell, trials in suite().trials(choice or Choice(), Settings()):
        for trial in trials if cell.column == column else ():
            if cell.baseline:
                final: Any = [("test/accuracy", -1, 5.0 + trial.seed)]
                store.record([Snapshot(trial, "succeeded", None, [], [], final)])
                continue
            params = trial.regularizer.params
            value = dev.get((float(params["ratio"]), int(params["window"])))
            if isinstance(value, str) and trial.seed == 1:
                store.record([Snapshot(trial, "cancelled" if value.startswith(PRUNED) else "failed", value)])
            elif value is not None:
                score = 0.0 if isinstance(value, str) else value
                final = [("dev/accuracy", -1, score), ("test/accuracy", -1, 100 - score + trial.seed)]
                store.record([Snapshot(trial, "succeeded", None, [], [], final)])


def view(store: Store, made: Suite | None = None, **choice: Any) -> View:
    made = made or suite()
    return build_view(made, ask(made, Choice(**choice), Settings(), store), store, Settings())


def told(drawn: str) -> list[str]:
    return [" ".join(line.split()) for line in drawn.splitlines()]


def test_the_chosen_candidate_is_shown_with_its_values(store: Store, tables: Tables) -> None:
    fill(store, "A", DEV)
    fill(store, "B", {**DEV, (0.1, 2): 99.0})
    found = view(store)
    cell = found.cells["dropkey", "A"]
    assert (cell.chosen, cell.mean, cell.n, cell.delta) == ({"ratio": 0.3, "window": 1}, 10.5, 2, 5.0)
    assert cell.delta_published == 10.5 - 90.0
    assert (cell.regularizer, cell.cell.request.params) == ({"ratio": 0.3, "window": 1},) * 2
    assert [seed.id for seed in cell.seeds] == [trial.id for trial in cell.candidates[2].trials]
    assert found.cells["none", "A"].chosen is None
    lines = told(tables.drawn(found, 100))
    assert "chosen p=0.3, w=1 p=0.1, w=2" in lines
    assert "dropkey 10.50 ± 0.71 (2) * 1.50 ± 0.71 (2)" in lines
    about = "chosen by the best mean dev accuracy over the seeds, of the grid ratio 0.1, 0.3 × window 1, 2"
    assert " ".join(lines).count(about) == 1
    assert "p: ratio, w: window" in lines
    assert "| &emsp;chosen | p=0.3, w=1 | p=0.1, w=2 |" in as_markdown(found)
    assert r"\quad chosen & p=0.3, w=1 & p=0.1, w=2 \\" in as_latex(found)
    one = suite(
        columns=SUITE["columns"][:1], rows=[{**row, "params": None, "published": None} for row in SUITE["rows"]]
    )
    assert "dropkey 10.50 ± 0.71 * 2 p=0.3, w=1 +5.00" in told(tables.drawn(view(store, one), 100))


def test_records_have_all_candidates(store: Store) -> None:
    fill(store, "A", {**DEV, (0.3, 1): "ValueError: a\x1b[31m\nb"})
    record = next(
        one for one in json.loads(as_json(view(store)))["cells"] if (one["row"], one["column"]) == ("dropkey", "A")
    )
    assert record["chosen"] == {"ratio": 0.1, "window": 2}
    assert [(one["params"], one["state"], one["dev"], one["n"]) for one in record["candidates"]] == [
        ({"ratio": 0.1, "window": 1}, "succeeded", 70.0, 2),
        ({"ratio": 0.1, "window": 2}, "succeeded", 80.0, 2),
        ({"ratio": 0.3, "window": 1}, "failed", 0.0, 1),
        ({"ratio": 0.3, "window": 2}, "succeeded", 60.0, 2),
    ]
    assert [len(one["trials"]) for one in record["candidates"]] == [2] * 4
    assert (record["unasked"], record["incomplete"]) == (0, None)
    assert [trial["id"] for trial in record["trials"]] == record["candidates"][1]["trials"]
    rows = list(csv.DictReader(io.StringIO(as_csv(view(store)))))
    assert [row["chosen"] for row in rows] == ["", "", '{"ratio": 0.1, "window": 2}', ""]
    assert [len(json.loads(row["candidates"])) for row in rows] == [0, 0, 4, 4]
    assert "\x1b" not in as_csv(view(store))


def test_nothing_is_shown_as_chosen_before_all_are_done(store: Store, tables: Tables) -> None:
    fill(store, "A", {(0.1, 1): 70.0, (0.1, 2): 80.0, (0.3, 1): f"{PRUNED}dev accuracy 3, median pruner"})
    found = view(store)
    cell: Outcome = found.cells["dropkey", "A"]
    assert (cell.chosen, cell.mean, cell.seeds, cell.delta, len(cell.candidates)) == (None, None, (), None, 4)
    lines = told(tables.drawn(found, 100))
    assert "dropkey 2/4 candidates done [1] 0/4 candidates done" in lines
    note = "of 4 candidates, 1 pruned (p=0.3, w=1: dev accuracy 3, median pruner)"
    assert f"[1] {note}" in lines
    assert not any(line.startswith("chosen p") for line in lines)
    for write in (as_markdown, as_latex, as_csv, as_json):
        assert "2/4 candidates done" in write(found)
    record = json.loads(as_json(found))["cells"][2]
    assert (record["chosen"], record["incomplete"]) == (None, f"2/4 candidates done; {note}")

    fill(store, "A", {(0.3, 2): "ValueError: boom"})
    lines = told(tables.drawn(view(store), 100))
    assert "chosen p=0.1, w=2 [1]" in lines
    assert f"[1] {note}, 1 failed (p=0.3, w=2: ValueError: boom)" in " ".join(lines)
    fill(store, "B", dict.fromkeys(DEV, "ValueError: boom"))
    lines = told(tables.drawn(view(store), 100))
    assert "dropkey 20.50 ± 0.71 (2) * no candidate left [1]" in lines
    assert "; and 1 more)" in " ".join(lines)


def test_a_search_tells_how_many_are_to_come(store: Store, tables: Tables) -> None:
    search = parse_search("sampler=tpe,candidates=6,batch=2")
    found = view(store, sweep=parse_space(["set.lr=1e-4..1e-2:log"]), search=search)
    assert found.cells["none", "A"].selection is not None
    lines = told(tables.drawn(found, 120))
    assert "none 0/6 candidates done 0/6 candidates done" in lines
    assert "of 6 candidates by tpe from lr 0.0001 to 0.01" in " ".join(lines)


def test_what_was_chosen_of_the_recipe_is_no_override(store: Store, tables: Tables) -> None:
    choice = Choice(sweep=parse_space(["set.lr=0.01"]), overrides={"batch_size": 16})
    for _, trials in suite().trials(choice, Settings()):
        final: Any = [("dev/accuracy", -1, 1.0), ("test/accuracy", -1, 1.0)]
        store.record([Snapshot(trial, "succeeded", None, [], [], final) for trial in trials])
    drawn = tables.drawn(view(store, sweep=choice.sweep, overrides=choice.overrides), 120)
    assert "chosen lr=0.01 lr=0.01" in told(drawn)
    assert "recipe overridden: batch_size=16\n" in drawn


def test_the_dashboard_chooses_as_the_command_does(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(SUITE))
    fill(store, "A", DEV)
    fill(store, "B", {(0.1, 1): 70.0})
    trials = [trial for _, its in suite().trials(Choice(), Settings()) for trial in its]
    store.enqueue([(trial, "mine") for trial in trials])
    known, (variant,) = variants("mine", store)
    assert known is not None
    found, wanted = view_of(known, variant, store, Settings()), view(store)
    assert found.rows == wanted.rows
    for place, cell in wanted.cells.items():
        assert (found.cells[place].mean, found.cells[place].chosen) == (cell.mean, cell.chosen)
        assert long_grid(found).lines == long_grid(wanted).lines
