"""Progress of `dropbench run` and `watch`: a line per trial that ends, and the running trials with loss and rate."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dropbench.db.store.store import TrialRow
from dropbench.harness.errors import count_of
from dropbench.harness.regularizers.spec import spec_label
from dropbench.harness.trials.trial import FINAL_STATES, Trial
from dropbench.jobs.queue.train_progress import TrainProgress, train_progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MAX_RUNNING = 10
"""Running trials that are shown; the others are counted."""

REPORT_INTERVAL_S = 60.0
"""Seconds between two reports of the running trials where there is no terminal."""

BAR_COLUMNS = 100
"""Columns of a terminal that has room for bars next to the texts."""


class ProgressBar:
    """A context manager that prints what is new about trials at each `update`.

    Trials in `done` have been reported before. `file` is standard error by default. Without `bars` the terminal is
    left to a debugger.
    """

    def __init__(
        self, runs: Path, trials: Mapping[str, Trial], done: set[str], *, bars: bool = True, file: TextIO | None = None
    ) -> None:
        self.runs, self.trials, self.done = runs, trials, set(done)
        self.show_bars = bars
        self.file = file or sys.stderr
        self.bars: Progress | None = None
        self.bar_of_trial: dict[str, TaskID] = {}
        self.total_bar: TaskID | None = None
        self.reported_at = time.monotonic()

    def __enter__(self) -> ProgressBar:
        if self.show_bars and self.file.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.table import Column

            console = Console(file=self.file, highlight=False)
            bar = (BarColumn(20), TimeElapsedColumn()) if console.width >= BAR_COLUMNS else ()
            description = TextColumn("{task.description}", markup=False, table_column=Column())  # which may wrap
            note = TextColumn("{task.fields[note]}", markup=False)
            self.bars = Progress(description, *bar, MofNCompleteColumn(), note, console=console, transient=True)
            self.total_bar = self.bars.add_task("trials", total=len(self.trials), completed=len(self.done), note="")
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def start(self, workers: int, skipped: int = 0) -> None:
        """Report how many trials are to be trained, and by how many workers; `skipped` trials are among `done`."""
        counts = {"already done": len(self.done) - skipped, "skipped": skipped}
        done = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        done = f" ({done})" if done else ""
        self.print_line(f"{count_of(len(self.trials), 'trial')}{done}, {count_of(workers, 'worker')}")

    def update(self, rows: Mapping[str, TrialRow]) -> None:
        """Show what has changed since the last update."""
        width = len(str(len(self.trials)))
        for id, row in rows.items():
            if row.state in FINAL_STATES and id not in self.done:
                self.done.add(id)
                self.print_line(f"[{len(self.done):>{width}}/{len(self.trials)}] {self.describe_end(row)}")
        running = [id for id, row in rows.items() if row.state == "running"]
        if self.bars is not None and self.total_bar is not None:
            self.bars.update(self.total_bar, completed=len(self.done), total=len(self.trials))
            self._show_running(running[:MAX_RUNNING])
        elif self.show_bars and time.monotonic() - self.reported_at >= REPORT_INTERVAL_S:
            self.reported_at = time.monotonic()
            self._report_running(running)

    def add(self, trials: Mapping[str, Trial], remaining: int) -> None:
        """Report new trials of a search, already in `trials`, and the number of remaining candidates."""
        candidates = count_of(remaining, "candidate")
        self.print_line(f"Added {count_of(len(trials), 'trial')} by the results so far; {candidates} remaining.")

    def print_line(self, line: str) -> None:
        """Print a line, above the bars if there are any."""
        if self.bars is not None:
            self.bars.console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, file=self.file, flush=True)

    def describe_end(self, row: TrialRow) -> str:
        """Return a line about a finished trial: ``3fa9… vit, dropkey, mr, seed 0: succeeded, test/accuracy 88.40``."""
        line = f"{describe(self.trials[row.id])}: {row.state}"
        if row.state == "succeeded":
            parts = [line, self._test_score(row.id), describe_speed(train_progress(self.runs / row.id))]
            return ", ".join(filter(None, parts))
        return f"{line}: {row.reason}" if row.reason else line

    def _test_score(self, id: str) -> str:
        """Return the metric that selected the weights, on the test set, or another one; "" if there is none."""
        try:
            result = json.loads((self.runs / id / "result.json").read_bytes())
            metrics = {name: value for name, value in result["metrics"].items() if name.startswith("test/")}
            name = f"test/{result['selected_by']}"
            name = name if name in metrics else next(iter(metrics))
            return f"{name} {metrics[name]:.2f}"
        except (OSError, ValueError, LookupError, TypeError, StopIteration):
            return ""

    def _show_running(self, running: Sequence[str]) -> None:
        assert self.bars is not None
        for id in running:
            progress = train_progress(self.runs / id)
            if id not in self.bar_of_trial:
                self.bar_of_trial[id] = self.bars.add_task(f"  {describe(self.trials[id])}", total=None, note="")
            note = describe_speed(progress)
            self.bars.update(self.bar_of_trial[id], completed=progress.step or 0, total=progress.steps, note=note)
        for id in self.bar_of_trial.keys() - set(running):
            self.bars.remove_task(self.bar_of_trial.pop(id))

    def _report_running(self, running: Sequence[str]) -> None:
        for id in islice(running, MAX_RUNNING):
            self.print_line(describe_running(self.trials[id], train_progress(self.runs / id)))
        if len(running) > MAX_RUNNING:
            self.print_line(f"{count_of(len(running) - MAX_RUNNING, 'more trial')} running")


def describe(trial: Trial) -> str:
    """Return a short description of a trial: id, model, regularizer, data, seed."""
    return f"{trial.id} {trial.model}, {spec_label(trial.regularizer.name, {})}, {trial.data.name}, seed {trial.seed}"


def describe_running(trial: Trial, progress: TrainProgress) -> str:
    """Return a line about a running trial, with step, loss and rate."""
    step = "starting" if progress.step is None else f"step {progress.step}/{progress.steps or '?'}"
    return ", ".join(filter(None, [f"{describe(trial)}: {step}", describe_speed(progress)]))


def describe_speed(progress: TrainProgress) -> str:
    """Return the loss and the rate as far as they are known: ``loss 0.312, 52.1 steps/s``."""
    loss = None if progress.loss is None else f"loss {progress.loss:.3g}"
    rate = None if progress.rate is None else f"{progress.rate:{',.0f' if progress.rate >= 1000 else '.3g'}} steps/s"
    return ", ".join(filter(None, [loss, rate]))
