"""Test T2T-ViT: parameters, token grids for image sizes, sites, fixed parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from dropbench import InputError
from dropbench.adapters.vision.t2t_module import TokenPerformer
from dropbench.adapters.vision.t2t_vit import T2TViT, build_t2t_vit
from dropbench.harness.analysis import ANALYSES
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.models.catalog import CIFAR, IMAGENET, MODELS
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from dropbench.harness.settings import Settings
from dropbench.harness.trials.optimization import build_optimizer
from dropbench.harness.trials.recipe import Recipe
from tests.harness.analysis.trained_runs import make_run, make_trial


def build(name: str, image: int = 32, **options: Any) -> T2TViT:
    torch.manual_seed(0)
    return cast(T2TViT, build_t2t_vit(name, options, image_size=(image, image), channels=3, classes=5))


def on_meta(name: str, **shape: Any) -> nn.Module:
    with torch.device("meta"):
        return MODELS.get(name)(name, {}, **(shape or IMAGENET))


@pytest.mark.parametrize(
    ("name", "published"), [("t2t-vit-14", 21.5), ("t2t-vit-19-performer", 39.2), ("t2t-vit-24", 64.1)]
)
def test_the_number_of_parameters_is_the_published_one(name: str, published: float) -> None:
    counted = sum(parameter.numel() for parameter in on_meta(name).parameters())
    assert counted / 1e6 == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(
    ("image", "grids"),
    [
        ((224, 224), [(56, 56), (28, 28), (14, 14)]),
        ((64, 64), [(32, 32), (16, 16), (8, 8)]),
        ((32, 48), [(16, 24), (8, 12), (8, 12)]),
        ((8, 8), [(4, 4), (4, 4), (4, 4)]),
    ],
)
def test_small_images_have_small_strides(image: tuple[int, int], grids: list[tuple[int, int]]) -> None:
    model = on_meta("t2t-vit-14", image_size=image, channels=3, classes=5)
    assert cast(T2TViT, model).tokens_to_token.grids == grids
    assert model(torch.empty(2, 3, *image, device="meta")).shape == (2, 5)


def test_token_attention_is_bound_only_on_request() -> None:
    model = build("t2t-vit-cifar")
    report = bind(model, "dropkey-block", ratio=0.3, schedule="increasing", kinds=["encoder-self", "token"])
    bound_sites = {
        site.name: (site.layer, site.depth, site.grid, site.num_prefix_tokens, site.ratio) for site in report.bound
    }
    assert len(bound_sites) == 8
    assert bound_sites["tokens_to_token.attention1.attn"] == (0, 2, (16, 16), 0, 0.0)
    assert bound_sites["tokens_to_token.attention2.attn"] == (1, 2, (8, 8), 0, 0.3)
    assert bound_sites["blocks.0.attn"] == (0, 6, (8, 8), 1, 0.0)
    images = torch.randn(2, 3, 32, 32)
    shapes: list[tuple[int, ...]] = []
    with torch.no_grad():
        plain = model.eval()(images)
        bind(model, "dropkey", ratio=0.5, kinds=["token"])
        assert torch.equal(model(images), plain)
        model.train()
        torch.manual_seed(0)
        first = model(images)
        torch.manual_seed(1)
        assert (model(images) - first).abs().max() > 1e-5
        with watch(model, lambda site, weights: shapes.append(tuple(weights.shape))):
            model(images)
    assert shapes == [(2, 1, 256, 256), (2, 1, 64, 64), *[(2, 6, 65, 65)] * 6]


def test_positions_and_random_directions_are_never_trained() -> None:
    model = build("t2t-vit-cifar", tokens="performer", token_dim=8, drop_rate=0.1, drop_path_rate=0.2)
    with pytest.raises(InputError, match="kind 'encoder-self' is not selected"):
        bind(model, "dropkey", ratio=0.3, kinds=["token"])  # a performer has nothing to drop
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {"pos_embed", "tokens_to_token.attention1.w", "tokens_to_token.attention2.w"}
    assert frozen < model.state_dict().keys()
    w = model.get_parameter("tokens_to_token.attention1.w")
    torch.testing.assert_close(w @ w.T, 4 * torch.eye(4), atol=1e-5, rtol=0)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(model, Recipe(epochs=1, lr=0.01, weight_decay=0.05))
    nn.functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.arange(4)).backward()
    optimizer.step()
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == before.keys() - frozen


def test_the_performer_computes_in_float32_under_autocast() -> None:
    """In bfloat16 the products of the features would differ in the third digit."""
    torch.manual_seed(0)
    performer = TokenPerformer(9, 8).eval()
    q, k, v = torch.randn(3, 2, 50, 8).unbind()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = performer.attend_linearly(q, k, v)
        assert out.dtype == torch.float32
        precise = performer.double().attend_linearly(q.double(), k.double(), v.double())
    torch.testing.assert_close(out.double(), precise, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dept": 3}, r"^unknown option of model t2t-vit-cifar 'dept'.*depth"),
        ({"num_heads": 5}, r"^model t2t-vit-cifar: num_heads=5 does not divide embed_dim=192$"),
        ({"stride": 3}, r"^model t2t-vit-cifar: stride=3: input should be 16, 8, 4 or 2$"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MODELS.get("t2t-vit-cifar")("t2t-vit-cifar", options, **CIFAR)


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match=r"^model t2t-vit-14: stride=16 does not divide images of 225×224 pixels$"):
        build_t2t_vit("t2t-vit-14", {}, image_size=(225, 224), channels=3, classes=5)
    with pytest.raises(InputError, match=r"^images of 32×36 pixels: the model was built for 32×32$"):
        build("t2t-vit-cifar")(torch.randn(1, 3, 32, 36))


def test_analyses_use_only_the_blocks(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_trial(model="t2t-vit-digits", schedule="decreasing"))
    trained = Trained(run, Settings(device="cpu"))
    assert [trained.label(site) for site in trained.sites] == ["encoder-self.1", "encoder-self.2"]
    called: list[str] = []
    trained.evaluate(Options(samples=4), probe=lambda site, weights: called.append(site.name))
    assert called == ["blocks.0.attn", "blocks.1.attn"]
    maps = ANALYSES.get("attention-map")(trained, Options(samples=1)).arrays
    assert maps["map.0"].shape == (4, 4)
