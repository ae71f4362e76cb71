"""Test regularizers under DistributedDataParallel with checkpointing, as in transformers' Trainer, and under FSDP."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import BertConfig, BertForSequenceClassification

from dropbench import InputError, regularize, training_loss
from tests.paths import DOCS, ROOT

pytestmark = pytest.mark.filterwarnings(
    "ignore:regularize. attendout", "ignore:`gradient_checkpointing_enable` is deprecated"
)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def gradients(spec: str, *, checkpointing: bool, find_unused: bool | None) -> list[Tensor]:
    """Return the gradients after some steps; without `find_unused`, of the model alone."""
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 20}
    torch.manual_seed(0)
    model: Any = BertForSequenceClassification(BertConfig(num_hidden_layers=3, **sizes)).train()
    regularize(model, spec, quiet=True)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    called = model
    if find_unused is not None:
        called = nn.parallel.DistributedDataParallel(model, find_unused_parameters=find_unused)

    def forward(batch: Tensor) -> tuple[Tensor, Tensor]:
        out = called(batch, labels=torch.tensor([0, 1]))
        return out.loss, out.logits

    for step in range(3):
        torch.manual_seed(step)
        model.zero_grad()
        training_loss(model, forward, torch.arange(10).view(2, 5), step=step, progress=0.1).backward()
    return [torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(("spec", "find_unused"), [("attendout", False), ("layerdrop:ratio=0.5", True)])
def test_gradients_are_those_of_one_process(spec: str, find_unused: bool, checkpointing: bool, group: None) -> None:
    alone = gradients(spec, checkpointing=False, find_unused=None)
    assert any(grad.any() for grad in alone)
    torch.testing.assert_close(gradients(spec, checkpointing=checkpointing, find_unused=find_unused), alone)


def test_processes_that_are_seeded_as_documented_draw_masks_of_their_own() -> None:
    page = DOCS.joinpath("your-model.md").read_text(encoding="utf-8")
    [advice] = re.findall(r"`torch\.manual_seed\((.+)\)`", page)
    torch.manual_seed(0)
    model = regularize(nn.MultiheadAttention(8, 2, batch_first=True), "dropkey:ratio=0.5", quiet=True).train()
    x, outputs = torch.randn(2, 6, 8), []
    for rank in (0, 1, 0):
        torch.manual_seed({"seed + rank": 7 + rank, "seed": 7}[advice])
        outputs.append(model(x, x, x)[0])
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.allclose(outputs[0], outputs[1])


SPECS = ("dropkey:ratio=0.5", "drophead:ratio=0.5", "hiddencut", "layerdrop:ratio=0.5")


def losses(spec: str, **options: Any) -> list[float]:
    """Return the losses of three steps, of a model sharded by FSDP if it has options."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model: nn.Module = regularize(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), spec, quiet=True)
    if options:
        policy = ModuleWrapPolicy({nn.TransformerEncoderLayer})
        model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"), **options)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
    found = []
    for step in range(3):
        torch.manual_seed(step)
        loss = training_loss(model, lambda x: ((model(x) - 1.0).square().mean(), x), torch.ones(2, 5, 16).cumsum(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore:FSDP is switching to use `NO_SHARD`", "ignore:The .grad attribute of a Tensor"
)
@pytest.mark.parametrize("use_orig_params", [False, True])
@pytest.mark.parametrize("spec", SPECS)
def test_the_loss_under_fsdp_is_that_without(spec: str, use_orig_params: bool, group: None) -> None:
    assert losses(spec, use_orig_params=use_orig_params) == pytest.approx(losses(spec), rel=1e-5)


@pytest.mark.slow
def test_two_processes_under_fsdp(tmp_path: Path) -> None:
    code = "import dropbench; from tests.adapters.test_distributed import shard; shard({}, 'file://{}/group')"
    commands = [[sys.executable, "-c", code.format(rank, tmp_path)] for rank in range(2)]
    processes = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    assert [process.wait() for process in processes] == [0, 0]


def shard(rank: int, group: str) -> None:
    distributed.init_process_group("gloo", init_method=group, rank=rank, world_size=2)
    for use_orig_params in (False, True):
        for spec in (*SPECS, "mixout:ratio=0.5"):
            assert losses(spec, use_orig_params=use_orig_params) == pytest.approx(losses(spec), rel=1e-5)
        with pytest.raises(InputError, match=r"layers.0.self_attn: FSDP frees weights after the forward pass"):
            losses("weight-orthogonality", use_orig_params=use_orig_params)
    distributed.destroy_process_group()
