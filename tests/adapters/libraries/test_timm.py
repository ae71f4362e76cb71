"""Test timm's models: layers in order of execution, key grids, and attention on windows and neighborhoods."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import timm
import torch
from timm.models.swin_transformer import SwinTransformerBlock
from timm.models.vision_transformer import Block
from timm.models.volo import OutlookAttention
from torch import Tensor, nn

from dropbench import InputError, Site, regularize
from dropbench.adapters.libraries.timm_models import build_vit
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from tests.adapters.libraries.torch_families import eva, vit, volo

drop = partial(regularize, regularizer="dropkey", ratio=0.5, quiet=True)


def on_meta(name: str, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name, **options)


def test_the_call_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    model = regularize(on_meta("vit_tiny_patch16_224"), "dropkey", ratio=0.3, schedule="decreasing")
    lines = capsys.readouterr().out.splitlines()
    assert isinstance(model, timm.models.VisionTransformer)
    assert lines[0] == "dropkey, ratio 0.3, decreasing: 12 of 12 attention sites of VisionTransformer"
    assert lines[1] == "  blocks.0.attn   encoder-self  layer 1/12  heads 3  keys 14×14+1  ratio 0.300"
    assert lines[12] == "  blocks.11.attn  encoder-self  layer 12/12  heads 3  keys 14×14+1  ratio 0.000"
    assert len(lines) == 13


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("vit_small_patch16_224", {((14, 14), 1): 12}),
        ("deit_small_distilled_patch16_224", {((14, 14), 2): 12}),
        ("eva02_tiny_patch14_224", {((16, 16), 1): 12}),
        ("beit_base_patch16_224", {((14, 14), 1): 12}),
        ("cait_xxs24_224", {((14, 14), 0): 24}),
        ("convit_tiny", {((14, 14), 0): 10, ((14, 14), 1): 2}),
        ("swin_tiny_patch4_window7_224", {((7, 7), 0): 12}),
        ("volo_d1_224", {((3, 3), 0): 4, ((14, 14), 0): 14}),
    ],
)
def test_key_grids_of_published_models(name: str, keys: dict[tuple[tuple[int, int], int], int]) -> None:
    model = on_meta(name)
    report = bind(model, "dropkey-block", window=2)
    grids = [(site.grid, site.num_prefix_tokens) for site in report.bound]
    assert {key: grids.count(key) for key in grids} == keys
    depth = sum(keys.values())
    assert [(site.layer, site.depth) for site in report.bound] == [(layer, depth) for layer in range(depth)]
    model.train()(torch.empty(2, 3, 224, 224, device="meta"))  # a grid that does not fit is an error


def test_patches_that_all_layers_need_are_not_left_out() -> None:
    with pytest.raises(InputError, match="its layers use every position: none may be left out"):
        bind(on_meta("convit_tiny"), "patchdropout")


def test_a_variable_number_of_tokens_has_no_grid() -> None:
    for model in (vit(dynamic_img_size=True), vit(patch_drop_rate=0.5), eva(patch_drop_rate=0.5)):
        assert bind(model, "none").bound[0].grid is None
        drop(model.train())(torch.randn(2, 3, 32, 32))


def test_class_attention_is_bound_only_on_request() -> None:
    model = volo()
    report = bind(model, "dropkey", ratio=0.5)
    assert [(site.name, reason) for site, reason in report.skipped] == [
        (f"post_network.{layer}.attn", "kind 'class' is not selected (kinds=…)") for layer in range(2)
    ]
    report = bind(model, "dropkey", ratio=0.5, kinds=["class"])
    assert [(site.kind, site.layer, site.depth, site.grid, site.num_prefix_tokens) for site in report.bound] == [
        ("class", layer, 2, (4, 4), 1) for layer in range(2)
    ]
    shapes: list[torch.Size] = []
    with watch(model.train(), lambda site, weights: shapes.append(weights.shape)):
        model(torch.randn(2, 3, 64, 64))
    assert shapes == [torch.Size((2, 2, 1, 17))] * 2
    with pytest.raises(InputError, match=r"dropkey.* kind 'class' is not selected"):
        bind(model, "dropkey", ratio=0.5, include=["post_network.*"])
    with pytest.raises(InputError, match=r"unknown kind of site 'clas'.*class"):
        bind(model, "dropkey", ratio=0.5, kinds=["clas"])  # type: ignore[list-item]


def test_outlook_attention_drops_a_key_for_all_queries_of_a_position() -> None:
    """If all keys but the first are dropped, each position gives the first value of its neighborhood, folded back."""
    torch.manual_seed(0)
    module = OutlookAttention(4, 1, stride=2)
    nn.init.eye_(module.v.weight)
    nn.init.eye_(module.proj.weight)
    nn.init.zeros_(module.proj.bias)
    report = bind(module, "dropattention-c", ratio=0.5)

    class First(type(report.bound[0].regularizer)):  # type: ignore[misc]
        def sample_drop_mask(self, shape: tuple[int, ...], site: Site, device: torch.device) -> Tensor:
            return (torch.arange(9) > 0).expand(*shape[:2], 1, 9)

    bind(module, First(ratio=0.5))
    x = torch.randn(2, 4, 4, 4)
    first = torch.zeros(2, 4, 4, 4)
    first[:, 1::2, 1::2] = x[:, 1::2, 1::2]  # the first of the 3 × 3 around (2i, 2j) is (2i - 1, 2j - 1)
    neighbors = nn.functional.unfold(x.permute(0, 3, 1, 2), 3, padding=1, stride=2).view(2, 4, 9, 4)
    spread = neighbors[:, :, :1].expand(-1, -1, 9, -1).reshape(2, 36, 4)
    expected = nn.functional.fold(spread, (4, 4), 3, padding=1, stride=2).permute(0, 2, 3, 1)
    torch.testing.assert_close(module(x), expected)


def test_shifted_windows_mask_tokens_that_are_not_adjacent() -> None:
    torch.manual_seed(0)
    block = SwinTransformerBlock(8, (8, 8), num_heads=2, window_size=4, shift_size=2, drop_path=0.0)
    drop(nn.ModuleList([block]), ratio=0.9)
    block.train()
    x = torch.randn(1, 8, 8, 8)
    changed = x.clone()
    changed[:, 0] += 3  # after the shift, the first row shares windows with the last rows
    for seed in range(20):
        torch.manual_seed(seed)
        before = block(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(block(changed)[:, 2:], before[:, 2:])


def test_a_block_of_timm_in_another_model_is_a_layer_of_that_model() -> None:
    model = nn.Sequential(*(Block(8, 2) for _ in range(3)))
    report = bind(model, "dropkey", ratio=0.3, schedule="decreasing")
    assert [(site.name, site.layer, site.depth) for site in report.bound] == [
        (f"{layer}.attn", layer, 3) for layer in range(3)
    ]


def test_layers_of_two_networks_in_one_model_are_numbered_separately() -> None:
    model = nn.ModuleDict({"teacher": vit(), "student": vit(depth=2)})
    layers = [(site.layer, site.depth) for site in bind(model, "dropkey", ratio=0.3).bound]
    assert layers == [(0, 3), (1, 3), (2, 3), (0, 2), (1, 2)]


def test_unknown_and_impossible_options_are_refused() -> None:
    shape: dict[str, Any] = {"image_size": (32, 32), "channels": 3, "classes": 10}
    with pytest.raises(InputError, match=r"unknown option of model vit-cifar 'dept'.*depth"):
        build_vit("vit-cifar", {"dept": 3}, **shape)
    with pytest.raises(InputError, match=r"^model vit-cifar with .*num_heads.*: "):
        build_vit("vit-cifar", {"num_heads": 5}, **shape)
    with pytest.raises(
        InputError, match=r"model vit-cifar: stem=convolution: input should be 'patches' or 'convolutional'"
    ):
        build_vit("vit-cifar", {"stem": "convolution"}, **shape)
    with pytest.raises(InputError, match=r"patch_size=1: expected a power of 2 for stem=convolutional"):
        build_vit("vit-cifar", {"stem": "convolutional", "patch_size": 1}, **shape)


def test_convolutional_stem_halves_the_image_until_the_patch_size() -> None:
    options = {"stem": "convolutional", "class_token": False, "global_pool": "avg", "embed_dim": 24, "num_heads": 2}
    model: Any = build_vit("vit-cifar", options, image_size=(32, 16), channels=1, classes=10)
    convolutions = [layer for layer in model.patch_embed.layers if isinstance(layer, nn.Conv2d)]
    assert [(layer.in_channels, layer.out_channels) for layer in convolutions] == [(1, 12), (12, 24)]
    assert model.patch_embed(torch.randn(2, 1, 32, 16)).shape == (2, 8 * 4, 24)
    assert model(torch.randn(2, 1, 32, 16)).shape == (2, 10)
    sites = bind(model, "dropkey", ratio=0.3).bound
    assert [(site.grid, site.num_prefix_tokens) for site in sites] == [((8, 4), 0)] * 6
