"""Databases of earlier versions are upgraded without losing a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import select

from db.queries.results import results
from db.schema.connection import connect, reading, writing
from db.schema.tables import METADATA, Metrics
from db.schema.upgrade import MIGRATIONS
from db.store.run_record import RunRecord
from db.store.store import Store, SubmissionRow, open_store
from db.transfer.export import query
from harness.trials.trial import Trial

Make = Callable[..., Trial]
OLD_NAMES = ("test/bits-a-byte", "dev/bits-a-byte", "occlusion/bits-a-byte@0.3", "occlusion/bits-a-byte@0")
NEW_NAMES = ("test/bits-per-byte", "dev/bits-per-byte", "occlusion/bits-per-byte@0.3", "occlusion/bits-per-byte@0")
OTHER_NAMES = ("test/bits-a-bytes", "bits-a-byte/mean", "test/loss")


def migrate(url: str, revision: str) -> None:
    """Bring an empty database to an old revision."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = connect(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


def test_a_database_of_the_first_version_is_upgraded(tmp_path: Path, make_trial: Make) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    migrate(url, "0001")
    with connect(url).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO submissions (id, executor, folder, host, pid, state, created_at) "
            "VALUES ('s1', 'local', '/', 'here', 1, 'submitted', '2026-01-01T00:00:00.000+00:00')"
        )
    with open_store(url) as store:
        (submission,) = store.open_submissions()
        assert (submission.id, submission.username) == ("s1", None)
        (added,) = store.enqueue([(make_trial(), "suite")]).added
        assert store.states([added])[added].state == "queued"


def test_the_recreated_table_has_the_same_rows(tmp_path: Path, make_trial: Make, dump: Callable[..., Any]) -> None:
    trials = [make_trial(seed) for seed in range(5)]
    with open_store(f"sqlite:///{tmp_path}/new.db") as store:
        fill(store, trials)
        expected = dump(store)
    url = f"sqlite:///{tmp_path}/old.db"
    migrate(url, "0002")
    new = connect(f"sqlite:///{tmp_path}/new.db")
    with new.begin() as connection:  # copy the rows of the new database to the old one
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql(f"ATTACH '{tmp_path}/old.db' AS old")
        connection.exec_driver_sql("BEGIN")
        for table in ("configs", "submissions", "trials", "memberships", "attempts", "metrics"):
            new_columns = {"metrics": "config_id", "trials": "libraries", "configs": "result_versions"}
            kept = [column.name for column in METADATA.tables[table].columns if column.name != new_columns.get(table)]
            columns = ", ".join(kept)
            connection.exec_driver_sql(f"INSERT INTO old.{table} SELECT {columns} FROM main.{table}")
    new.dispose()
    with open_store(url) as store:
        assert dump(store) == expected
        with reading(store.engine) as connection:
            sql = str(connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'trials'").scalar())
            assert sql.rstrip().endswith("WITHOUT ROWID")
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def fill(store: Store, trials: list[Trial]) -> None:
    store.enqueue([(trial, "suite") for trial in trials])
    store.intend([trials[0].id], SubmissionRow("a" * 32, "local", "/", "here", 1))
    attempt = {"number": 1, "state": "succeeded", "micro_batch_splits": 2}
    store.record([RunRecord(trials[1], "succeeded", None, ["two"], [attempt], [("test/accuracy", -1, 0.1 + 0.2)])])
    store.set_states({trials[2].id: ("failed", "ü\n")})


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_old_names_of_columns_and_metrics_are_renamed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, make_trial: Make, dump: Callable[..., Any]
) -> None:
    url = f"sqlite:///{tmp_path}/old.db" if kind == "sqlite" else str(request.getfixturevalue("postgresql")())
    attempts = [{"number": number, "state": "succeeded", "micro_batch_splits": number} for number in (1, 2)]
    points: list[Any] = [(name, step, step / 7) for name in (*NEW_NAMES, *OTHER_NAMES) for step in (-1, 5)]
    with open_store(url) as store:
        store.record([RunRecord(make_trial(seed), "succeeded", None, ["mine"], attempts, points) for seed in (0, 1)])
        expected = dump(store)
        with writing(store.engine) as connection:  # as 0004 was
            connection.exec_driver_sql("ALTER TABLE attempts RENAME COLUMN micro_batch_splits TO pieces")
            for view in ("v_trials", "v_results", "v_curves"):
                connection.exec_driver_sql(f"DROP VIEW {view}")
                connection.exec_driver_sql(f"CREATE VIEW {view} AS SELECT trials.id FROM trials")
            connection.exec_driver_sql("DROP INDEX ix_trials_libraries")
            connection.exec_driver_sql("ALTER TABLE trials DROP COLUMN libraries")
            connection.exec_driver_sql("ALTER TABLE configs DROP COLUMN result_versions")
            for old, new in zip(OLD_NAMES, NEW_NAMES, strict=True):
                connection.execute(Metrics.update().where(Metrics.c.name == new).values(name=old))
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0004'")
    with open_store(url) as store:
        assert dump(store) == expected
        with reading(store.engine) as connection:
            assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA) == []
            names = set(connection.scalars(select(Metrics.c.name).distinct()))
        assert names == {*NEW_NAMES, *OTHER_NAMES}
        assert [row["n"] for row in results(store, metrics=["bits-per-byte"])] == [2]
        assert results(store, metrics=["bits-a-byte"]) == results(store, metrics=["bits-per-byte"])
    columns, rows = query(url, "SELECT DISTINCT metric FROM v_results WHERE metric LIKE 'bits%' ORDER BY metric")
    assert (columns, rows) == (["metric"], [["bits-a-byte/mean"], ["bits-a-bytes"], ["bits-per-byte"]])
