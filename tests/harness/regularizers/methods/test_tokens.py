"""Compare PatchDropout with a reference, and combine it with units of the grid, which it removes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from timm.models import create_model

from dropbench.harness.errors import InputError
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.methods.tokens import PatchDropout, floor_share
from dropbench.harness.regularizers.schedules import SCHEDULES
from tests.harness.regularizers.methods.reference import check

BATCH, PREFIX, PATCHES, WIDTH = 6, 2, 20, 4


def site(ratio: float) -> tuple[PatchDropout, Site]:
    method = PatchDropout(ratio=ratio)
    made = Site("tokens", "tokens", 0, 1, 2, (4, 5), PREFIX)
    method.bind_to(made, SCHEDULES.get("constant"))
    return method, made


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.8, 0.99])  # (1 - 0.8) * 20 is below 4
def test_values_and_gradients_equal_a_reference(ratio: float) -> None:
    x = torch.randn(BATCH, PREFIX + PATCHES, WIDTH, dtype=torch.float64, requires_grad=True)
    method, made = site(ratio)
    torch.manual_seed(4)
    out = method.tokens(x, made)
    torch.manual_seed(4)
    noise, kept = torch.rand(BATCH, PATCHES), max(1, PATCHES * round(100 - 100 * ratio) // 100)
    rows = []
    for b in range(BATCH):
        chosen = sorted(range(PATCHES), key=lambda n: float(noise[b, n]))[:kept]
        rows.append(torch.stack([x[b, n] for n in [*range(PREFIX), *(PREFIX + n for n in sorted(chosen))]]))
    expected = torch.stack(rows)
    check("patchdropout", out, expected)
    upstream = torch.randn_like(out)
    ours = torch.autograd.grad(out, x, upstream)[0]
    check("patchdropout", ours, torch.autograd.grad(expected, x, upstream)[0])


def vit() -> torch.nn.Module:
    shape: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 16,
        "depth": 2,
        "num_heads": 2,
        "num_classes": 5,
    }
    return create_model("vit_tiny_patch16_224", **shape)


def test_it_trains_with_columns_and_refuses_units_of_the_grid() -> None:
    model = vit().train()
    bind(model, "dropattention-c+patchdropout")
    assert model(torch.randn(2, 3, 32, 32)).isfinite().all()
    with pytest.raises(
        InputError, match=r"'dropkey-block' fits none.*grid, and the tokens that patchdropout keeps form none"
    ):
        bind(model, "dropkey-block+patchdropout")


def test_a_share_of_hundredths_is_exact() -> None:
    pairs = [(percent, number) for percent in range(101) for number in range(300)]
    assert all(floor_share(percent / 100, number) == percent * number // 100 for percent, number in pairs)
    assert all(floor_share(1 - percent / 100, number) == (100 - percent) * number // 100 for percent, number in pairs)
