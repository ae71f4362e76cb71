"""`regularize` reaches the attention of both zoos, as an independent count finds it; `make zoo` walks all of them.

`tests.zoo.test_methods` has 60 families by name.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dropbench.adapters import compat

compat.install()

from torchvision.models.maxvit import MaxVit  # noqa: E402
from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2  # noqa: E402

from tests.zoo import timm_models, transformers_models  # noqa: E402
from tests.zoo.checking import DROPKEY, METHODS, check, check_each  # noqa: E402


class Attend(nn.Module):
    """Attention as vit-pytorch and many users write it: a child module computes the softmax and drops weights."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.qkv = 2, nn.Linear(16, 48)
        self.attend = nn.Sequential(nn.Softmax(dim=-1), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, 8)).permute(2, 0, 3, 1, 4)
        weights: Tensor = self.attend(q @ k.transpose(-1, -2) * 8**-0.5)
        out: Tensor = (weights @ v).transpose(1, 2).flatten(2)
        return out


OWN: dict[str, Callable[[], nn.Module]] = {
    "swin": lambda: SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4]),
    "swin-v2": lambda: SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [4, 4], block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2
    ),
    "maxvit": lambda: MaxVit((32, 32), 8, 4, [8, 16], [1, 1], 8, 0.0),
    "a child's softmax": lambda: nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.Flatten(2), nn.Linear(16, 16), Attend()),
}


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_modules_of_other_libraries_and_of_users(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 32, 32)
    for verdict in check_each(make(), lambda model: model(images), DROPKEY, *METHODS):
        assert (verdict.outcome, verdict.problems) == ("holds", [])


@pytest.mark.slow
def test_a_tenth_of_timm() -> None:
    outcomes = {}
    for family, models in list(timm_models.families().items())[::10]:
        outcomes[family] = check(*timm_models.build(timm_models.smallest(models))).outcome
    assert {"holds", "no attention", "other attention"} >= set(outcomes.values()), outcomes


@pytest.mark.slow
def test_a_tenth_of_transformers() -> None:
    outcomes = {}
    for name in transformers_models.types()[::10]:
        try:
            model, run = transformers_models.build(name)
        except Exception:  # the rule does not fit: the page of `make zoo` has the reason
            continue
        outcomes[name] = check(model, run).outcome
    assert len(outcomes) >= 25
    failing = {name for name, outcome in outcomes.items() if outcome in ("fails", "refused")}
    assert failing <= {"EvollaModel"}  # its adapters attend to a protein, which the rule does not give
