"""Create trials, run directories and metric values of a simulated campaign."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from sqlalchemy import update

from benchmarks.measure import process
from dropbench.db.schema.connection import writing
from dropbench.db.schema.tables import FINAL, Trials
from dropbench.db.store.rows import chunks
from dropbench.db.store.store import Store, SubmissionRow
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import DataRef, Trial

SEEDS = 5
CURVE = range(0, 400, 100)
"""Steps of the two curves of a trial, which has ten metric rows with its two final values."""

RECIPE = {
    "epochs": 20, "batch_size": 128, "eval_every": 100, "optimizer": "adamw", "lr": 0.001, "weight_decay": 0.05,
    "betas": [0.9, 0.999], "schedule": "cosine", "warmup": 0.1, "label_smoothing": 0.0, "clip": 1.0, "amp": False,
    "model": {"layers": 6, "heads": 8, "dim": 256, "dropout": 0.1},
}  # fmt: skip
REGULARIZERS = ("dropout", "dropkey", "dropkey-block", "dropattention-c", "dropattention-e")


def trials(count: int) -> Iterator[Trial]:
    """Yield data × regularizers × ratios × windows × learning rates, `SEEDS` of each; ids are not yet computed."""
    for config in range(-(-count // SEEDS)):
        rest, data = divmod(config, 3)
        rest, regularizer = divmod(rest, len(REGULARIZERS))
        rest, ratio = divmod(rest, 10)
        rest, window = divmod(rest, 4)
        params = {"ratio": ratio / 20, "rescale": "renormalize", "unit": "column", "window": window + 1}
        first = Trial(
            task="text-classification",
            data=DataRef(name=("trec", "mr", "cr")[data], fingerprint="0123456789ab"),
            model="text-transformer",
            regularizer=RegularizerSpec(name=REGULARIZERS[regularizer], params=params),
            preset="mini",
            overrides={"lr": (rest + 1) / 1e6},
            recipe={**RECIPE, "lr": (rest + 1) / 1e6},
            seed=0,
        )
        for seed in range(min(SEEDS, count - config * SEEDS)):
            yield first if seed == 0 else first.model_copy(update={"seed": seed})


def activate(store: Store, settings: Settings, ids: Sequence[str]) -> None:
    """Assign trials to a job, and create the run directories that its workers would write to."""
    submission = SubmissionRow("a" * 32, "local", str(settings.runs / "job"), socket.gethostname(), os.getpid())
    store.intend(ids, submission)
    store.submitted(submission.id, "1")
    for trial in store.trials(ids).values():
        directory = RunDirectory.create(settings.runs, trial)
        directory.write_attempt(1, {"state": "running", "started_at": utc_now_iso(), "submission": submission.id})


def finish(store: Store) -> int:
    """Insert the metric rows of all trials, and end those that are queued; return the number of rows."""
    rng = random.Random(0)

    def rows(trials: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, int, float, str | None]]:
        for id, config_id in trials:
            value = rng.gauss(80, 2)
            for step in CURVE:
                yield id, "dev/accuracy", step, value - 100 / (step + 10), None
            yield id, "dev/accuracy", FINAL, value, config_id
            yield id, "test/accuracy", FINAL, value - rng.random(), config_id
            for step in CURVE:
                yield id, "train/loss", step, 2 - step / 400, None

    inserted = 0
    with writing(store.engine) as connection:
        every = connection.exec_driver_sql("SELECT id, config_id FROM trials ORDER BY id").all()
        statement = "INSERT INTO metrics (trial_id, name, step, value, config_id) VALUES (?, ?, ?, ?, ?)"
        for some in chunks(rows((id, config_id) for id, config_id in every), 100_000):
            connection.exec_driver_sql(statement, some)
            inserted += len(some)
        connection.execute(update(Trials).where(Trials.c.state == "queued").values(state="succeeded"))
    return inserted


def command(settings: Settings, *words: str) -> Callable[[], None]:
    """Return a function that runs a command of `dropbench` on a database, as a process."""
    variables = f"DROPBENCH_DB={settings.database}", f"DROPBENCH_RUNS={settings.runs}"
    return process("env", *variables, sys.executable, "-m", "dropbench.harness.cli.main", *words)
