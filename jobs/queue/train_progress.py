"""The progress of a running trial, from the last events in its run directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dropbench.harness.files import read_tail

_TAIL_BYTES = 16384


@dataclass(frozen=True)
class TrainProgress:
    """The progress of a running trial; fields are None before its first train event.

    Attributes:
        step: steps done.
        steps: steps in all.
        rate: steps per second since the last start.
        loss: loss of the last train event.
        at: time of the last train event, seconds since 1970.
    """

    id: str
    step: int | None = None
    steps: int | None = None
    rate: float | None = None
    loss: float | None = None
    at: float | None = None

    @property
    def seconds(self) -> float | None:
        """Return the time until the end of training at the current rate."""
        if not self.rate or self.step is None or self.steps is None:
            return None
        return (self.steps - self.step) / self.rate


def train_progress(directory: Path) -> TrainProgress:
    """Return the progress of a run since its last start."""
    events = _train_events(directory)
    if not events:
        return TrainProgress(directory.name)
    last = events[-1]
    first = next(event for event in events if event.get("phase") == last.get("phase") and event["step"] <= last["step"])
    steps, seconds = last["step"] - first["step"], 0.0
    if _is_number(last.get("time")) and _is_number(first.get("time")):
        seconds = last["time"] - first["time"]
    rate = steps / seconds if steps > 0 and seconds > 0 else None
    total, loss, at = (last[key] if _is_number(last.get(key)) else None for key in ("steps", "loss", "time"))
    return TrainProgress(directory.name, int(last["step"]), None if total is None else int(total), rate, loss, at)


def _train_events(directory: Path) -> list[dict[str, Any]]:
    """Return the newest train events since the last start."""
    events: list[dict[str, Any]] = []
    for line in read_tail(directory / "events.jsonl", _TAIL_BYTES).split(b"\n"):
        try:
            event = json.loads(line) if b'"train"' in line or b'"resume"' in line else None
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict) or not _is_number(event.get("step")):
            continue
        if event.get("event") == "resume":  # steps after the checkpoint are repeated
            events = [{**event, "steps": events[-1].get("steps")}] if events and event.get("step") else []
        elif event.get("event") == "train":
            events.append(event)
    return events


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
