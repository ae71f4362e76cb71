"""The suites and options of a user's most recent `dropbench run` or `enqueue`, for `dropbench report --last`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from harness.errors import InputError
from harness.files import read_json, write_json
from harness.settings import Settings
from jobs.cli.options import TrialOptions
from jobs.worker.slots import jobs_folder


def _file(settings: Settings) -> Path:
    return jobs_folder(settings.runs) / f"last-request.{os.getuid()}.json"


def remember_request(settings: Settings, suites: Sequence[str], options: TrialOptions) -> None:
    """Store a request of suites next to the run directories, unless there is none or the folder is not writable."""
    if not suites:
        return
    with contextlib.suppress(OSError):
        _file(settings).parent.mkdir(parents=True, exist_ok=True)
        write_json(_file(settings), {"suites": list(suites), "options": asdict(options)})


def last_request(settings: Settings) -> tuple[str, TrialOptions]:
    """Return the suite and the options of the last request; raise InputError if there is none, or of several suites."""
    file = _file(settings)
    try:
        content = read_json(file)
        suites, options = [str(suite) for suite in content["suites"]], TrialOptions(**content["options"])
    except FileNotFoundError:
        raise InputError(
            f"--last: no suite was run or enqueued with {settings.runs}: `dropbench report SUITE` shows a suite"
        ) from None
    except (KeyError, TypeError):
        raise InputError(f"{file}: damaged: name the suite instead: `dropbench report SUITE`") from None
    if len(suites) != 1:
        commands = ", ".join(f"`dropbench report {suite}`" for suite in suites)
        raise InputError(f"--last: {len(suites)} suites were enqueued together: {commands}, with the same options")
    return suites[0], options
