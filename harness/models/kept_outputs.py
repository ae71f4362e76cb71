"""Feed-forward networks for the outputs that a mask keeps: outputs that no token keeps cost nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from harness.attention.kernels import cpu_feedforward
from harness.models.kept_heads import is_plain

MAX_SHARE = 0.5
"""Share of the outputs above which gathering their weights costs more than the outputs that are left out."""


def can_skip(hidden: nn.Linear, activation: nn.Module, out: nn.Linear, device: torch.device) -> bool:
    """Return whether `add_kept` may take the place of a network: on CPUs, without gradients, hooks or biases."""
    plain = is_plain(hidden) and is_plain(out) and hidden.bias is None and out.bias is None
    exact_gelu = type(activation) is nn.GELU and activation.approximate == "none"
    return plain and exact_gelu and device.type == "cpu" and not torch.is_grad_enabled()


def add_kept(
    residual: Tensor, x: Tensor, hidden: nn.Linear, activation: nn.Module, out: nn.Linear, keep_mask: Tensor
) -> Tensor:
    """Return residual + keep_mask ⊙ out(activation(hidden(x))), if `can_skip`.

    Outputs that no token keeps are not computed, and nothing is if there are no others. A dropped output adds 0, even
    if it would not be finite.

    Args:
        residual: (B, T, C).
        x: (B, T, C).
        hidden: C → D.
        activation: exact GELU.
        out: D → C.
        keep_mask: boolean (B, T, C).
    """
    if keep_mask.numel() == keep_mask.shape[-1] and cpu_feedforward.is_supported(
        residual, x, hidden.weight, out.weight
    ):
        return cpu_feedforward.add_feedforward(residual, x, hidden.weight, out.weight, keep_mask.contiguous())
    kept = keep_mask.flatten(0, -2).any(dim=0).nonzero().flatten()
    if not len(kept):
        return residual
    features = activation(hidden(x))
    if len(kept) > MAX_SHARE * keep_mask.shape[-1]:
        return residual + out(features) * keep_mask
    outputs = linear(features, out.weight.index_select(0, kept)) * keep_mask.index_select(-1, kept)
    return residual.to(torch.promote_types(residual.dtype, outputs.dtype)).index_add(-1, kept, outputs.to(residual.dtype))
