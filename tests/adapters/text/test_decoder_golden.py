"""Compare with golden figures of the author's code for the same weights and inputs (docs/parity.md)."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench.adapters.text.decoder import Decoder, build_decoder
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.auxiliary_loss import coefficient
from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask, MaskStatistics
from dropbench.harness.regularizers.learned_dropout.regularizer import LearnedDropout
from dropbench.tasks.language.language_modelling import count_parameters
from tests.golden.figures import draws, picked
from tests.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "learned_dropout.json").read_text("utf-8"))
TOLERANCE = 1e-9

THEIR_NAMES = [
    (r"^position_embedding", "positional_embedding"),
    (r"^norm", "ln"),
    (r"^blocks", "transformer_blocks"),
    (r"attention_norm", "ln1"),
    (r"feedforward_norm", "ln2"),
    (r"attention\.qkv", "multi_attn_head.batch_attn_weights"),
    (r"attention\.out", "multi_attn_head.residual_proj"),
    (r"feedforward\.hidden", "feed_forward.linear"),
    (r"feedforward\.out", "feed_forward.residual_proj"),
    (r"feedforward_dropout\.regularization", "feed_forward.dropout"),
    (r"mask_input\.regularization\.qkv", "dropout_embed_attn.batch_attn_weights"),
    (r"mask_input\.regularization\.out", "dropout_embed_attn.linear"),
    (r"qkv", "batch_attn_weights"),
]


def filled(name: str, shape: tuple[int, ...]) -> Any:
    if name.endswith("shift"):
        return math.pi * draws(name).random_sample(shape)
    normal = draws(name).standard_normal(shape)
    return 1 + 0.1 * normal if len(shape) == 1 else 2 * shape[1] ** -0.5 * normal


def fill(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for name, parameter in model.double().eval().named_parameters():
            for ours, theirs in THEIR_NAMES:
                name = re.sub(ours, theirs, name)
            parameter.copy_(torch.from_numpy(filled(name, tuple(parameter.shape))))
    return model


def hidden(name: str) -> Tensor:
    return torch.from_numpy(draws(name).standard_normal((2, 7, 12)))


@pytest.mark.parametrize("case", GOLDEN["module"])
def test_the_mask_for_every_rounding(case: str) -> None:
    rounding, source = case.split("/")
    options = LearnedDropout.model_validate({"mask_rounding": rounding, "dropout_input": source})
    module = fill(LearnedMask(options, 12, 3))
    out = module(hidden("hidden"), training=False, causal=True, embed=hidden("embed"))
    assert picked(out) == pytest.approx(GOLDEN["module"][case], abs=TOLERANCE)


@pytest.mark.parametrize("kind", ["squared", "linear"])
def test_penalties_and_statistics(kind: Any) -> None:
    module = LearnedMask(LearnedDropout(mask_rounding="none", l1_norm_penalty=kind, max_coeff=1.0), 12, 3)
    fill(module)
    module.statistics = (MaskStatistics(),)
    module(hidden("hidden"), training=True, causal=True)
    loss = module.penalty(0)
    assert loss is not None
    expected = GOLDEN["penalties"]
    assert loss.item() == pytest.approx(expected[kind], abs=TOLERANCE)
    means = module.statistics[0].means()
    assert means["l1_norm"] == pytest.approx(expected[kind], abs=TOLERANCE)
    assert means["entropy"] == pytest.approx(expected["entropy"], abs=TOLERANCE)
    # The author's code divides counts in float32.
    assert means["near_one"] == pytest.approx(expected["near_one"], abs=1e-7)
    assert means["near_zero"] == pytest.approx(expected["near_zero"], abs=1e-7)
    assert means["kept"] == pytest.approx(expected["mean"], abs=TOLERANCE)


def test_the_schedule_of_the_coefficient() -> None:
    for maximum, minimum, rate, step, expected in GOLDEN["coefficients"]:
        # The author's coefficient is a float32.
        assert coefficient(step, maximum, minimum, rate) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("case", GOLDEN["models"])
def test_the_logits_of_complete_models(case: str) -> None:
    small, kind = case.startswith("small"), case.split()[-1]
    name = "learned-dropout-lm-baseline" if kind == "baseline" else "learned-dropout-lm"
    vocabulary, context, batch, length = (97, 16, 2, 11) if small else (50_257, 200, 1, 8)
    options = {"layers": 2, "dim": 12, "heads": 3} if small else {}
    with torch.device("meta"):
        model = build_decoder(name, options, vocabulary=vocabulary, context=context)
    assert isinstance(model, Decoder)
    if kind != "baseline":
        bind(model, "learned-dropout", dropout_input=kind, detached_input=kind == "embed")
    assert count_parameters(model) == GOLDEN["models"][case]["parameters"]
    fill(model.to_empty(device="cpu"))
    tokens = torch.from_numpy(draws("tokens").randint(0, vocabulary, (batch, length)))
    with torch.no_grad():
        logits = model(tokens)
    expected = GOLDEN["models"][case]["logits"]
    assert picked(logits)[:-1] == pytest.approx(expected[:-1], abs=TOLERANCE)
    assert logits.sum().item() == pytest.approx(expected[-1], abs=TOLERANCE * logits.numel() ** 0.5)
