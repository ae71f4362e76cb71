"""Run directories of trials as workers write them, collected into a database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dropbench.db.report.view.view import View
from dropbench.db.store.run_record import RunRecord, read_run_record
from dropbench.db.store.store import Store
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.suite import Suite
from dropbench.harness.trials.trial import Trial
from tests.db.records import attempt, make_directory
from tests.db.report import tables
from tests.db.report.tables import STATES, Given, Values


def fill(store: Store, root: Path, cells: Sequence[Given], values: Values, text: str = "") -> None:
    """Record results as `tables.fill` does; `text` is part of every text that a run writes."""
    for cell in cells:
        for trial, value in zip(cell.trials, values.get((cell.cell.row, cell.cell.column), ()), strict=False):
            if value in STATES:
                store.record([RunRecord(trial, value)])
            elif value != "":
                end(store, root, trial, value, text)


def filled(store: Store, root: Path, values: Values = tables.values, of: Suite | None = None, text: str = "") -> View:
    """Write the runs of a suite's trials, and return its table."""
    cells = tables.resolve(of or tables.suite())
    fill(store, root, cells, values, text)
    return tables.view(store, cells, of)


def end(store: Store, root: Path, trial: Trial, value: float | str, text: str = "") -> RunDirectory:
    """Write the run of a trial that succeeded with a number, or failed with a text."""
    cause = value if isinstance(value, str) else None
    ended = attempt(
        "failed" if cause is not None else "succeeded", cause, number=1, cpus=2, gpus=0, message=text,
        peak_memory_bytes=3 * 2**29, steps_done=40, host=f"node1{text}", executor="local", submission="a" * 32,
    )  # fmt: skip
    metrics = None if cause is not None else {"test/accuracy": value, "dev/accuracy": float(value) + 0.5}
    directory = make_directory(root, trial, attempts=[ended], metrics=metrics, suites=["mine"])
    for step in range(1, 41):
        directory.append_event("train", step=step, steps=40, loss=2.0 / step + trial.seed / 10, lr=0.1)
        if step % 10 == 0:
            directory.append_event("evaluate", step=step, split="dev", metrics={"accuracy": 50.0 + step})
    sites = [f"  blocks.{n}.attn  encoder-self  layer {n + 1}/4  heads 4  keys  ratio 0.{3 - n}00" for n in range(4)]
    environment = {"host": f"node1{text}", "cores": 2, "python": "3.11", "notes": [f"a note{text}"], "sites": sites}
    directory.write("environment.json", environment)
    (directory.path / "log.txt").write_text(f"--- attempt 1\nfirst{text}\n\x1b[31mlast line\x1b[0m\n")
    store.record([read_run_record(directory)])
    return directory
