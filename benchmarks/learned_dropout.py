"""Pre-computed masks of Learned Dropout token by token, against the same decoder with masks applied to all outputs.

Weights are random. Masks keep the share of the outputs that trained models keep in evaluation: `mini` of
`learned-dropout/precomputed` on WikiText-2 (1,000 steps) with the three initial shifts of `learned-dropout/shift`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from adapters.text.decoder import Decoder, build_decoder
from benchmarks.measure import Measurement, interleave, measurement
from harness.models.regularize import bind
from harness.regularizers.learned_dropout.mask import LearnedMask

LIMIT = round(1 / 1.5, 3)
SHARES = {"shift_init = 0": 1.0, "shift_init = π/2": 0.0163, "shift_init = π": 0.0}
"""Kept in evaluation, means of two seeds. The source's tables have shares in training."""
MODELS = {
    "mini": {"layers": 4, "dim": 96, "heads": 6, "vocabulary": 2_000, "context": 64},
    "the source's size": {"layers": 26, "dim": 144, "heads": 9, "vocabulary": 50_257, "context": 200},
}
ROUNDS = 15


def learned_dropout() -> list[Measurement]:
    """Measure every size with every share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one token has too little work for more
    try:
        with torch.no_grad():
            return [_measured(size, label, share) for size in MODELS for label, share in SHARES.items()]
    finally:
        torch.set_num_threads(threads)


def _measured(size: str, label: str, share: float) -> Measurement:
    options = dict(MODELS[size])
    vocabulary, context = options.pop("vocabulary"), options.pop("context")
    torch.manual_seed(0)
    model = build_decoder("learned-dropout-lm", options, vocabulary=vocabulary, context=context)
    assert isinstance(model, Decoder)
    bind(model, "learned-dropout", dropout_input="embed", detached_input=True)
    keep_share(model, share)
    tokens = torch.randint(vocabulary, (1, context))
    ours, peer = (token_by_token(model.eval(), tokens, dense=dense) for dense in (False, True))
    difference = float((ours - peer).abs().max() / peer.abs().max())
    times = interleave(
        [lambda: token_by_token(model, tokens), lambda: token_by_token(model, tokens, dense=True)],
        ROUNDS if size == "mini" else ROUNDS // 3,
    )
    own, dense = ([seconds / context for seconds in each] for each in times)
    kept = model.new_cache().keep_masks(torch.zeros(1, 1, options["dim"])) or []
    active = sum(bool(mask.any()) for mask in kept) / len(kept)
    measured_share = sum(float(mask.float().mean()) for mask in kept) / len(kept)
    detail = {
        "kept": measured_share,
        "feedforward_flops": (active + measured_share) / 2,
        "relative_difference": difference,
        "threads": 1,
    }
    title = f"a token of {size}, {label}: {measured_share:.1%} kept, {detail['feedforward_flops']:.1%} of the FLOPs"
    limit = LIMIT if share < 1.0 and size == "mini" else None
    return measurement(title, own, "masks applied by each layer", dense, limit=limit, detail=detail)


def keep_share(model: Decoder, share: float) -> None:
    """Set masks that keep a share of all outputs, the same ones for all tokens, as trained models nearly do."""
    modules = [module for module in model.modules() if isinstance(module, LearnedMask)]
    with torch.no_grad():
        total = len(modules) * modules[0].width
        kept = torch.zeros(total, dtype=torch.bool)
        kept[torch.randperm(total)[: round(share * total)]] = True
        for module, own in zip(modules, kept.split(modules[0].width), strict=True):
            module.shift.copy_(torch.where(own, 0.0, math.pi))


def token_by_token(model: Decoder, tokens: Tensor, *, dense: bool = False) -> Tensor:
    """Return the logits of a sequence (1, T, vocabulary); `dense`: each layer computes and applies its mask."""
    cache = model.new_cache()
    if dense:
        cache.masks = None
    return torch.cat([model(token, cache) for token in tokens.split(1, dim=1)], dim=1)
