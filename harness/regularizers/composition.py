"""Compositions: several regularizers in one trial, such as ``dropkey:ratio=0.3 + r-drop:alpha=5``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_args

from pydantic import PrivateAttr

from dropbench.harness.attention.call import Call, plain
from dropbench.harness.errors import InputError, UnsuitableError
from dropbench.harness.regularizers.around import AroundAttention, regularized_attention, with_shape
from dropbench.harness.regularizers.base import STAGES, AttentionKind, Regularizer, Site
from dropbench.harness.regularizers.drop import AttentionDrop
from dropbench.harness.regularizers.schedules import SCHEDULES, Schedule

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dropbench.harness.regularizers.passes import Passes

SEPARATOR = "+"
ADDED = ("penalty", "loss")
"""Stages whose parts only add terms to the loss."""


class Part(NamedTuple):
    """One regularizer of a composition, with its name and its schedule over layers."""

    name: str
    regularizer: Regularizer
    schedule: str = "constant"


def _any_part(trait: str) -> Any:
    """Return the property of a composition that is true if a property of `Regularizer` is true for a part."""
    return property(lambda self: any(getattr(part.regularizer, trait) for part in self.parts))


class Composition(Regularizer):
    """Several regularizers, each with its own schedules, at the sites that fit it.

    Parts that change different things are applied in the order of `dropbench.harness.regularizers.base.STAGES`,
    whichever order they are written in: these compositions are equal. Parts of the same stage do not commute and are
    applied in the order in which they are written. At most one part may compute attention itself; the others surround
    it.
    """

    draws_per_batch: ClassVar[Any] = _any_part("draws_per_batch")
    removes_tokens: ClassVar[Any] = _any_part("removes_tokens")
    changes_over_steps: ClassVar[Any] = _any_part("changes_over_steps")
    acts_in_evaluation: ClassVar[Any] = _any_part("acts_in_evaluation")
    has_objective: ClassVar[Any] = _any_part("has_objective")
    needs_heads: ClassVar[Any] = _any_part("needs_heads")
    leaves_parameters_unused: ClassVar[Any] = _any_part("leaves_parameters_unused")
    replaces_dropout: ClassVar[Any] = _any_part("replaces_dropout")

    _parts: tuple[Part, ...] = PrivateAttr()

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self._parts = in_order(parts)
        for stage, effect in (("keys", "compute attention"), ("weight", "reparametrize weights")):
            same = [part.name for part in self._parts if part.regularizer.stage == stage and not _surrounds(part)]
            if len(same) > 1:
                raise InputError(f"{' and '.join(same)} both {effect}: use one of them in a composition")
        for part in self._parts:
            if part.regularizer.needs_all_heads:
                for other in self._parts:
                    if other.regularizer.stage == "heads" and other.regularizer.draws_per_batch:
                        raise InputError(f"{part.name} needs all heads: set {other.name}.draw=sample")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts, in the order in which they are applied."""
        return self._parts

    @property
    def sites(self) -> frozenset[Any]:  # type: ignore[override]
        """The kinds of site of all parts."""
        return frozenset(kind for part in self._parts for kind in part.regularizer.sites)

    @property
    def num_passes(self) -> int:  # type: ignore[override]
        """The largest number of passes of a part."""
        return max(part.regularizer.num_passes for part in self._parts)

    def strength_at(self, progress: float | None) -> float:
        """Return the largest strength of a part that changes the loss."""
        return max((part.regularizer.strength_at(progress) for part in self._objectives(None)), default=0.0)

    def passes_at(self, progress: float | None) -> int:
        return max(part.regularizer.passes_at(progress) for part in self._parts)

    def skip_part(self, part: Part, site: Site) -> str | None:
        """Return why a part cannot work at a site, or None if it can; left out tokens leave no grid."""
        reason = part.regularizer.skip(site)
        if reason is None and self.removes_tokens and site.kind in get_args(AttentionKind):
            reason = part.regularizer.skip(replace(site, grid=None))
            remover = next(each.name for each in self._parts if each.regularizer.removes_tokens)
            reason = reason and f"{reason}, and the tokens that {remover} keeps form none"
        return reason

    def skip(self, site: Site) -> str | None:
        """Return the reasons of all parts if none can work at a site."""
        reasons = [self.skip_part(part, site) for part in self._parts]
        return None if None in reasons else "; ".join(dict.fromkeys(filter(None, reasons)))

    def check_parts(self, bound: Sequence[Site], sites: Sequence[Site]) -> None:
        """Raise UnsuitableError if a part works at no bound site, with its reasons at all sites of a model."""
        for part in self._parts:
            if part.regularizer.sites and all(self.skip_part(part, site) for site in bound):
                own = [site for site in sites if site.kind in part.regularizer.sites]
                reasons = dict.fromkeys(filter(None, (self.skip_part(part, site) for site in own)))
                kinds = " and ".join(sorted(part.regularizer.sites))
                why = "; ".join(reasons) or f"it acts on {kinds}, for which no site is selected"
                raise UnsuitableError(f"'{part.name}' fits none of the model's sites: {why}: remove it")

    def bind_to(self, site: Site, schedule: Schedule) -> None:
        """Bind each part that fits to a copy of the site."""
        parts = []
        for part in self._parts:
            if self.skip_part(part, site) is None:
                part_site = replace(site, module=None, probe=None, penalties=[])
                part.regularizer.bind_to(part_site, SCHEDULES.get(part.schedule))
                parts.append(part_site)
        site.regularizer, site.parts = self, tuple(parts)
        self._update(site)

    def set_progress(self, site: Site, progress: float) -> None:
        """Set the ratios of the parts; the site's own is their maximum."""
        for part in site.parts:
            assert part.regularizer is not None
            part.regularizer.set_progress(part, progress)
        self._update(site)

    def _update(self, site: Site) -> None:
        site.scheduled_ratio = max((part.scheduled_ratio for part in site.parts), default=0.0)
        site.ratio = max((part.ratio for part in site.parts), default=0.0)

    def site_module(self, site: Site) -> nn.Module | None:
        from dropbench.harness.regularizers.output import SiteModules  # which needs torch

        for part in site.parts:
            part.module = part.regularizer.site_module(part) if part.regularizer is not None else None
        return SiteModules.of_parts(site)

    def output(self, x: Tensor, site: Site) -> Tensor:
        for part in _active(site):
            x = with_shape(part.regularizer.output(x, part), x.shape, part.regularizer)
        return x

    def tokens(self, x: Tensor, site: Site) -> Tensor:
        for part in _active(site):
            x = part.regularizer.tokens(x, part)
        return x

    def draw_heads(self, site: Site) -> Tensor | None:
        """Return the draw of the first part, if it drops heads: a part around it, such as a penalty, observes all."""
        active = _active(site)
        return active[0].regularizer.draw_heads(active[0]) if active else None

    def run_layer(self, layer: Callable[[], Tensor], x: Tensor, site: Site) -> Tensor:
        for part in reversed(_active(site)):
            layer = partial(part.regularizer.run_layer, layer, x, part)
        return layer()

    def prepare(self, passes: Passes) -> None:
        for part in self._objectives(passes):
            part.regularizer.prepare(passes.of(part.regularizer))

    def objective(self, passes: Passes) -> Tensor | None:
        terms = [part.regularizer.objective(passes.of(part.regularizer)) for part in self._objectives(passes)]
        present = [term for term in terms if term is not None]
        return sum(present[1:], start=present[0]) if present else None

    def _objectives(self, passes: Passes | None) -> list[Part]:
        """Return the parts that change the loss: those with a strength above 0 at this step, or all of them."""
        parts = [part for part in self._parts if part.regularizer.has_objective]
        return parts if passes is None else [part for part in parts if passes.strength(part.regularizer) > 0.0]

    def attend(self, call: Call, site: Site) -> Tensor:
        return _attend(_active(site), call)

    def attend_fused(self, call: Call, site: Site) -> Tensor | None:
        return _attend(_active(site), call)


def part_ratios(site: Site) -> list[tuple[str, float]]:
    """Return the name and the ratio of each part of a composition that acts at a site; [] for other regularizers."""
    own = site.regularizer
    names = {id(part.regularizer): part.name for part in own.parts} if isinstance(own, Composition) else {}
    return [(names[id(part.regularizer)], part.ratio) for part in site.parts]


def in_order(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts in the order in which they are applied; of the same stage, as written, the last computing.

    Penalties and parts of the loss commute, because their terms are added: they are in the order of their names.
    """

    def position(part: Part) -> tuple[int, bool, str]:
        stage = part.regularizer.stage
        return STAGES.index(stage), not _surrounds(part), part.name if stage in ADDED else ""

    return tuple(sorted(parts, key=position))


def same_stage(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return the pairs of consecutive parts that do not commute, by their names."""
    ordered = in_order(parts)
    stages = [(part.regularizer.stage, _surrounds(part)) for part in ordered]
    pairs = zip(ordered, ordered[1:], stages, stages[1:], strict=False)
    same = (pair for pair in pairs if pair[2] == pair[3] and pair[2][0] not in ADDED)
    return [(first.name, second.name) for first, second, *_ in same]


def _surrounds(part: Part) -> bool:
    """Return whether a part leaves the computation of attention to others."""
    regularizer = part.regularizer
    if isinstance(regularizer, AttentionDrop):
        return regularizer.rescale == "renormalize" and type(regularizer).attend is AttentionDrop.attend
    return isinstance(regularizer, AroundAttention)


def _active(site: Site) -> list[Any]:
    """Return the sites of the parts that act at this step."""
    return [part for part in site.parts if part.ratio > 0.0]


def _attend(parts: Sequence[Any], call: Call) -> Tensor:
    if not parts:
        return plain(call)
    first, *others = parts
    if not others:
        return regularized_attention(call, first)
    out = first.regularizer.around(call, first, partial(_attend, others))
    return with_shape(out, (*call.q.shape[:-1], call.v.shape[-1]), first.regularizer)
