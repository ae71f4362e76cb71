"""Learned Dropout: a mask that the model learns to compute from its input, on in evaluation too (Yan 2024)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.errors import InputError
from harness.regularizers.base import Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from harness.feedforward import SiteModule
    from harness.site import Site, SiteKind

MaskRounding = Literal["noise-and-linear", "sigmoid", "sigmoid-detach", "none"]
SIGMOID_SCALE = 60.0

_ATTENTION: frozenset[SiteKind] = frozenset({"encoder-self", "decoder-self"})
_WHERE: dict[str, frozenset[SiteKind]] = {
    "feed-forward": frozenset({"feed-forward"}),
    "attention": _ATTENTION,
    "everywhere": _ATTENTION | {"feed-forward", "attention-output", "embedding"},
}


class LearnedDropout(Regularizer):
    """Learned Dropout, with the choices of its author (Yan 2024, "LearnedDropout") and those that he wished for.

    A site's output X (B, T, C) is multiplied by a mask that multi-head attention on X itself gives, without output
    projection: M = 0.5 cos(out + B) + 0.5, one shift B a channel, then rounded to 0 and 1. Nothing is rescaled.
    Its drop ratio is learnt, so that there is none to set, and schedules over layers have no effect.
    """

    ratio: ClassVar[float] = 0.0  # type: ignore[misc]

    where: Literal["feed-forward", "attention", "everywhere"] = Field(
        default="feed-forward", description="which outputs: everywhere stands in place of every dropout of the model"
    )
    mask_rounding: MaskRounding = Field(default="noise-and-linear", description="how the mask becomes 0 or 1")
    sigmoid_scale: float = Field(default=SIGMOID_SCALE, gt=0, description="steepness of the sigmoid roundings")
    shift_init: float = Field(default=0.0, ge=0, le=math.pi, description="initial shift B: 0 keeps all, pi nothing")
    harmonics: int = Field(default=1, ge=1, description="terms of the Fourier series; 1: the source's cosine")
    dropout_input: Literal["hidden-state", "embed"] = Field(
        default="hidden-state", description="what masks come from; embed: the source's pre-computed masks"
    )
    detached_input: bool = Field(default=False, description="no gradient from a mask to what it comes from")
    evaluation: Literal["deterministic", "probabilistic"] = Field(
        default="deterministic", description="noise-and-linear in evaluation: by the threshold 0.5, or as in training"
    )
    heads: int = Field(default=0, ge=0, description="heads of the mask's attention; 0: as many as the model's")
    bias: bool = Field(default=False, description="biases in the mask's attention")
    l1_norm_penalty: Literal["squared", "linear", "none"] = Field(
        default="squared", description="mean of M²/2, of |M|, or no penalty"
    )
    max_coeff: float = Field(default=0.1, gt=0, description="coefficient of the L1 norm penalty, at most")
    min_coeff: float = Field(default=0.0, ge=0, description="at step 0, where exp_rate lets it grow")
    exp_rate: float = Field(default=0.0, ge=0, lt=1, description="growth of the coefficient a step; 0: constant")
    entropy_penalty: bool = Field(default=False, description="mean of -M log2 M beside it")
    entropy_max_coeff: float = Field(default=0.1, gt=0)
    entropy_min_coeff: float = Field(default=0.0, ge=0)
    entropy_exp_rate: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.sigmoid_scale != SIGMOID_SCALE and not self.mask_rounding.startswith("sigmoid"):
            raise ValueError(f"sigmoid_scale is for the sigmoid roundings, not for '{self.mask_rounding}'")
        if self.evaluation == "probabilistic" and self.mask_rounding != "noise-and-linear":
            raise ValueError(f"probabilistic evaluation needs mask_rounding=noise-and-linear, not {self.mask_rounding}")
        if self.dropout_input == "embed" and self.where != "feed-forward":
            raise ValueError(f"dropout_input=embed is for where=feed-forward, not where={self.where}")
        for least, most, rate in (
            (self.min_coeff, self.max_coeff, self.exp_rate),
            (self.entropy_min_coeff, self.entropy_max_coeff, self.entropy_exp_rate),
        ):
            if least and not rate:
                raise ValueError("min_coeff needs an exp_rate above 0")
            if least >= most:
                raise ValueError(f"min_coeff={least:g} is not below max_coeff={most:g}")
        return self

    def skip(self, site: Site) -> str | None:
        """Why it cannot work at this site; None where it can."""
        if site.kind == "mask-input":
            return None if self.dropout_input == "embed" else "masks come from hidden states"
        if site.kind not in _WHERE[self.where]:
            return f"where={self.where} leaves {site.kind} sites alone"
        if site.width is None:
            return "its width is not known"
        if site.width % (self.heads or site.heads):
            return f"{self.heads or site.heads} heads do not divide its width {site.width}"
        if site.kind in _ATTENTION and self.heads not in (0, site.heads):
            return f"its masks are for {site.heads} heads, not {self.heads}"
        if self.dropout_input == "embed" and not site.embedded:
            return "its model does not hand on embeddings for pre-computed masks"
        return None

    def site_module(self, site: Site) -> SiteModule:
        """The mask's parameters at a site, or what derives its input from the embeddings."""
        from harness.learned_mask import EmbeddingAttention, LearnedMask  # which need torch

        if site.width is None:
            raise InputError(f"learned-dropout: {site.name}: its width is not known")
        if site.kind == "mask-input":
            return EmbeddingAttention(site.width, site.heads, trained=not self.detached_input)
        return LearnedMask(self, site.width, self.heads or site.heads)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        """Plain attention: only its output is regularised. Shapes as in `Regularizer.attend`."""
        from torch.nn.functional import scaled_dot_product_attention

        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
