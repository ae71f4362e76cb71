"""fairseq's label-smoothed cross entropy with its gradient in closed form, which holds the vocabulary once."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def smoothed_losses(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the label-smoothed cross entropy of each token, in nats (T,).

    fairseq's ``label_smoothed_cross_entropy``: the target has the probability 1 − ε, and each other token of the
    vocabulary ε / (V − 1).

    Args:
        logits: (T, V); lower precision than float32 is raised to it.
        targets: ids of the target tokens (T,).
        smoothing: ε.
    """
    return cast(Tensor, _SmoothedLosses.apply(logits.float(), targets, smoothing))  # type: ignore[no-untyped-call]


class _SmoothedLosses(torch.autograd.Function):
    """The loss is logsumexp(z) − (1 − ε − s)·z_target − s·Σz with s = ε / (V − 1).

    Its gradient is softmax(z) − s, and 1 − ε − s less at the target. So the softmax is all that is kept, where
    logarithms of probabilities, a gradient of each and their sum would be four arrays (T, V).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        share = smoothing / (logits.shape[1] - 1)
        column = targets[:, None]
        probabilities = logits.softmax(dim=1)
        ctx.save_for_backward(probabilities, column)
        ctx.smoothing, ctx.share = smoothing, share
        # By the largest probability, as that of the target may underflow.
        normalizer = logits.amax(dim=1) - probabilities.amax(dim=1).log()
        losses = normalizer - (1 - smoothing - share) * logits.gather(1, column).squeeze(1)
        return losses - share * logits.sum(dim=1) if smoothing else losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None, None]:
        probabilities, column = ctx.saved_tensors
        weights = gradients[:, None]
        result = probabilities * weights  # a new array: the graph may be kept for a second pass
        if ctx.smoothing:
            result.sub_(ctx.share * weights)
        result.scatter_add_(1, column, (ctx.smoothing + ctx.share - 1) * weights)
        return result, None, None
