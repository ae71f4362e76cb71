"""The processes that train a trial together: sums over them, and their common log and events."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator

from harness.runs.run_directory import RunDirectory
from harness.training.tracking import Tracking


class Processes:
    """One of the processes of a run, with its accelerator, run directory and trackers."""

    accelerator: Accelerator
    directory: RunDirectory
    tracking: Tracking

    def any_rank(self, condition: bool) -> bool:
        """Return whether the condition holds in any process, so that all processes act alike."""
        return self.all_reduce_sum(float(condition)) > 0

    def all_reduce_sum(self, number: float) -> float:
        """Return the sum of a number over all processes."""
        alone = self.accelerator.num_processes == 1
        return number if alone else float(self.accelerator.reduce(torch.tensor(number, device=self.accelerator.device)))

    def log(self, line: str) -> None:
        """Print a line to the log, from the main process alone."""
        if self.accelerator.is_main_process:
            print(line, flush=True)

    def event(self, event: str, **fields: Any) -> None:
        """Append to ``events.jsonl``, from the main process alone."""
        if self.accelerator.is_main_process:
            self.directory.append_event(event, **fields)
            self.tracking.event(event, fields)
