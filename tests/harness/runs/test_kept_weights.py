"""Test which fine-tuned weights stay: none, or on request those of a cell's best trial."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import dropbench
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.run import analyze
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.kept_weights import discard_weights, keep_weights
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.trial import DataRef, Trial, WeightsRef
from tests.adapters.vision.test_image_encoder import timm_folder
from tests.input_errors import one_line

WEIGHTS = WeightsRef(path="w", digest="0")
SCORES = {0: 1.0, 1: 3.0, 2: 2.0}


def trial_of(seed: int, weights: WeightsRef | None = WEIGHTS) -> Trial:
    data = DataRef(name="d", fingerprint="0")
    return Trial(task="t", data=data, model="m", weights=weights, regularizer=RegularizerSpec(name="none"),
                 preset="mini", recipe={}, seed=seed)  # fmt: skip


def finish(runs: Runs, trial: Trial, score: float) -> RunDirectory:
    directory = RunDirectory.create(runs.folder, trial)
    (directory.path / "checkpoint").mkdir()
    (directory.path / "checkpoint" / "weights-000000001.pt").touch()
    directory.write_result({"metrics": {"dev/accuracy": score}})
    discard_weights(directory)
    return directory


def with_weights(runs: Runs) -> list[int]:
    return [directory.trial().seed for directory in runs if list(directory.path.glob("checkpoint/weights-*.pt"))]


@pytest.mark.parametrize("order", [*permutations(SCORES)])
@pytest.mark.parametrize(("higher", "best"), [(True, 1), (False, 0)])
def test_the_best_trial_of_a_cell_keeps_its_weights(tmp_path: Path, order: Any, higher: bool, best: int) -> None:
    runs, trials = Runs(tmp_path), [trial_of(seed) for seed in SCORES]
    for trial in trials:
        keep_weights(runs, trial, [each.id for each in trials], Metric("accuracy", higher_is_better=higher))
    for number, seed in enumerate(order, 1):
        finish(runs, trials[seed], SCORES[seed])
        assert len(with_weights(runs)) == 1, f"after {number} trials"
    assert with_weights(runs) == [best]


def test_weights_stay_on_request_or_if_the_trial_began_from_random_ones(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    keep_weights(runs, trial_of(0), (), Metric("accuracy"))
    for trial in (trial_of(0), trial_of(1), trial_of(2, weights=None)):
        finish(runs, trial, 1.0)
    assert sorted(with_weights(runs)) == [0, 2]


def test_a_run_keeps_the_best_of_its_seeds_and_analyses_say_what_the_others_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DROPBENCH_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path}/results.db")
    timm_folder(tmp_path / "vit", "vit_tiny_patch16_224", size=16)
    options: dict[str, Any] = {
        "task": "image-classification", "data": "digits-small", "model": "image-encoder", "executor": "debug",
        "set": {"image_size": 16, "channels": 3, "steps": 2, "batch_size": 8, "evaluate_every": 2},
        "weights": str(tmp_path / "vit"),
    }  # fmt: skip
    dropbench.run(seeds=2, keep_weights=True, **options)
    settings, runs = Settings(runs=tmp_path / "runs", device="cpu"), Runs(tmp_path / "runs")
    scores = {directory.trial().seed: (directory.result() or {})["metrics"]["dev/accuracy"] for directory in runs}
    (kept,) = with_weights(runs)
    assert scores[kept] == max(scores.values())
    for directory in runs:
        if directory.trial().seed == kept:
            assert analyze(directory.id, "entropy", Options(samples=4), settings)["scalars"]
        else:
            with one_line("kept no fine-tuned weights: of its cell, [0-9a-f]+ did, the best on dev: take that"):
                analyze(directory.id, "entropy", Options(samples=4), settings)
    dropbench.run(seeds=2, regularizer="dropkey:ratio=0.1", **options)
    assert with_weights(runs) == [kept]
    assert "--keep-weights" not in capsys.readouterr().err
    dropbench.run(seeds=2, keep_weights=True, regularizer="dropkey:ratio=0.1", **options)
    assert "--keep-weights: 2 trials finished earlier, and kept no weights: to train one" in capsys.readouterr().err
    dropbench.run(seeds=2, keep_weights=True, **options)
    assert "--keep-weights" not in capsys.readouterr().err, "the best has its weights"
