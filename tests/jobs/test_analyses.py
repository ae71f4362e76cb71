"""Suites whose cells are measured of trained models: ``dropbench analyze SUITE``, their tables, their figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from db.report import figures
from db.snapshot import snapshot
from db.store import open_store
from harness.cli import run
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.suite import Choice, load_suite
from tests.harness.trained_runs import SMALL, make_run

SUITE: dict[str, Any] = {
    "title": "Measured",
    "source": "these tests",
    "metric": "accuracy",
    "trial": {
        "task": "image-classification", "data": "digits", "model": "vit-digits", "overrides": SMALL["digits"][2],
    },
    "columns": [
        {"label": "all", "metric": "accuracy"},
        {"label": "half", "metric": "occlusion/accuracy@0.5"},
        {"label": "entropy", "metric": "entropy/last"},
    ],
    "rows": [
        {"label": "none", "baseline": True, "trial": {"regularizer": "none"}},
        {"label": "dropkey", "trial": {"regularizer": "dropkey", "params": {"ratio": 0.3}}},
    ],
    "presets": {"mini": {"seeds": 1}},
}  # fmt: skip
CURVES: dict[str, Any] = {
    "figure": {"kind": "curves"},
    "columns": [
        {"label": "0", "trial": {"regularizer": "none", "params": {}}},
        {"label": "0.1", "trial": {"params": {"ratio": 0.1}}},
        {"label": "0.3", "trial": {"params": {"ratio": 0.3}}},
    ],
    "rows": [{"label": "dropkey", "trial": {"regularizer": "dropkey"}, "published": [96.0, None, 97.0]}],
}
HISTOGRAMS: dict[str, Any] = {
    "figure": {"kind": "histograms"},
    "columns": [{"label": "last", "metric": "entropy/last"}],
}
MAPS: dict[str, Any] = {"figure": {"kind": "maps"}, "columns": [{"label": "peak", "metric": "attention-map/peak"}]}


class Place:
    """Suites and trained trials in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    def suite(self, name: str = "measured", **changes: Any) -> str:
        """Write a suite file; returns its path."""
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**SUITE, **changes}), encoding="utf-8")
        return str(file)

    def train(self, suite: str, count: int | None = None) -> list[RunDirectory]:
        """Run directories of its first trials, as training leaves them, in the database too."""
        found = load_suite(suite).trials(Choice(), Settings())
        trials = {trial.id: trial for _, trials in found for trial in trials}
        made = [make_run(self.runs, trial) for trial in list(trials.values())[:count]]
        with open_store(f"sqlite:///{self.folder / 'test.db'}") as store:
            store.record([snapshot(directory) for directory in made])
        return made

    def cells(self, capsys: pytest.CaptureFixture[str], suite: str) -> dict[tuple[str, str], dict[str, Any]]:
        """The report's cells."""
        capsys.readouterr()
        assert run(["report", suite, "--json"]) == 0
        return {(cell["row"], cell["column"]): cell for cell in json.loads(capsys.readouterr().out)["cells"]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path / 'test.db'}")
    return Place(tmp_path)


def scalars(directory: RunDirectory, kind: str) -> dict[str, float]:
    found: dict[str, float] = json.loads((directory.analyses / f"{kind}.json").read_text())["scalars"]
    return found


def test_what_the_cells_are_made_of_is_measured_once(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    suite = place.suite()
    (trained,) = place.train(suite, 1)
    before = place.cells(capsys, suite)
    assert before["none", "all"]["mean"] is not None
    assert before["none", "half"]["mean"] is None
    assert before["none", "half"]["states"] == {"not analyzed": 1}
    assert run(["analyze", suite, "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert "not run" in said.out
    assert f"{trained.id} entropy: done" in said.err
    found = place.cells(capsys, suite)
    assert found["none", "half"]["mean"] == scalars(trained, "occlusion")["accuracy@0.5"]
    assert found["none", "entropy"]["mean"] == scalars(trained, "entropy")["encoder-self.2"]
    assert (found["none", "half"]["metric"], found["none", "half"]["unit"]) == ("accuracy", "%")
    files = {file: file.stat().st_mtime_ns for file in trained.analyses.iterdir()}
    assert run(["analyze", suite]) == 0
    assert {file: file.stat().st_mtime_ns for file in trained.analyses.iterdir()} == files


def test_what_was_measured_of_some_samples_is_measured_of_all(place: Place) -> None:
    suite = place.suite(**HISTOGRAMS)
    (trained,) = place.train(suite, 1)
    assert run(["analyze", trained.id, "entropy", "--samples", "5"]) == 0
    part = scalars(trained, "entropy")
    assert run(["analyze", suite]) == 0
    assert scalars(trained, "entropy") != part
    (trained.analyses / "entropy.json").write_text("{")
    assert run(["analyze", suite]) == 0
    assert scalars(trained, "entropy")["last"]


def test_any_analysis_of_all_trials(place: Place) -> None:
    suite = place.suite(columns=[{"label": "all"}])
    trained = place.train(suite)
    assert len(trained) == 2
    assert run(["analyze", suite, "keep-rate"]) == 0
    assert all((directory.analyses / "keep-rate.npz").exists() for directory in trained)


def test_of_a_swept_cell_what_was_chosen_is_measured(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    swept = {"label": "dropkey", "trial": {"regularizer": "dropkey"}, "sweep": {"ratio": [0.1, 0.3]}}
    suite = place.suite(columns=[{"label": "entropy", "metric": "entropy/last"}], rows=[swept])
    worse, better = place.train(suite)
    for directory, dev in ((worse, 50.0), (better, 60.0)):
        result = directory.result() or {}
        directory.write_result({**result, "metrics": {**result["metrics"], "dev/accuracy": dev}})
    with open_store(f"sqlite:///{place.folder / 'test.db'}") as store:
        store.record([snapshot(worse), snapshot(better)])
    assert run(["analyze", suite]) == 0
    cell = place.cells(capsys, suite)["dropkey", "entropy"]
    assert (cell["chosen"], cell["mean"]) == ({"ratio": 0.3}, scalars(better, "entropy")["last"])
    assert not worse.analyses.exists()


def test_one_that_cannot_be_made_does_not_stop_the_others(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    suite = place.suite(
        columns=[{"label": "x", "metric": "entropy/first"}, {"label": "y", "metric": "occlusion/accuracy@0"}]
    )
    (trained,) = place.train(suite, 1)
    assert run(["analyze", suite]) == 1
    assert f"{trained.id}: no 'first' in entropy: expected mean, last, encoder-self.1" in capsys.readouterr().err
    assert place.cells(capsys, suite)["none", "y"]["mean"] == scalars(trained, "occlusion")["accuracy@0"]


@pytest.mark.parametrize("figure", [CURVES, HISTOGRAMS, MAPS], ids=["curves", "histograms", "maps"])
def test_figures(place: Place, capsys: pytest.CaptureFixture[str], figure: dict[str, Any]) -> None:
    suite = place.suite("drawn", **figure)
    target = place.folder / "figure.png"
    assert run(["report", suite, "--format", "png", "-o", str(target)]) == 2  # no database yet
    (first, *_) = place.train(suite, 1)
    assert run(["analyze", suite]) == 0
    assert f"figure: {place.runs / 'figures'}" in capsys.readouterr().err
    assert run(["report", suite, "--format", "png", "-o", str(target)]) == 0
    alone = target.read_bytes()
    assert alone.startswith(b"\x89PNG")
    place.train(suite)
    assert run(["analyze", suite]) == 0
    assert run(["report", suite, "--format", "png", "-o", str(target)]) == 0
    assert target.read_bytes() != alone  # the other trials are in it
    for file in first.analyses.glob("*.npz"):
        file.write_bytes(b"PK\x03\x04")
        capsys.readouterr()
        assert run(["report", suite, "--format", "png", "-o", str(target)]) == 2
        assert f"is damaged (File is not a zip file): dropbench analyze {first.id}" in capsys.readouterr().err


def test_each_panel_of_histograms_has_the_values_that_its_column_is_the_mean_of(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def keep(made: Any) -> bytes:
        drawn.append(made)
        return b""

    monkeypatch.setattr(figures, "png", keep)
    scalar = {"last": "entropy/last", "all": "entropy/mean", "first": "entropy/encoder-self.1"}
    suite = place.suite("drawn", figure={"kind": "histograms"}, columns=[
        {"label": label, "metric": metric} for label, metric in scalar.items()
    ])  # fmt: skip
    (trained,) = place.train(suite, 1)
    assert run(["analyze", suite]) == 0
    (made,) = drawn
    for axes, metric in zip(made.axes, scalar.values(), strict=True):
        (entry,) = axes.get_legend().get_texts()
        mean = scalars(trained, "entropy")[metric.removeprefix("entropy/")]
        assert entry.get_text() == f"none: {mean:.3f}"
    assert len({axes.get_legend().get_texts()[0].get_text() for axes in made.axes}) == 3


def test_maps_of_a_figure_are_those_that_were_measured(place: Place) -> None:
    suite = place.suite("drawn", **MAPS)
    trained = place.train(suite)
    assert run(["analyze", suite]) == 0
    samples = []
    for directory in trained:
        with np.load(directory.analyses / "attention-map.npz") as kept:
            samples.append(kept["indices"])
    assert np.array_equal(*samples)
    assert scalars(trained[0], "attention-map")["peak"] >= 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["SUITE", "--samples", "5"], "--samples 5: a suite's analyses are of all of test: expected a trial's id"),
        (["SUITE", "--split", "dev"], "--split dev: a suite's analyses are of all of test"),
        (["SUITE", "entrpy"], "unknown analysis 'entrpy': did you mean entropy"),
        (["SUITE", "--preset", "papr"], "unknown preset of"),
        (["SUITE", "--model", "vit-tiny"], "unknown model of"),
        (["0123", "--seeds", "3", "entropy"], "--seeds: trial '0123' says that itself: expected it with a suite"),
        (["0123"], "analyze 0123: expected what to measure: entropy, diversity"),
        (["BAD"], "unknown analysis 'entrpy': did you mean entropy"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    place: Place, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    bad = place.suite("bad", columns=[{"label": "x", "metric": "entrpy/mean"}])
    names = {"SUITE": place.suite(), "BAD": bad}
    assert run(["analyze", *(names.get(argument, argument) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_table_has_no_figure_and_a_figure_needs_trials(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    table, drawn = place.suite(), place.suite("drawn", **MAPS)
    place.train(table, 1)
    for suite, told in ((table, "is a table, no figure"), (drawn, "nothing to draw yet: dropbench run")):
        capsys.readouterr()
        assert run(["report", suite, "--format", "png", "-o", str(place.folder / "x.png")]) == 2
        assert told in capsys.readouterr().err
    assert run(["report", drawn, "--format", "png"]) == 2
    assert "expected a file: -o PATH" in capsys.readouterr().err
