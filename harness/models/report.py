"""`Report`: which sites of a model are regularized, as `regularize` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.composition import part_ratios


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
    """

    title: str
    regularizer: Regularizer
    bound: list[Site]
    skipped: list[tuple[Site, str]]
    shared: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return one line per site."""
        outcomes = []
        for site in self.bound:
            paths = self.shared.get(site.name)
            same = f"  (one module with {', '.join(paths)})" if paths else ""
            ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in part_ratios(site)) or f"{site.ratio:.3f}"
            outcomes.append((site, f"ratio {ratios}{same}"))
        outcomes += [(site, f"skipped: {reason}") for site, reason in self.skipped]
        lines, width = [self.title], max((len(site.name) for site, _ in outcomes), default=0)
        for site, outcome in outcomes:
            prefix = f"+{site.num_prefix_tokens}" if site.num_prefix_tokens else ""
            keys = f"  keys {site.grid[0]}×{site.grid[1]}{prefix}" if site.grid else ""
            position = f"layer {site.layer + 1}/{site.depth}  heads {site.heads}"
            lines.append(f"  {site.name:{width}}  {site.kind}  {position}{keys}  {outcome}")
        return "\n".join(lines)
