"""``dropbench run --with``: trials of a reference are not trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.settings import Settings
from jobs.cli.options import TrialOptions
from jobs.cli.reference_trials import without_reference
from jobs.cli.trial_request import resolve_request
from tests.db.conftest import Call
from tests.docs.reference.given import SUITE, small_file


@pytest.fixture
def file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return small_file(folder)


def test_only_trials_that_the_reference_lacks_are_requested(file: Path) -> None:
    settings = Settings()
    request = resolve_request(SUITE, TrialOptions(seeds=3), settings)
    rest, line = without_reference(request, settings, str(file))
    assert line == f"4 of {len(request.items)} trials are in the reference and are not trained"
    kept = [(trial.regularizer.name, trial.seed) for trial, _ in rest.items]
    assert [seed for name, seed in kept if name == "none"] == [2]
    assert [seed for name, seed in kept if name == "dropkey"] == [2]


def test_a_request_with_other_settings_has_nothing_in_common(file: Path) -> None:
    request = resolve_request(SUITE, TrialOptions(overrides=["lr=0.5"], seeds=1), Settings())
    rest, line = without_reference(request, Settings(), str(file))
    assert rest.items == request.items
    assert "is in the reference, which is of other data, settings or result versions" in line


def test_a_run_of_known_trials_trains_nothing_and_shows_them(file: Path, folder: Path, call: Call) -> None:
    known = ["run", "--task", "image-classification", "--data", "digits", "--model", "vit-digits", "--seeds", "2"]
    done = call(*known, "--set", "model.drop_path_rate=0.1", "--with", str(file), "--executor", "debug")
    assert done.code == 0, done.err
    assert "2 of 2 trials are in the reference" in done.err
    assert "origin: reference" in done.out or "reference" in done.out
    assert "90.05" in done.out
    assert not (folder / "runs").exists()
