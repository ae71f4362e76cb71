"""Evaluations that are stopped between two batches, and resume there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch.distributed as dist
from torch import nn

from dropbench.harness.errors import Interrupted
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.store import predictions_path
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training import checkpoint
from dropbench.harness.training.data_loading import SplitBatches
from dropbench.harness.training.engine import FINAL_SPLITS, run_trial
from dropbench.harness.training.regularization import monte_carlo
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.classifier import Classifier
from tests.harness.training.ranks import run_ranks
from tests.harness.training.step_gradient import TRIALS, plain_trial, task_in
from tests.harness.training.test_engine import make
from tests.tasks.making import CPU
from tests.training import after, curve, once, run

pytestmark = pytest.mark.usefixtures("few")
SHORT: dict[str, Any] = {"epochs": 1, "evaluate_every": 13}
MONTE_CARLO: dict[str, Any] = {**SHORT, "align": "monte-carlo-2"}


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the batches of images that models classify in evaluation."""
    calls, logits = [0], Classifier.logits

    def count(self: Classifier, model: nn.Module, inputs: Any) -> Any:
        calls[0] += not model.training
        return logits(self, model, inputs)

    with mock.patch.object(Classifier, "logits", count):
        yield calls


def finish(runs: Path, trial: Trial, stop: Callable[[], Callable[[], bool]]) -> tuple[dict[str, Any], int]:
    """Run a trial until it is finished, with a new stop for each attempt; return the result and number of attempts."""
    for attempt in range(1, 400):
        try:
            return run(runs, trial, stop()), attempt
        except Interrupted:
            pass
    raise AssertionError("it restarts for ever")


def files_of(runs: Path, trial: Trial) -> list[bytes]:
    return [predictions_path(runs / trial.id, split).read_bytes() for split in FINAL_SPLITS]


@pytest.mark.parametrize("options", [SHORT, MONTE_CARLO], ids=["plain", "the model draws"])
def test_an_evaluation_goes_on_after_the_batches_that_are_evaluated(tmp_path: Path, options: dict[str, Any]) -> None:
    """In evaluations with four batches of dev and eight of test, of which no attempt evaluates more than three."""
    trial = make(**options)
    with counted() as calls:
        whole = run(tmp_path / "whole", trial)
        expected, calls[0] = calls[0], 0
        result, attempts = finish(tmp_path / "parts", trial, lambda: after(4))
        assert calls[0] == expected, "batches were evaluated again"
    assert attempts > 8
    events = [event for event in RunDirectory(tmp_path / "parts" / trial.id).events() if event["event"] == "evaluating"]
    stored = [(event["step"], event["batches"]) for event in events]
    assert stored == sorted(stored)
    assert len(stored) >= 4
    # The final evaluation of dev begins after that which selects weights, at the same step.
    assert len({*stored}) >= len(stored) - 1
    assert result == whole
    assert curve(tmp_path / "parts", trial) == curve(tmp_path / "whole", trial)
    assert files_of(tmp_path / "parts", trial) == files_of(tmp_path / "whole", trial)
    folder = tmp_path / "parts" / trial.id / "checkpoint"
    checkpoint.discard(folder, selected=0)
    assert not (folder / checkpoint.EVALUATION).exists()


def test_a_loop_over_the_batches_stops_and_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make(**SHORT)
    whole = run(tmp_path / "whole", trial)
    monkeypatch.setattr(Trainer, "map_batches", lambda self, function, batches: map(function, batches))
    with pytest.raises(Interrupted, match="stopped in the evaluation of step 13"):
        run(tmp_path / "parts", trial, after(14))
    with counted() as calls:
        assert run(tmp_path / "parts", trial) == whole
    assert calls[0] == 4 + 4 + 4 + 8
    assert curve(tmp_path / "parts", trial) == curve(tmp_path / "whole", trial)


def test_a_worker_that_is_killed_in_an_evaluation_loses_no_more_than_since_a_checkpoint(tmp_path: Path) -> None:
    trial = make(**SHORT)
    with counted() as calls:
        whole = run(tmp_path / "whole", trial)
        expected, calls[0] = calls[0], 0
        for looks in (15, 6):  # after two batches of dev, and after its end, which the events have
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path / "parts", trial, killed_after(looks), checkpoint_seconds=-1.0)
        assert run(tmp_path / "parts", trial) == whole
    assert calls[0] <= expected + 2
    assert curve(tmp_path / "parts", trial) == curve(tmp_path / "whole", trial)


def killed_after(looks: int) -> Callable[[], bool]:
    """Return a stop that ends the worker without a checkpoint after some looks."""
    stop = after(looks)

    def look() -> bool:
        if stop():
            raise KeyboardInterrupt
        return False

    return look


@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_without_its_file_an_evaluation_begins_again(tmp_path: Path, damage: str) -> None:
    trial = make(**SHORT)
    whole = run(tmp_path / "whole", trial)
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", trial, after(15))
    file = tmp_path / "parts" / trial.id / "checkpoint" / checkpoint.EVALUATION
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        checkpoint.write(file, {"step": 13, "splits": 1, "calls": {"selection": [{"results": 3}]}})
    assert run(tmp_path / "parts", trial) == whole
    (event,) = (each for each in RunDirectory(tmp_path / "parts" / trial.id).events() if each["event"] == "damaged")
    assert event["message"].startswith("evaluation.pt: ")


def test_an_evaluation_in_smaller_parts_begins_again(tmp_path: Path) -> None:
    """The batches of an attempt after one that ran out of memory are others."""
    trial = make("none", **SHORT)
    whole = run(tmp_path / "whole", trial)
    with pytest.raises(Interrupted):
        run(tmp_path / "parts", trial, after(15))
    resumed = run(tmp_path / "parts", trial, micro_batch_splits=2)
    assert resumed["metrics"] == pytest.approx(whole["metrics"], rel=1e-5)


def evaluate_in_parts(directory: RunDirectory, batches: int | None) -> Any:
    """Evaluate an untrained trial on dev and test; stop after some batches unless None. Return metrics and rows."""
    task = task_in(directory, CPU)
    trainer = Trainer(task, directory, Settings(runs=directory.path.parent, device="cpu", threads=1), lambda: False)
    trainer.evaluations.load(0)
    if batches is not None:
        trainer.stop = after(batches - 1)
    results: list[Any] = []
    model = trainer.eval_model()
    with monte_carlo(model, trainer.mc_samples):
        for split in FINAL_SPLITS:
            task.recorder = recorder = Recorder()
            try:
                results.append((trainer.evaluate(model, split, 0, f"final {split}"), recorder.rows))
            except Interrupted:
                return None
    return results


@pytest.mark.slow
@pytest.mark.parametrize("task", TRIALS)
def test_every_task_evaluates_in_parts(tmp_path: Path, task: str) -> None:
    directory = RunDirectory.create(tmp_path, plain_trial(task))
    whole = evaluate_in_parts(directory, None)
    kind = task_in(directory, CPU)
    numbers = {split: len(SplitBatches(kind, split)) for split in FINAL_SPLITS}
    seen = list[int]()
    with mock.patch.object(Trainer, "_evaluate_next", _counting(seen)):
        for batches in (1, numbers["dev"] + 2):
            assert evaluate_in_parts(directory, batches) is None
        assert evaluate_in_parts(directory, None) == whole
    assert len(seen) == sum(numbers.values())


def _counting(seen: list[int]) -> Callable[..., bool]:
    evaluate_next = Trainer._evaluate_next

    def counting(self: Trainer, *arguments: Any) -> bool:
        if evaluated := evaluate_next(self, *arguments):
            seen.append(1)
        return evaluated

    return counting


def train_until(directory: RunDirectory, step: int, looks: int | None) -> Any:
    """Train; return the result, or where this rank stopped: after some looks in the evaluation of a step.

    The last rank alone is asked to stop.
    """
    last = not dist.is_initialized() or dist.get_rank() == dist.get_world_size() - 1
    trained, stop = once(directory.path.parent, directory.trial(), "train", step), after(looks or 0)
    settings = Settings(runs=directory.path.parent, device="cpu", threads=1)
    try:
        return run_trial(directory, settings, lambda: looks is not None and last and trained() and stop())
    except Interrupted as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "stops", "last"),
    [(SHORT, [(13, 2, 0), (26, 1, 7), (26, 3, 1)], 2), (MONTE_CARLO, [(13, 3, 0), (26, 2, 1)], 3)],
    ids=["plain", "the model draws"],
)
def test_other_numbers_of_ranks_go_on_with_an_evaluation(
    tmp_path: Path, options: dict[str, Any], stops: list[tuple[int, int, int]], last: int
) -> None:
    """They stop together in the evaluations of steps 13 and 26, and end with the metrics of a run that does not."""
    trial = make("none" if options is SHORT else "dropkey", **options, lr=1e-9)
    expected = train_until(RunDirectory.create(tmp_path / "whole", trial), 0, None)
    parts = RunDirectory.create(tmp_path / "parts", trial)
    for step, ranks, looks in stops:
        alone = [train_until(parts, step, looks)] if ranks == 1 else []
        for stopped in alone or run_ranks(ranks, train_until, parts, step, looks):
            assert stopped == f"stopped in the evaluation of step {step}"
    for result in run_ranks(last, train_until, parts, 0, None):
        for name, value in expected["metrics"].items():
            assert name == "train/loss" or result["metrics"][name] == value
    assert [event["event"] for event in parts.events()].count("evaluate") == 2
