"""No trial is lost, whichever process is killed: real processes, SIGKILL at moments drawn from a printed seed.

`CHAOS_SEED` repeats a run. `CHAOS_SUITE=quickstart CHAOS_ARGS="--seeds 1"` uses a real suite.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from dropbench.db.schema.tables import Attempts, Configs, Memberships, Metrics, Trials
from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import open_store
from dropbench.jobs.worker.slots import count_workers
from tests.jobs.workplace import Workplace
from tests.paths import ROOT
from tests.patience import PATIENCE, wait

KILLS = 20
SUITE = os.environ.get("CHAOS_SUITE")
COMMAND = [SUITE or "tiny.yaml", *shlex.split(os.environ.get("CHAOS_ARGS", "--seeds 6"))]
WORKERS = ["--parallel", "2", "--checkpoint-seconds", "0.2"]
FILES = [
    *(f"jobs/queue/{name}.py" for name in ("operations", "run_loop", "reconcile")),
    *(f"jobs/submission/{name}.py" for name in ("dispatch", "local")),
    *(f"jobs/worker/{name}.py" for name in ("slots", "attempt")),
    *(f"db/store/{name}.py" for name in ("store", "rows", "run_record")),
    "db/schema/connection.py",
    *(f"harness/{name}.py" for name in ("runs/run_directory", "files")),
    *(f"submitit/core/{name}.py" for name in ("core", "utils")),
]
"""Files in which a command line is killed."""


def test_the_files_exist() -> None:
    assert [file for file in FILES if not file.startswith("submitit/") and not (ROOT / file).exists()] == []


@pytest.fixture(scope="module")
def undisturbed(workplace: Callable[[Path], Workplace], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return every row that an undisturbed run produces."""
    quiet = workplace(tmp_path_factory.mktemp("undisturbed"))
    quiet.ok("run", *COMMAND, "--executor", "debug")
    return rows(quiet)


@pytest.fixture
def dice() -> random.Random:
    seed = int(os.environ.get("CHAOS_SEED", time.time_ns() % 10**6))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.mark.slow
def test_killed_workers(
    place: Workplace,
    workplace: Callable[[Path], Workplace],
    undisturbed: dict[str, Any],
    dice: random.Random,
) -> None:
    place.pause.write_text("0.1")  # so that the trials outlast the last kill
    process = place.start("run", *COMMAND, *WORKERS)

    kinds = []
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.2, 1.6))
        # Mostly the worker; sometimes with the process that forks workers, as at a shutdown, or the latter alone.
        kind = dice.choices(["worker", "", "server"], [8, 1, 1])[0]
        # After the server was killed alone, there is none until a worker ends.
        victims = place.processes(kind) or wait(partial(place.processes, "worker"), "a worker")
        check_number(place)
        for victim in victims if kind == "" else [dice.choice(victims)]:
            kill(victim)
        kinds.append(kind)
        assert process.poll() is None, f"the run ended before the last kill: {process.communicate()}"
    print(kinds)
    place.pause.write_text("0")
    process.communicate(timeout=PATIENCE)
    check(place, workplace(place.folder / "anew"), undisturbed)


@pytest.mark.slow
def test_killed_command_lines(
    place: Workplace, workplace: Callable[[Path], Workplace], undisturbed: dict[str, Any], dice: random.Random
) -> None:
    place.pause.write_text("0.1")
    start = time.monotonic()
    place.call("run", "--help")
    startup = time.monotonic() - start
    for _ in range(KILLS):
        if dice.random() < 0.6:  # so that there is something to dispatch
            for worker in place.processes():
                kill(worker)
        command = dice.choices([["run", *COMMAND, *WORKERS], ["status"]], [4, 1])[0]
        file, line = dice.choice(FILES), dice.randint(1, 100)
        process = place.start(file, str(line), *command, program=[str(Path(__file__).with_name("killed_cli.py"))])
        try:
            output = process.communicate(timeout=4 * startup + dice.uniform(0.3, 2))[0]
        except subprocess.TimeoutExpired:
            kill(process.pid)
            output = f"{process.communicate()[0]} killed after a timeout"
        print(command[0], output.strip() or "ended by itself")
        check_number(place)
    place.pause.write_text("0")
    check(place, workplace(place.folder / "anew"), undisturbed)


def check_number(place: Workplace) -> None:
    """At most two workers, as ``--parallel`` says.

    A command that looks at a free slot locks it for an instant, so that a single count may be too high. A fork that has
    just begun has not its worker's name yet.
    """
    wait(lambda: count_workers(place.runs) <= 2, "no more workers than --parallel")
    wait(lambda: len(place.processes("worker")) <= 2, "the end of a worker without a slot")


def check(place: Workplace, anew: Workplace, undisturbed: dict[str, Any]) -> None:
    """Finish by `dropbench run`; the database, and one rebuilt from the runs, equal those of an undisturbed run."""
    place.ok("run", *COMMAND, *WORKERS)
    status = json.loads(place.call("status", "--json").stdout)
    ids = {row["id"] for row in undisturbed["trials"]}
    assert (status["succeeded"], sum(value for value in status.values() if isinstance(value, int))) == (
        len(ids),
        len(ids),
    )
    place.ok("gc")  # a command line that was killed while it wrote a trial's file leaves it half-written
    tables = rows(place)
    for table in ("configs", "trials", "memberships", "metrics"):
        assert tables[table] == undisturbed[table], f"{table} differ from the undisturbed run's"
    for directory in place.directories():
        states = [attempt["state"] for attempt in directory.attempts()]
        assert states.count("succeeded") == 1, f"{directory.id}: {states}"
        assert states[-1] == "succeeded", f"{directory.id}: {states}"
        raw = [
            json.loads(line) for line in (directory.path / "events.jsonl").read_text().splitlines() if line[-1:] == "}"
        ]
        assert [event["event"] for event in raw].index("end") == len(raw) - 1, f"{directory.id}: trained after its end"
        temporary = [file.name for file in directory.path.rglob(".*")]
        assert temporary == [], f"{directory.id}: half-written files are left"
    with open_store(anew.database) as store:
        rebuild(store, place.runs)
    assert rows(anew, times=True) == rows(place, times=True)


def rows(place: Workplace, times: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Return every row except submissions; without `times`, only values that two runs must share."""
    tables = [Configs, Trials, Memberships, Metrics, *([Attempts] if times else [])]
    values = {}
    with open_store(place.database) as store, store.engine.connect() as connection:
        for table in tables:
            query = select(table).order_by(*table.primary_key)
            values[table.name] = [
                {key: value for key, value in row.items() if times or not key.endswith("_at")}
                for row in connection.execute(query).mappings()
            ]
    return values


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
