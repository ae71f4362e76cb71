"""`Report`: which sites of a model are regularized, as `regularize` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from dropbench.harness.errors import count_of
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.composition import part_ratios

DROPOUT = ("attn_drop", "attn_dropout", "attention_dropout", "dropout_prob", "dropout_module", "dropout")
"""The names that libraries have for the dropout of attention weights in an attention module, the clearest first."""


@dataclass(frozen=True)
class Report:
    """The sites that `regularize` regularized and those that it skipped.

    Attributes:
        title: one line with regularizer, schedule, model and number of sites.
        regularizer: the regularizer.
        bound: the regularized sites, in order.
        skipped: the other sites, each with the reason.
        shared: by site name, the further paths of a module that occurs more than once in the model; it is one site,
            with one ratio for all of its uses.
        own_dropout: by attention site with dropout of its own, the rate, and whether the regularizer replaces it.
    """

    title: str
    regularizer: Regularizer
    bound: list[Site]
    skipped: list[tuple[Site, str]]
    shared: dict[str, list[str]] = field(default_factory=dict)
    own_dropout: dict[str, tuple[float, bool]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return one line per site."""
        outcomes = []
        for site in self.bound:
            paths = self.shared.get(site.name)
            same = f"  (one module with {', '.join(paths)})" if paths else ""
            ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in part_ratios(site)) or f"{site.ratio:.3f}"
            outcomes.append((site, f"ratio {ratios}{same}"))
        outcomes += [(site, f"skipped: {reason}") for site, reason in self.skipped]
        lines, width = [self.title, *self._dropout_lines()], max((len(site.name) for site, _ in outcomes), default=0)
        for site, outcome in outcomes:
            prefix = f"+{site.num_prefix_tokens}" if site.num_prefix_tokens else ""
            keys = f"  keys {site.grid[0]}×{site.grid[1]}{prefix}" if site.grid else ""
            position = f"layer {site.layer + 1}/{site.depth}  heads {site.heads}"
            lines.append(f"  {site.name:{width}}  {site.kind}  {position}{keys}  {outcome}")
        return "\n".join(lines)

    def _dropout_lines(self) -> list[str]:
        """Return a line on the model's own attention dropout, if it has any."""
        if not self.own_dropout:
            return []
        rates = ", ".join(f"{rate:g}" for rate in sorted({rate for rate, _ in self.own_dropout.values()}))
        replaced, number = sum(gone for _, gone in self.own_dropout.values()), len(self.own_dropout)
        outcome = "kept" if not replaced else "replaced" if replaced == number else f"replaced at {replaced} of them"
        return [f"  the model's own attention dropout of {rates} at {count_of(number, 'site')}: {outcome}"]


def own_dropout(module: nn.Module) -> float:
    """Return the rate of an attention module's own dropout of weights, by libraries' names for it; 0 without."""
    for name in DROPOUT:
        value = getattr(module, name, None)
        rate = getattr(value, "p", value)
        if isinstance(rate, float):
            return rate
    return 0.0
