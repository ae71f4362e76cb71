"""T2T-ViT, VOLO and METRO as registered: small models, and one published size of each with fewer layers."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from dropbench.harness.models.catalog import MODELS
from tests.adapters.families import SAMPLES, Family, vectors


def image_model(name: str, size: int, channels: int = 3, **options: Any) -> nn.Module:
    return MODELS.get(name)(name, options, image_size=(size, size), channels=channels, classes=5)


def family(name: str, sites: dict[str, int], size: int, channels: int = 3, **options: Any) -> Family:
    inputs = {"images" if name.startswith("t2t") else "x": vectors(SAMPLES, channels, size, size)}
    build = partial(image_model, name, size, channels, **options)
    return Family(name, build, lambda: inputs, sites, grid=True, own=name.startswith("t2t"))


def metro() -> nn.Module:
    options = {
        "backbone": "resnet10t", "hidden": "16,8", "between": "12", "layers": 2, "num_heads": 2, "feedforward": 16,
        "dropout": 0.0,
    }  # fmt: skip
    return MODELS.get("metro")("metro", options, image_size=32, joints=4, vertices=(12, 24, 48))


SHORT_T2T: dict[str, Any] = {"depth": 2, "stride": 16}
SHORT_VOLO: dict[str, Any] = {"layers": "1,1,1", "stride": 16}
FAMILIES = [
    family("t2t-vit-digits", {"encoder-self": 4}, 8, channels=1),
    family("t2t-vit-cifar", {"encoder-self": 6}, 32),
    family("volo-cifar", {"outlook": 2, "encoder-self": 4}, 32),
    family("t2t-vit-14", {"encoder-self": 2}, 64, **SHORT_T2T),
    family("t2t-vit-14-performer", {"encoder-self": 2}, 64, **SHORT_T2T),
    Family(
        "metro",
        metro,
        lambda: {"images": vectors(SAMPLES, 3, 32, 32)},
        {"encoder-self": 4},
        lambda out: out.full,
        own=True,
    ),
    family("volo-d1", {"outlook": 1, "encoder-self": 2}, 64, **SHORT_VOLO),
]
