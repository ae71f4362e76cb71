"""Suites whose cells are analyses of trained models: ``dropbench analyze SUITE``, tables, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dropbench.db.report.figures import figures
from dropbench.db.store.run_record import read_run_record
from dropbench.db.store.store import open_store
from dropbench.harness.cli.main import run
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.jobs.queue.request import request_suite
from tests.harness.analysis.trained_runs import SMALL, make_run

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


class AnalysisFolder:
    """Suites and trained trials in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    def suite(self, name: str = "measured", **changes: Any) -> str:
        """Write a suite file and return its path."""
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**SUITE, **changes}), encoding="utf-8")
        return str(file)

    def train(self, suite: str, count: int | None = None) -> list[RunDirectory]:
        """Create the run directories of its first trials as training leaves them, and record them."""
        requested = request_suite(load_suite(suite), SuiteOptions(), Settings())
        directories = [make_run(self.runs, trial) for trial in list(requested.trials.values())[:count]]
        with open_store(f"sqlite:///{self.folder / 'test.db'}") as store:
            store.add_requests([requested.request])
            store.record([read_run_record(directory) for directory in directories])
        return directories

    def cells(self, capsys: pytest.CaptureFixture[str], suite: str) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the cells of the report, by row and column."""
        capsys.readouterr()
        assert run(["report", suite, "--json"]) == 0
        return {(cell["row"], cell["column"]): cell for cell in json.loads(capsys.readouterr().out)["cells"]}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnalysisFolder:
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path / 'test.db'}")
    return AnalysisFolder(tmp_path)


def scalars(directory: RunDirectory, kind: str) -> dict[str, float]:
    values: dict[str, float] = json.loads((directory.analyses / f"{kind}.json").read_text())["scalars"]
    return values


def test_the_analyses_of_cells_are_run_once(place: AnalysisFolder, capsys: pytest.CaptureFixture[str]) -> None:
    suite = place.suite()
    (trained,) = place.train(suite, 1)
    before = place.cells(capsys, suite)
    assert before["none", "all"]["mean"] is not None
    assert before["none", "half"]["mean"] is None
    assert before["none", "half"]["states"] == {"not analyzed": 1}
    assert run(["analyze", suite, "--device", "cpu"]) == 0
    output = capsys.readouterr()
    assert "not run" in output.out
    assert f"{trained.id} entropy: done" in output.err
    after = place.cells(capsys, suite)
    assert after["none", "half"]["mean"] == scalars(trained, "occlusion")["accuracy@0.5"]
    assert after["none", "entropy"]["mean"] == scalars(trained, "entropy")["encoder-self.2"]
    assert (after["none", "half"]["metric"], after["none", "half"]["unit"]) == ("accuracy", "%")
    files = {file: file.stat().st_mtime_ns for file in trained.analyses.iterdir()}
    assert run(["analyze", suite]) == 0
    assert {file: file.stat().st_mtime_ns for file in trained.analyses.iterdir()} == files


def test_an_analysis_of_some_samples_is_repeated_on_all(place: AnalysisFolder) -> None:
    suite = place.suite(**HISTOGRAMS)
    (trained,) = place.train(suite, 1)
    assert run(["analyze", trained.id, "entropy", "--samples", "5"]) == 0
    part = scalars(trained, "entropy")
    assert run(["analyze", suite]) == 0
    assert scalars(trained, "entropy") != part
    (trained.analyses / "entropy.json").write_text("{")
    assert run(["analyze", suite]) == 0
    assert scalars(trained, "entropy")["last"]


def test_one_analysis_of_all_trials(place: AnalysisFolder) -> None:
    suite = place.suite(columns=[{"label": "all"}])
    trained = place.train(suite)
    assert len(trained) == 2
    assert run(["analyze", suite, "keep-rate"]) == 0
    assert all((directory.analyses / "keep-rate.npz").exists() for directory in trained)


def test_the_trained_trials_of_a_filter(place: AnalysisFolder, capsys: pytest.CaptureFixture[str]) -> None:
    trained = place.train(place.suite(columns=[{"label": "all"}]))
    with open_store(f"sqlite:///{place.folder / 'test.db'}") as store:
        store.set_states({trained[1].id: ("running", None)})  # no `collect` is needed
    assert run(["analyze", "task=image-classification", "not", "regularizer=none", "keep-rate", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["regularizer"] for row in rows} == {"dropkey"}
    assert {row["metric"]: row["mean"] for row in rows}["keep-rate/kept"] == scalars(trained[1], "keep-rate")["kept"]
    assert not trained[0].analyses.exists()
    assert run(["analyze", "succeeded", "interactions"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 4  # two lines of progress and the two errors


def test_the_chosen_candidate_of_a_swept_cell_is_analyzed(
    place: AnalysisFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    swept = {"label": "dropkey", "trial": {"regularizer": "dropkey"}, "sweep": {"ratio": [0.1, 0.3]}}
    suite = place.suite(columns=[{"label": "entropy", "metric": "entropy/last"}], rows=[swept])
    worse, better = place.train(suite)
    for directory, dev in ((worse, 50.0), (better, 60.0)):
        result = directory.result() or {}
        directory.write_result({**result, "metrics": {**result["metrics"], "dev/accuracy": dev}})
    with open_store(f"sqlite:///{place.folder / 'test.db'}") as store:
        store.record([read_run_record(worse), read_run_record(better)])
    assert run(["analyze", suite]) == 0
    cell = place.cells(capsys, suite)["dropkey", "entropy"]
    assert (cell["chosen"], cell["mean"]) == ({"ratio": 0.3}, scalars(better, "entropy")["last"])
    assert not worse.analyses.exists()


def test_a_failing_analysis_does_not_stop_the_others(place: AnalysisFolder, capsys: pytest.CaptureFixture[str]) -> None:
    suite = place.suite(
        columns=[{"label": "x", "metric": "entropy/first"}, {"label": "y", "metric": "occlusion/accuracy@0"}]
    )
    (trained,) = place.train(suite, 1)
    assert run(["analyze", suite]) == 1
    assert f"{trained.id}: no 'first' in entropy: expected mean, last, encoder-self.1" in capsys.readouterr().err
    assert place.cells(capsys, suite)["none", "y"]["mean"] == scalars(trained, "occlusion")["accuracy@0"]


@pytest.mark.slow
@pytest.mark.parametrize("figure", [CURVES, HISTOGRAMS, MAPS], ids=["curves", "histograms", "maps"])
def test_figures(place: AnalysisFolder, capsys: pytest.CaptureFixture[str], figure: dict[str, Any]) -> None:
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
    assert target.read_bytes() != alone  # it shows the other trials, too
    for file in first.analyses.glob("*.npz"):
        file.write_bytes(b"PK\x03\x04")
        capsys.readouterr()
        assert run(["report", suite, "--format", "png", "-o", str(target)]) == 2
        assert f"is damaged (File is not a zip file): run `dropbench analyze {first.id}" in capsys.readouterr().err


def test_each_histogram_has_the_values_whose_mean_its_column_shows(
    place: AnalysisFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []

    def keep(figure: Any) -> bytes:
        drawn.append(figure)
        return b""

    monkeypatch.setattr(figures, "png", keep)
    scalar = {"last": "entropy/last", "all": "entropy/mean", "first": "entropy/encoder-self.1"}
    suite = place.suite("drawn", figure={"kind": "histograms"}, columns=[
        {"label": label, "metric": metric} for label, metric in scalar.items()
    ])  # fmt: skip
    (trained,) = place.train(suite, 1)
    assert run(["analyze", suite]) == 0
    (figure,) = drawn
    for axes, metric in zip(figure.axes, scalar.values(), strict=True):
        (entry,) = axes.get_legend().get_texts()
        mean = scalars(trained, "entropy")[metric.removeprefix("entropy/")]
        assert entry.get_text() == f"none: {mean:.3f}"
    assert len({axes.get_legend().get_texts()[0].get_text() for axes in figure.axes}) == 3


def test_the_maps_of_a_figure_are_of_the_same_samples(place: AnalysisFolder) -> None:
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
    ("arguments", "message"),
    [
        (["SUITE", "--samples", "5"], "--samples 5: several trials use all test samples: pass a trial's id instead"),
        (["seed=0", "entropy", "--split", "dev"], "--split dev: several trials use all test samples"),
        (["quickstart"], "analyze quickstart: its table shows no analysis: pass one of entropy, diversity"),
        (["quickstart", "entropy"], "analyze quickstart: no trained trial in"),
        (["SUITE"], "runs: run `dropbench run"),
        (["seed=0"], "analyze seed=0: KIND is missing"),
        (["quickstart", "seed=0", "entropy"], "no trained trial matches 'quickstart seed=0': run `dropbench status`"),
        (["seed=0", "entropy", "--model", "x"], "--model: trial 'seed=0' defines it: use --model only with a suite"),
        (["SUITE", "entrpy"], "unknown analysis 'entrpy': did you mean entropy"),
        (["SUITE", "--preset", "papr"], "unknown preset of"),
        (["SUITE", "--model", "vit-tiny"], "unknown model of"),
        (["0123", "--preset", "mini", "entropy"], "--preset: trial '0123' defines it: use --preset only with a suite"),
        (["0123"], "analyze 0123: KIND is missing: expected one of entropy, diversity"),
        (["BAD"], "unknown analysis 'entrpy': did you mean entropy"),
    ],
)
def test_invalid_input_is_reported_in_one_line(
    place: AnalysisFolder, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    bad = place.suite("bad", columns=[{"label": "x", "metric": "entrpy/mean"}])
    names = {"SUITE": place.suite(), "BAD": bad}
    assert run(["analyze", *(names.get(argument, argument) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_table_has_no_figure_and_a_figure_needs_trials(
    place: AnalysisFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    table, drawn = place.suite(), place.suite("drawn", **MAPS)
    place.train(table, 1)
    for suite, message in ((table, "is a table, no figure"), (drawn, "nothing to draw yet: run `dropbench run")):
        capsys.readouterr()
        assert run(["report", suite, "--format", "png", "-o", str(place.folder / "x.png")]) == 2
        assert message in capsys.readouterr().err
    assert run(["report", drawn, "--format", "png"]) == 2
    assert "expected a file: -o PATH" in capsys.readouterr().err


def test_what_was_requested_is_analyzed(place: AnalysisFolder, capsys: pytest.CaptureFixture[str]) -> None:
    suite = place.suite(columns=[{"label": "all"}], trial={**SUITE["trial"], "overrides": {}})
    assert run(["analyze", suite, "keep-rate"]) == 2
    assert "no trained trial in" in capsys.readouterr().err
    options = SuiteOptions(overrides=SMALL["digits"][2])
    requested = request_suite(load_suite(suite), options, Settings())
    (directory, *_) = [make_run(place.runs, trial) for trial in requested.trials.values()]
    with open_store(f"sqlite:///{place.folder / 'test.db'}") as store:
        store.add_requests([requested.request])
        store.record([read_run_record(directory)])
    assert run(["analyze", suite, "keep-rate"]) == 0
    assert (directory.analyses / "keep-rate.json").exists()
    place.runs.rename(place.folder / "elsewhere")
    capsys.readouterr()
    assert run(["analyze", suite, "keep-rate"]) == 2
    assert "set DROPBENCH_RUNS to their folder" in capsys.readouterr().err
