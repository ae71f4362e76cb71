"""Mistakes in regularizers of users: each is one line, which names the class and what was expected."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from dropbench.harness.attention.call import Call
from dropbench.harness.errors import InputError
from dropbench.harness.models.regularize import regularize
from dropbench.harness.regularizers.around import AroundAttention, Attention, PlainAttention
from dropbench.harness.regularizers.base import Regularizer, Site, SiteKind, Stage
from dropbench.harness.regularizers.composition import Composition, Part
from dropbench.harness.regularizers.drop import AttentionDrop
from dropbench.harness.regularizers.methods.logits import LogitNoise
from dropbench.harness.regularizers.methods.outputs import StochasticDepth


class OutputDrop(PlainAttention):
    sites: ClassVar[frozenset[SiteKind]] = frozenset({"feed-forward"})
    ratio: float = 0.1


class Weighted(PlainAttention):
    strength: ClassVar[str] = "weight"
    weight: float = 0.1


class NoKeys(AttentionDrop):
    ratio: float = 0.1

    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        return torch.zeros(shape, dtype=torch.bool, device=device)


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        (OutputDrop, {"ratio": -0.5}, "ratio=-0.5: expected 0 or more"),
        (Weighted, {"weight": -1}, "weight=-1.0: expected 0 or more"),
        (NoKeys, {"ratio": 7.0}, "ratio=7.0: expected a drop ratio below 1"),
    ],
)
def test_a_strength_without_bounds_has_those_of_its_meaning(
    kind: type[Any], params: dict[str, float], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        kind(**params)
    assert kind(**dict.fromkeys(params, 0.0))


class Narrow(AroundAttention):
    stage: ClassVar[Stage] = "values"
    ratio: float = 0.1

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        return inner(call)[:, :, :1]


class FirstChannel(OutputDrop):
    stage: ClassVar[Stage] = "output"

    def output(self, x: Tensor, site: Site) -> Tensor:
        return x[..., :1]


class Nothing(AttentionDrop):
    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        return None  # type: ignore[return-value]


ROW = r" returned \(2, 2, 1, 4\): expected a tensor of shape \(2, 2, 3, 4\)"


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize(
    ("own", "message"),
    [
        (Narrow(), f"^Narrow{ROW}"),
        (FirstChannel(), r"^FirstChannel returned \(2, 3, 1\): expected a tensor of shape \(2, 3, 8\)"),
        (Nothing(), r"^Nothing\.sample_drop_mask: expected a boolean drop mask, got NoneType"),
    ],
)
def test_what_a_method_returns_has_the_shape_of_what_it_replaces(
    own: Regularizer, message: str, composed: bool
) -> None:
    """Otherwise the residual connection broadcasts it, and training goes on."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers=1)
    parts = [Part("own", own), Part("noise", LogitNoise(sigma=0.1)), Part("depth", StochasticDepth(ratio=0.1))]
    regularize(model, Composition(parts) if composed else own, quiet=True)
    with pytest.raises(InputError, match=message):
        model(torch.ones(2, 3, 8))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stage": "value"}, "unknown stage of Own 'value': did you mean values"),
        (
            {"sites": frozenset({"feedforward"})},
            r"unknown kind of site in Own\.sites 'feedforward': did you mean feed-f",
        ),
    ],
)
def test_a_class_has_known_sites_and_a_known_stage(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        type("Own", (PlainAttention,), {"__module__": __name__, **fields})
