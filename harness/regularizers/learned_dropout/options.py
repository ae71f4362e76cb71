"""Options of Learned Dropout; importing this loads no torch."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.schedules import Schedule

SIGMOID_SCALE = 60.0


class MaskOptions(PlainAttention):
    """The options of Learned Dropout: those of its author, and those he lists as next steps (Yan 2024)."""

    where: Literal["feed-forward", "attention", "everywhere"] = Field(
        default="feed-forward", description="which outputs; everywhere: instead of every dropout of the model"
    )
    mask_rounding: Literal["noise-and-linear", "sigmoid", "sigmoid-detach", "none"] = Field(
        default="noise-and-linear", description="how the mask becomes 0 or 1"
    )
    sigmoid_scale: float = Field(default=SIGMOID_SCALE, gt=0, description="steepness of the sigmoid roundings")
    shift_init: float = Field(default=0.0, ge=0, le=math.pi, description="initial shift B: 0 keeps all, pi nothing")
    harmonics: int = Field(default=1, ge=1, description="terms of the Fourier series; 1: the source's cosine")
    dropout_input: Literal["hidden-state", "embed"] = Field(
        default="hidden-state", description="input of the masks; embed: the source's pre-computed masks"
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
    min_coeff: float = Field(default=0.0, ge=0, description="coefficient at step 0 if it grows (exp_rate)")
    exp_rate: float = Field(default=0.0, ge=0, lt=1, description="growth of the coefficient per step; 0: constant")
    entropy_penalty: bool = Field(default=False, description="mean of -M log2 M in addition")
    entropy_max_coeff: float = Field(default=0.1, gt=0, description="as max_coeff, of the entropy penalty")
    entropy_min_coeff: float = Field(default=0.0, ge=0, description="as min_coeff, of the entropy penalty")
    entropy_exp_rate: float = Field(default=0.0, ge=0, lt=1, description="as exp_rate, of the entropy penalty")

    def ratio_at(self, site: Site, schedule: Schedule) -> float:
        """Return 0: the ratio is learned."""
        return 0.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.sigmoid_scale != SIGMOID_SCALE and not self.mask_rounding.startswith("sigmoid"):
            raise ValueError(f"sigmoid_scale is for the sigmoid roundings, not for '{self.mask_rounding}'")
        if self.evaluation == "probabilistic" and self.mask_rounding != "noise-and-linear":
            raise ValueError(f"probabilistic evaluation needs mask_rounding=noise-and-linear, not {self.mask_rounding}")
        if self.dropout_input == "embed" and self.where != "feed-forward":
            raise ValueError(f"dropout_input=embed is for where=feed-forward, not where={self.where}")
        for minimum, maximum, rate in (
            (self.min_coeff, self.max_coeff, self.exp_rate),
            (self.entropy_min_coeff, self.entropy_max_coeff, self.entropy_exp_rate),
        ):
            if minimum and not rate:
                raise ValueError("min_coeff needs an exp_rate above 0")
            if minimum >= maximum:
                raise ValueError(f"min_coeff={minimum:g} is not below max_coeff={maximum:g}")
        return self
