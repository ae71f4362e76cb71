"""The GPU-hours of queued trials, from the recorded speeds of trials of the same shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import Store, open_store
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.submission.cost import estimate, is_of_type, trials_to_probe
from tests.db.records import attempt, make_directory, make_trial
from tests.requests import named

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
EIGHT = Profile(gpus=8)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/bench.db") as store:
        yield store


def record(store: Store, folder: Path, trial: Trial, *attempts: dict[str, Any]) -> None:
    """Store attempts of a trial, as if `folder` were that of its run directory."""
    make_directory(folder, trial, attempts=attempts)
    rebuild(store, folder)


def measured(rate: float | None, gpus: int, device: str = A100, state: str = "interrupted", **fields: Any) -> Any:
    return attempt(state, steps_per_second=rate, gpus=gpus, device=device, **{"steps": 36_000, **fields})


def test_the_cost_is_that_of_the_remaining_steps(recorded: Store, tmp_path: Path) -> None:
    first, second, other = make_trial(0), make_trial(1, ratio=0.1), make_trial(data="mr")
    recorded.enqueue([first, second, other], [named("a", first, other), named("b", first, second)])
    ids = [first.id, second.id, other.id]
    unknown = estimate(recorded, ids, EIGHT)
    assert unknown is not None
    assert (unknown.total.trials, sum(unknown.total.unknown.values())) == (0, 3)
    # 36,000 steps at 2 per second take 5 hours of 8 GPUs; another learning rate changes nothing.
    recipe = {"epochs": 2, "lr": 0.3, "seed_init": 5}
    record(recorded, tmp_path / "runs", make_trial(9, recipe=recipe), measured(2.0, 8, state="failed"))
    record(recorded, tmp_path / "other", second, measured(None, 8, steps_done=9_000))
    found = estimate(recorded, ids, EIGHT)
    assert found is not None
    assert found.lines() == [
        "a: about 40.0 GPU-hours for 1 trial, unknown for 1 trial",
        "b: about 70.0 GPU-hours for 2 trials",
        "all: about 70.0 GPU-hours for 2 trials, unknown for 1 trial",
        "no speed of text-transformer on mr is recorded on these GPUs: the submission with `--probe` measures it",
    ]
    assert found.to_json()["all"] == {"gpu_hours": 70.0, "trials": 2, "unknown": 1}
    assert trials_to_probe(recorded, ids, EIGHT) == [other.id]
    assert estimate(recorded, ids, Profile()) is None


@pytest.mark.parametrize(
    "fields", [{"recipe": {"epochs": 3}}, {"regularizer": RegularizerSpec(name="r-drop", params={"alpha": 1.0})}]
)
def test_a_recipe_of_another_length_and_further_passes_are_unknown(
    recorded: Store, tmp_path: Path, fields: dict[str, Any]
) -> None:
    record(recorded, tmp_path / "runs", make_trial(**fields), measured(2.0, 8))
    trial = make_trial()
    recorded.enqueue([trial], [named("a", trial)])
    assert trials_to_probe(recorded, [trial.id], EIGHT) == [trial.id]


def test_the_same_number_of_gpus_comes_first_and_kinds_are_never_mixed(recorded: Store, tmp_path: Path) -> None:
    trial = make_trial()
    recorded.enqueue([trial], [named("a", trial)])

    def hours(profile: Profile) -> float | None:
        found = estimate(recorded, [trial.id], profile)
        assert found is not None
        return found.total.gpu_hours if found.total.trials else None

    record(recorded, tmp_path / "one", make_trial(1), measured(0.5, 1))
    assert hours(EIGHT) == 20.0
    record(recorded, tmp_path / "eight", make_trial(2), measured(2.0, 8))
    assert hours(EIGHT) == hours(Profile(gpus=4, nodes=2)) == 40.0
    assert hours(Profile(gpus=1)) == 20.0
    record(recorded, tmp_path / "h100", make_trial(3), measured(4.0, 8, H100))
    assert hours(EIGHT) is None
    assert hours(Profile(gpus=8, gpu_type="h100")) == 20.0
    assert hours(Profile(gpus=8, gpu_type="a100")) == 40.0
    assert hours(Profile(gpus=8, gpu_type="v100")) is None


@pytest.mark.parametrize(
    ("device", "gpu_type", "same"),
    [(A100, "a100", True), (A100, "nvidia_a100-sxm4-80gb", True), (A100, "a100_40gb", False), (H100, "a100", False)],
)
def test_the_cluster_s_name_of_a_type_is_part_of_the_gpu_s(device: str, gpu_type: str, same: bool) -> None:
    assert is_of_type(device, gpu_type) == same
