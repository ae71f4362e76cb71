"""`make chaos`: many trials on a real SLURM, with a random fault every few seconds.

    python -m tests.cluster.chaos [--trials 200] [--minutes 10] [--seed 0]

In the end every trial must have succeeded exactly once, with the metrics of an undisturbed run: bit for bit, or within
1e-5 if it ran out of memory and was resumed with smaller micro-batches. Otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.cluster.chaos_checks import SUITE, problems, undisturbed
from tests.cluster.cluster import Cluster, descendants
from tests.cluster.conftest import ClusterPlace, running

PAUSE = "0.2"
"""Seconds per step, so that faults hit running workers."""

SUBMIT = ("submit", "--executor=slurm", "--profile=packed", "--parallel=6", "--checkpoint-seconds=2")
END_TIMEOUT_S = 1500.0
"""Seconds that the trials have to end after the last fault."""


class Chaos:
    """Random faults and their repairs; `repairs` are due at a time."""

    def __init__(self, place: ClusterPlace, draw: random.Random) -> None:
        self.place, self.cluster, self.draw = place, place.cluster, draw
        self.repairs: list[tuple[float, Callable[[], object]]] = []
        self.away: set[str] = set()
        self.struck: Counter[str] = Counter()
        self.faults: list[Callable[[], bool]] = [
            self.kill,
            self.stand_still,
            self.requeue,
            self.cancel,
            self.cancel_what_waits,
            self.preempt,
            self.time_limit,
            self.lose_node,
            self.orphan,
            self.controller,
            self.accounting,
            self.program_error,
            self.short_of_memory,
            self.delete,
            self.full_command_line,
        ]

    def strike(self) -> None:
        """Cause one random fault, if there is something that it applies to."""
        fault = self.draw.choice(self.faults)
        with contextlib.suppress(AssertionError, subprocess.SubprocessError, ProcessLookupError, FileNotFoundError):
            if fault():
                self.struck[fault.__name__] += 1

    def repair(self, *, all: bool = False) -> None:
        """Make the repairs that are due."""
        now = time.monotonic()
        due = [entry for entry in self.repairs if all or entry[0] <= now]
        self.repairs = [entry for entry in self.repairs if entry not in due]
        for _, repair in due:
            with contextlib.suppress(ProcessLookupError):
                repair()

    def repair_later(self, low: float, high: float, repair: Callable[[], object]) -> None:
        """Make a repair after a random time between `low` and `high` seconds."""
        self.repairs.append((time.monotonic() + self.draw.uniform(low, high), repair))

    def worker(self) -> int | None:
        attempts = [directory.attempts()[-1] for directory in self.place.running()]
        return int(self.draw.choice(attempts)["pid"]) if attempts else None

    def with_job(self, *command: str, state: str = "RUNNING") -> bool:
        """Run a command of SLURM, which ends with a job's id, on a random job in this state."""
        jobs = self.cluster.run("squeue", "--noheader", "--array", f"--states={state}", "--format=%i").split()
        if jobs:
            *words, last = command
            self.cluster.run(*words, last + self.draw.choice(jobs))
        return bool(jobs)

    def kill(self) -> bool:
        pid = self.worker()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid is not None

    def stand_still(self) -> bool:
        pid = self.worker()
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            self.repair_later(2, 20, lambda: os.kill(pid, signal.SIGCONT))
        return pid is not None

    def requeue(self) -> bool:
        return self.with_job("scontrol", "requeue", "")

    def cancel(self) -> bool:
        return self.with_job("scancel", "")

    def cancel_what_waits(self) -> bool:
        return self.with_job("scancel", "", state="PENDING")

    def preempt(self) -> bool:
        urgent = ["--partition=high", "--nodes=1", "--exclusive", "--wrap=sleep 2"]
        self.cluster.run("sbatch", *urgent)
        return True

    def time_limit(self) -> bool:
        return self.with_job("scontrol", "update", "timelimit=1", "jobid=")

    def lose_node(self) -> bool:
        return self._node(self.cluster.lose_node)

    def orphan(self) -> bool:
        def kill_its_orphans(node: str) -> None:
            for step in self.cluster.steps(node):
                for child in [*descendants(step), step]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)

        return self._node(self.cluster.kill_slurmd, kill_its_orphans)

    def _node(self, act: Callable[[str], None], before: Callable[[str], None] = lambda node: None) -> bool:
        if len(self.away & set(self.cluster.names)) > 1:
            return False
        node = self.draw.choice([name for name in self.cluster.names if name not in self.away])
        act(node)
        self.away.add(node)

        def back() -> None:
            before(node)
            self.cluster.start_node(node)
            self.away.discard(node)

        self.repair_later(5, 60, back)
        return True

    def controller(self) -> bool:
        return self._daemon("slurmctld", self.cluster.stop_controller, self.cluster.start_controller, 15)

    def accounting(self) -> bool:
        return self._daemon("slurmdbd", self.cluster.stop_accounting, self.cluster.start_accounting, 60)

    def _daemon(self, name: str, stop: Callable[[], None], start: Callable[[], None], max_seconds: float) -> bool:
        if name in self.away:
            return False
        stop()
        self.away.add(name)

        def back() -> None:
            start()
            self.away.discard(name)

        self.repair_later(1, max_seconds, back)
        return True

    def program_error(self) -> bool:
        return self._trouble("raise 20")

    def short_of_memory(self) -> bool:
        return self._trouble("short 4")

    def _trouble(self, what: str) -> bool:
        if self.place.trouble.exists():
            return False
        self.place.trouble.write_text(what)
        self.repair_later(2, 8, lambda: self.place.trouble.unlink(missing_ok=True))
        return True

    def delete(self) -> bool:
        running = self.place.running()
        if running:
            shutil.rmtree(self.draw.choice(running).path, ignore_errors=True)
        return bool(running)

    def full_command_line(self) -> bool:
        """Kill `dropbench submit` at a random moment."""
        process = self.place.start(*SUBMIT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(self.draw.uniform(0, 3))
        process.kill()
        process.wait()
        return True


def maintain(place: ClusterPlace) -> dict[str, Any] | None:
    """Retry, submit and collect as a user's cron job does; return the states, None if SLURM does not answer."""
    for words in (["retry", "state=failed,cancelled"], [*SUBMIT], ["status"]):
        done = place.call(*words)
        if done.returncode == 1:
            raise AssertionError(f"{words}: {done.stderr}")
    done = place.call("status", "--json")
    return dict(json.loads(done.stdout)) if done.returncode == 0 else None


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos", description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    arguments = parser.parse_args()
    folder = Path(mkdtemp(prefix="chaos-"))
    expected = undisturbed(folder / "undisturbed", arguments.trials)
    print(f"{len(expected)} trials undisturbed; now with faults, seed {arguments.seed}", flush=True)
    with running() as cluster:
        ok = run(cluster, folder / "disturbed", expected, arguments)
    if ok:
        shutil.rmtree(folder)
    else:
        print(f"the files are in {folder}")
    sys.exit(not ok)


def run(cluster: Cluster, folder: Path, expected: dict[str, Any], arguments: argparse.Namespace) -> bool:
    """Run the trials on a cluster with faults; return whether every trial ended as an undisturbed one."""
    place = ClusterPlace(folder, cluster)
    place.pause.write_text(PAUSE)
    (folder / "many.yaml").write_text(SUITE)
    place.ok("enqueue", "many.yaml", f"--seeds={arguments.trials}")
    chaos = Chaos(place, random.Random(arguments.seed))
    begin = time.monotonic()
    quiet = begin + 60 * arguments.minutes
    looked = -60.0
    states: dict[str, Any] | None = None
    while True:
        now = time.monotonic()
        if now < quiet:
            chaos.strike()
            chaos.repair()
            time.sleep(chaos.draw.uniform(1, 5))
        else:
            chaos.repair(all=True)
            place.trouble.unlink(missing_ok=True)
            cluster.wait_for_nodes()
            place.pause.write_text("0.01")
        if time.monotonic() - looked > 15:
            states = maintain(place)
            looked = time.monotonic()
            print(f"{(looked - begin) / 60:5.1f} min: {states}", flush=True)
        if now > quiet and states is not None and states["succeeded"] == arguments.trials:
            break
        if now > quiet + END_TIMEOUT_S:
            break
    time.sleep(2)
    place.ok("status")
    wrong = problems(place, expected)
    attempts = [attempt for all in place.attempts().values() for attempt in all]
    print(f"{sum(chaos.struck.values())} faults: {dict(sorted(chaos.struck.items()))}")
    print(f"{len(attempts)} attempts: {dict(sorted(Counter(attempt['state'] for attempt in attempts).items()))}")
    print(f"{place.status()}")
    print("\n".join(wrong) or f"all {arguments.trials} trials ended once, as undisturbed ones do")
    place.clean()
    return not wrong and place.status()["succeeded"] == arguments.trials


if __name__ == "__main__":
    main()
