"""``dropbench report``: how it finds what was run, and what it shows without data and run directories."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from db.store.run_record import RunRecord
from db.store.store import open_store
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.search_space import parse_space
from harness.suites.suite import SUITES, load_suite
from harness.trials.task import spec_of
from harness.trials.trial import DataRef, Trial
from tasks.data import DATASETS
from tasks.data.synthetic_cache import ensure_synthetic
from tasks.floors.floors import floors
from tests.db.conftest import ENDED, STARTED, Call

Record = Callable[..., list[Trial]]
TABLE = "dropattention/table3"
FULL = "quickstart/full"


@pytest.fixture
def record(folder: Path) -> Record:
    """Return a function that records trials of a suite as succeeded, requested with options; it returns them."""

    def make(suite: str = FULL, folders: Mapping[str, Path] | None = None, **options: Any) -> list[Trial]:
        settings = Settings(data=folder / "data", folders=dict(folders or {}))
        cells = load_suite(suite).trials(SuiteOptions(**options), settings)
        trials = [trial for _, own in cells for trial in own]
        with open_store("sqlite:///dropbench.db") as store:
            metrics: list[Any] = [("test/accuracy", -1, 50.0), ("dev/accuracy", -1, 51.0)]
            store.record(RunRecord(trial, "succeeded", suites=[suite], metrics=metrics) for trial in trials)
        return trials

    return make


def values(call: Call, *arguments: str) -> tuple[int, str]:
    """Return the number of values in the cells of a report, and what it prints to standard error."""
    done = call("report", *arguments, "--json")
    assert done.code == 0, done.err
    return sum(cell["n"] for cell in json.loads(done.out)["cells"]), done.err


def test_the_only_options_that_were_run_are_found(call: Call, record: Record) -> None:
    record(overrides={"steps": 20}, seeds=(0,), models=("vit-digits",))
    found = "no trial has the default options; all were run with `--set steps=20 --model vit-digits --seeds 1`\n"
    assert values(call, FULL) == (4, found)
    shown = call("report", FULL)
    assert shown.err == found
    assert "not run" not in shown.out
    assert values(call, FULL, *found.split("`")[1].split()) == (4, "")


def test_of_several_sets_of_options_each_is_named(call: Call, record: Record) -> None:
    record(overrides={"steps": 20}, seeds=(0,))
    record(overrides={"steps": 30, "lr": 0.1}, seeds=(0,), models=("vit-digits",))
    record(preset="paper", seeds=(0,), models=("vit-digits",), regularizers=("dropkey:ratio=0.2",))
    assert values(call, FULL) == (
        0,
        "8 trials of this suite have steps=20: add `--set steps=20`\n"
        "5 trials of this suite have preset=paper, regularizer=dropkey:ratio=0.2: "
        "add `--preset paper --regularizer dropkey:ratio=0.2`\n"
        "4 trials of this suite have steps=30, lr=0.1: add `--set steps=30 --set lr=0.1`\n",
    )
    for number in range(7):
        record(overrides={"steps": 100 + number}, seeds=(0,), models=("vit-digits",))
    lines = values(call, FULL)[1].splitlines()
    assert len(lines) == 6
    assert lines[-1] == "and 5 more sets of options: `dropbench results quickstart/full` lists all"


def test_a_partial_table_names_the_other_trials(call: Call, record: Record) -> None:
    record(seeds=(0,), models=("vit-digits",))
    record(seeds=(3, 4), models=("vit-digits",))
    assert values(call, FULL) == (4, "8 trials of this suite have seeds=5: add `--seeds 5`\n")
    other = "12 trials of this suite have model=vit-digits: add `--model vit-digits`\n"
    assert values(call, FULL, "--model", "t2t-vit-digits", "--seeds", "5") == (0, other)
    changed = "4 trials of this suite have no steps=30: remove `--set steps=30`\n"
    shutil.move("dropbench.db", "old.db")
    record(seeds=(0,), models=("vit-digits",))
    assert values(call, FULL, "--set", "steps=30") == (0, changed)
    both = "4 trials of this suite have preset=mini, no steps=30: remove `--set steps=30`, add `--preset mini`\n"
    assert values(call, FULL, "--preset", "paper", "--set", "steps=30") == (0, both)
    record()
    assert values(call, FULL) == (24, ""), "a complete table has no notes"


def test_trials_with_another_recipe_are_listed_by_results(call: Call, record: Record) -> None:
    trials = record(seeds=(0,))
    Path("dropbench.db").unlink()
    with open_store("sqlite:///dropbench.db") as store:
        for trial in trials:
            changed = trial.model_copy(update={"recipe": {**trial.recipe, "lr": 0.5}})
            store.record([RunRecord(changed, "succeeded", suites=[FULL])])
    other = "8 trials of this suite have another recipe, plug-in or result version than now"
    note = f"{other}: `dropbench results quickstart/full` lists all"
    assert values(call, FULL) == (0, f"{note} trials\n")


def test_a_table_on_other_data_names_them(call: Call, record: Record) -> None:
    record(TABLE, data=("trec-synthetic",), seeds=(0,))
    assert values(call, TABLE) == (
        5, "no trial has the default options; all were run with `--data trec-synthetic --seeds 1`\n",
    )  # fmt: skip
    done = call("report", TABLE, "--data", "mr")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"dropbench: {TABLE}: no trial with these options: 5 trials of this suite have data=trec-synthetic: "
        "add `--data trec-synthetic`\n"
    )


@pytest.fixture
def trec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files in the format of trec."""
    return Path(shutil.copytree(ensure_synthetic(DATASETS.get("trec")), tmp_path_factory.mktemp("data") / "trec"))


def test_no_data_are_needed_for_the_tables_of_a_database(call: Call, record: Record, trec: Path) -> None:
    record(TABLE, {"trec": trec}, data=("trec",), seeds=(0, 1))
    shutil.rmtree(trec)
    assert values(call, TABLE, "--data", "trec", "--seeds", "2") == (10, "")
    assert values(call, TABLE)[0] == 10
    assert call("report", TABLE, "--format", "html", "-o", "page.html").code == 0
    assert "50.00" in Path("page.html").read_text(encoding="utf-8")
    Path("dropbench.db").rename("other.db")
    assert call("db", "import", "other.db").code == 0
    assert values(call, TABLE, "--data", "trec", "--seeds", "2") == (10, "")
    assert "trec" in call("results", TABLE).out
    assert call("compare", "regularizer=none", "regularizer=dropattention-c").code == 0
    assert "dropattention-c" in call("compare", "--rank").out
    assert not Path("runs").exists()


def test_floors_are_those_of_the_data_that_the_table_is_of(
    call: Call, record: Record, trec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    trials = record(TABLE, {"trec": trec}, data=("trec",), seeds=(0,))
    options = ("report", TABLE, "--data", f"trec={trec}", "--seeds", "1")
    expected = {floor.name: floor.value for floor in floors(trials[0], Settings(folders={"trec": trec}))}
    shown = json.loads(call(*options, "--floors", "--json").out)
    assert {row["floor"]: row["value"] for row in shown["floors"]} == expected
    assert {(row["data"], row["metric"]) for row in shown["floors"]} == {("trec", "accuracy")}
    best = max(expected, key=lambda name: expected[name])
    assert f"floor: trec, test accuracy: {expected[best]:.2f} {best}, " in call(*options, "--floors").out
    assert "floor" not in call(*options).out
    shutil.rmtree(trec)
    assert call(*options, "--floors").code == 2


def test_swept_cells_need_no_data_either(call: Call, record: Record, trec: Path) -> None:
    record(TABLE, {"trec": trec}, data=("trec",), seeds=(0,), sweep=parse_space(["ratio=0.1,0.2"]))
    shutil.rmtree(trec)
    assert values(call, TABLE, "--data", "trec", "--seeds", "1", "--sweep", "ratio=0.1,0.2") == (5, "")


def test_of_several_versions_of_absent_data_one_is_chosen(call: Call, record: Record, trec: Path) -> None:
    fingerprints = []
    for seeds in ((0, 1), (0,)):
        fingerprints.append(record(TABLE, {"trec": trec}, data=("trec",), seeds=seeds)[0].data.fingerprint)
        with (trec / "TREC.train.all").open("a") as file:
            file.write("NUM:dist How far is it ?\n")
    options = (TABLE, "--data", "trec", "--seeds", "2")
    done = call("report", *options)
    assert (done.code, done.out) == (2, "")
    first, second = sorted(fingerprint[:8] for fingerprint in fingerprints)
    assert done.err == (
        "dropbench: data 'trec': not on this machine, and the database has trials on 2 versions: "
        f"add `--fingerprint {first}` or `--fingerprint {second}`\n"
    )
    assert values(call, *options, "--fingerprint", fingerprints[0][:8]) == (10, "")
    assert values(call, *options, "--fingerprint", fingerprints[1][:8])[0] == 5
    here = values(call, TABLE, "--data", f"trec={trec}", "--seeds", "2")  # a third version
    assert here[0] == 0
    assert f"10 trials of this suite have fingerprint={fingerprints[0][:8]}: add `--fingerprint" in here[1]


def test_other_files_than_data_may_be_absent(call: Call, folder: Path) -> None:
    """Digests of files besides the data are taken from the recorded recipe."""
    vectors = SuiteOptions(data=("trec",), seeds=(0,), overrides={"vectors": "mine.txt"})
    drafts = [spec_of(cell.request.task).draft_for(cell.request) for cell in load_suite(TABLE).cells(vectors)]
    finals: list[Any] = [("test/accuracy", -1, 50.0)]
    options = (TABLE, "--data", "trec", "--seeds", "1", "--set", "vectors=mine.txt")
    for digest in ("1234567890", "abcdefabcd"):
        with open_store("sqlite:///dropbench.db") as store:
            for draft in drafts:
                assert draft is not None
                files = {"data": DataRef(name="trec", fingerprint="0" * 16)}
                recipe = {**draft.recipe, "vectors_fingerprint": digest}
                trial = draft.model_copy(update={**files, "recipe": recipe})
                store.record([RunRecord(trial, "succeeded", suites=[TABLE], metrics=finals)])
        if digest.isdecimal():
            assert values(call, *options) == (5, "")
    done = call("report", *options)
    assert done.code == 2
    message = "vectors: not on this machine, and the database has trials on 2 versions: add `--fingerprint 12345678` or"
    assert message in done.err
    assert values(call, *options, "--fingerprint", "abcd") == (5, "")


def test_the_last_request(call: Call, folder: Path, record: Record) -> None:
    nothing = call("report", "--last")
    assert (nothing.code, nothing.err) == (2, "dropbench: --last: no suite was run or enqueued with runs: "
        "`dropbench report SUITE` shows a suite\n")  # fmt: skip
    assert call("enqueue", FULL, "--set", "steps=20", "--seeds", "1", "--model", "vit-digits").code == 0
    last = call("report", "--last")
    assert (last.code, last.err) == (0, "")
    assert last.out.count("queued") == 4
    assert last.out == call("report", FULL, "--set", "steps=20", "--seeds", "1", "--model", "vit-digits").out
    assert "--last: it stands for a suite with options" in call("report", FULL, "--last").err
    assert call("report", "--last", "--seeds", "1").code == 2
    assert call("enqueue", FULL, TABLE, "--data", "digits").code == 2, "nothing is stored of a wrong request"
    assert call("report", "--last").out == last.out
    (file,) = (folder / "runs" / ".submitit").glob("last-request.*.json")
    file.write_text("{}")
    assert "damaged: name the suite instead" in call("report", "--last").err


def test_suites_enqueued_together_are_named(call: Call, folder: Path) -> None:
    text = (Path(__file__).parents[3] / "harness/suites/quickstart.yaml").read_text(encoding="utf-8")
    Path("mine.yaml").write_text(text)
    assert call("enqueue", FULL, "mine.yaml", "--seeds", "1").code == 0
    done = call("report", "--last")
    assert done.code == 2
    assert (
        "2 suites were enqueued together: `dropbench report quickstart/full`, `dropbench report mine.yaml`" in done.err
    )


def test_without_a_suite_those_with_trials_are_named(call: Call, record: Record) -> None:
    assert "expected a SUITE or --last; the database has no trials of a suite" in call("report").err
    record(seeds=(0,))
    assert "the database has trials of quickstart" in call("report").err


SHOWING = [
    ("results", "mine"), ("compare", "regularizer=dropkey", "regularizer=none"), ("compare", "--rank"),
    ("report", "mine.yaml", "--seeds", "1"),
]  # fmt: skip


@pytest.mark.parametrize("command", SHOWING, ids=" ".join)
def test_results_of_ended_trials_are_shown_at_once(
    call: Call, folder: Path, make_directory: Callable[..., RunDirectory], command: tuple[str, ...]
) -> None:
    """Those whose run directories are here; others of a shared database stay as they are."""
    text = (SUITES / "quickstart/full.yaml").read_text(encoding="utf-8").replace("plugin_rows: true\n", "")
    (folder / "mine.yaml").write_text(text)
    cells = load_suite("mine.yaml").trials(SuiteOptions(seeds=(0,)), Settings())
    trials = [trial for _, own in cells for trial in own]
    with open_store("sqlite:///dropbench.db") as store:
        store.record(RunRecord(trial, "running", suites=["mine"]) for trial in trials)
    for trial in trials[:-1]:
        attempt = {"state": "succeeded", "cause": None, "host": "here", "started_at": STARTED, "ended_at": ENDED}
        make_directory(
            folder / "runs", trial, attempts=[attempt], metrics={"test/accuracy": 61.25}, suites=["mine"]
        )  # fmt: skip
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
    options = ("--model", "vit-digits", "--seeds", "1")
    done = call("freeze", FULL, *options, "-o", "frozen.yaml")
    assert (done.code, done.out) == (0, "")
    assert "no test score was read" in done.err
    record(seeds=(0,), models=("vit-digits",))
    assert "as frozen on 20" in call("report", FULL, *options, "--frozen", "frozen.yaml").out
    more = call("report", FULL, *options[:3], "2", "--frozen", "frozen.yaml", "--json")
    assert "- seeds: 0, 1; frozen: 0" in json.loads(more.out)["about"]
    assert call("report", FULL, "--frozen", "no.yaml").code == 2
