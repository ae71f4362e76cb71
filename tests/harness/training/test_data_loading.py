"""Feeding the loop: the same batches from any number of processes, ahead of time, and their errors in one line."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.training import data_loading as module
from dropbench.harness.training.data_loading import (
    MicroBatch,
    SplitBatches,
    StepBatches,
    max_workers_in_memory,
    prefetch,
    spare_cores,
)
from dropbench.harness.trials.task import TASKS, Task
from dropbench.harness.trials.trial import TrialRequest
from tests.patience import wait

CPU, OTHER = torch.device("cpu"), torch.device("meta")


class Numbers(Dataset[Any]):
    """Batches of their number and the process that made them."""

    def __getitem__(self, key: int) -> Any:
        if key == 99:
            raise InputError("images/99.jpg: the image is damaged")
        return {"key": key, "process": os.getpid(), "pixels": torch.full((2, 3), key)}


def makers(keys: range, device: torch.device = CPU, seconds: float = 0.0, **settings: Any) -> list[int]:
    """Return the processes that made the batches of `keys`, the first of which seems to take `seconds`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(perf_counter=iter([0.0, seconds]).__next__))
        found = list(prefetch(Numbers(), keys, Settings(**settings), device))
    assert [batch["key"] for batch in found] == list(keys)
    assert all(batch["pixels"].device == device for batch in found)
    return [batch["process"] for batch in found]


@pytest.fixture(scope="module")
def task() -> Task:
    """Images whose augmentation draws from the generators of Python, NumPy and torch."""
    strong = {"randaugment": "rand-m9-mstd0.5-inc1", "erase": 0.5, "mixup": 0.8, "crop_padding": 4, "batch_size": 8}
    kind, settings = TASKS.get("image-classification"), Settings(device="cpu")
    request = TrialRequest(
        task=kind.name, data="cifar10-synthetic", model="vit-cifar", overrides={**strong, "accumulate": 2}
    )
    made = kind(kind.trial_for(request, settings), settings)
    made.setup()
    return made


def test_batches_are_the_same_from_any_number_of_processes_and_any_step_on(task: Task) -> None:
    first, last = 40, 50  # of 45 steps an epoch
    assert task.steps_per_epoch(8) == 45
    whole = {step: StepBatches(task, seed=5)[step] for step in range(first, last)}
    for num_workers, start in ((0, first), (1, first + 3), (2, first + 4)):
        found = list(prefetch(StepBatches(task, seed=5), range(start, last), Settings(num_workers=num_workers), CPU))
        assert len(found) == last - start
        for batch, expected in zip(found, [whole[step] for step in range(start, last)], strict=True):
            for (part, *_), (other, *_) in zip(batch, expected, strict=True):
                assert all(torch.equal(one, two) for one, two in zip(part, other, strict=True))
    assert not torch.equal(whole[first][0].batch[0], StepBatches(task, seed=6)[first][0].batch[0])


def test_micro_batches_are_cut_into_pieces(task: Task) -> None:
    whole, micro_batch_splits = StepBatches(task, seed=5)[3], StepBatches(task, seed=5, micro_batch_splits=3)[3]
    assert [(len(part[0]), size) for part, size, *_ in whole] == [(4, 1.0), (4, 1.0)]
    assert [(len(part[0]), size) for part, size, *_ in micro_batch_splits] == 2 * [(1, 0.25), (1, 0.25), (2, 0.5)]
    assert [len(part) for part in SplitBatches(task, "test", micro_batch_splits=3).parts[:3]] == [2, 3, 3]


def test_images_of_a_micro_batch_are_mixed_alike_whatever_processes_and_memory_divide_it(task: Task) -> None:
    def batches(ranks: int, splits: int = 1) -> list[MicroBatch]:
        """Return what all ranks make of a step's two micro-batches of four images."""
        return [part for rank in range(ranks) for part in StepBatches(task, 5, rank, ranks, splits)[3]]

    def shares(parts: list[MicroBatch], number: int) -> set[float]:
        """Return the share of the mixed-in image of each pair of two classes."""
        labels = torch.cat([part.batch[1] for part in parts if part.number == number])
        return {round(row[row > 0].min().item(), 5) for row in labels if (row > 0).sum() == 2}

    alone = batches(1)
    for number, part in enumerate(batches(2)):
        assert all(map(torch.equal, part.batch, alone[number].batch))
    for ranks, splits in ((4, 1), (1, 2), (2, 2)):
        divided = batches(ranks, splits)
        assert len(divided) == 4
        for number in (0, 1):
            assert len(shares(alone, number)) == len(shares(divided, number)) == 1


def test_evaluation_meets_every_row_once_and_draws_nothing(task: Task) -> None:
    parts = SplitBatches(task, "test")
    torch.manual_seed(1)
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())  # type: ignore[index]
    for num_workers in (0, 2):
        found = list(prefetch(parts, range(len(parts)), Settings(num_workers=num_workers), CPU))
        assert torch.equal(torch.cat([labels for _, labels in found]), task.labels["test"])  # type: ignore[attr-defined]
    assert before[:2] == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index]
    assert torch.equal(before[2], torch.get_rng_state())


def test_on_the_cpu_no_processes_are_started_unasked() -> None:
    assert makers(range(4), threads=8) == [os.getpid()] * 4
    asked = makers(range(4), num_workers=2)
    assert len(set(asked) - {os.getpid()}) == 2
    assert makers(range(3), num_workers=0) == [os.getpid()] * 3


def test_beside_another_device_free_cores_make_batches_that_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    here, *others = makers(range(12), OTHER, seconds=0.12, threads=3)
    assert here == os.getpid()
    assert len(set(others)) == 2
    assert os.getpid() not in others
    assert makers(range(12), OTHER, threads=3) == [os.getpid()] * 12  # too quick to be worth it
    monkeypatch.setattr(module, "MIN_STEP_S", 10.0)
    assert len(set(makers(range(12), OTHER, seconds=0.12, threads=3)[1:])) == 1  # nothing to do for a second one
    assert makers(range(3), OTHER, seconds=0.6, threads=1) == [os.getpid()] * 3  # no core is free


def test_each_process_has_its_cores_or_a_share_of_those_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert spare_cores(Settings()) == min(module.MAX_WORKERS, 15)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert spare_cores(Settings()) == 1
    assert [spare_cores(Settings(threads=threads)) for threads in (1, 8, 100)] == [0, 7, module.MAX_WORKERS]


def test_no_more_batches_wait_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(module.SHARED_MEMORY)
    half = free.f_bavail * free.f_frsize // 2
    whole = torch.empty(half // 4, device="meta")
    assert max_workers_in_memory([(whole[: half // 40], {"labels": 3})]) in (4, 5)
    assert max_workers_in_memory({"pixels": whole, "labels": [whole]}) == 0
    monkeypatch.setattr(module, "SHARED_MEMORY", "/nowhere")
    assert max_workers_in_memory(whole[:1]) == 0
    assert makers(range(3), OTHER, seconds=0.6, threads=3) == [os.getpid()] * 3


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_comes_through_with_its_one_line(num_workers: int) -> None:
    found: list[int] = []
    batches = prefetch(Numbers(), range(96, 102), Settings(num_workers=num_workers), CPU)
    with pytest.raises(InputError) as caught:
        found.extend(batch["key"] for batch in batches)
    assert str(caught.value) == "images/99.jpg: the image is damaged"
    assert found == [96, 97, 98]


def test_batches_are_made_while_the_model_works(tmp_path: Path) -> None:
    class Noted(Numbers):
        def __getitem__(self, key: int) -> Any:
            (tmp_path / str(key)).touch()
            return super().__getitem__(key)

    for batch in prefetch(Noted(), range(8), Settings(num_workers=1), CPU):
        assert batch["process"] != os.getpid()
        following = tmp_path / str(min(batch["key"] + 1, 7))
        wait(following.exists, "the next batch, before it is asked for")


def test_a_process_that_makes_batches_outlives_a_schedulers_warning() -> None:
    batches = prefetch(Numbers(), range(12), Settings(num_workers=1), CPU)
    os.kill(next(batches)["process"], signal.SIGTERM)
    assert len(list(batches)) == 11


def test_the_environment_says_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.from_environment().num_workers is None
    monkeypatch.setenv("DROPBENCH_NUM_WORKERS", "3")
    settings = Settings.from_environment()
    assert settings.num_workers == Settings.from_payload(settings.to_payload()).num_workers == 3
    monkeypatch.setenv("DROPBENCH_NUM_WORKERS", "many")
    with pytest.raises(InputError, match="DROPBENCH_NUM_WORKERS=many: expected a number of processes"):
        Settings.from_environment()
