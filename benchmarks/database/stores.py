"""Our store beside Optuna's and MLflow's, each on SQLite: the same work, in turns, in databases of the same size.

They are no part of DropBench, and need other versions of what it needs: ``DROPBENCH_PEERS=/path/to/python`` names a
Python that has them. Stores that are not installed are reported and left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.database import campaign
from benchmarks.measure import Measurement
from db.queries.results import results
from db.schema.tables import FINAL
from db.store.run_record import RunRecord
from db.store.store import Store, open_store
from harness.trials.trial import Trial

PEERS = Path(__file__).with_name("peers.py")
TRIALS, METRICS, ROUNDS = 300, 100, 3

Work = Callable[[Store, list[Trial]], object]


def enqueue(store: Store, trials: list[Trial]) -> object:
    """As one bulk."""
    return store.enqueue([(trial, "campaign") for trial in trials])


def count(store: Store, trials: list[Trial]) -> object:
    """By state."""
    return store.counts()


def record(store: Store, trials: list[Trial]) -> None:
    """Return the values that `collect` imports from run directories: curves and a final value."""
    curve: list[tuple[str, int, float | None]] = [("train/loss", step, 1 / step) for step in range(1, METRICS)]
    finals = (("test/accuracy", FINAL, 80.0 + number % 7) for number in range(len(trials)))
    store.record(
        [RunRecord(trial, "succeeded", metrics=[*curve, final]) for trial, final in zip(trials, finals, strict=True)]
    )


def average(store: Store, trials: list[Trial]) -> object:
    """A metric by the regularizer."""
    return results(store, group_by=["regularizer"])


WORKS: dict[str, dict[str, tuple[str, Work]]] = {
    "optuna": {
        "enqueue_trial": (f"enqueueing {TRIALS} trials", enqueue),
        "add_trials": (f"enqueueing {TRIALS} trials", enqueue),
        "get_trials": (f"counting {TRIALS} trials by state", count),
    },
    "mlflow": {
        "log_batch": (f"recording {TRIALS} × {METRICS} metric rows", record),
        "search_runs": (f"means by a parameter, {TRIALS} × {METRICS} metric rows", average),
    },
}
"""Peer → what it calls its work → what that is, and ours. The order is that of the work in one database."""


def beside_peers(folder: Path) -> list[Measurement]:
    """Medians of some rounds, each with new databases."""
    return [measured for peer in WORKS for measured in beside(peer, folder)]


def beside(peer: str, folder: Path) -> list[Measurement]:
    """Ours against one of them; nothing where it is not installed."""
    turns = []
    for turn in range(ROUNDS):
        (here := folder / f"{peer}{turn}").mkdir()
        theirs = ask(peer, here)
        if theirs is None:
            return []
        turns.append((ours(peer, here), theirs))
    found = []
    for key, (name, _) in WORKS[peer].items():
        ratio = statistics.median(mine[key] / theirs[key] for mine, theirs in turns)
        medians = (statistics.median(one[key] for one in side) for side in zip(*turns, strict=True))
        mine, theirs = (round(1000 * seconds, 2) for seconds in medians)
        against = f"{peer} {turns[0][1]['version']}, {key}"
        found.append(Measurement(name, against, round(ratio, 4), None, mine, theirs, detail={"rounds": ROUNDS}))
    return found


def ours(peer: str, folder: Path) -> dict[str, float]:
    """Seconds of each work; to enqueue what is there already would be none, so each has a database of its own kind."""
    seconds = {}
    for key, (_, work) in WORKS[peer].items():
        file = folder / ("alone.db" if key == "enqueue_trial" else "ours.db")
        trials = [*campaign.trials(TRIALS)]  # made anew: the ids are a part of the work
        with open_store(f"sqlite:///{file}") as store:
            start = time.perf_counter()
            work(store, trials)
            seconds[key] = time.perf_counter() - start
    return seconds


def peers_python() -> str:
    """The Python that has the peers."""
    return os.environ.get("DROPBENCH_PEERS", sys.executable)


def ask(peer: str, folder: Path) -> dict[str, Any] | None:
    """Seconds of each of a peer's works and its version, from a process of its own; None where it is not installed."""
    python = peers_python()
    # -I: or the script's folder would be searched for modules, and `queue` be ours.
    command = [python, "-I", str(PEERS), peer, str(TRIALS), str(METRICS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named" in done.stderr and done.returncode:
        print(f"{peer} is not installed for {python}, and is left out; see DROPBENCH_PEERS", file=sys.stderr)
        return None
    if done.returncode:
        raise RuntimeError(f"{peer}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
