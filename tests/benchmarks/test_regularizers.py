"""The benchmark of regularizers, on a small model."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.training.regularizers import LEAST, Model, least_of, measured
from harness.settings import Settings


def test_names_are_measured_against_none_and_those_without_a_site_are_skipped(tmp_path: Path) -> None:
    model = Model(
        {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer"},
        {"batch_size": 4, "model.dim": 8, "model.feedforward": 8},
        rounds=2,
        weights_batch=6,
        limited=True,
    )
    names = ["none", "drophead", "patchdropout", "mixout"]
    found = measured("a model", model, names, Settings(runs=tmp_path, device="cpu", threads=1))
    assert [one.name for one in found] == [
        "a step of a model, none", "a step of a model, drophead:ratio=0.2", "a step of a model, mixout:ratio=0.9",
    ]  # fmt: skip
    assert [one.detail["batch"] for one in found] == [4, 4, 6]
    assert [one.detail["rounds"] for one in found] == [2, 4, 2]
    assert found[1].limit == pytest.approx(1 / 1.05, abs=1e-3)
    assert all(one.ratio > 0 for one in found)
    (reason,) = found[0].detail["skipped"]
    assert "'patchdropout' fits none" in reason
    assert f"- a model: {reason}" in command.section("regularizers", found)


def test_limits_follow_from_the_passes() -> None:
    assert least_of("dropkey") == LEAST
    assert least_of("ad-drop") == LEAST / 2
    assert least_of("r-drop") == 0.5
