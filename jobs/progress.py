"""What is seen while trials run: a line for each that ends and, at a terminal, bars for those that are running."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db.store import TrialRow
from harness.errors import InputError
from harness.task import outline_of
from harness.trial import FINAL_STATES, Trial

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

_TAIL = 16384


class Progress:
    """Told again and again how the trials are; prints to standard error what is new. A context manager.

    Args:
        runs: the root of the run directories.
        trials: the trials, by id.
        done: ids that need no line any more.
        bars: whether the terminal is free for bars; a debugger wants it for itself.
    """

    def __init__(self, runs: Path, trials: Mapping[str, Trial], done: set[str], *, bars: bool = True) -> None:
        self.runs, self.trials, self.done = runs, trials, set(done)
        self.wanted = bars
        self.bars: Bars | None = None
        self.tasks: dict[str, TaskID] = {}
        self.total: TaskID | None = None
        self.width = len(str(len(trials)))

    def __enter__(self) -> Progress:
        if self.wanted and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self.bars = Bars(*columns, console=Console(stderr=True, highlight=False), transient=True)
            self.total = self.bars.add_task("trials", total=len(self.trials), completed=len(self.done))
            self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def update(self, rows: Mapping[str, TrialRow]) -> None:
        """Show what has changed since the last time."""
        for id, row in rows.items():
            if row.state in FINAL_STATES and id not in self.done:
                self.done.add(id)
                self.say(f"[{len(self.done):>{self.width}}/{len(self.trials)}] {self.ended(row)}")
        if self.bars is not None and self.total is not None:
            self.bars.update(self.total, completed=len(self.done))
            self._show_running({id for id, row in rows.items() if row.state == "running"})

    def add(self, trials: Mapping[str, Trial], unasked: int) -> None:
        """Show more trials from now on, whose ids are known to `trials`; `unasked` candidates will follow these."""
        self.say(f"{len(trials)} trials of the next candidates are asked for, {unasked} candidates are still to come")
        self.width = len(str(len(self.trials)))
        if self.bars is not None and self.total is not None:
            self.bars.update(self.total, total=len(self.trials))

    def say(self, line: str) -> None:
        """Print a line, above the bars where there are any."""
        if self.bars is not None:
            self.bars.console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def ended(self, row: TrialRow) -> str:
        """A trial that has ended in one line: ``3fa9… dropkey, mr, seed 0: succeeded, test/accuracy 88.40``."""
        line = f"{describe(self.trials[row.id])}: {row.state}"
        if row.state == "succeeded":
            try:
                metrics = json.loads((self.runs / row.id / "result.json").read_bytes())["metrics"]
                names = [name for name in metrics if name.startswith("test/")]
                first = f"test/{outline_of(self.trials[row.id].task).metrics[0].name}"
                name = first if first in names else names[0]
                return f"{line}, {name} {metrics[name]:.2f}"
            except (OSError, ValueError, LookupError, InputError):
                return line
        return f"{line}: {row.reason}" if row.reason else line

    def _show_running(self, running: set[str]) -> None:
        assert self.bars is not None
        for id in running:
            event = last_train_event(self.runs / id) or {}
            if id not in self.tasks:
                self.tasks[id] = self.bars.add_task(f"  {describe(self.trials[id])}", total=None)
            self.bars.update(self.tasks[id], completed=event.get("step", 0), total=event.get("steps"))
        for id in self.tasks.keys() - running:
            self.bars.remove_task(self.tasks.pop(id))


def describe(trial: Trial) -> str:
    """A trial in a few words, its id first."""
    return f"{trial.id} {trial.regularizer.name}, {trial.data.name}, seed {trial.seed}"


def last_train_event(directory: Path) -> dict[str, Any] | None:
    """The newest train event of a run directory, from the end of its file."""
    return next(reversed(_train_events(directory)), None)


@dataclass(frozen=True)
class Pace:
    """How a run gets on; see `jobs.activity.Working`."""

    step: int
    steps: int | None
    rate: float | None
    loss: float | None
    at: float | None


def pace(directory: Path) -> Pace | None:
    """How fast a run has been lately, since its last start; None before its first train event."""
    events = [event for event in _train_events(directory) if _is_number(event.get("step"))]
    if not events:
        return None
    last = events[-1]
    first = next(event for event in events if event.get("phase") == last.get("phase") and event["step"] <= last["step"])
    steps, seconds = last["step"] - first["step"], 0.0
    if _is_number(last.get("time")) and _is_number(first.get("time")):
        seconds = last["time"] - first["time"]
    rate = steps / seconds if steps > 0 and seconds > 0 else None
    whole, loss, at = (last[key] if _is_number(last.get(key)) else None for key in ("steps", "loss", "time"))
    return Pace(int(last["step"]), None if whole is None else int(whole), rate, loss, at)


def _train_events(directory: Path) -> list[dict[str, Any]]:
    """The newest train events since the last start, from the end of the file."""
    try:
        with open(directory / "events.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    events: list[dict[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line) if b'"train"' in line or b'"resume"' in line else None
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        if event.get("event") == "resume":  # what was done past its step is done again
            events = [{**event, "steps": events[-1].get("steps")}] if events and event.get("step") else []
        elif event.get("event") == "train":
            events.append(event)
    return events


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
