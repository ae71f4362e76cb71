"""Matrix products of training steps, ours against torch's, where ours are used."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.measure import Measurement, compare
from harness.attention.kernels.cpu_sgemm import is_used, multiply

LAYERS = {"ViT on digits": (1088, 64, 192), "ViT-S at 224 px": (3152, 384, 1152), "BERT-small": (2048, 512, 2048)}
"""Model → tokens of a batch, and inputs and outputs of a linear layer."""
ROUNDS = 20
LIMIT = 0.667


def products() -> list[Measurement]:
    """Measure the three products of a layer: its outputs, and the gradients of its inputs and of its weights.

    Returns:
        Nothing where torch's products are used, as on processors of Intel.
    """
    return [row for model, layer in LAYERS.items() for row in _measure(model, *layer)] if is_used() else []


def _measure(model: str, tokens: int, inputs: int, outputs: int) -> list[Measurement]:
    x, weight, gradient = (torch.randn(size) for size in ((tokens, inputs), (outputs, inputs), (tokens, outputs)))
    factors = {
        "outputs": (x, weight.t()),
        "gradients of inputs": (gradient, weight),
        "gradients of weights": (gradient.t(), x),
    }
    size = f"{tokens}×{inputs}×{outputs}"
    return [
        compare(
            f"{what}, {model}, {size}", partial(multiply, a, b), "torch.mm", partial(torch.mm, a, b),
            limit=LIMIT, rounds=ROUNDS, detail={"threads": torch.get_num_threads()},
        )
        for what, (a, b) in factors.items()
    ]  # fmt: skip
