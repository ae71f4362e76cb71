"""Learned Dropout with torch's features: compilation, export, checkpointing, several processes, mixed precision."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dropbench.harness.errors import InputError
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.auxiliary_loss import penalty
from dropbench.harness.runs.run_directory import RunDirectory
from tests.harness.regularizers.learned_dropout.tiny_decoder import decoder, learned, loss_of, tokens
from tests.training import make_trial, run


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"where": "everywhere"}, {"dropout_input": "embed", "detached_input": True}])
def test_it_compiles_whole(options: dict[str, Any]) -> None:
    model = decoder(layers=1)
    bind(model, "learned-dropout", shift_init=1.5, **options)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for training in (False, True):
        model.train(training)
        torch.manual_seed(3)
        expected = model(tokens())
        extra = penalty(model, 0)
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(tokens()), expected)
        compiled_extra = penalty(model, 0)
        assert (compiled_extra is None) == (extra is None) == (not training)
        torch.testing.assert_close(compiled_extra, extra)


def test_it_exports_in_evaluation() -> None:
    model = learned(shift_init=1.5).eval()
    exported = torch.export.export(model, (tokens(),)).module()
    torch.testing.assert_close(exported(tokens()), model(tokens()))


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    model = learned(shift_init=1.5)
    saved = copy.deepcopy(model)
    saved.blocks = nn.ModuleList(Checkpointed(block, reentrant=False) for block in saved.blocks)
    for _ in range(2):  # the second pass: nothing is left of the first
        for each in (model, saved):
            torch.manual_seed(5)
            loss_of(each).backward()
    for expected, actual in zip(model.parameters(), saved.parameters(), strict=True):
        assert expected.grad is not None
        torch.testing.assert_close(actual.grad, expected.grad)
    saved.blocks = nn.ModuleList(Checkpointed(block, reentrant=True) for block in model.blocks)
    with pytest.raises(InputError, match="use_reentrant=False"):
        loss_of(saved)


@pytest.mark.parametrize("options", [{}, {"dropout_input": "embed", "detached_input": True}])
def test_distributed_training_reduces_every_gradient(tmp_path: Path, options: dict[str, Any]) -> None:
    from torch import distributed

    model, alone = learned(shift_init=1.5, **options), learned(shift_init=1.5, **options)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model)
        for _ in range(2):  # a parameter without a gradient would stop the second pass
            torch.manual_seed(5)
            loss_of(model, wrapped).backward()
            torch.manual_seed(5)
            loss_of(alone).backward()
        for actual, expected in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(actual.grad, expected.grad)
    finally:
        distributed.destroy_process_group()


def test_the_engine_adds_the_penalty_to_the_loss_of_any_task(tmp_path: Path) -> None:
    """With a huge coefficient nothing matters but the penalty: the masks close."""
    kept = {}
    for coeff in (1e-6, 1000.0):
        small: dict[str, Any] = {"model.depth": 1, "model.embed_dim": 16}
        trial = make_trial(
            f"learned-dropout:where=attention,shift_init=1.0,max_coeff={coeff}", seed=1, steps=6, batch_size=32,
            accumulate=2, lr=0.1, lr_schedule="constant", warmup=0, evaluate_every=6, **small,
        )  # fmt: skip
        run(tmp_path, trial)
        directory = RunDirectory(tmp_path / trial.id)
        newest = max((directory.path / "checkpoint").glob("step-*.pt"))
        state = torch.load(newest, weights_only=True)["model"]
        kept[coeff] = torch.cos(state["blocks.0.attn.regularization.shift"] / 2).square().mean().item()
        start = next(event for event in directory.events() if event["event"] == "train")
        assert (start["loss"] > 100) == (coeff == 1000.0)
    assert kept[1000.0] < kept[1e-6] - 0.1


class Checkpointed(nn.Module):
    """A block whose activations are computed again in the backward pass."""

    def __init__(self, block: Any, reentrant: bool) -> None:
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, *inputs: Any) -> Any:
        return checkpoint(self.block, *inputs, use_reentrant=self.reentrant)
