"""Progress of `dropbench run`: a line per trial that ends and, at a terminal, bars for the running trials."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from db.store.store import TrialRow
from harness.errors import InputError, count_of
from harness.regularizers.spec import spec_label
from harness.trials.task import spec_of
from harness.trials.trial import FINAL_STATES, Trial
from jobs.queue.status import train_progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """A context manager that prints what is new about trials to standard error at each `update`.

    Trials in `done` have been reported before. Without `bars` the terminal is left to a debugger.
    """

    def __init__(self, runs: Path, trials: Mapping[str, Trial], done: set[str], *, bars: bool = True) -> None:
        self.runs, self.trials, self.done = runs, trials, set(done)
        self.show_bars = bars
        self.bars: Progress | None = None
        self.bar_of_trial: dict[str, TaskID] = {}
        self.total_bar: TaskID | None = None
        self.width = len(str(len(trials)))

    def __enter__(self) -> ProgressBar:
        if self.show_bars and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self.bars = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
            self.total_bar = self.bars.add_task("trials", total=len(self.trials), completed=len(self.done))
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def update(self, rows: Mapping[str, TrialRow]) -> None:
        """Show what has changed since the last update."""
        for id, row in rows.items():
            if row.state in FINAL_STATES and id not in self.done:
                self.done.add(id)
                self.print_line(f"[{len(self.done):>{self.width}}/{len(self.trials)}] {self.describe_end(row)}")
        if self.bars is not None and self.total_bar is not None:
            self.bars.update(self.total_bar, completed=len(self.done))
            self._show_running({id for id, row in rows.items() if row.state == "running"})

    def add(self, trials: Mapping[str, Trial], remaining: int) -> None:
        """Report new trials of a search, already in `trials`, and the number of remaining candidates."""
        candidates = count_of(remaining, "candidate")
        self.print_line(f"Added {count_of(len(trials), 'trial')} of the next candidates; {candidates} remaining.")
        self.width = len(str(len(self.trials)))
        if self.bars is not None and self.total_bar is not None:
            self.bars.update(self.total_bar, total=len(self.trials))

    def print_line(self, line: str) -> None:
        """Print a line, above the bars if there are any."""
        if self.bars is not None:
            self.bars.console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def describe_end(self, row: TrialRow) -> str:
        """Return a line about a finished trial: ``3fa9… dropkey, mr, seed 0: succeeded, test/accuracy 88.40``."""
        line = f"{describe(self.trials[row.id])}: {row.state}"
        if row.state == "succeeded":
            try:
                metrics = json.loads((self.runs / row.id / "result.json").read_bytes())["metrics"]
                names = [name for name in metrics if name.startswith("test/")]
                first = f"test/{spec_of(self.trials[row.id].task).metrics[0].name}"
                name = first if first in names else names[0]
                return f"{line}, {name} {metrics[name]:.2f}"
            except (OSError, ValueError, LookupError, InputError):
                return line
        return f"{line}: {row.reason}" if row.reason else line

    def _show_running(self, running: set[str]) -> None:
        assert self.bars is not None
        for id in running:
            progress = train_progress(self.runs / id)
            if id not in self.bar_of_trial:
                self.bar_of_trial[id] = self.bars.add_task(f"  {describe(self.trials[id])}", total=None)
            self.bars.update(self.bar_of_trial[id], completed=progress.step or 0, total=progress.steps)
        for id in self.bar_of_trial.keys() - running:
            self.bars.remove_task(self.bar_of_trial.pop(id))


def describe(trial: Trial) -> str:
    """Return a short description of a trial: id, regularizer, data, seed."""
    return f"{trial.id} {spec_label(trial.regularizer.name, {})}, {trial.data.name}, seed {trial.seed}"
