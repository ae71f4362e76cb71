"""The alignments of a trial: what they may be, the second phase, evaluation by draws, and what a sibling has done."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention.call import Call
from dropbench.harness.errors import InputError, Interrupted
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import sites
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.drop import UnitDrop
from dropbench.harness.regularizers.spec import complete_spec
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training import checkpoint
from dropbench.harness.training.regularization import monte_carlo
from dropbench.harness.trials.alignment import MAX_DRAWS, base_trial, num_mc_samples, validate_alignment
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial
from tests.training import after, curve, make_trial, once, run

OPTIONS = {
    "epochs": 1, "batch_size": 100, "evaluate_every": 5, "model.depth": 2, "model.embed_dim": 16, "ema": 0.9,
    "finetune_epochs": 1, "finetune_lr": 1e-3,
}  # fmt: skip
STEPS = 12
"""An epoch of the digits in batches of 100."""


def make(align: str, regularizer: str = "dropkey:ratio=0.5", **overrides: Any) -> Trial:
    return make_trial(regularizer, align=align, **{**OPTIONS, **overrides})


def done(runs: Path, trial: Trial) -> dict[str, Any]:
    """A run whose result is written, as a worker does."""
    result = run(runs, trial)
    RunDirectory(runs / trial.id).write_result(result)
    return result


def same_weights(one: Path, other: Path, trial: Trial, step: int) -> bool:
    """Return whether two runs of a trial selected bit-for-bit equal weights."""
    a, b = (checkpoint.load_weights(runs / trial.id / "checkpoint", step) for runs in (one, other))
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("align", ["monte-carlo", "monte-carlo-0", "monte-carlo-07", "monte-carlo-9999999", "tune", ""])
def test_an_unknown_alignment_is_an_error(align: str) -> None:
    with pytest.raises(InputError, match="expected none, finetune, or monte-carlo"):
        make(align)


def test_a_trial_from_elsewhere_with_an_unknown_alignment_does_not_run(tmp_path: Path) -> None:
    trial = make("none").model_copy(update={"align": "fine-tune"})
    with pytest.raises(InputError, match="align 'fine-tune': expected none, finetune"):
        run(tmp_path, trial)


def test_draws_are_read_from_the_name() -> None:
    assert [num_mc_samples(name) for name in ("none", "finetune", "monte-carlo-2000")] == [0, 0, 2000]
    assert validate_alignment(f"monte-carlo-{MAX_DRAWS}", complete_spec("dropkey")) == "monte-carlo-1000000"


def test_where_nothing_is_dropped_nothing_is_aligned() -> None:
    assert make("finetune", "none").align == "none"
    assert make("finetune", "none").id == make("none", "none").id
    assert validate_alignment("finetune", complete_spec("dropkey", {"ratio": 0.0})) == "none"
    with pytest.raises(InputError, match="learned-dropout is on in evaluation too"):
        validate_alignment("finetune", complete_spec("learned-dropout"))


def test_what_finetuning_alone_reads_is_part_of_its_trials_alone() -> None:
    tuned, plain, averaged = (make(align) for align in ("finetune", "none", "monte-carlo-5"))
    assert tuned.recipe["finetune_epochs"] == 1
    assert tuned.overrides["finetune_lr"] == 1e-3
    for trial in (plain, averaged):
        assert not {"finetune_epochs", "finetune_lr"} & {*trial.recipe, *trial.overrides}
    assert base_trial(tuned) == base_trial(averaged) == plain
    assert base_trial(tuned).id == plain.id
    assert len({tuned.id, plain.id, averaged.id, make("finetune", finetune_epochs=2).id}) == 4
    with pytest.raises(InputError, match="finetune_lr"):
        make("none", finetune_lr=-1)


@dataclass(frozen=True)
class Tuned:
    """A trial with a second phase that was run in one go."""

    runs: Path
    trial: Trial
    result: dict[str, Any]
    events: list[dict[str, Any]]

    def equals(self, runs: Path, result: dict[str, Any]) -> bool:
        """Return whether another run of the trial ended with the same numbers and weights."""
        return result == self.result and same_weights(self.runs, runs, self.trial, result["selected_step"])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    runs, trial = tmp_path_factory.mktemp("tuned"), make("finetune")
    return Tuned(runs, trial, run(runs, trial), curve(runs, trial))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of the sibling, done."""
    runs, trial = tmp_path_factory.mktemp("plain"), make("none")
    done(runs, trial)
    return runs / trial.id


def test_the_second_phase_is_named_has_its_own_rate_and_is_selected_from(
    tuned: Tuned,
) -> None:
    trial, result, events = tuned.trial, tuned.result, tuned.events
    assert [event["phase"] for event in events] == sorted((event["phase"] for event in events), reverse=True)
    border = next(event for event in events if event["event"] == "phase")
    assert (border["step"], border["weights_of"]) == (STEPS + 1, trial.id)
    second = [event for event in events if event["phase"] == "finetune"]
    assert {event["lr"] for event in second if event["event"] == "train"} == {1e-3}
    evaluations = [event for event in second if event["event"] == "evaluate"]
    assert [event["step"] for event in evaluations] == [15, 20, 2 * STEPS]
    best = max(evaluations, key=lambda event: event["metrics"]["accuracy"])
    assert result["selected_step"] == best["step"]
    assert result["steps"] == 2 * STEPS
    assert result["metrics"]["dev/accuracy"] == best["metrics"]["accuracy"]


def test_two_phases_stopped_anywhere_end_bit_for_bit_equal(tmp_path: Path, tuned: Tuned) -> None:
    for calls in (3, STEPS - 3, 1, 1):
        with pytest.raises(Interrupted):
            run(tmp_path, tuned.trial, after(calls))
    assert tuned.equals(tmp_path, run(tmp_path, tuned.trial))
    assert curve(tmp_path, tuned.trial) == tuned.events


def test_nothing_is_dropped_in_the_second_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    inner = UnitDrop.attend_fused

    def noted(drop: UnitDrop, call: Call, site: Site) -> Tensor | None:
        calls.append(site.name)
        return inner(drop, call, site)

    monkeypatch.setattr(UnitDrop, "attend_fused", noted)
    trial = make("finetune")
    with pytest.raises(Interrupted):
        run(tmp_path, trial, once(tmp_path, trial, "phase"))
    first_phase = (1 + STEPS) * 2  # before the first step, the engine checks that the regularizer has an effect
    assert len(calls) == first_phase
    run(tmp_path, trial)
    assert len(calls) == first_phase


@pytest.mark.parametrize("patience", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_what_the_sibling_trained_is_not_trained_again_and_gives_the_same(tmp_path: Path, patience: int | None) -> None:
    """Also where early stopping ends the first phase before its last step."""
    changes: dict[str, Any] = {} if patience is None else {"patience": patience, "lr": 1e-8}
    results = {}
    plain = done(tmp_path, make("none", **changes))
    assert (plain["steps"] < STEPS) == (patience is not None)
    for align in ("finetune", "monte-carlo-40"):
        trial = make(align, **changes)
        alone = run(tmp_path / "alone", trial)
        results[align] = run(tmp_path, trial)
        assert results[align] == alone
        assert same_weights(tmp_path, tmp_path / "alone", trial, alone["selected_step"])
        directory = RunDirectory(tmp_path / trial.id)
        noted = [event for event in directory.events() if "weights_of" in event]
        assert [event["weights_of"] for event in noted] == [make("none", **changes).id]
        first = [event for event in directory.events() if event["event"] == "train" and event["step"] <= STEPS]
        assert not first
        assert checkpoint.load_weights(directory.path / "checkpoint", results[align]["selected_step"])
    assert results["monte-carlo-40"]["selected_step"] == plain["selected_step"]
    assert results["monte-carlo-40"]["metrics"]["train/loss"] == plain["metrics"]["train/loss"]


@pytest.mark.parametrize("align", ["finetune", "monte-carlo-40"])
def test_a_sibling_that_other_code_trained_is_named(
    tmp_path: Path, plain: Path, align: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(plain, tmp_path / plain.name)
    [first] = RunDirectory(plain).read("environment.json")["codes"]
    monkeypatch.setattr("dropbench.harness.training.train_state.code_digest", lambda: "b" * 12)
    trial = make(align)
    result = run(tmp_path, trial)
    assert any(f"{first[1]} from step 0, {'b' * 12} from step {STEPS}" in note for note in result["notes"])
    assert RunDirectory(tmp_path / trial.id).read("environment.json")["codes"] == [first, [STEPS, "b" * 12]]


def test_a_borrowed_second_phase_resumes_after_the_sibling_is_gone(tmp_path: Path, tuned: Tuned, plain: Path) -> None:
    shutil.copytree(plain, tmp_path / plain.name)
    with pytest.raises(Interrupted):
        run(tmp_path, tuned.trial, after(4))
    shutil.rmtree(tmp_path / plain.name)
    assert tuned.equals(tmp_path, run(tmp_path, tuned.trial))
    assert curve(tmp_path, tuned.trial)[1:] == [
        event for event in tuned.events if event["step"] > STEPS and event["event"] != "phase"
    ]


@pytest.mark.parametrize("damage", ["result", "weights"])
def test_a_damaged_sibling_is_of_no_use_and_no_harm(tmp_path: Path, tuned: Tuned, plain: Path, damage: str) -> None:
    folder = shutil.copytree(plain, tmp_path / plain.name)
    file = folder / "result.json" if damage == "result" else next((folder / "checkpoint").glob("weights-*.pt"))
    file.write_bytes(file.read_bytes()[:-40])
    assert tuned.equals(tmp_path, run(tmp_path, tuned.trial))


def test_evaluation_by_draws_is_what_the_context_computes(tmp_path: Path) -> None:
    trial = make("monte-carlo-40")
    result = run(tmp_path, trial)
    task = TASKS.get(trial.task)(trial, Settings())
    task.setup()
    model = task.build_model()
    bind(model, trial.regularizer.build())
    model.load_state_dict(checkpoint.load_weights(tmp_path / trial.id / "checkpoint", result["selected_step"]))
    for name, weight in model.named_parameters():
        weight.data *= 30 if "qkv" in name else 1  # attention that is far from even, so that dropping matters
    model.eval()
    batches = [task.batch("test", part) for part in task.evaluation_batches("test", 100)]
    with torch.no_grad():
        before = model(batches[0][0])
        with monte_carlo(model, 2000):
            one, other = model(batches[0][0]), model(batches[0][0])
        assert torch.equal(model(batches[0][0]), before)
    assert not any(site.mc_samples for site in sites(model))
    # Two averages over 2,000 draws are far nearer to each other than to evaluation without any.
    assert 0 < (one - other).abs().mean() < 0.2 * (one - before).abs().mean()


def test_torchs_own_fast_path_is_off_while_weights_are_averaged() -> None:
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).eval()
    x = torch.randn(2, 5, 16)
    bind(model, "dropkey", ratio=0.9)
    with torch.no_grad():
        plain = model(x)
        with monte_carlo(model, 50):
            assert not torch.allclose(model(x), plain, atol=1e-3)
        assert torch.equal(model(x), plain)
    assert torch.backends.mha.get_fastpath_enabled()
