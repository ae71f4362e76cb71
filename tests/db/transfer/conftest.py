"""A database to import from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from dropbench.db.schema.connection import writing
from dropbench.db.schema.tables import Attempts
from dropbench.db.store.store import Store, SubmissionRow, open_store
from tests.db.records import make_trial
from tests.db.transfer.given import ODD, attempt, outcome
from tests.requests import named


@pytest.fixture
def source_store(tmp_path: Path, template: Path) -> Iterator[Store]:
    """The source of the import."""
    shutil.copy2(template, tmp_path / "there.db")
    with open_store(f"sqlite:///{tmp_path / 'there.db'}") as opened:
        yield opened


@pytest.fixture
def filled(source_store: Store) -> Store:
    """Trials in all lasting states, with unusual texts, numbers and values, and an ended submission."""
    trials = [make_trial(seed, overrides={"lr": 1e-5, "name": "a\nb"}) for seed in range(6)]
    submission = SubmissionRow("a" * 32, "local", "/some\nwhere", "laptop", 7, username="me")
    source_store.enqueue([trials[0]], [named("other", trials[0])])
    assert source_store.intend([trials[0].id], submission)
    source_store.submitted(submission.id, "12")
    source_store.end_submission(submission.id)
    used: dict[str, Any] = {
        "cpu_seconds": 0.1 + 0.2,
        "gpu_seconds": 1e-300,
        "peak_memory_bytes": 2**40,
        "submission_id": submission.id,
    }
    source_store.record(
        [
            outcome(trials[0], attempts=[attempt(1, cause=ODD), attempt(2, "succeeded", 2, **used)]),
            outcome(trials[1], accuracy=None),
            outcome(trials[2], "failed", reason=ODD, attempts=[attempt(1, message=ODD, cause="")]),
            outcome(trials[3], "cancelled"),
            outcome(
                trials[4], "queued", metrics=[("loss/ü, x", 3, 5e-324), ("big", 2**31 - 1, 1.7976931348623157e308)]
            ),
            outcome(trials[5], "skipped", reason="no data", metrics=[]),
        ]
    )
    source_store.add_requests([named("mine", *trials), named("a", trials[3])])
    with writing(source_store.engine) as connection:
        connection.execute(update(Attempts).where(Attempts.c.cause == "").values(cause=None))  # CSV has no empty text
    return source_store
