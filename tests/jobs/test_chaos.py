"""Nothing is lost, whoever is killed, whenever: real processes, SIGKILL at moments drawn from a seed that is printed.

`CHAOS_SEED` repeats a run. `CHAOS_SUITE=quickstart CHAOS_ARGS="--seeds 1"` does it to a real suite, by hand.
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
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from db.models import Attempts, Configs, Memberships, Metrics, Trials
from db.rebuild import rebuild
from db.store import open_store
from tests.patience import PATIENCE, wait

if TYPE_CHECKING:
    from tests.jobs.workplace import Workplace

KILLS = 20
SUITE = os.environ.get("CHAOS_SUITE")
COMMAND = [SUITE or "tiny.yaml", *shlex.split(os.environ.get("CHAOS_ARGS", "--seeds 6"))]
WORKERS = ["--parallel", "2", "--checkpoint-seconds", "0.2"]
FILES = [
    *(f"jobs/{name}.py" for name in ("queue", "run", "dispatch", "collect", "places", "executors", "attempts")),
    *(f"db/{name}.py" for name in ("store", "rows", "snapshot", "connection")),
    *(f"harness/{name}.py" for name in ("rundir", "files")),
    *(f"submitit/core/{name}.py" for name in ("core", "utils")),
]
"""Where a command line is ended by SIGKILL."""


@pytest.fixture(scope="module")
def undisturbed(workplace: Callable[[Path], Workplace], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every row that a run gives which nobody disturbs."""
    quiet = workplace(tmp_path_factory.mktemp("undisturbed"))
    done = quiet.call("run", *COMMAND, "--executor", "debug")
    assert done.returncode == 0, done.stderr
    return rows(quiet)


@pytest.fixture
def dice() -> random.Random:
    seed = int(os.environ.get("CHAOS_SEED", time.time_ns() % 10**6))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.mark.slow
def test_workers_killed(
    place: Workplace,
    workplace: Callable[[Path], Workplace],
    undisturbed: dict[str, Any],
    dice: random.Random,
) -> None:
    place.pause.write_text("0.1")  # so that the trials last until the last kill
    process = place.start("run", *COMMAND, *WORKERS)
    kinds = []
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.2, 1.6))
        # Nearly always the worker; at times its controller too, as when a machine is shut down, or that alone.
        kind = dice.choices(["core._submit", "submitit", "local._local"], [8, 1, 1])[0]
        victims = wait(partial(place.processes, kind), "a worker")
        assert len(place.processes("core._submit")) <= 2, "more workers than --parallel says"
        for victim in victims if kind == "submitit" else [dice.choice(victims)]:
            kill(victim)
        kinds.append(kind)
        assert process.poll() is None, f"the run ended before the last kill: {process.communicate()}"
    print(kinds)
    place.pause.write_text("0")
    process.communicate(timeout=PATIENCE)
    check(place, workplace(place.folder / "anew"), undisturbed)


@pytest.mark.slow
def test_command_line_killed(
    place: Workplace, workplace: Callable[[Path], Workplace], undisturbed: dict[str, Any], dice: random.Random
) -> None:
    place.pause.write_text("0.1")
    began = time.monotonic()
    place.call("run", "--help")
    begins = time.monotonic() - began
    for _ in range(KILLS):
        if dice.random() < 0.6:  # so that there is something to dispatch
            for worker in place.processes():
                kill(worker)
        command = dice.choices([["run", *COMMAND, *WORKERS], ["collect"]], [4, 1])[0]
        file, line = dice.choice(FILES), dice.randint(1, 100)
        process = place.start(file, str(line), *command, program=[str(Path(__file__).with_name("killed_cli.py"))])
        try:
            said = process.communicate(timeout=4 * begins + dice.uniform(0.3, 2))[0]
        except subprocess.TimeoutExpired:
            kill(process.pid)
            said = f"{process.communicate()[0]} by the clock"
        print(command[0], said.strip() or "ended by itself")
        assert len(place.processes("core._submit")) <= 2, "more workers than --parallel says"
    place.pause.write_text("0")
    check(place, workplace(place.folder / "anew"), undisturbed)


def check(place: Workplace, anew: Workplace, undisturbed: dict[str, Any]) -> None:
    """`dropbench run` again, and then all is as if nothing had happened, in the database and in one made anew."""
    again = place.call("run", *COMMAND, *WORKERS)
    assert again.returncode == 0, again.stderr
    status = json.loads(place.call("status", "--json").stdout)
    ids = {row["id"] for row in undisturbed["trials"]}
    assert (status["succeeded"], sum(value for value in status.values() if isinstance(value, int))) == (
        len(ids),
        len(ids),
    )
    found = rows(place)
    for table in ("configs", "trials", "memberships", "metrics"):
        assert found[table] == undisturbed[table], f"{table} differ from the undisturbed run's"
    for directory in place.directories():
        states = [attempt["state"] for attempt in directory.attempts()]
        assert states.count("succeeded") == 1, f"{directory.id}: {states}"
        assert states[-1] == "succeeded", f"{directory.id}: {states}"
        raw = [
            json.loads(line) for line in (directory.path / "events.jsonl").read_text().splitlines() if line[-1:] == "}"
        ]
        assert [event["event"] for event in raw].index("end") == len(raw) - 1, f"{directory.id}: trained after its end"
        left = [file.name for file in directory.path.rglob(".*")]
        assert left == [], f"{directory.id}: half-written files are left"
    with open_store(anew.database) as store:
        rebuild(store, place.runs)
    assert rows(anew, times=True) == rows(place, times=True)


def rows(place: Workplace, times: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Every row but the submissions; without `times`, only what may not differ between two runs."""
    tables = [Configs, Trials, Memberships, Metrics, *([Attempts] if times else [])]
    found = {}
    with open_store(place.database) as store, store.engine.connect() as connection:
        for table in tables:
            query = select(table).order_by(*table.primary_key)
            found[table.name] = [
                {key: value for key, value in row.items() if times or not key.endswith("_at")}
                for row in connection.execute(query).mappings()
            ]
    return found


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
