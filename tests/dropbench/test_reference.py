"""`dropbench.results` with reference results."""

from __future__ import annotations

from pathlib import Path

import pytest

import dropbench
from dropbench import InputError
from dropbench.harness.cli.main import run as command
from tests.docs.reference.given import campaign, small_file


def test_reference_results_have_rows_of_their_own_and_no_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = campaign(tmp_path / "runs", ["none"], base=50.0, seeds=(0, 1))
    assert command(["db", "rebuild"]) == 0
    both = dropbench.results("regularizer=none", reference=small_file(tmp_path))
    found = both.to_frame().set_index("origin")["mean"]
    assert found.to_dict() == {"own": pytest.approx(50.05), "reference": pytest.approx(90.05)}
    assert {trial.id for trial in both.trials} == {trial.id for trial in own}
    assert "origin" not in dropbench.results("regularizer=none").to_frame()
    with pytest.raises(InputError, match="no such file: expected `reference`"):
        dropbench.results(reference=tmp_path / "none.zip")
