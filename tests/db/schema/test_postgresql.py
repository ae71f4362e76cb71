"""The store on PostgreSQL: a private server, if PostgreSQL and the extra `postgres` are installed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, func, select
from starlette.testclient import TestClient

from dropbench.db.queries.results import results
from dropbench.db.report.dashboard import live
from dropbench.db.report.dashboard.app import make_app
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import METADATA, Trials
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, SubmissionRow, open_store
from dropbench.db.transfer.export import export, query
from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.jobs.queue.status import activity
from tests.db.records import attempt, dump, make_directory, make_trial
from tests.requests import named


@pytest.fixture
def url(postgresql: Callable[[], str]) -> str:
    """A fresh database on the server instead of a file."""
    return postgresql()


def test_migrations_make_what_the_models_say(store: Store) -> None:
    with reading(store.engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
        query = "SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_metrics_final'"
        assert "WHERE (step = " in str(connection.exec_driver_sql(query).scalar())


def test_from_the_queue_to_results(store: Store, url: str, tmp_path: Path) -> None:
    trials = [make_trial(seed, overrides={"lr": 0.5, "amp": True}) for seed in range(4)]
    enqueued = store.enqueue(trials, [named("mine", *trials)])
    assert store.enqueue(trials, [named("mine", *trials)]).present == enqueued.added
    ids = [trial.id for trial in trials]
    assert store.intend(ids[:3], SubmissionRow("a" * 32, "local", "/", "here", 1)) == ids[:3]
    assert store.set_states({ids[0]: ("cancelled", "x"), ids[3]: ("cancelled", "x")}, {"submitted"}) == [ids[0]]
    for words, count in (
        ("ratio=0.3", 4),
        ("amp=true lr=0.5", 4),
        ("amp=false", 0),
        ("mine submitted", 2),
        ("ratio=x", 0),
    ):
        assert len(store.find(words)) == count, words
    done, nan = {"test/accuracy": 80.5}, {"test/accuracy": float("nan")}
    make_directory(tmp_path, trials[1], attempts=[attempt("lost"), attempt("succeeded")], metrics=done, losses=[1.0])
    make_directory(tmp_path, trials[2], attempts=[attempt("succeeded")], metrics=nan, suites=["mine"])
    assert rebuild(store, tmp_path).damaged == []
    before = dump(store)
    assert rebuild(store, tmp_path).recorded == 2
    assert dump(store) == before
    (row,) = results(store, ["mine"])
    assert (row["mean"], row["n"], row["state"]) == (80.5, 1, "queued")
    assert store.trials([ids[0]])[ids[0]] == trials[0]
    names, rows = query(url, "SELECT COUNT(*) AS n FROM trials WHERE id NOT LIKE '%:x'")
    assert (names, rows) == (["n"], [[4]])
    with pytest.raises(InputError, match="sql: cannot execute DELETE in a read-only transaction"):
        query(url, "DELETE FROM metrics")
    with pytest.raises(InputError, match=r"sql: .*does not exist"):
        query(url, "SELECT nothing FROM trials")
    assert {file.stem: count for file, count in export(store, tmp_path / "out", "csv")}["trials"] == 4


def test_what_is_read_is_of_one_moment(store: Store, url: str) -> None:
    with reading(store.engine) as connection, open_store(url) as other:
        count = select(func.count()).select_from(Trials)
        assert connection.scalar(count) == 0
        other.enqueue([make_trial()])
        assert connection.scalar(count) == 0
    assert store.counts()["queued"] == 1


def test_nothing_is_claimed_twice(url: str) -> None:
    trials = [make_trial(seed) for seed in range(60)]
    claimed: list[list[str]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        with open_store(url) as store:
            for turn in range(15):
                store.enqueue(trials, [named(f"suite-{number}", *trials)])
                name = f"{number:02d}{turn:030d}"
                mine = store.intend(store.find("queued")[:2], SubmissionRow(name, "local", "/", "here", number))
                claimed[number] += mine
                store.record([RunRecord(make_trial(store.states([id])[id].seed), "succeeded") for id in mine])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    times = Counter(id for ids in claimed for id in ids)
    assert set(times.values()) == {1}
    with open_store(url) as store:
        assert set(store.find("succeeded")) == set(times)
        assert len(store.states()) == 60


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InputError, match=r"me:\*\*\*@.*(failed|refused)") as error:
        open_store(f"postgresql+psycopg://me:secret@/x?host={tmp_path}")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_another_version(url: str, store: Store) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InputError, match="of another version of DropBench"):
        open_store(url)


def test_a_nul_in_an_address_of_the_dashboard_is_no_name(
    store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL, unlike SQLite, raises an error for it."""
    engines, open_reading = list[Engine](), live.open_reading

    def open_and_keep(url: str) -> Engine:
        engines.append(open_reading(url))
        return engines[-1]

    monkeypatch.setattr(live, "open_reading", open_and_keep)
    pages = TestClient(make_app(Settings(runs=tmp_path, database=url), activity), base_url="http://127.0.0.1")
    assert [pages.get(path).status_code for path in ("/trial/%00", "/suite?name=%00")] == [404, 404]
    for engine in engines:
        engine.dispose()
