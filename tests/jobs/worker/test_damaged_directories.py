"""The worker with damaged run directories in its list."""

from __future__ import annotations

import pytest

from dropbench.harness.cli.main import run
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from tests.damage import age, damage
from tests.fuzz.hostile import limited
from tests.jobs.worker.training import Work, states
from tests.jobs.workplace import Tiny, Workplace


@pytest.mark.parametrize("kind", ["empty", "foreign", "folder", "loop"])
def test_a_worker_goes_on(place: Workplace, work: Work, tiny: Tiny, kind: str) -> None:
    trials = tiny(6, overrides={"steps": 2})
    worker = work(trials)
    for trial, name in zip(
        trials, ("lease/3", "attempts/1.json", "events.jsonl", "log.txt", "cancelled"), strict=False
    ):
        damage(place.runs / trial.id / name, kind)
        age(place.runs / trial.id)
    worker()
    damaged = place.runs / trials[1].id / "attempts"
    if kind != "empty":
        with pytest.raises(InputError, match=r"attempts/1\.json"):
            RunDirectory(damaged.parent).attempts()
        damage(damaged / "1.json", "empty")
    ends = states(place)
    assert ends[trials[0].id] == ends[trials[5].id] == ["succeeded"]
    whole = kind in ("empty", "foreign")
    assert ends[trials[2].id] == ends[trials[3].id] == (["succeeded"] if whole else ["failed"])
    if not whole:
        cause = place.attempts()[trials[2].id][0]["cause"]
        assert str(place.runs / trials[2].id / "events.jsonl") in cause


def test_a_pipe_in_place_of_the_log_fails_its_trial_alone(
    place: Workplace, work: Work, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = tiny(2, overrides={"steps": 2})
    worker = work(trials)
    damage(place.runs / trials[0].id / "log.txt", "pipe")
    with limited(30):
        worker()
        monkeypatch.setenv("DROPBENCH_RUNS", str(place.runs))
        assert run(["logs", trials[0].id]) == 2
    assert states(place) == {trials[0].id: ["failed"], trials[1].id: ["succeeded"]}
    assert "log.txt" in place.attempts()[trials[0].id][0]["cause"]
