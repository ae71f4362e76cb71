"""The engine: exact resume, damaged checkpoints, accumulation, early stopping, divergence, data loading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.attention.kernels.c_library import load_library
from dropbench.harness.errors import Diverged, InputError, Interrupted
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.training import checkpoint
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial
from tests.training import after, assert_resumes, curve, make_trial, once, run

OPTIONS = {"epochs": 2, "batch_size": 48, "evaluate_every": 9, "model.depth": 2, "model.embed_dim": 16, "ema": 0.9}


Whole = tuple[Trial, dict[str, Any], list[dict[str, Any]]]
"""A trial, its result and its events."""


def make(regularizer: str = "dropkey", **changes: Any) -> Trial:
    """A trial on the digits with a small ViT; every feature that has state is on."""
    return make_trial(regularizer if regularizer == "none" else f"{regularizer}:ratio=0.3", **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    runs, trial = tmp_path_factory.mktemp("whole"), make(accumulate=2)
    return trial, run(runs, trial), curve(runs, trial)


def test_a_run_stopped_anywhere_ends_bit_for_bit_equal(tmp_path: Path, whole: Whole) -> None:
    trial, result, events = whole
    for calls in (1, 8, 1, 1, 30, 10):  # after steps 1, 9 (an evaluation), 10, 11, 41, and 51 of 52
        with pytest.raises(Interrupted):
            run(tmp_path, trial, after(calls))
    assert run(tmp_path, trial) == result
    assert curve(tmp_path, trial) == events


def test_the_seed_of_a_run_matters(tmp_path: Path, whole: Whole) -> None:
    trial, result, _ = whole
    other = trial.model_copy(update={"seed": 4})
    assert other.id != trial.id
    assert other.config_id == trial.config_id
    assert run(tmp_path, other)["metrics"] != result["metrics"]


def test_what_a_killed_worker_did_past_its_checkpoint_is_taken_back(tmp_path: Path, whole: Whole) -> None:
    trial, result, events = whole
    directory = RunDirectory.create(tmp_path, trial)
    with pytest.raises(Interrupted):
        run(tmp_path, trial, after(12))

    def dies() -> bool:
        raise KeyboardInterrupt

    # Dies without a checkpoint, after some steps more, and in the middle of writing a line.
    calls = iter([False] * 7)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, trial, lambda: next(calls, None) is None and dies())
    with (directory.path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "train", "step": 2')
    assert run(tmp_path, trial) == result
    assert curve(tmp_path, trial) == events


@pytest.mark.parametrize(
    "damage", ["cut", *(pytest.param(d, marks=pytest.mark.slow) for d in ("flip", "empty", "weights"))]
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path, whole: Whole, damage: str) -> None:
    trial, result, events = whole
    for calls in (20, 10):
        with pytest.raises(Interrupted):
            run(tmp_path, trial, after(calls))
    folder = tmp_path / trial.id / "checkpoint"
    older, newest = sorted(folder.glob("step-*.pt"))
    if damage == "weights":
        selected = torch.load(newest, weights_only=True)["selected"]
        newest = checkpoint.weights_path(folder, selected)
        if selected == torch.load(older, weights_only=True)["selected"]:
            older.unlink()  # both lean on the same weights: nothing is left to fall back to
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    kept = {"cut": len(content) // 2, "empty": 0, "weights": -100}.get(damage, len(content))
    newest.write_bytes(content[:kept])
    assert run(tmp_path, trial) == result
    assert curve(tmp_path, trial) == events
    assert any(event["event"] == "damaged" for event in RunDirectory(tmp_path / trial.id).events())


def test_only_two_checkpoints_are_kept_and_no_orphaned_weights(tmp_path: Path) -> None:
    trial = make()
    for calls in (5, 5, 12, 8):
        with pytest.raises(Interrupted):
            run(tmp_path, trial, after(calls))
    folder = tmp_path / trial.id / "checkpoint"
    states = [torch.load(path, weights_only=True) for path in sorted(folder.glob("step-*.pt"))]
    assert [state["step"] for state in states] == [18, 22]  # the evaluation after step 18 was stopped
    needed = {state["selected"] for state in states} - {None}
    assert {int(path.stem.removeprefix("weights-")) for path in folder.glob("weights-*.pt")} == needed


def test_micro_batches_count_by_what_their_loss_is_the_mean_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = TASKS.get("image-classification")
    monkeypatch.setattr(kind, "micro_batches", lambda task, indices, parts: [indices[:5], indices[5:]])
    monkeypatch.setattr(kind, "num_loss_terms", lambda task, batch: len(batch[1]))
    uneven = make("none", accumulate=2, epochs=1)
    run(tmp_path, uneven)
    monkeypatch.undo()
    even = make("none", epochs=1)
    run(tmp_path, even)
    for two, one in zip(curve(tmp_path, uneven), curve(tmp_path, even), strict=True):
        if one["event"] == "train":
            assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)


@pytest.mark.slow
def test_the_weights_of_the_last_evaluations_are_averaged(tmp_path: Path) -> None:
    trial = make(average_last=3, evaluate_every=20)
    result = assert_resumes(tmp_path, trial, stops=(21, 3, 20))
    assert len(list((tmp_path / "parts" / trial.id / "checkpoint").glob("part-*.pt"))) <= 4
    assert result["selected_step"] == result["steps"] == 52
    parts = []
    for steps in (20, 40, 52):
        one = make(evaluate_every=20)
        with pytest.raises(Interrupted):
            run(tmp_path / str(steps), one, once(tmp_path / str(steps), one, "evaluate", steps))
        state = torch.load(tmp_path / str(steps) / one.id / "checkpoint" / f"step-{steps:09d}.pt", weights_only=True)
        average = {key[len("module.") :]: value for key, value in state["average"].items() if key.startswith("module.")}
        parts.append(average)
    found = checkpoint.load_weights(tmp_path / "whole" / trial.id / "checkpoint", 52)
    for key, value in found.items():
        torch.testing.assert_close(value, sum(part[key] for part in parts) / 3)


def test_a_recipe_that_takes_the_last_weights_is_evaluated_at_its_end(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"average_last": 1, "epochs": 2, "evaluate_every": 5}
    often = make(**changes)
    metrics = run(tmp_path, often)["metrics"]
    assert [event["event"] for event in curve(tmp_path, often)].count("evaluate") > 2
    del changes["evaluate_every"]
    once = make_trial("dropkey:ratio=0.3", **{**{k: v for k, v in OPTIONS.items() if k != "evaluate_every"}, **changes})
    assert run(tmp_path, once)["metrics"] == metrics
    assert {event["event"] for event in curve(tmp_path, once)} == {"train"}


def test_loading_processes_do_not_change_the_result(tmp_path: Path) -> None:
    trial = make(epochs=1, evaluate_every=20)
    assert run(tmp_path / "two", trial, num_workers=2) == run(tmp_path / "none", trial)


def test_early_stopping_ends_after_patience_evaluations(tmp_path: Path) -> None:
    trial = make("none", lr=1e-9, patience=3, epochs=4)
    result = run(tmp_path, trial)
    evaluations = [event for event in curve(tmp_path, trial) if event["event"] == "evaluate"]
    scores = [event["metrics"]["accuracy"] for event in evaluations]
    assert result["steps"] == evaluations[-1]["step"] < 4 * 26
    assert result["selected_step"] == evaluations[-4]["step"]
    assert scores[-4] > max(scores[:-4], default=-1.0)
    assert scores[-4] >= max(scores[-3:])


def test_a_loss_that_is_no_number_fails_the_trial(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="the loss became"):
        run(tmp_path, make("none", lr=1e30, warmup=0.0))


def test_bfloat16_trains_and_resumes_exactly(tmp_path: Path) -> None:
    assert_resumes(tmp_path, make(amp="bf16", epochs=1), stops=[13])


def test_float16_is_float32_on_a_cpu_and_the_notes_say_so(tmp_path: Path) -> None:
    half, full = make("none", epochs=1, amp="fp16"), make("none", epochs=1)
    assert run(tmp_path, half)["metrics"] == run(tmp_path, full)["metrics"]
    notes = [json.loads((tmp_path / trial.id / "environment.json").read_text())["notes"] for trial in (half, full)]
    assert set(notes[0]) - set(notes[1]) == {"amp=fp16: computed in float32, as always on CPUs"}


def test_micro_batches_in_pieces_train_what_whole_ones_do(tmp_path: Path) -> None:
    """Micro-batches are split after a trial ran out of memory, also when it resumes from an older checkpoint."""
    trial = make("none", accumulate=2, epochs=1)
    whole = run(tmp_path / "whole", trial)
    micro_batch_splits = run(tmp_path / "pieces", trial, micro_batch_splits=4)
    with pytest.raises(Interrupted):
        run(tmp_path / "cut", trial, after(13))
    resumed = run(tmp_path / "cut", trial, micro_batch_splits=2)
    for found in (micro_batch_splits, resumed):
        assert found["metrics"] == pytest.approx(whole["metrics"], rel=1e-5)


@pytest.mark.slow
def test_a_micro_batch_is_not_cut_below_one_sample(tmp_path: Path) -> None:
    trial = make("none", batch_size=8, accumulate=2, epochs=1)
    run(tmp_path, trial, micro_batch_splits=4)
    with pytest.raises(InputError, match=r"out of memory even with micro-batches of one sample \(the recipe has 4"):
        run(tmp_path / "more", trial, micro_batch_splits=8)


@pytest.mark.parametrize("regularizer", ["dropkey", "dropout"])
def test_backends_train_alike_and_are_recorded(tmp_path: Path, regularizer: str) -> None:
    """Rounding apart: the same decisions in every step."""
    trial = make(regularizer, epochs=1, evaluate_every=20)
    found = {name: run(tmp_path / name, trial, backend=name)["metrics"] for name in ("auto", "eager")}
    assert found["auto"] == pytest.approx(found["eager"], rel=1e-3)
    for name in found:
        known = json.loads((tmp_path / name / trial.id / "environment.json").read_text())
        expected = "eager" if name == "eager" or load_library("cpu_fused") is None else "cpu"
        assert (known["backend"], known["backends"], known["compile"]) == (name, [expected], False)


@pytest.mark.slow
def test_a_compiled_model_trains_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the compiler's first half, which is what could change a model; to make machine code takes a minute."""
    compiled = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model: compiled(model, backend="aot_eager"))
    trial = make(epochs=1, evaluate_every=20, batch_size=128)
    plain, quick = run(tmp_path / "plain", trial), run(tmp_path / "compiled", trial, compile=True)
    assert quick["metrics"] == pytest.approx(plain["metrics"], rel=1e-4)
    assert json.loads((tmp_path / "compiled" / trial.id / "environment.json").read_text())["compile"] is True


def test_each_source_of_randomness_can_have_a_fixed_seed(tmp_path: Path) -> None:
    short: dict[str, Any] = {"epochs": 1, "evaluate_every": 30}
    whole = run(tmp_path, make(**short))["metrics"]
    fixed: dict[str, Any] = {f"seed_{source}": 3 for source in ("init", "order", "masks")}
    assert not fixed.keys() & make(**short).recipe.keys(), "trials without these keys keep their ids"
    assert run(tmp_path, make(seed=4, **short, **fixed))["metrics"] == whole
    for varied in fixed:
        others: dict[str, Any] = {key: value for key, value in fixed.items() if key != varied}
        assert run(tmp_path, make(seed=4, **short, **others))["metrics"] != whole, varied
