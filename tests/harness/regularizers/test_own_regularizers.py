"""Mistakes in regularizers of users: each is one line, which names the class and what was expected."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from harness.regularizers.around import PlainAttention
from harness.regularizers.base import Site, SiteKind
from harness.regularizers.drop import AttentionDrop


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
