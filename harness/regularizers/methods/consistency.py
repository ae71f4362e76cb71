"""Regularizers that compare several passes of a batch through the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from harness.regularizers.base import PlainAttention, SiteKind, Stage

if TYPE_CHECKING:
    from torch import Tensor

    from harness.regularizers.passes import Passes


class RDrop(PlainAttention):
    """Two passes with different dropout, and α times the symmetric KL divergence of their outputs.

    (Liang et al. 2021, "R-Drop", Eq. 1 to 3). The loss is the mean of the two cross entropies, plus α times the mean of
    both KL divergences, as in the authors' code.
    """

    sites: ClassVar[frozenset[SiteKind]] = frozenset()
    stage: ClassVar[Stage] = "loss"
    strength: ClassVar[str] = "alpha"
    num_passes: ClassVar[int] = 2

    alpha: float = Field(default=5.0, ge=0.0, description="weight of the KL divergence")

    def objective(self, passes: Passes) -> Tensor:
        """Return α/2 · (KL(P₁ ‖ P₂) + KL(P₂ ‖ P₁)), the mean over predictions."""
        from torch.nn.functional import kl_div

        first, second = (logits.log_softmax(dim=-1) for logits in passes.logits)
        divergence = kl_div(first, second, reduction="batchmean", log_target=True)
        divergence = divergence + kl_div(second, first, reduction="batchmean", log_target=True)
        return passes.strength(self) / 2 * divergence
