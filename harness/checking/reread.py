"""Read the data of a trial in a new process, in which sets, and hashes of texts, have another order."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.plugins import keep_plugins, plugins_of
from dropbench.harness.trials.trial import Trial

HASH_SEEDS = ("1", "2")


def samples_elsewhere(trial: Trial, settings: Settings) -> dict[str, str]:
    """Return what `dropbench.harness.checking.requirements.samples_of` returns in a new process.

    Raises:
        InputError: the data cannot be read there.
    """
    seed = next(seed for seed in HASH_SEEDS if seed != os.environ.get("PYTHONHASHSEED"))
    command = [sys.executable, "-m", __name__]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    with tempfile.TemporaryDirectory() as runs:
        keep_plugins([trial], Path(runs))
        given = json.dumps({"trial": trial.to_json(), "settings": settings.to_payload(), "plugins": runs})
        result = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=False)
    try:
        samples: dict[str, str] = json.loads(result.stdout)
    except ValueError:
        reason = (result.stderr.strip().splitlines() or ["it has ended without an error"])[-1]
        raise InputError(f"a second process cannot read the data: {reason}") from None
    return samples


def main() -> None:
    """Print the samples of the trial on standard input as JSON."""
    from dropbench.harness.checking.requirements import samples_of
    from dropbench.harness.trials.task import TASKS

    given = json.load(sys.stdin)
    trial = Trial.from_json(given["trial"])
    with contextlib.redirect_stdout(sys.stderr), plugins_of(trial, Path(given["plugins"])):
        task = TASKS.get(trial.task)(trial, Settings.from_payload(given["settings"]))
        task.setup()
        samples = samples_of(task)
    print(json.dumps(samples))


if __name__ == "__main__":
    main()
