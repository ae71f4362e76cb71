"""Import of results from another database."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from dropbench.db.schema.connection import writing
from dropbench.db.schema.tables import Attempts, Submissions
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, SubmissionRow, open_store
from dropbench.db.transfer.merge import messages, transfer
from dropbench.db.transfer.source import open_source
from tests.db.records import dump, make_trial
from tests.db.transfer.given import DAY, attempt, counts, outcome, put
from tests.requests import named


def test_round_trip(filled: Store, store: Store) -> None:
    done = put(filled, store)
    assert counts(done) == (6, 0, 0, 0, 0)
    assert done.submissions == 1
    assert dump(store) == dump(filled)
    again = put(filled, store)
    assert counts(again) == (0, 0, 6, 0, 0)
    assert again.submissions == 0
    assert dump(store) == dump(filled), "importing again changes nothing"
    back = put(store, filled)
    assert counts(back) == (0, 0, 6, 0, 0)


def test_a_source_is_not_changed(filled: Store, store: Store, tmp_path: Path) -> None:
    filled.close()
    file = tmp_path / "there.db"
    before = file.read_bytes()
    with open_source(str(file), "sqlite://") as source:
        transfer(source, store)
        with pytest.raises(Exception, match=r"readonly|authoriz"):
            source.connection.exec_driver_sql("DELETE FROM metrics")
    assert file.read_bytes() == before


def test_active_trials_of_the_source_are_queued(source_store: Store, store: Store) -> None:
    first, second = make_trial(0), make_trial(1)
    source_store.enqueue([first, second], [named("mine", first, second)])
    source_store.intend([first.id, second.id], SubmissionRow("b" * 32, "slurm", "/", "cluster", 1))
    source_store.set_states({second.id: ("running", "a reason")})
    with writing(source_store.engine) as connection:
        rows = [{"trial_id": second.id, **attempt(1)}, {"trial_id": second.id, **attempt(2, "running", 2)}]
        connection.execute(insert(Attempts), rows)
    done = put(source_store, store)
    assert (done.added, done.submissions) == (2, 0)
    assert [(row.state, row.reason, row.submission_id) for row in store.states().values()] == [
        ("queued", None, None)
    ] * 2
    with store.engine.connect() as connection:
        assert connection.execute(select(Attempts.c.number, Attempts.c.state)).all() == [(1, "failed")]
        assert connection.execute(select(Submissions)).all() == []


class Case(NamedTuple):
    """A trial in the target and in the source, and the expected result: its state, and the hosts of its attempts."""

    target: tuple[str, list[dict[str, Any]]]
    source: tuple[str, list[dict[str, Any]]]
    state: str
    hosts: list[str]


OURS, THEIRS, MORE = attempt(1, day=2, host="here"), attempt(1), attempt(2, day=3)
CASES = {
    "a result wins": Case(("queued", []), ("succeeded", [THEIRS]), "succeeded", ["laptop"]),
    "over a failure": Case(
        ("failed", [OURS]), ("succeeded", [THEIRS, MORE]), "succeeded", ["laptop", "here", "laptop"]
    ),
    "and stays": Case(("succeeded", [OURS]), ("failed", [THEIRS]), "succeeded", ["here"]),
    "equal results": Case(("succeeded", [OURS]), ("succeeded", [THEIRS]), "succeeded", ["here"]),
    "over one that runs": Case(("running", [OURS]), ("succeeded", [THEIRS]), "succeeded", ["laptop", "here"]),
    "further on its way": Case(("queued", [THEIRS]), ("failed", [THEIRS, MORE]), "failed", ["laptop", "laptop"]),
    "not begun here": Case(("cancelled", []), ("failed", [THEIRS]), "failed", ["laptop"]),
    "not further": Case(("queued", [THEIRS]), ("failed", [THEIRS]), "queued", ["laptop"]),
    "on two ways": Case(("failed", [OURS]), ("queued", [THEIRS, MORE]), "failed", ["here"]),
    "at work here": Case(("running", []), ("failed", [THEIRS]), "running", []),
    "nothing done": Case(("queued", []), ("skipped", []), "queued", []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_more_advanced_trial_wins(case: Case, source_store: Store, store: Store) -> None:
    trial = make_trial()
    store.record([outcome(trial, case.target[0], attempts=case.target[1])])
    store.add_requests([named("ours", trial)])
    source_store.record([outcome(trial, case.source[0], attempts=case.source[1])])
    source_store.add_requests([named("mine", trial)])
    put(source_store, store)
    assert store.states()[trial.id].state == case.state
    assert store.suites([trial.id]) == {trial.id: ["mine", "ours"]}
    with store.engine.connect() as connection:
        attempts = connection.execute(select(Attempts.c.number, Attempts.c.host).order_by(Attempts.c.number)).all()
    assert [host for _, host in attempts] == case.hosts
    assert [number for number, _ in attempts] == list(range(1, len(attempts) + 1))
    before = dump(store)
    assert put(source_store, store).updated == 0
    assert dump(store) == before


def test_results_that_differ(source_store: Store, store: Store) -> None:
    first, second, third = (make_trial(seed) for seed in range(3))
    store.record([outcome(first, attempts=[OURS]), outcome(second), outcome(third)])
    measured = [("entropy/mean", -1, 1.5)]
    source_store.record(
        [
            outcome(first, accuracy=81.0, attempts=[THEIRS], metrics=[("test/accuracy", -1, 81.0), *measured]),
            outcome(second, accuracy=None),
            outcome(third, metrics=[*outcome(third).metrics, *measured]),
        ]
    )
    done = put(source_store, store)
    assert [(conflict.metric, conflict.here, conflict.there) for conflict in done.conflicts] == [
        ("test/accuracy", 80.5, 81.0),
        ("test/accuracy", 80.5, None),
    ]
    assert counts(done) == (0, 1, 0, 2, 0), "the analysis of the third is new"
    assert ("'test/accuracy'", "80.5") in {row[1::2] for row in dump(store)["metrics"]}
    assert counts(put(source_store, store)) == (0, 0, 1, 2, 0)
    assert counts(put(source_store, store, overwrite=True)) == (0, 0, 1, 2, 0)
    ours = {row for row in dump(store)["metrics"] if row[0] == repr(first.id)}
    assert ours == {row for row in dump(source_store)["metrics"] if row[0] == repr(first.id)}
    with store.engine.connect() as connection:
        assert connection.execute(select(Attempts.c.host).order_by(Attempts.c.number)).scalars().all() == [
            "laptop",
            "here",
        ]
    assert counts(put(source_store, store, overwrite=True)) == (0, 0, 3, 0, 0)


def test_conflicts_are_single_lines(source_store: Store, store: Store) -> None:
    trial, name = make_trial(), "test/\x1b[2J\n"
    store.record([outcome(trial, metrics=[(name, -1, 1.0)])])
    source_store.record([outcome(trial, metrics=[(name, -1, 2.0)])])
    (line,) = messages(put(source_store, store), False)
    assert line == f"conflict: trial {trial.id}: test/\ufffd[2J\ufffd is 1.0 here and 2.0 there: kept" + (
        " (`--replace` takes the other)"
    )


def test_an_import_that_was_interrupted(source_store: Store, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropbench.db.transfer.merge.BATCH_SIZE", 2)
    source_store.record([outcome(make_trial(seed)) for seed in range(7)])
    seen: list[int] = []

    def stop(count: int) -> None:
        seen.append(count)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put(source_store, store, progress=stop)
    assert store.counts()["succeeded"] == 4, "whole trials, in order"
    assert {row[0] for row in dump(store)["metrics"]} == {row[0] for row in dump(store)["trials"]}
    assert counts(put(source_store, store)) == (3, 0, 4, 0, 0)
    assert dump(store) == dump(source_store)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
VALUES = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@settings(
    max_examples=12, deadline=None, database=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    rows=st.lists(st.tuples(st.sampled_from(["succeeded", "failed", "queued"]), TEXTS, TEXTS, VALUES), max_size=4),
    numbers=st.lists(VALUES, min_size=1, max_size=4),
)
def test_any_text_and_number_comes_through(
    rows: list[tuple[Any, str, str, float | None]], numbers: list[float | None], tmp_path: Path, template: Path
) -> None:
    for name in ("from.db", "to.db"):
        shutil.copy2(template, tmp_path / name)
    with (
        open_store(f"sqlite:///{tmp_path}/from.db") as source_store,
        open_store(f"sqlite:///{tmp_path}/to.db") as target_store,
    ):
        source_store.record(
            RunRecord(
                make_trial(seed, overrides={text: text}),
                state,
                reason,
                [attempt(1, cause=reason, message=text, cpu_seconds=value)],
                [
                    *((text, step, number) for step, number in enumerate(numbers)),
                    *[(text, -1, value)] * (state == "succeeded"),
                ],
                DAY.format(1),
                DAY.format(2),
            )
            for seed, (state, text, reason, value) in enumerate(rows)
        )
        assert put(source_store, target_store).added == len(rows)
        assert dump(target_store) == dump(source_store)
