"""Attention whose logits are not q kᵀ: outlook attention, soft-capped logits."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.attention import attend
from harness.site import Site


def attend_logits(
    logits: Tensor, v: Tensor, site: Site, *, training: bool, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """The same as `attend` for logits that are given, with any regularizer.

    Logits are their own product with the identity: they go to `attend` as queries, unit vectors as keys, with scale 1.
    That is exact, each sum having one term that is not 0, and whatever works on queries, keys and a mask works here. It
    costs S / d times the product q kᵀ: nothing for the 9 keys of outlook attention.

    Args:
        logits: (B, H, T, S), scaled, finite: what is hidden goes into `mask`.
        v: values (B, H, S, e).
        site: the place in the model.
        training: whether to regularise.
        mask: as in `attend`.
        causal: as in `attend`.

    Returns:
        (B, H, T, e).
    """
    unit = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    keys = unit.expand(*v.shape[:-1], -1)
    return attend(logits, keys, v, site, training=training, mask=mask, causal=causal, scale=1.0)
