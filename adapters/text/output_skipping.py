"""Feed-forward networks for the outputs that a mask keeps: outputs that no token keeps cost nothing."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from harness.models.head_skipping import is_plain, is_unobserved

MAX_SHARE = 0.5
"""Share of the outputs above which gathering their weights costs more than the outputs that are left out."""


def can_skip(network: nn.Sequential) -> bool:
    """Return whether `add_kept` computes what a network does: linear, exact GELU, linear, without biases and hooks."""
    if len(network) != 3 or not all(is_unobserved(module) for module in (network, *network)):
        return False
    hidden, activation, out = network
    exact_gelu = type(activation) is nn.GELU and activation.approximate == "none"
    return exact_gelu and is_plain(hidden) and is_plain(out) and hidden.bias is None and out.bias is None


def add_kept(residual: Tensor, x: Tensor, network: nn.Sequential, keep_mask: Tensor) -> Tensor:
    """Return residual + keep_mask ⊙ network(x) for a network that fits `can_skip`, without gradients.

    All tensors are (B, T, C), `keep_mask` is boolean. Outputs that no token keeps are not computed, and nothing is if
    there are no others. A dropped output adds 0, even if it would not be finite. The last digits may differ from those
    of the whole network.
    """
    hidden, activation, out = cast(tuple[nn.Linear, nn.GELU, nn.Linear], tuple(network))
    kept = keep_mask.flatten(0, -2).any(dim=0).nonzero().flatten()
    if not len(kept):
        return residual
    features = activation(hidden(x))
    if len(kept) > MAX_SHARE * keep_mask.shape[-1]:
        return cast(Tensor, residual + out(features) * keep_mask)
    outputs = linear(features, out.weight.index_select(0, kept)) * keep_mask.index_select(-1, kept)
    dtype = torch.promote_types(residual.dtype, outputs.dtype)
    return residual.to(dtype).index_add(-1, kept, outputs.to(dtype))
