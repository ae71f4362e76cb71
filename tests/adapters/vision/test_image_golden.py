"""Compare T2T-ViT and VOLO with golden figures of their authors' code; see docs/parity.md.

The authors' code was run outside of this repository, with weights and inputs made by the functions below.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import nn

from dropbench.adapters.vision.t2t_vit import positions
from dropbench.harness.models.catalog import IMAGENET, MODELS
from tests.golden.figures import draws, picked
from tests.paths import GOLDEN_FILES

FOLDER = GOLDEN_FILES
GOLDEN: dict[str, Any] = {
    name: figures
    for file in ("t2t_vit.json", "volo.json")
    for name, figures in json.loads((FOLDER / file).read_text("utf-8"))["models"].items()
}
TOLERANCE = 1e-9


def filled(name: str, shape: tuple[int, ...]) -> Any:
    if name.endswith("running_var"):
        return 0.5 + draws(name).random_sample(shape)
    normal = draws(name).standard_normal(shape)
    if len(shape) == 1:
        return 0.1 * normal + (0 if name.endswith(("bias", "mean")) else 1)
    if name in ("cls_token", "pos_embed"):
        return 0.5 * normal
    # The performer's features are exponentials of negative squares, which underflow for large queries and keys.
    return (0.5 if "kqv" in name else 2) * math.prod(shape[1:]) ** -0.5 * normal


def fill(model: nn.Module) -> nn.Module:
    """Fill a model from the meta device with drawn weights, except for fixed positions."""
    model = model.to_empty(device="cpu").double().eval()
    with torch.no_grad():
        for name, values in model.state_dict().items():
            if name == "pos_embed" and values.ndim == 3:
                values.copy_(positions(values.shape[1], values.shape[2]))
            elif values.is_floating_point():
                values.copy_(torch.from_numpy(filled(name, tuple(values.shape))))
    return model


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name.startswith("t2t-vit-14") else [pytest.mark.slow]) for name in GOLDEN]
)
def test_the_logits_of_complete_models(name: str) -> None:
    with torch.device("meta"):
        model = MODELS.get(name)(name, {}, **IMAGENET)
    assert sum(parameter.numel() for parameter in model.parameters()) == GOLDEN[name]["parameters"]
    image = torch.from_numpy(draws("image").standard_normal((1, 3, 224, 224)))
    with torch.no_grad():
        logits = fill(model)(image)
    expected = GOLDEN[name]["logits"]
    assert picked(logits)[:-1] == pytest.approx(expected[:-1], abs=TOLERANCE)
    assert logits.sum().item() == pytest.approx(expected[-1], abs=TOLERANCE * logits.numel() ** 0.5)
