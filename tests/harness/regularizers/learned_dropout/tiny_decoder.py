"""Small decoders with Learned Dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dropbench.adapters.text.decoder import Decoder, build_decoder
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.auxiliary_loss import penalty
from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask

VOCABULARY, CONTEXT, LAYERS = 31, 12, 3


def decoder(seed: int = 0, **options: Any) -> Decoder:
    torch.manual_seed(seed)
    options = {"layers": LAYERS, "dim": 12, "heads": 3, **options}
    model = build_decoder("learned-dropout-lm", options, vocabulary=VOCABULARY, context=CONTEXT)
    assert isinstance(model, Decoder)
    return model


def learned(seed: int = 0, **options: Any) -> Decoder:
    model = decoder(seed)
    bind(model, "learned-dropout", **options)
    return model


def tokens(batch: int = 2) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, CONTEXT), generator=torch.Generator().manual_seed(7))


def loss_of(model: nn.Module, forward: nn.Module | None = None) -> Tensor:
    batch = tokens()
    logits = (forward or model)(batch)
    extra = penalty(model, 0)
    assert extra is not None
    return cross_entropy(logits.flatten(0, 1), batch.flatten()) + extra


def masks(model: nn.Module) -> dict[str, LearnedMask]:
    return {name: module for name, module in model.named_modules() if isinstance(module, LearnedMask)}
