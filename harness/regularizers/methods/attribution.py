"""Regularizers that choose what they drop by further passes of the batch through the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PrivateAttr

from dropbench.harness.attention.call import Call
from dropbench.harness.regularizers.around import AroundAttention, Attention
from dropbench.harness.regularizers.base import Site, Stage, drop_ratio
from dropbench.harness.regularizers.methods.heads import HeadMask
from dropbench.harness.regularizers.methods.tokens import DUST

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dropbench.harness.regularizers.passes import Passes


class ADDrop(AroundAttention):
    """Drops keys with a high attribution: the gradient of the predicted class's logit by the attention weight.

    (Yang et al. 2022, "AD-DROP"). A first pass without drops gives predictions and attributions. In each row, the keys
    from the threshold on, a share `region` of those allowed, are dropped with probability `ratio`. Epochs alternate
    with plain training ("cross-tuning", Algorithm 1); the first one is plain.

    With m = `integral_steps` above 0, attributions are integrated gradients (Eq. 3): A ⊙ Σ_k ∂F(k/m · A)/∂A / m, by m
    more passes for each layer, in which the weights A of this layer are multiplied by k/m.
    """

    stage: ClassVar[Stage] = "keys"
    needs_all_heads: ClassVar[bool] = True
    result_version: ClassVar[int] = 2

    ratio: float = Field(default=0.2, ge=0.0, lt=1.0, description="drop ratio within the region")
    region: float = Field(default=0.3, gt=0.0, le=1.0, description="share of keys of the highest attribution")
    alternate: bool = Field(default=True, description="train without drops in every other epoch, the first included")
    integral_steps: int = Field(default=0, ge=0, description="steps of integrated gradients; 0: plain gradients")

    _factors: dict[Site, float] | None = PrivateAttr(default=None)
    """While attributions are computed: the factors of the weights of sites, where they are not 1."""
    _weights: dict[Site, tuple[Tensor, Tensor | None]] = PrivateAttr(default_factory=dict)
    _regions: dict[Site, Tensor] = PrivateAttr(default_factory=dict)
    _recomputed: dict[Site, Tensor] = PrivateAttr(default_factory=dict)
    """The regions of the last micro-batch, for activation checkpointing, which runs its forward pass again."""

    def prepare(self, passes: Passes) -> None:
        """Attribute the predictions of a first pass, and find the region of each row."""
        import torch

        self._regions.clear()
        if self.alternate and passes.epoch % 2 == 0:
            return
        try:
            with torch.enable_grad():
                logits = self._attributing_pass(passes, {})
                predicted = logits.detach().argmax(dim=-1, keepdim=True)
                inputs = dict(self._weights)
                found: dict[Site, Tensor | None]
                if self.integral_steps:
                    found = {site: self._integral(passes, site, own, predicted) for site, (own, _) in inputs.items()}
                else:
                    weights = [own for own, _ in inputs.values()]
                    gradients = torch.autograd.grad(logits.gather(-1, predicted).sum(), weights, allow_unused=True)
                    found = dict(zip(inputs, gradients, strict=True))
            for site, attributions in found.items():
                if attributions is not None:
                    self._regions[site] = high_region(attributions, inputs[site][1], self.region)
        finally:
            self._factors = None
            self._weights.clear()

    def objective(self, passes: Passes) -> None:
        """Add nothing to the loss; forget the regions of the micro-batch."""
        self._recomputed, self._regions = self._regions, {}

    def _attributing_pass(self, passes: Passes, factors: dict[Site, float]) -> Tensor:
        self._factors = factors
        self._weights.clear()
        return passes.run(passes.batch)[1]

    def _integral(self, passes: Passes, site: Site, unscaled: Tensor, predicted: Tensor) -> Tensor:
        """Return the integrated gradients of the predicted logits by the weights of a site."""
        import torch

        total = torch.zeros((), device=unscaled.device)
        for step in range(1, self.integral_steps + 1):
            logits = self._attributing_pass(passes, {site: step / self.integral_steps})
            if site in self._weights:  # else its layer is skipped
                weights, _ = self._weights[site]
                score = logits.gather(-1, predicted).sum()
                gradient = torch.autograd.grad(score, [weights], allow_unused=True, materialize_grads=True)[0]
                total = total.to(gradient) + gradient
        return unscaled.detach() * total / self.integral_steps

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Keep the weights in the first pass, and drop keys in the others."""
        import torch

        from dropbench.harness.attention.reference.eager import merge_keep_mask
        from dropbench.harness.attention.reference.sdpa import allowed_keys, attention_weights
        from dropbench.harness.regularizers.auxiliary_loss import recomputing

        merged, q, k = call.with_merged_mask(), call.q, call.k
        if self._factors is not None:
            weights = self._factors.get(site, 1.0) * attention_weights(q, k, mask=merged.mask, scale=call.scale)
            self._weights[site] = weights, None if merged.mask is None else allowed_keys(merged.mask)
            return weights @ call.v
        region = (self._recomputed if recomputing() else self._regions).get(site)
        if region is None or region.shape[-2:] != (q.shape[-2], k.shape[-2]):  # tokens were left out since
            return inner(call)
        region = region.repeat(q.shape[0] // region.shape[0], 1, 1, 1)  # a batch may hold several passes
        drop_mask = region & (torch.rand(region.shape, device=q.device) < site.ratio)
        return inner(replace(merged, mask=merge_keep_mask(~drop_mask, merged.mask, q.dtype)))


class HeadMaskImportant(HeadMask):
    """Sets the output of the most important heads of each site to 0 (Sun et al. 2022, "HeadMask", Mask-Important).

    The importance of a head is the mean over samples of |∂L/∂ξ_h|, with its output o_h multiplied by ξ_h = 1 (Michel et
    al. 2019): |Σ o_h ⊙ ∂L/∂o_h| over tokens and channels, from a first pass of the batch. With `draw=sample`, each
    sample has heads of its own. The outputs of the others are not rescaled.
    """

    is_per_query: ClassVar[bool] = False

    _attributing: bool = PrivateAttr(default=False)
    _outputs: dict[Site, Tensor] = PrivateAttr(default_factory=dict)
    _importance: dict[Site, Tensor] = PrivateAttr(default_factory=dict)
    _recomputed: dict[Site, Tensor] = PrivateAttr(default_factory=dict)

    def prepare(self, passes: Passes) -> None:
        """Find the importance of the heads in a first pass."""
        import torch

        self._importance.clear()
        self._attributing = True
        try:
            with torch.enable_grad():
                loss, _ = passes.run(passes.batch)
                outputs = list(self._outputs.values())
                gradients = torch.autograd.grad(loss, outputs, allow_unused=True)
            for site, out, gradient in zip(self._outputs, outputs, gradients, strict=True):
                if gradient is not None:
                    samples = (out.detach() * gradient).sum(dim=(-2, -1)).abs()
                    own = samples.mean(dim=0, keepdim=True) if self.draw == "batch" else samples
                    self._importance[site] = own.cpu()
        finally:
            self._attributing = False
            self._outputs.clear()

    def objective(self, passes: Passes) -> None:
        """Add nothing to the loss; forget the importance of the heads in this micro-batch."""
        self._recomputed, self._importance = self._importance, {}

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        """Keep the outputs of heads in the first pass, and mask heads in the others."""
        if not self._attributing:
            return super().around(call, site, inner)
        out = inner(call)
        self._outputs[site] = out
        return out

    def draw_heads(self, site: Site) -> Tensor | None:
        """Return the heads that a batch shares; None in the first pass, which needs all of them."""
        return None if self._attributing else super().draw_heads(site)

    def keep_heads(self, rows: int, heads: int, site: Site) -> Tensor:
        """Return 0 for the round(`Site.ratio`) most important heads, and 1 for the others."""
        import torch

        from dropbench.harness.attention.reference.drop_masks import number_as_tensor
        from dropbench.harness.regularizers.auxiliary_loss import recomputing

        importance = (self._recomputed if recomputing() else self._importance).get(site)
        if importance is None:  # outside of a training step
            return torch.ones(rows, heads)
        order = importance.argsort(dim=1, descending=True).argsort(dim=1)
        return (order >= number_as_tensor(site.ratio).round()).to(torch.float32).repeat(rows // len(order), 1)


class AttendOut(AroundAttention):
    """Drops keys that a module learns to choose (Wu et al. 2021, "Not All Attention Is All You Need", AttendOut).

    The module is ours: `weight_modules.DropGenerator`. The loss of a first pass without drops, L₁, is the baseline of
    the loss with them, Lₘ, and the module learns by the policy gradient (Lₘ − L₁) ∇log P(m), with the probability P(m)
    of all drops of the micro-batch: an estimate of the gradient of the expected loss. The value of this term is left
    out of the loss.
    """

    stage: ClassVar[Stage] = "keys"
    needs_heads: ClassVar[bool] = True
    needs_all_heads: ClassVar[bool] = True
    result_version: ClassVar[int] = 2

    ratio: float = drop_ratio(0.1)

    _plain: bool = PrivateAttr(default=False)
    _plain_loss: Tensor | None = PrivateAttr(default=None)
    """The loss without drops; None: no step of training is under way."""
    _log_probs: list[Tensor] = PrivateAttr(default_factory=list)

    @property
    def leaves_parameters_unused(self) -> bool:
        """True: its module learns only in steps with drops."""
        return True

    def skip(self, site: Site) -> str | None:
        if site.kind not in ("encoder-self", "decoder-self"):
            return f"it does not regularize {site.kind} sites"
        return "its width is unknown" if site.width is None else super().skip(site)

    def site_module(self, site: Site) -> nn.Module | None:
        from dropbench.harness.regularizers.methods.weight_modules import DropGenerator  # which needs torch

        return DropGenerator(site.heads)

    def prepare(self, passes: Passes) -> None:
        """Compute the loss of a pass without drops, and begin to record the log-probabilities of drops."""
        import torch

        self._plain, self._log_probs = True, []
        try:
            with torch.no_grad():
                self._plain_loss, _ = passes.run(passes.batch)
        finally:
            self._plain = False

    def objective(self, passes: Passes) -> Tensor | None:
        """Return 0, with the policy gradient as its gradient."""
        import torch

        log_probs, plain_loss = self._log_probs, self._plain_loss
        self._log_probs, self._plain_loss = [], None
        if not log_probs or plain_loss is None:
            return None
        term = (passes.loss.detach() - plain_loss) * torch.stack(log_probs).sum()
        return term - term.detach()

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        import torch

        from dropbench.harness.attention.reference.eager import merge_keep_mask
        from dropbench.harness.attention.reference.sdpa import allowed_keys, attention_weights
        from dropbench.harness.regularizers.auxiliary_loss import recomputing
        from dropbench.harness.regularizers.methods.weight_modules import DropGenerator

        if self._plain or not isinstance(site.module, DropGenerator):
            return inner(call)
        call = call.with_merged_mask()
        with torch.no_grad():
            dtype = torch.promote_types(call.q.dtype, torch.float32)
            weights = attention_weights(call.q.to(dtype), call.k.to(dtype), mask=call.mask, scale=call.scale)
        allowed = torch.ones_like(weights, dtype=torch.bool)
        if call.mask is not None:
            allowed = allowed & allowed_keys(call.mask)
        drop_mask, log_prob = site.module.draw(weights, allowed, site.ratio)
        if self._plain_loss is not None and not recomputing():
            self._log_probs.append(log_prob)
        return inner(replace(call, mask=merge_keep_mask(~drop_mask, call.mask, call.q.dtype)))


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

    def size(number: Tensor) -> Tensor:
        """Return the size of a row's region from the number of its allowed keys; ties come on top."""
        return (number - ((1 - share) * number.double() + DUST).long()).clamp(min=1)

    most = size(torch.tensor(attributions.shape[-1]))
    if allowed is None:
        return attributions >= attributions.topk(int(most), dim=-1).values[..., -1:]
    allowed = allowed.expand_as(attributions)
    largest = attributions.masked_fill(~allowed, -float("inf")).topk(int(most), dim=-1).values
    last = size(allowed.sum(dim=-1, keepdim=True)) - 1
    return (attributions >= largest.gather(-1, last)) & allowed
