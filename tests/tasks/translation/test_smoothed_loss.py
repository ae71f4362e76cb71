"""Compare the closed form of the label-smoothed cross entropy with fairseq's criterion."""

from __future__ import annotations

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor

from dropbench.tasks.translation.smoothed_loss import smoothed_losses

TOKENS, VOCABULARY, PAD = 33, 101, 1


def inputs(scale: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(TOKENS, VOCABULARY, generator=generator)
    return logits.requires_grad_(), torch.randint(VOCABULARY, (TOKENS,), generator=generator)


def fairseq_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """fairseq's sum over the targets that are no padding, in double precision."""
    log_probs = logits.double().log_softmax(dim=1)
    loss: Tensor = label_smoothed_nll_loss(log_probs, targets, smoothing, ignore_index=PAD)[0]
    return loss


# With logits in the hundreds, the probabilities of most targets underflow in single precision.
@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_and_gradients_are_those_of_fairseq(smoothing: float, scale: float) -> None:
    logits, targets = inputs(scale)
    targets[::5] = PAD
    losses = smoothed_losses(logits, targets, smoothing).masked_fill(targets == PAD, 0)
    expected = fairseq_loss(logits, targets, smoothing)
    assert losses.isfinite().all()
    torch.testing.assert_close(losses.sum().double(), expected, rtol=1e-6, atol=0)
    (ours,) = torch.autograd.grad(losses.sum() / 7, logits)
    (theirs,) = torch.autograd.grad(expected / 7, logits)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert not ours[::5].any()


def test_a_second_pass_through_a_kept_graph_has_the_same_gradients() -> None:
    logits, targets = inputs(1.0)
    loss = smoothed_losses(logits, targets, 0.1).mean()
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (second,) = torch.autograd.grad(loss, logits)
    assert torch.equal(first, second)


def test_losses_of_half_precision_are_computed_in_single_precision() -> None:
    logits, targets = inputs(1.0)
    half = logits.detach().bfloat16().requires_grad_()
    losses = smoothed_losses(half, targets, 0.1)
    assert losses.dtype == torch.float32
    assert torch.equal(losses, smoothed_losses(half.float(), targets, 0.1))
    losses.sum().backward()
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
