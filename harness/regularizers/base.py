"""What a regularizer is. One registered class is all that a new one needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from harness.site import SiteKind

if TYPE_CHECKING:
    from torch import Tensor

    from harness.feedforward import SiteModule
    from harness.site import Site


class Regularizer(BaseModel, ABC):
    """What attention does in training at the sites that it is bound to.

    Fields are its parameters: they are validated, named on the command line (``name:ratio=0.3,window=2``) and kept
    with every trial. `ratio` is the drop ratio before the schedule; the schedule's value for a layer is `site.ratio`.

    A subclass writes `attend`, which is called in training alone, where `site.ratio` is above 0. Most want
    `harness.regularizers.drop.AttentionDrop` instead, and write only `dropped`: which keys go.

    Randomness: draw from torch's default generator of the tensors' device and from nowhere else. The engine seeds it
    from (seed, step) before every step, which makes each run repeatable and resumable at any step.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    sites: ClassVar[frozenset[SiteKind]] = frozenset(
        {"encoder-self", "decoder-self", "cross", "class", "outlook", "token"}
    )
    """The kinds of site that it can be bound to."""

    ratio: float = Field(default=0.1, ge=0.0, lt=1.0, description="drop ratio")

    def skip(self, site: Site) -> str | None:
        """Why it cannot work at this site; None where it can."""
        return None if site.kind in self.sites else f"it does not regularise {site.kind} sites"

    def site_module(self, site: Site) -> SiteModule | None:
        """What it needs in the model at a site: trainable parameters, or what is on in evaluation. None: nothing.

        The module is given the output of the site, in training and in evaluation (`harness.feedforward`).
        """
        return None

    @abstractmethod
    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Attention in training.

        Args:
            q: queries (B, H, T, d).
            k: keys (B, H, S, d).
            v: values (B, H, S, e).
            site: the place in the model, with its `ratio`.
            mask: boolean (True: may attend) or additive, broadcastable to (B, H, T, S); causality is in it already.
            scale: factor of the logits; None: d^-1/2.

        Returns:
            (B, H, T, e).
        """

    def attend_fast(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, causal: bool, scale: float | None
    ) -> Tensor | None:
        """`attend` by kernels of its own, asked first; with the same random numbers it is the same function.

        Args:
            q: as in `attend`.
            k: as in `attend`.
            v: as in `attend`.
            site: as in `attend`.
            mask: as in `attend`, without causality.
            causal: query i attends to keys 0 … i only, beside `mask`.
            scale: as in `attend`.

        Returns:
            (B, H, T, e); None where there is no quicker way than `attend`, before anything is drawn.
        """
        return None
