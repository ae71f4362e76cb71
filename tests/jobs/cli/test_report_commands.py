"""``dropbench report``: which requests it shows, and that it needs neither data nor recipes, suites or plug-ins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import open_store
from dropbench.harness.cli.main import run
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.request import read_request, request_files, write_request
from dropbench.harness.suites.search_space import parse_space
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import Requested, request_suite
from dropbench.tasks import preset_task
from dropbench.tasks.data import DATASETS
from dropbench.tasks.data.synthetic_cache import ensure_synthetic
from dropbench.tasks.floors.floors import floors
from tests.db.conftest import Call
from tests.db.records import ENDED, STARTED, make_directory
from tests.paths import ROOT

Record = Callable[..., Requested]
TABLE = "dropattention/table3"
FULL = "quickstart/full"
FINALS: list[Any] = [("test/accuracy", -1, 50.0), ("dev/accuracy", -1, 51.0)]


@pytest.fixture
def record(folder: Path) -> Record:
    """Return a function that requests a suite, and records the trials as succeeded."""

    def make(suite: str = FULL, folders: Mapping[str, Path] | None = None, **options: Any) -> Requested:
        settings = Settings(data=folder / "data", folders=dict(folders or {}))
        requested = request_suite(load_suite(suite), SuiteOptions(**options), settings)
        write_request(folder / "runs", requested.request)
        with open_store("sqlite:///dropbench.db") as store:
            store.add_requests([requested.request])
            store.record(RunRecord(trial, "succeeded", metrics=FINALS) for trial in requested.trials.values())
        return requested

    return make


def values(call: Call, *arguments: str) -> tuple[dict[str, int], str]:
    """Return the number of values in each column of a report, and what it prints to standard error."""
    done = call("report", *arguments, "--json")
    assert done.code == 0, done.err
    counts: dict[str, int] = {}
    for cell in json.loads(done.out)["cells"]:
        counts[cell["column"]] = counts.get(cell["column"], 0) + cell["n"]
    return counts, done.err


def test_requests_that_train_otherwise_are_named(call: Call, record: Record) -> None:
    first = record(overrides={"steps": 20}, seeds=(0,), models=("vit-digits",))
    assert values(call, FULL) == ({"ViT": 4}, "")
    record(preset="paper", seeds=(0,), models=("vit-digits",))
    record(seeds=(0, 1), models=("vit-digits",))
    notes = (
        "other trials of this suite: `--preset paper`\n"
        f"other trials of this suite (preset mini, steps=20): `--request {first.request.id}`\n"
    )
    assert values(call, FULL) == ({"ViT": 8}, notes)
    assert values(call, FULL, "--request", first.request.id[:6]) == ({"ViT": 4}, "")
    assert values(call, "--request", first.request.id) == ({"ViT": 4}, "")
    assert values(call, FULL, "--preset", "paper")[0] == {"ViT": 4}
    assert "no such request in the database" in call("report", FULL, "--request", "abc").err
    assert "not of dropattention/table3" in call("report", TABLE, "--request", first.request.id).err
    record(overrides={"steps": 20}, seeds=(0,), models=("vit-digits",))
    assert "recipe overridden: steps=20" in call("report", FULL).out, "it was made last"


def test_columns_of_two_requests_are_one_table_of_which_each_cell_is_the_newest(call: Call, record: Record) -> None:
    record(TABLE, data=("trec-synthetic",), seeds=(0, 1))
    record(TABLE, data=("mr-synthetic",), seeds=(0,))
    assert values(call, TABLE) == ({"QC": 10, "MR": 5}, "")
    assert list(values(call, TABLE)[0]) == ["MR", "QC"], "the order of the suite"
    record(TABLE, data=("trec-synthetic",), seeds=(0,), regularizers=("dropkey:ratio=0.2",))
    assert values(call, TABLE) == ({"QC": 6, "MR": 5}, "")
    assert values(call, TABLE, "--data", "mr") == ({"MR": 5}, "")
    assert "unknown data of this table 'ptb'" in call("report", TABLE, "--data", "ptb").err


def test_other_recipes_data_or_weights_are_never_in_one_table(
    call: Call, record: Record, trec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even in other columns, where no trial of one request is in the other."""
    first = record(TABLE, data=("mr-synthetic",), seeds=(0,))
    recipes = preset_task.read_recipes("text-classification")
    changed = {**recipes, "presets": {**recipes["presets"], "mini": {**recipes["presets"]["mini"], "epochs": 3}}}
    monkeypatch.setattr(preset_task, "read_recipes", lambda task: changed)
    record(TABLE, {"trec": trec}, data=("trec",), seeds=(0,))
    cause = "another recipe text-classification"
    note = f"other trials of this suite ({cause}): `--request {first.request.id}`\n"
    assert values(call, TABLE) == ({"QC": 5}, note)
    with (trec / "TREC.train.all").open("a") as file:
        file.write("NUM:dist How far is it ?\n")
    record(TABLE, {"trec": trec}, data=("trec",), seeds=(0,))
    shown, notes = values(call, TABLE)
    assert (shown, notes.count("\n")) == ({"QC": 5}, 2)
    assert "(another data trec): `--request" in notes


@pytest.fixture
def trec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files in the format of trec."""
    return Path(shutil.copytree(ensure_synthetic(DATASETS.get("trec")), tmp_path_factory.mktemp("data") / "trec"))


PLUGIN = """
from dropbench import REGULARIZERS, AttentionDrop


@REGULARIZERS.register("dropall")
class DropAll(AttentionDrop):
    def sample_drop_mask(self, shape, site, device):
        import torch
        return torch.rand(shape, device=device) < site.ratio
"""


@pytest.mark.slow
def test_neither_data_nor_suite_recipe_or_plug_in_is_needed(folder: Path, trec: Path) -> None:
    """In processes of their own, as a plug-in stays loaded."""
    (folder / "mine.yaml").write_text((ROOT / "harness/suites/dropattention/table3.yaml").read_text("utf-8"))
    (folder / "all.py").write_text(PLUGIN)
    data = {"DROPBENCH_DATA": str(trec.parent), "DROPBENCH_PLUGINS": str(folder / "all.py")}

    def dropbench(*arguments: str, code: str = "pass", **environment: str) -> str:
        program = f"import sys; {code}; from dropbench.harness.cli.main import run; sys.exit(run(sys.argv[1:]))"
        command = [sys.executable, "-c", program, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout

    dropbench("enqueue", "mine.yaml", "--data", "trec", "--seeds", "1", "--regularizer", "dropall", **data)
    with open_store(f"sqlite:///{folder}/dropbench.db") as store:
        store.record(RunRecord(t, "succeeded", metrics=FINALS) for t in store.trials(list(store.states())).values())
    before = dropbench("report", "mine.yaml", **data)
    assert before.count("50.00") == 6
    assert "dropall" in before
    for path in (trec, folder / "all.py", folder / "mine.yaml"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "recipes").mkdir()
    recipes = "import dropbench, pathlib, dropbench.tasks.preset_task as f; f.RECIPES = pathlib.Path('recipes')"
    assert dropbench("report", "mine.yaml", code=recipes) == before
    assert dropbench("report", "mine") == before


def test_folders_and_databases_of_two_people_make_the_union(call: Call, record: Record, folder: Path) -> None:
    record(TABLE, data=("trec-synthetic",), seeds=(0,))
    for name in ("runs", "dropbench.db"):
        shutil.move(name, f"theirs-{name}")
    record(TABLE, data=("mr-synthetic",), seeds=(0,))
    assert values(call, TABLE)[0] == {"MR": 5}
    shutil.copy("dropbench.db", "mine.db")
    done = call("db", "import", "theirs-dropbench.db")
    assert done.code == 0, done.err
    assert values(call, TABLE) == ({"MR": 5, "QC": 5}, "")
    assert call("db", "import", "theirs-dropbench.db").code == 0
    shutil.copytree("theirs-runs", "runs", dirs_exist_ok=True)
    for trials in ("mine.db", "theirs-dropbench.db"):  # as the run directories would have them
        with open_store(f"sqlite:///{trials}") as source, open_store("sqlite:///fresh.db") as target:
            states = source.trials(list(source.states())).values()
            target.record(RunRecord(trial, "succeeded", metrics=FINALS) for trial in states)
    shutil.move("fresh.db", "dropbench.db")
    assert "and 2 requests" in call("db", "rebuild").out
    assert values(call, TABLE) == ({"MR": 5, "QC": 5}, "")


def queue(rate: str, seconds: float = 0) -> float:
    """Queue a suite with a learning rate in a fork of this process; returns its computing time in seconds.

    After `seconds` of it, unless they are 0, the kernel ends the fork as SIGKILL would.
    """
    if (pid := os.fork()) == 0:
        code = 1
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            code = run(["enqueue", FULL, "--set", f"lr={rate}"])
        finally:
            os._exit(code)
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) in ((0, -signal.SIGPROF) if seconds else (0,))
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
def test_a_request_that_is_killed_while_it_is_queued_is_whole_or_absent(folder: Path) -> None:
    """Killed 50 times, at moments that do not depend on how busy the machine is; the same command completes it."""
    assert run(["enqueue", FULL, "--set", "lr=0.1"]) == 0  # imports, which take longer than the rest
    whole, parts = queue("0.2"), set[int]()
    for number in range(50):
        rate = f"0.{number + 300}"
        before = set(request_files(folder / "runs"))
        queue(rate, whole * (number + 1) / 40)
        requests = [read_request(file) for file in request_files(folder / "runs") if file not in before]
        assert len(requests) <= 1
        with open_store(f"sqlite:///{folder}/dropbench.db") as store:
            names = store.find(f"lr={rate}")
            assert not names or set(names) == set(requests[0].trials), "all or none, and not before the request"
        parts.add(bool(requests) + bool(names))
        queue(rate)
        (file,) = set(request_files(folder / "runs")) - before
        with open_store(f"sqlite:///{folder}/dropbench.db") as store:
            assert set(store.find(f"lr={rate}")) == set(read_request(file).trials)
    assert parts >= {0, 2}


def test_floors_are_those_of_the_data_that_the_table_is_of(
    call: Call, record: Record, trec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    trial = next(iter(record(TABLE, {"trec": trec}, data=("trec",), seeds=(0,)).trials.values()))
    options = ("report", TABLE, "--data", "trec")  # its folder is that of the request
    computed = floors(trial, Settings())
    expected = {floor.name: floor.value for floor in computed if floor.metric == "accuracy"}
    shown = json.loads(call(*options, "--floors", "--json").out)
    assert {row["floor"]: row["value"] for row in shown["floors"]} == expected
    assert {(row["data"], row["metric"]) for row in shown["floors"]} == {("trec", "accuracy")}
    best = max(expected, key=lambda name: expected[name])
    assert f"floor: trec, test accuracy: {expected[best]:.2f} {best}, " in call(*options, "--floors").out
    assert "floor" not in call(*options).out
    moved = trec.rename(tmp_path / "moved")
    missing = call(*options, "--floors")
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    assert f"expected TREC.train.all, TREC.test.all in {trec} (set another folder by" in missing.err
    assert call("report", TABLE, "--data", f"trec={moved}", "--floors").code == 0


def test_swept_cells_choose_from_the_candidates_of_their_request(call: Call, record: Record) -> None:
    record(TABLE, data=("trec-synthetic",), seeds=(0,), sweep=parse_space(["ratio=0.1,0.2"]))
    assert values(call, TABLE) == ({"QC": 5}, "")
    cells = json.loads(call("report", TABLE, "--json").out)["cells"]
    assert [len(cell["candidates"]) for cell in cells] == [0, 2, 2, 2, 2]


def test_a_suite_without_a_request_shows_its_published_values(call: Call, record: Record) -> None:
    shown = call("report", "dropkey/table3")
    assert (shown.code, shown.err) == (0, "")
    assert "78.40" in shown.out
    assert "expected a SUITE or --request ID; the database has no trials of a suite" in call("report").err
    record(preset="paper", seeds=(0,))
    assert "the database has trials of quickstart/full" in call("report").err
    missing = call("report", FULL, "--preset", "mini")
    assert missing.err == "other trials of this suite: `--preset paper`\n"
    assert missing.out.count("not run") == 8


SHOWING = [
    ("results", FULL), ("compare", "regularizer=dropkey", "regularizer=none"), ("compare", "--rank"), ("report", FULL),
]  # fmt: skip


@pytest.mark.parametrize("command", SHOWING, ids=" ".join)
def test_results_of_ended_trials_are_shown_at_once(call: Call, folder: Path, command: tuple[str, ...]) -> None:
    """Those whose run directories are here; others of a shared database stay as they are."""
    requested = request_suite(load_suite(FULL), SuiteOptions(seeds=(0,)), Settings())
    trials: list[Trial] = list(requested.trials.values())
    with open_store("sqlite:///dropbench.db") as store:
        store.add_requests([requested.request])
        store.record(RunRecord(trial, "running") for trial in trials)
    for trial in trials[:-1]:
        attempt = {"state": "succeeded", "cause": None, "host": "here", "started_at": STARTED, "ended_at": ENDED}
        make_directory(folder / "runs", trial, attempts=[attempt], metrics={"test/accuracy": 61.25})
    done = call(*command)
    assert (done.code, done.err) == (0, "")
    assert "61.25" in done.out or command[1] == "--rank"
    assert command[1:] != ("--rank",) or "none" in done.out
    with open_store("sqlite:///dropbench.db") as store:
        states = store.states([trial.id for trial in trials])
    assert [states[trial.id].state for trial in trials] == ["succeeded"] * 7 + ["running"]
    if command[0] == "results":
        assert "on the machine with their run directories" in done.out


def test_a_frozen_suite_is_checked_by_its_report(call: Call, record: Record) -> None:
    options = (FULL, "--model", "vit-digits", "--seeds", "1")
    assert call("enqueue", *options).code == 0
    done = call("report", FULL, "--freeze", "frozen.yaml")
    assert (done.code, done.out) == (0, "")
    assert "no test score was read" in done.err
    record(seeds=(0,), models=("vit-digits",))
    assert "as frozen on 20" in call("report", FULL, "--frozen", "frozen.yaml").out
    record(seeds=(0, 1), models=("vit-digits",))
    more = call("report", FULL, "--frozen", "frozen.yaml", "--json")
    assert "- seeds: 0, 1; frozen: 0" in json.loads(more.out)["about"]
    assert call("report", FULL, "--frozen", "no.yaml").code == 2
