"""Regularizers that compare several passes of a batch through the model."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PrivateAttr

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.base import Regularizer, Site, SiteKind, Stage
from dropbench.harness.regularizers.methods.tokens import floor_share

if TYPE_CHECKING:
    from torch import Tensor

    from dropbench.harness.regularizers.passes import Passes


class TwoPasses(PlainAttention):
    """Two passes with different dropout, and a divergence of their predictions, times a weight."""

    sites: ClassVar[frozenset[SiteKind]] = frozenset()
    stage: ClassVar[Stage] = "loss"
    strength: ClassVar[str] = "alpha"
    num_passes: ClassVar[int] = 2

    alpha: float = Field(default=1.0, ge=0.0, description="weight of the divergence")

    @abstractmethod
    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the mean divergence of the predictions, given as log-probabilities (N, C)."""

    def objective(self, passes: Passes) -> Tensor:
        first, second = (logits.log_softmax(dim=-1) for logits in class_scores(passes, self))
        return passes.strength(self) * self.divergence(first, second)


class RDrop(TwoPasses):
    """Two passes with different dropout, and α times the symmetric KL divergence of their outputs.

    (Liang et al. 2021, "R-Drop"). The paper and its training code add the two cross entropies to α times
    the mean of both divergences. The loss here is half of that: the mean cross entropy, so that α = 0 is plain
    training, plus α / 2 times the mean divergence.
    """

    alpha: float = Field(default=5.0, ge=0.0, description="weight of the KL divergence")

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Return half of the mean of KL(P₁ ‖ P₂) and KL(P₂ ‖ P₁)."""
        return (_kl(first, second) + _kl(second, first)) / 4


class AttentionDropConsistency(TwoPasses):
    """Two passes with different drops, and λ · KL(P₁ ‖ P₂) (Baig et al. 2025, "AttentionDrop", third variant)."""

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        return _kl(first, second)


class MaskSub(PlainAttention):
    """A second pass without a share of the patches learns the predictions of the first (Heo et al. 2025, "MaskSub").

    The loss is (CE(o₁, y) + CE(o₂, softmax(o₁))) / 2, without a gradient through the targets, as in the authors' code.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"tokens"})
    stage: ClassVar[Stage] = "loss"
    result_version: ClassVar[int] = 2

    ratio: float = Field(default=0.5, ge=0.0, lt=1.0, description="share of the patches that the second pass lacks")

    _masks: bool = PrivateAttr(default=False)

    def tokens(self, x: Tensor, site: Site) -> Tensor:
        """Keep ⌊N · (1 − ratio)⌋ of the N patches of each sample in the second pass; shapes as in `Regularizer`."""
        if not self._masks:
            return x
        import torch

        class_tokens, patches = x[:, : site.num_prefix_tokens], x[:, site.num_prefix_tokens :]
        count = floor_share(1.0 - site.ratio, patches.shape[1])
        kept = torch.rand(patches.shape[:2], device=x.device).argsort(dim=1)[:, :count]
        return torch.cat([class_tokens, patches.gather(1, kept[..., None].expand(-1, -1, x.shape[-1]))], dim=1)

    def objective(self, passes: Passes) -> Tensor:
        """Return half of the difference between the loss of the second pass and that of the first."""
        from torch.nn.functional import cross_entropy

        scores = class_scores(passes, self)
        self._masks = True
        try:
            seconds = [passes.run(passes.batch)[1] for _ in scores]
        finally:
            self._masks = False
        pairs = zip(seconds, scores, strict=True)
        losses = [cross_entropy(second, first.detach().softmax(dim=-1)) for second, first in pairs]
        return (sum(losses[1:], start=losses[0]) / len(losses) - passes.loss) / 2


def class_scores(passes: Passes, regularizer: Regularizer) -> tuple[Tensor, ...]:
    """Return the scores (N, C) of each pass; raise InputError for one score per term, which has no distribution."""
    shape = tuple(passes.logits[0].shape)
    if len(shape) < 2 or shape[-1] < 2:
        raise InputError(
            f"{type(regularizer).__name__} compares predicted classes: expected scores (N, C) of 2 or more, got {shape}"
        )
    return passes.logits


def _kl(first: Tensor, second: Tensor) -> Tensor:
    """Return KL(P₁ ‖ P₂) of log-probabilities (N, C), the mean over predictions."""
    from torch.nn.functional import kl_div

    return kl_div(second, first, reduction="batchmean", log_target=True)
