"""Regularizers that choose what they drop by its share in the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PrivateAttr

from harness.regularizers.around import AroundAttention, Attention
from harness.regularizers.base import Site, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from harness.regularizers.passes import Passes


class ADDrop(AroundAttention):
    """Drops keys with a high attribution: the gradient of the predicted class's logit by the attention weight.

    (Yang et al. 2022, "AD-DROP", Section 3). A first pass without drops gives predictions and attributions. In each
    row, the keys from the threshold on, a share `region` of those allowed, are dropped with probability `ratio`. Epochs
    alternate with plain training ("cross-tuning"); the first one is plain.
    """

    stage: ClassVar[Stage] = "keys"

    ratio: float = Field(default=0.2, ge=0.0, lt=1.0, description="drop ratio within the region")
    region: float = Field(default=0.3, gt=0.0, le=1.0, description="share of keys of the highest attribution")
    alternate: bool = Field(default=True, description="train without drops in every other epoch, the first included")

    _attributing: bool = PrivateAttr(default=False)
    _weights: dict[Site, tuple[Tensor, Tensor | None]] = PrivateAttr(default_factory=dict)
    _regions: dict[Site, Tensor] = PrivateAttr(default_factory=dict)

    def prepare(self, passes: Passes) -> None:
        """Attribute the predictions of a first pass, and find the region of each row."""
        import torch

        self._regions.clear()
        if self.alternate and passes.epoch % 2 == 0:
            return
        self._attributing = True
        try:
            with torch.enable_grad():
                _, logits = passes.run(passes.batch)
                inputs = [weights for weights, _ in self._weights.values()]
                gradients = torch.autograd.grad(logits.amax(dim=-1).sum(), inputs, allow_unused=True)
            for (site, (_, allowed)), gradient in zip(self._weights.items(), gradients, strict=True):
                if gradient is not None:
                    self._regions[site] = high_region(gradient, allowed, self.region)
        finally:
            self._attributing = False
            self._weights.clear()

    def objective(self, passes: Passes) -> None:
        """Add nothing to the loss; forget the regions of the micro-batch."""
        self._regions.clear()

    def around(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, inner: Attention, *, mask: Tensor | None, causal: bool,
        scale: float | None,
    ) -> Tensor:  # fmt: skip
        """Keep the weights in the first pass, and drop keys in the others; shapes as in `AroundAttention.around`."""
        import torch

        from harness.attention.reference.eager import merge_keep_mask
        from harness.attention.reference.sdpa import allowed_keys, attention_weights, with_causal

        merged = with_causal(mask, q.shape[-2], k.shape[-2], q.device) if causal else mask
        if self._attributing:
            weights = attention_weights(q, k, mask=merged, scale=scale)
            self._weights[site] = weights, None if merged is None else allowed_keys(merged)
            return weights @ v
        region = self._regions.get(site)
        if region is None or region.shape[-2:] != (q.shape[-2], k.shape[-2]):  # tokens were left out since
            return inner(q, k, v, mask=mask, causal=causal, scale=scale)
        region = region.repeat(q.shape[0] // region.shape[0], 1, 1, 1)  # a batch may hold several passes
        drop_mask = region & (torch.rand(region.shape, device=q.device) < site.ratio)
        return inner(q, k, v, mask=merge_keep_mask(~drop_mask, merged, q.dtype), causal=False, scale=scale)


def high_region(attributions: Tensor, allowed: Tensor | None, share: float) -> Tensor:
    """Return the keys with the highest attributions of each row.

    Of n allowed keys sorted upwards, these are the keys from number ⌊n · (1 − share)⌋ on, counted from 0, and all that
    equal it.

    Args:
        attributions: (B, H, T, S).
        allowed: keys that a query may attend to, broadcastable to it; None: all.
        share: share of the keys.

    Returns:
        boolean (B, H, T, S).
    """
    import torch

    allowed = torch.ones_like(attributions, dtype=torch.bool) if allowed is None else allowed.expand_as(attributions)
    ascending = attributions.masked_fill(~allowed, float("inf")).sort(dim=-1).values
    first = ((1 - share) * allowed.sum(dim=-1, keepdim=True)).long()
    return (attributions >= ascending.gather(-1, first)) & allowed
