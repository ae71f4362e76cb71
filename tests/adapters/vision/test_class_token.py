"""Test that ViTs compute only the class token of their last layer in training, with the numbers of the whole layer."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench.harness.models.catalog import MODELS
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from dropbench.harness.regularizers.spec import build_regularizer, parse_spec

PER_QUERY = [
    "none", "dropkey:ratio=0.4", "dropkey-block:ratio=0.4", "dropkey-cross:ratio=0.4", "dropattention-c:ratio=0.4",
    "dropattention-e:ratio=0.4", "dropout:ratio=0.4", "dropattention-detached:ratio=0.4", "value-dropout:ratio=0.4",
    "temperature", "attentiondrop-topk:ratio=0.4", "attentiondrop-blur", "patchdropout",
    "temperature + value-dropout:ratio=0.4 + dropkey:ratio=0.4", "sigma-reparam", "mixout", "weight-orthogonality",
    "stochastic-depth:ratio=0", "layerdrop:ratio=0", "dropkey:ratio=0.4 + attention-entropy:layers=0",
]  # fmt: skip
"""Of one sample and one head, so that the first query has the drop bits that it has among all queries: they are counted
over samples, heads and queries."""
OF_A_BATCH = ["none", "drophead:ratio=0.5", "headmask:heads=2", "temperature"]
"""Of several samples and heads: nothing is drawn for a query."""
OF_ALL = [
    "attention-entropy", "disagreement", "diverse-attention:layers=all", "hiddencut", "dropdim", "stochastic-depth",
    "layerdrop", "headmask-important", "dropkey + attention-entropy",
]  # fmt: skip


def build(name: str, spec: str, *, heads: int = 1, **options: Any) -> nn.Module:
    torch.manual_seed(3)
    small = {"depth": 2, "num_heads": heads, "embed_dim": 32} | ({"patch_size": 2} if name[0] == "v" else {})
    model = MODELS.get(name)(name, {**small, **options}, image_size=(8, 8), channels=1, classes=10)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    if spec != "none":
        parsed = parse_spec(spec)
        bind(model, build_regularizer(parsed.name, **parsed.params))
    return model.train()


def tokens_of(model: nn.Module) -> list[int]:
    """Return a list to which every forward pass adds the number of tokens that leave the last layer."""
    found: list[int] = []
    norm: Any = model.norm
    norm.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].shape[1]))
    return found


def step(model: nn.Module, images: Tensor, *, whole: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits and gradients of a step; `whole`: of a model whose last layer is observed."""
    blocks: Any = model.blocks
    hook = blocks[-1].register_forward_hook(lambda *_: None) if whole else None
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    logits = model(images)
    model.zero_grad()
    logits.logsumexp(1).sum().backward()
    if hook is not None:
        hook.remove()
    model.load_state_dict(state)  # sigma-reparam has buffers that a forward pass changes
    return logits.detach(), {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


NAMES = ["vit-cifar", "t2t-vit-cifar"]


@pytest.mark.parametrize(
    ("name", "spec", "heads", "samples"),
    [
        *((name, spec, 1, 1) for name, spec in zip(cycle(NAMES), PER_QUERY, strict=False)),
        *((name, spec, 4, 3) for name in NAMES for spec in OF_A_BATCH),
    ],
)
def test_a_step_has_the_numbers_of_the_whole_layer(name: str, spec: str, heads: int, samples: int) -> None:
    model, images = build(name, spec, heads=heads), torch.randn(samples, 1, 8, 8)
    tokens = tokens_of(model)
    logits, gradients = step(model, images, whole=False)
    expected, expected_gradients = step(model, images, whole=True)
    assert tokens[0] == 1 < tokens[1]
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-5)
    assert len(gradients) == len(list(model.parameters())) - (name == "t2t-vit-cifar")  # positions are not trained


@pytest.mark.parametrize(("name", "spec"), [*zip(cycle(NAMES), OF_ALL, strict=False)])
def test_what_reads_all_tokens_gets_them(name: str, spec: str) -> None:
    model = build(name, spec, heads=4)
    tokens = tokens_of(model)
    model(torch.randn(2, 1, 8, 8))
    assert tokens[0] > 1


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_and_probes_get_all_tokens(name: str) -> None:
    model = build(name, "dropkey:ratio=0.4", heads=4)
    tokens = tokens_of(model)
    weights: list[Tensor] = []
    with watch(model, lambda _, each: weights.append(each)):
        model(torch.randn(2, 1, 8, 8))
    model.eval()(torch.randn(2, 1, 8, 8))
    assert tokens[0] == tokens[1] > 1
    assert weights[-1].shape[-2] == tokens[0]


def test_the_mean_over_tokens_reads_all_of_them() -> None:
    model = build("vit-cifar", "none", global_pool="avg")
    tokens = tokens_of(model)
    model(torch.randn(2, 1, 8, 8))
    assert tokens == [17]
