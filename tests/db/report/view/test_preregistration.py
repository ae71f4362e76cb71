"""Pre-registrations: what is frozen, and how a changed suite, choice or file shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dropbench.db.report.formats.documents import as_json, as_markdown
from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.preregistration import TEST, check, freeze, plan_of, read_preregistration
from dropbench.db.report.view.view import View
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.search_space import parse_search, parse_space
from dropbench.harness.suites.suite import Suite, parse_suite
from dropbench.jobs.queue.request import request_suite
from tests.db.report import tables
from tests.db.report.view.test_selection_notes import SUITE
from tests.requests import table_of

TUNED = {
    **SUITE,
    "rows": [
        {**SUITE["rows"][0], "sweep": {"set.lr": [1.0, 2.0, 3.0]}},
        {"label": "dropkey", "trial": {"regularizer": "dropkey"}},
    ],
    "presets": {"mini": {"seeds": 2, "tuned": True}},
}
HERE = Settings()
pytestmark = pytest.mark.usefixtures("tiny_task")


def suite(**changes: Any) -> Suite:
    return parse_suite({**TUNED, **changes}, "mine", "mine.yaml")


def fill(store: Store, *rows: str, dev: Mapping[float, float] | None = None) -> None:
    """Record the trials of rows; dev scores are those of their ratio, test scores 100 less."""
    requested = request_suite(suite(), SuiteOptions(), HERE)
    cells = [cell for cell in requested.request.cells if cell.row in rows]
    for trial in (requested.trials[id] for cell in cells for each in cell.candidates for id in each.trials):
        score = (dev or {}).get(float(trial.regularizer.params.get("ratio", 0)), 50.0)
        final: Any = [("dev/accuracy", -1, score), ("test/accuracy", -1, 100 - score + trial.seed)]
        store.record([RunRecord(trial, "succeeded", None, [], final)])


def view(store: Store, *, peek: bool = False) -> View:
    return build_view(table_of(suite(), store), store, Path("runs"), peek=peek)


def frozen(store: Store, folder: Path) -> Path:
    file = folder / "frozen.yaml"
    file.write_text(freeze(table_of(suite(), store), store))
    return file


def checked(file: Path, store: Store, table: Suite | None = None, **options: Any) -> list[str]:
    return check(file, table_of(table or suite(), store, **options))


def test_no_test_score_is_read_before_all_candidates_are_done(store: Store) -> None:
    fill(store, "dropkey", dev={0.3: 70.0})
    table = view(store)
    cell = table.cells["dropkey", "A"]
    assert (cell.chosen, cell.mean, cell.n, cell.seeds, cell.hidden) == ({"ratio": 0.3}, None, 0, (), True)
    for column in "AB":
        assert f"{column}: choosing, 3/6 candidates done; until all are" in tables.printed(table, 200)
    assert "| dropkey | hidden | hidden |" in as_markdown(table)
    assert "| &emsp;chosen | p=0.3 | p=0.3 |" in as_markdown(table)
    records = json.loads(as_json(table))["cells"]
    assert [record["incomplete"] for record in records[2:]] == ["hidden", "hidden"]
    assert not any(value is not None for record in records for value in (record["mean"], record["delta"]))
    peeked = view(store, peek=True)
    assert (peeked.cells["dropkey", "A"].mean, peeked.notices) == (30.5, table.notices)
    fill(store, "none")
    done = view(store)
    assert (done.cells["dropkey", "A"].mean, done.cells["dropkey", "A"].delta, done.notices) == (30.5, -20.0, ())


def test_a_plan_names_what_determines_the_numbers_and_no_result_changes_it(store: Store) -> None:
    plan = plan_of(table_of(suite(), store))
    trials = list(request_suite(suite(), SuiteOptions(), HERE).trials.values())
    assert (plan.seeds, plan.baseline, plan.test) == ((0, 1), ("none",), TEST)
    assert plan.metrics == {"A": "accuracy", "B": "accuracy"}
    assert plan.data == {"a": "0" * 12, "b": "0" * 12}
    assert {row: {column: [*names] for column, names in columns.items()} for row, columns in plan.cells.items()} == {
        "none": {column: ["lr=1.0", "lr=2.0", "lr=3.0"] for column in "AB"},
        "dropkey": {column: ["p=0.1", "p=0.3", "p=0.5"] for column in "AB"},
    }
    ids = {id for columns in plan.cells.values() for names in columns.values() for id in names.values()}
    assert ids == {trial.config_id for trial in trials}
    assert len(ids) == 12
    for trial in trials[:6]:
        store.record([RunRecord(trial, "skipped", "it fits no site")])
    assert plan_of(table_of(suite(), store)).digest == plan.digest


def test_a_table_is_as_frozen_before_and_after_the_runs(store: Store, tmp_path: Path) -> None:
    file = frozen(store, tmp_path)
    content = yaml.safe_load(file.read_text())
    assert (content["trained"], content["chosen"]) == ("0 of 24 trials", {})
    line = [f"as frozen on {content['frozen'][:10]}, when 0 of 24 trials were done (digest {content['digest'][:12]})"]
    assert checked(file, store) == line
    fill(store, "none", "dropkey", dev={0.3: 70.0})
    assert checked(file, store) == line


def test_every_difference_is_named(store: Store, tmp_path: Path) -> None:
    file = frozen(store, tmp_path)
    head, *lines = checked(
        file, store, seeds=(0, 1, 2), regularizers=("dropout",), sweep=parse_space(["ratio=0.1,0.7"])
    )
    assert head.startswith("not as frozen on 20")
    assert lines == [
        "- seeds: 0, 1, 2; frozen: 0, 1",
        "- cells added: dropout, A; dropout, B",
        "- candidates added: none, A: as in the suite; none, B: as in the suite; dropkey, A: p=0.7; dropkey, B: p=0.7",
        "- candidates missing: none, A: lr=1.0; none, A: lr=2.0; none, A: lr=3.0; none, B: lr=1.0; none, B: lr=2.0; "
        "none, B: lr=3.0; dropkey, A: p=0.3; dropkey, A: p=0.5; dropkey, B: p=0.3; dropkey, B: p=0.5",
    ]
    assert checked(file, store, suite(metric="loss"))[1:] == [
        "- columns and metrics: A loss, B loss; frozen: A accuracy, B accuracy"
    ]
    assert checked(file, store, data=("a",))[1:] == [
        "- columns and metrics: A accuracy; frozen: A accuracy, B accuracy",
        f"- data: a {'0' * 12}; frozen: a {'0' * 12}, b {'0' * 12}",
    ]
    (changed,) = checked(file, store, overrides={"batch_size": 16})[1:]
    assert changed.startswith(
        "- other trials, as their recipe, model, data, versions or plug-ins differ: none, A: lr=1.0;"
    )
    assert changed.endswith("; and 2 more")


def test_a_choice_that_changes_after_it_was_frozen_is_named(store: Store, tmp_path: Path) -> None:
    fill(store, "dropkey", dev={0.3: 70.0})
    file = frozen(store, tmp_path)
    assert yaml.safe_load(file.read_text())["chosen"] == {"dropkey": {"A": "p=0.3", "B": "p=0.3"}}
    assert checked(file, store)[0].startswith("as frozen")
    fill(store, "dropkey", dev={0.1: 80.0})
    assert checked(file, store)[1:] == [f"- chosen for dropkey, {column}: p=0.1; frozen: p=0.3" for column in "AB"]


def test_a_search_is_frozen_as_such(store: Store) -> None:
    search, space = parse_search("sampler=tpe,candidates=6"), parse_space(["ratio=0.1..0.5"])
    plan = plan_of(table_of(suite(), store, search=search, sweep=space))
    ((name, text),) = plan.cells["dropkey"]["A"].items()
    assert (name, text.endswith('"sampler":"tpe","seed":0} in ratio 0.1 to 0.5')) == ("search", True)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda text: text.replace("seeds: [0, 1]", "seeds: [0, 1, 2]"),
            "its plan has been edited since it was frozen",
        ),
        (lambda text: text.replace("frozen:", "froze:"), "unknown key .*'froze': did you mean frozen"),
        (lambda text: "- 1", "expected a file of `dropbench report --freeze`"),
    ],
)
def test_a_file_that_was_edited_is_refused(store: Store, tmp_path: Path, edit: Any, message: str) -> None:
    file = frozen(store, tmp_path)
    file.write_text(edit(file.read_text()))
    with pytest.raises(InputError, match=message):
        checked(file, store)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.yaml: no such file: write it by `dropbench report SUITE --freeze"):
        read_preregistration(tmp_path / "no.yaml")
