"""Projections of the kept heads: equal to those of all heads with the dropped ones set to 0, and smaller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from dropbench.adapters.text.options import TextOptions
from dropbench.adapters.text.text_transformer import Encoder
from dropbench.adapters.vision.t2t_vit import build_t2t_vit
from dropbench.harness.models import head_skipping
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch

Model = tuple[nn.Module, Callable[[nn.Module], Tensor]]


def timm() -> Model:
    model = VisionTransformer(img_size=16, patch_size=8, embed_dim=24, depth=3, num_heads=6, num_classes=5)
    return model, lambda model: model(numbers(2, 3, 16, 16))


def t2t() -> Model:
    options = {"embed_dim": 24, "num_heads": 6, "token_dim": 8, "depth": 2}
    model = build_t2t_vit("t2t-vit-digits", options, image_size=(8, 8), channels=1, classes=5)
    return model, lambda model: model(numbers(2, 1, 8, 8))


def text() -> Model:
    options = TextOptions(layers=2, dim=24, heads=6, feedforward=8, dropout=0.0)
    tokens = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    model = nn.ModuleDict({"encoder": Encoder(options, 9, 4, {})})
    return model, lambda model: model.get_submodule("encoder")(tokens)[0]


def encoder(*, batch_first: bool = True) -> Model:
    layer = nn.TransformerEncoderLayer(24, 6, 8, dropout=0.0, batch_first=batch_first)
    masks = numbers(12, 5, 5)  # one per sample and head
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    shape = (2, 5, 24) if batch_first else (5, 2, 24)
    return model, lambda model: model(numbers(*shape), mask=masks)


def decoder() -> Model:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(24, 6, 8, dropout=0.0), 2)
    return model, lambda model: model(numbers(4, 2, 24), numbers(5, 2, 24))


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


MODELS = {"timm": timm, "t2t": t2t, "text": text, "torch": encoder, "torch decoder": decoder}
MODELS["torch, time first"] = lambda: encoder(batch_first=False)


def passed(build: Callable[[], Model], name: str, seed: int, **params: Any) -> list[Tensor]:
    """Return the output, a random number after it, and the gradients of a regularized model."""
    torch.manual_seed(0)
    model, run = build()
    model.double().train()
    bind(model, name, **params)
    torch.manual_seed(seed)
    out = run(model)
    after = torch.rand(1)
    out.square().sum().backward()
    return [out.detach(), after, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.fixture
def projected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of heads that were projected."""
    counts: list[int] = []
    project = head_skipping.KeptHeads.project

    def counting(self: head_skipping.KeptHeads, *args: Any) -> Tensor:
        counts.append(len(self.index))
        return project(self, *args)

    monkeypatch.setattr(head_skipping.KeptHeads, "project", counting)
    return counts


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("drophead", {"ratio": 0.4}),
        ("headmask", {"heads": 2}),
        ("dropkey+drophead", {"drophead.ratio": 0.4, "dropkey.ratio": 0.3}),
    ],
)
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_values_and_gradients_equal_those_of_all_projections(
    build: Callable[[], Model], name: str, params: dict[str, Any], projected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        monkeypatch.setattr(head_skipping, "is_plain", lambda _: True)
        ours = passed(build, name, seed, **params)
        assert projected
        assert max(projected) < 6
        projected.clear()
        monkeypatch.setattr(head_skipping, "is_plain", lambda _: False)
        whole = passed(build, name, seed, **params)
        assert not projected
        assert torch.equal(ours[1], whole[1])  # as many random numbers are drawn
        for one, other in zip(ours, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["drophead:draw=sample", "dropkey", "drophead+disagreement", "drophead+sigma-reparam"])
def test_where_all_heads_are_needed_all_are_projected(name: str, projected: list[int]) -> None:
    name, _, draw = name.partition(":draw=")
    params: dict[str, Any] = {"draw": draw} if draw else {}
    model, run = timm()
    bind(model.double().train(), name, **params)
    for _ in range(5):
        run(model)
    assert not projected


def test_observed_modules_project_all_heads(projected: list[int]) -> None:
    model, run = timm()
    bind(model.double().train(), "headmask")
    with watch(model, lambda site, weights: None):
        run(model)
    paths = [f"blocks.{layer}.attn.qkv" for layer in range(3)]
    handles = [model.get_submodule(path).register_forward_hook(lambda *_: None) for path in paths]
    run(model)
    assert not projected
    for handle in handles:
        handle.remove()
    run(model)
    assert projected


def test_returned_weights_are_those_of_all_heads(projected: list[int]) -> None:
    model, _ = encoder()
    bind(model.double().train(), "headmask")
    attention = model.get_submodule("layers.0.self_attn")
    x = numbers(2, 5, 24)
    _, weights = attention(x, x, x, need_weights=True, average_attn_weights=False)
    assert weights.shape[1] == 6
    assert not projected
