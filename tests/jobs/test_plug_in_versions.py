"""Own regularizers that change, move or are deleted between request, training and reading."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import dropbench
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest
from tests.jobs.workplace import HEAD, PLUGIN, Workplace

MIX = """
from dataclasses import replace
from dropbench import REGULARIZERS, AroundAttention
from parts.factor import FACTOR

@REGULARIZERS.register("value-mix")
class ValueMix(AroundAttention):
    '''Version {version}.'''
    stage = "values"
    ratio: float = 0.2

    def around(self, call, site, inner):
        return inner(replace(call, v=call.v * FACTOR))

@REGULARIZERS.register("other")
class Other(ValueMix):
    '''Another one.'''
"""
SUITE = f"""{HEAD}
rows:
  - {{label: none, baseline: true, trial: {{regularizer: none}}}}
  - {{label: mix, trial: {{regularizer: value-mix}}}}
presets:
  mini: {{seeds: 2, overrides: {{steps: 4, evaluate_every: 2}}}}
"""


@pytest.fixture
def mine(place: Workplace) -> Path:
    """The path of the plug-in."""
    (place.folder / "s.yaml").write_text(SUITE)
    write(place.folder / "my.py", 1)
    return place.folder / "my.py"


def write(file: Path, version: int) -> None:
    """Write a version of the plug-in, with a module in a subfolder that changes the numbers."""
    (file.parent / "parts").mkdir(exist_ok=True)
    (file.parent / "parts" / "factor.py").write_text(f"FACTOR = {version}.5\n")
    file.write_text(MIX.format(version=version))


def rows(place: Workplace, *arguments: str) -> list[dict[str, Any]]:
    """Return the rows that `results` prints, without the plug-in."""
    found: list[dict[str, Any]] = json.loads(place.ok("results", "--json", *arguments).stdout)
    return found


def versions(place: Workplace, *arguments: str) -> list[str]:
    """Return the versions of the regularizer in the rows of `results`."""
    texts = [str(row["result_versions"]).split(", ") for row in rows(place, *arguments, "--metric", "accuracy")]
    return [part.rpartition(" ")[2] for text in texts for part in text if part.startswith("regularizer value-mix ")]


@pytest.mark.parametrize("executor", ["debug", pytest.param("local", marks=pytest.mark.slow)])
def test_what_was_requested_is_trained(place: Workplace, mine: Path, executor: str) -> None:
    """Though the file has been edited, or deleted, before the workers start."""
    submit = "submit", "--executor", executor
    place.ok("enqueue", "s.yaml", "--seeds", "1", "--plugin", "my.py")
    write(mine, 2)
    place.ok("enqueue", "s.yaml", "--seeds", "1", "--plugin", "my.py")
    mine.unlink()
    shutil.rmtree(place.folder / "parts")
    place.ok(*submit)
    if executor == "local":
        place.ok("status", "--watch")
    done = [directory.trial() for directory in place.directories() if directory.succeeded()]
    assert len(done) == 3, place.call("results").stdout
    assert len(set(versions(place))) == 2
    losses = {row["mean"] for row in rows(place, "regularizer=value-mix", "--metric", "loss")}
    assert len(losses) == 2, "one version was trained twice"


def test_a_version_that_is_nowhere_is_refused(place: Workplace, mine: Path) -> None:
    place.ok("enqueue", "s.yaml", "--seeds", "1", "--plugin", "my.py")
    shutil.rmtree(place.runs / "plugins")
    done = place.call("submit", "--executor", "debug")
    assert done.returncode == 2
    assert "plug-in of regularizer value-mix has changed since the trial was made" in done.stderr
    assert {directory.trial().regularizer.name for directory in place.directories()} <= {"none"}  # if its id is less
    place.ok("submit", "--executor", "debug", "--plugin", "my.py")


def test_versions_are_told_apart(place: Workplace, mine: Path) -> None:
    for version in (3, 1):
        write(mine, version)
        place.ok("run", "s.yaml", "--executor", "debug", "--plugin", "my.py")
    faulty, mended = (row["mean"] for row in rows(place, "regularizer=value-mix", "--metric", "loss"))
    assert faulty != mended
    grouped = rows(place, "--group-by", "regularizer", "--metric", "loss")
    assert [(row["regularizer"], row["n"]) for row in grouped] == [("none", 2), ("value-mix", 2), ("value-mix", 2)]
    assert grouped[0]["result_versions"] is None
    assert {row["mean"] for row in grouped[1:]} == {faulty, mended}
    first, second = versions(place)
    assert versions(place, f"result_versions={first}") == [first]
    assert versions(place, f"result_versions!=regularizer value-mix {first}") == [second]

    ranked = json.loads(place.ok("compare", "--rank", "--json").stdout)["rows"]
    named = {str(row["result_versions"]).rpartition(" ")[2] for row in ranked if row["regularizer"] == "value-mix"}
    assert named == {first, second}
    sides = [f"regularizer=value-mix result_versions={version}" for version in (first, second)]
    (row,) = json.loads(place.ok("compare", *sides, "--metric", "loss", "--json").stdout)
    assert [row[side] for side in ("old", "new")] == [
        {"result_versions": f"regularizer value-mix {version}"} for version in (first, second)
    ]
    assert {row["old_mean"], row["new_mean"]} == {faulty, mended}
    done = place.call("compare", "regularizer=value-mix", "regularizer=none", "--examples", "test")
    assert "'regularizer=value-mix' matches 2 configurations" in done.stderr
    done = place.call("compare", *sides, "--examples", "test")
    assert "has no predictions on test: task 'tiny' stores none" in done.stderr


def test_another_entry_or_name_trains_nothing_again(place: Workplace, mine: Path) -> None:
    place.ok("run", "s.yaml", "--seeds", "1", "--executor", "debug", "--plugin", "my.py")
    text = mine.read_text().replace("Another one.", "Yet another one.").replace("\n", "\r\n")
    mine.unlink()
    (place.folder / "renamed.py").write_bytes(text.encode())
    added = json.loads(place.ok("enqueue", "s.yaml", "--seeds", "1", "--plugin", "renamed.py", "--json").stdout)
    assert (added["added"], len(added["present"])) == ([], 2)


def test_a_plan_has_the_rows_of_plug_ins(place: Workplace, mine: Path) -> None:
    (place.folder / "p.yaml").write_text(f"{SUITE}plugin_rows: true\n")
    place.ok("enqueue", "p.yaml", env={**place.environment, "DROPBENCH_PLUGINS": f"{PLUGIN}:{mine}"})
    place.ok("report", "p.yaml", "--freeze", "plan.yaml")
    assert "other" in (place.folder / "plan.yaml").read_text()
    place.ok("run", "p.yaml", "--executor", "debug", "--plugin", "my.py")
    assert "as frozen on" in place.ok("report", "p.yaml", "--frozen", "plan.yaml").stdout


def test_a_colleague_trains_the_row_again(place: Workplace, mine: Path, tmp_path: Path) -> None:
    """With the folder of runs alone."""
    place.ok("run", "s.yaml", "--seeds", "1", "--executor", "debug", "--plugin", "my.py")
    theirs = tmp_path / "colleague"
    theirs.mkdir()
    shutil.copytree(place.runs, theirs / "runs")
    shutil.copy(place.folder / "s.yaml", theirs)
    mine.unlink()
    shutil.rmtree(place.folder / "parts")
    env = {key: text for key, text in place.environment.items() if key != "DROPBENCH_PLUGINS"}
    env |= {"DROPBENCH_RUNS": str(theirs / "runs"), "DROPBENCH_DB": f"sqlite:///{theirs / 'b.db'}"}
    place.ok("db", "rebuild", env=env)
    report = place.ok("report", "s.yaml", env=env).stdout
    assert report == place.ok("report", "s.yaml").stdout
    copies = [word for copy in sorted((theirs / "runs" / "plugins").iterdir()) for word in ("--plugin", str(copy))]
    same = place.ok("enqueue", "s.yaml", "--seeds", "1", "--json", *copies, env=env)
    assert json.loads(same.stdout)["added"] == []
    added = place.ok("enqueue", "s.yaml", "--seeds", "2", "--json", *copies, env=env)
    assert len(json.loads(added.stdout)["added"]) == 2
    place.ok("submit", "--executor", "debug", env=env)
    assert json.loads(place.ok("status", "--json", env=env).stdout)["succeeded"] == 4


def test_many_runs_of_one_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restored: None,  # noqa: F811
) -> None:
    """As in a notebook: no run trains or loads another version than that of its request."""
    monkeypatch.setenv("DROPBENCH_PLUGINS", str(PLUGIN))
    losses: dict[int, set[float]] = defaultdict(set)  # by number of steps
    ids: dict[int, str] = {}
    file = tmp_path / "my.py"
    fields: dict[str, Any] = {"task": "tiny", "data": "tiny", "model": "tiny", "executor": "debug", "seeds": 1}
    for number in range(11):
        version, steps = number % 3 + 1, number // 3 + 1
        write(file, version)
        (trial,) = dropbench.run(**fields, set=f"steps={steps}", regularizer="value-mix", plugin=file).trials
        assert trial.state == "succeeded"
        ids[version] = trial.id
        losses[steps].add(trial.metrics["train/loss"] or 0.0)
        assert build_regularizer("value-mix").__doc__ == f"Version {version}."
    assert [len(values) for values in losses.values()] == [3, 3, 3, 2]
    file.unlink()
    for version, id in ids.items():
        model = dropbench.trial(id).model()
        (site,) = dropbench.sites(model)
        assert type(site.regularizer).__doc__ == f"Version {version}."
    with pytest.raises(InputError, match=r"gone\.py: No such file"):
        dropbench.results(plugin=tmp_path / "gone.py")
