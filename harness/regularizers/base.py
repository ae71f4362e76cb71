"""`Regularizer`, a rule for attention in training, and `Site`, a position in a model where it applies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.regularizers.schedules import Schedule, StepSchedule, step_factor
from dropbench.harness.validation import FiniteModel

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dropbench.harness.attention.call import Call
    from dropbench.harness.reach import Reach
    from dropbench.harness.regularizers.passes import Passes

AttentionKind = Literal["encoder-self", "decoder-self", "cross", "class", "outlook", "token"]
"""Kinds of attention; token: attention that makes the tokens, as in T2T-ViT's T2T module."""
OutputKind = Literal["feed-forward", "attention-output", "embedding", "mask-input"]
"""Outputs of the feed-forward block, of attention after its projection, of embeddings; embeddings for early masks."""
SiteKind = Literal[AttentionKind, OutputKind, "tokens", "layer", "weight"]
"""All kinds of site. tokens: the sequence that enters the first layer, from which tokens may be left out; layer: a
layer with its residual connections; weight: the weight matrix of a linear map in a layer."""
Probe = Callable[["Site", "Tensor"], None]
"""Called with the site and its attention weights (B, H, T, S), 0 exactly for forbidden pairs, at every forward pass."""


@dataclass(eq=False)
class Site:
    """A position in a model where attention or an output is computed, and the regularizer that acts on it.

    Attributes:
        name: the module's path in the model.
        kind: the kind of attention or output; see `SiteKind`.
        layer: index of the layer in its stack, from 0, for the schedule.
        depth: number of layers in that stack.
        heads: attention heads; 0: the calls do not show them.
        grid: rows and columns of the key tokens if they form a grid (vision), else None.
        num_prefix_tokens: key tokens before the grid (class token, distillation token); never part of the grid.
        regularizer: the regularizer of the site; None: none.
        ratio: the layer's drop ratio, from the schedule.
        probe: an observer of the attention weights, for analyses; while it is set, weights are computed explicitly.
        width: channels of the output (for attention, of all heads together); None: unknown.
        weights_only: whether the module computes the softmax of logits, and not SDPA: values and outputs are its own.
        embedded: whether the model passes the output of its mask-input site to this one.
        module: the regularizer's `output.SiteModule`, which acts in evaluation too; most have none.
        batch_axis: the axis of the samples in an output, 0 or 1.
        parameter: for a weight site, the name of the matrix in its module.
        input_axis: for a weight site, the axis of the matrix's inputs: 1, or 0 if it is stored transposed.
        projections: for a weight site, how many of the maps to queries, keys and values the matrix stacks: 0, 1 or 3.
        parts: for a `composition.Composition`, a copy of the site for each part that acts at it.
        drawn_heads: factors of the heads' outputs (H), from `Regularizer.draw_heads` until attention; 0: not projected.
        scheduled_ratio: the layer's drop ratio before the schedule over steps, of which `ratio` is a share.
        penalties: terms of the loss from the forward passes since the last optimizer step; see `auxiliary_loss`.
        observed: whether the site has had such terms.
        reach: counts the calls of the model's sites in training, or in evaluation, too; None: nobody asks.
        masked_keys: in evaluation, keys that no query may attend to: boolean (B or 1, S), True if masked (`occlusion`).
        mc_samples: in evaluation, how many draws of the regularizer the weights are averaged over; 0: they are plain.
    """

    name: str
    kind: SiteKind
    layer: int
    depth: int
    heads: int
    grid: tuple[int, int] | None = None
    num_prefix_tokens: int = 0
    regularizer: Regularizer | None = field(default=None, repr=False)
    ratio: float = 0.0
    probe: Probe | None = field(default=None, repr=False)
    width: int | None = None
    weights_only: bool = False
    embedded: bool = False
    module: nn.Module | None = field(default=None, repr=False)
    masked_keys: Tensor | None = field(default=None, repr=False)
    mc_samples: int = field(default=0, repr=False)
    batch_axis: int = 0
    parameter: str = "weight"
    input_axis: int = 1
    projections: int = 0
    parts: tuple[Site, ...] = field(default=(), repr=False)
    drawn_heads: Tensor | None = field(default=None, repr=False)
    scheduled_ratio: float = field(default=0.0, repr=False)
    penalties: list[Tensor] = field(default_factory=list, repr=False)
    observed: bool = field(default=False, repr=False)
    reach: Reach | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"penalties": []}  # in copies: those belong to the graph of a forward pass of this site

    def __post_init__(self) -> None:
        if not 0 <= self.layer < self.depth:
            raise InputError(f"site '{self.name}': layer={self.layer}: expected 0 to {self.depth - 1} (depth - 1)")


def drop_ratio(default: float) -> Any:
    """Return a field for a drop ratio, whose default is that of the source."""
    return Field(default=default, ge=0.0, lt=1.0, description="drop ratio")


RATIO = drop_ratio(0.1)
"""The ratio of regularizers whose source names none."""
Stage = Literal["weight", "tokens", "layer", "penalty", "heads", "values", "logits", "keys", "output", "loss"]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""Targets of a regularizer. A composition applies its parts in this order; within attention, from the outside in.
penalty: nothing is changed; attention is observed, and terms of the loss are added."""


class Regularizer(FiniteModel, ABC):
    """A rule for training, at the sites that it is bound to.

    Fields are its parameters: they are validated, named on the command line (``name:ratio=0.3,window=2``) and kept
    with every trial. The field that `strength` names, by default `ratio`, is multiplied by the schedules.

    A subclass implements the methods of what it changes. All are called in training only, and if `site.ratio` is above
    0: `attend` for attention (most derive from `dropbench.harness.regularizers.drop.AttentionDrop` or
    `dropbench.harness.regularizers.around.AroundAttention` instead), `output`, `tokens`, `run_layer`, and `objective`
    for the loss. A `site_module` acts in evaluation, too, and may have parameters.

    Randomness: draw only from torch's default generator of the tensors' device. The engine seeds it from (seed, step)
    before every step, which makes each run repeatable and resumable at any step.
    """

    over: StepSchedule = Field(default="constant", description="schedule over steps, such as late@0.5")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.stage not in STAGES:
            raise unknown_name(f"stage of {cls.__name__}", str(cls.stage), STAGES)
        sites: Any = cls.sites
        for kind in () if isinstance(sites, property) else sites:
            if kind not in get_args(SiteKind):
                raise unknown_name(f"kind of site in {cls.__name__}.sites", str(kind), get_args(SiteKind))

    sites: ClassVar[frozenset[SiteKind]] = frozenset(get_args(AttentionKind))
    """The kinds of site that the regularizer can be bound to."""
    stage: ClassVar[Stage] = "keys"
    """The target of the regularizer, which defines its place in a composition."""
    result_version: ClassVar[int] = 1
    """Raised when a change of the class changes the numbers that training gives."""
    strength: ClassVar[str] = "ratio"
    """The parameter that schedules over layers and steps multiply, if the regularizer has it."""
    tuning: ClassVar[Mapping[str, Any]] = {}
    """A parameter and the list of values that tuned presets of suites choose from, unless its card has one."""
    num_passes: ClassVar[int] = 1
    """How often a batch passes through the model in a step. The task's loss is the mean over the passes."""
    adds_penalties: ClassVar[bool] = False
    """True if attention adds terms of the loss to `Site.penalties` in its forward pass."""
    removes_tokens: ClassVar[bool] = False
    """True if tokens are left out of the sequence, which then forms no grid."""
    needs_all_heads: ClassVar[bool] = False
    """True if it must know which head is which: no other part may leave heads out."""
    needs_heads: ClassVar[bool] = False
    """True if it treats heads differently."""
    draws_per_batch: ClassVar[bool] = False
    """True if all samples of a batch share a random draw: several passes cannot be one larger batch."""
    is_per_query: ClassVar[bool] = False
    """True if attention of a query depends on no other query: those whose outputs nothing reads may be left out."""

    @model_validator(mode="after")
    def _require_strength(self) -> Self:
        value = getattr(self, self.strength, None)
        if isinstance(value, int | float) and value < 0:
            raise ValueError(f"{self.strength}={value}: expected 0 or more")
        return self

    def ratio_at(self, site: Site, schedule: Schedule) -> float:
        """Return `Site.ratio`, above 0 to act: the schedule's value of the parameter `strength`; 1 without one."""
        ratio: float | None = getattr(self, self.strength, None)
        return 1.0 if ratio is None else schedule(ratio, site.layer, site.depth)

    def bind_to(self, site: Site, schedule: Schedule) -> None:
        """Set the regularizer of a site, and the ratio at the beginning of training."""
        site.regularizer, site.parts = self, ()
        site.scheduled_ratio = self.ratio_at(site, schedule)
        self.set_progress(site, 0.0)

    def set_progress(self, site: Site, progress: float) -> None:
        """Set the ratio of a site for a step; `progress` is the share of all steps that are done, from 0 to 1."""
        site.ratio = site.scheduled_ratio * step_factor(self.over, progress)

    def strength_at(self, progress: float | None) -> float:
        """Return the parameter `strength` times its schedule over steps; 1 without one. None: at its full value."""
        parameter: float | None = getattr(self, self.strength, None)
        value = 1.0 if parameter is None else float(parameter)
        return value if progress is None else value * step_factor(self.over, progress)

    def passes_at(self, progress: float | None) -> int:
        """Return how often a batch passes through the model: `num_passes`, or 1 while the strength is 0."""
        return self.num_passes if self.strength_at(progress) > 0.0 else 1

    @property
    def changes_over_steps(self) -> bool:
        """True if the ratio depends on the step."""
        return self.over != "constant"

    @property
    def needs_values(self) -> bool:
        """True if it reads or changes the values or the output of attention, and not its logits or weights alone."""
        return False

    @property
    def replaces_dropout(self) -> bool:
        """True if the model's own dropout of attention weights gives way to it: it drops keys, or changes logits."""
        return self.stage in ("logits", "keys")

    @property
    def acts_in_evaluation(self) -> bool:
        """True if the regularizer may change what the model computes in evaluation."""
        return type(self).site_module is not Regularizer.site_module

    @property
    def has_objective(self) -> bool:
        """True if the regularizer changes the loss, or runs the model more than once."""
        return type(self).objective is not Regularizer.objective or type(self).prepare is not Regularizer.prepare

    @property
    def leaves_parameters_unused(self) -> bool:
        """True if some parameters of the model may have no gradient in a step, such as those of skipped layers."""
        return type(self).run_layer is not Regularizer.run_layer

    def skip(self, site: Site) -> str | None:
        """Return why the regularizer cannot work at a site, or None if it can."""
        if site.weights_only and self.needs_values:
            return f"{type(self).__name__} needs values, and the module computes a softmax"
        if not site.heads and self.needs_heads:
            return "its attention does not show its heads"
        return None if site.kind in self.sites else f"it does not regularize {site.kind} sites"

    def site_module(self, site: Site) -> nn.Module | None:
        """Return the `output.SiteModule` to install at a site, for parameters or effects in evaluation; None: none."""
        return None

    def output(self, x: Tensor, site: Site) -> Tensor:
        """Return an output of a block changed, in its shape: (B, T, C), or (T, B, C) if `site.batch_axis` is 1."""
        return x

    def tokens(self, x: Tensor, site: Site) -> Tensor:
        """Return the tokens (B, N, C) that enter the first layer, changed or fewer; prefix tokens come first."""
        return x

    def run_layer(self, layer: Callable[[], Tensor], x: Tensor, site: Site) -> Tensor:
        """Return the hidden states after a layer; `layer` computes them from the hidden states `x` before it."""
        return layer()

    def draw_heads(self, site: Site) -> Tensor | None:
        """Draw factors (H) of the heads' outputs, on the CPU, before q, k and v are projected; None: all are needed."""
        return None

    def prepare(self, passes: Passes) -> None:
        """Act before a micro-batch passes through the model, such as to run the model for attributions."""

    def objective(self, passes: Passes) -> Tensor | None:
        """Return the scalar to add to the task's loss of a micro-batch; None: nothing."""
        return None

    @abstractmethod
    def attend(self, call: Call, site: Site) -> Tensor:
        """Compute attention in training.

        Args:
            call: queries, keys, values and the mask, which includes causality.
            site: the site, with its `ratio`.

        Returns:
            (B, H, T, e).
        """

    def expected_weights(self, call: Call, site: Site) -> Tensor:
        """Return the mean of the regularized attention weights over `site.mc_samples` samples (DropKey, Section 3.2).

        Monte Carlo evaluation attends with it. By default `attend` is called once per sample with unit vectors as
        values, so that its output is its weights. Arguments as in `attend`, q and k at least in float32.
        """
        import torch

        dtype, device = call.q.dtype, call.q.device
        unit = torch.eye(call.k.shape[-2], dtype=dtype, device=device).expand(*call.k.shape[:-1], -1)
        samples = (self.attend(replace(call, v=unit), site) for _ in range(site.mc_samples))
        return sum(samples, start=torch.zeros((), dtype=dtype, device=device)) / site.mc_samples

    def weights(self, logits: Tensor, mask: Tensor, site: Site) -> Tensor | None:
        """Return the weights (B, H, T, S) with which `attend` attends in training, where a module asks for them alone.

        `logits` (B, H, T, S) are scaled, at least in float32; `mask` is boolean. None: `attend` does, for unit vectors.
        """
        return None

    def attend_fused(self, call: Call, site: Site) -> Tensor | None:
        """Compute `attend` by faster kernels: with the same random numbers the same function. It is called first.

        Arguments and result as in `attend`, except that the mask contains no causality: `call.causal` may be set. None,
        without having drawn random numbers: `attend` is called.
        """
