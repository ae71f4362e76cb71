"""The events of a trial: ``events.jsonl`` in its run directory, to which each line is appended in one write."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from dropbench.harness.files import read_bytes
from dropbench.harness.runs.stamps import check_line, damaged, stamped_line

_FIRST = ("damaged", "resume")
"""The events with which an attempt may begin."""


def append_event(file: Path, trial: str, event: str, fields: dict[str, Any]) -> None:
    """Append one line in one write; start a new line after a torn one (its worker was killed while writing)."""
    line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}, ensure_ascii=False)
    content = (stamped_line(line, trial) + "\n").encode()
    with open(file, "ab+") as opened:
        if opened.seek(0, os.SEEK_END):
            opened.seek(-1, os.SEEK_END)
            if opened.read(1) != b"\n":
                content = b"\n" + content
        opened.write(content)


def read_events(file: Path, trial: str) -> list[dict[str, Any]]:
    """Return the events in order, without those that a resume revoked; [] without a file.

    The last line of an attempt may be torn: its worker was killed while writing.

    Raises:
        InputError: another line is not what the trial wrote.
    """
    kept: list[dict[str, Any]] = []
    try:
        lines = read_bytes(file).split(b"\n")
    except FileNotFoundError:
        return kept
    torn = 0
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            torn = torn or (number if line else 0)
            continue
        try:
            check_line(line.decode(), trial)
        except ValueError as error:
            raise damaged(f"{file}:{number}", trial, str(error)) from None
        if torn and event["event"] not in _FIRST:
            raise damaged(f"{file}:{torn}", trial, "not JSON")
        del event["check"]
        torn, step = 0, event.get("step", 0)
        if not isinstance(step, int) or step >= 2**31:
            continue
        if event["event"] == "resume":
            evaluated = event.get("evaluated", step)  # an earlier step if it was stopped in the evaluation of `step`
            kept = [old for old in kept if old.get("step", 0) <= (evaluated if old["event"] == "evaluate" else step)]
        kept.append(event)
    return kept
