"""The sites of a regularized model: list them, set their ratios for a step, and observe their attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from torch import backends, nn

from dropbench.harness.models.adapter import site_of
from dropbench.harness.regularizers.base import AttentionKind, Probe, Site, SiteKind
from dropbench.harness.regularizers.output import SiteModule, WeightModule

ATTENTION_KINDS: tuple[SiteKind, ...] = get_args(AttentionKind)


def sites(model: nn.Module) -> list[Site]:
    """Return the sites of a regularized model, or of a model written for DropBench, in order of execution."""
    return [site for module in model.modules() for site in sites_of(module)]


def sites_of(module: nn.Module) -> list[Site]:
    """Return the sites of one module: its attention, its output, and the weight that it computes."""
    slots = ("site", "forward_site", "weight_site")
    return [site for slot in slots if (site := site_of(module, slot)) is not None]


def set_progress(model: nn.Module, progress: float) -> None:
    """Set the ratios of a regularized model for a step of training; only schedules over steps depend on it.

    Args:
        model: a model after `regularize`.
        progress: the share of all steps that are done, from 0 to 1, such as ``step / steps``.
    """
    for site in sites(model):
        if site.regularizer is not None:
            site.regularizer.set_progress(site, progress)


@contextmanager
def watch(model: nn.Module, probe: Probe, kinds: Sequence[SiteKind] = ATTENTION_KINDS) -> Iterator[list[Site]]:
    """Call `probe` with the attention weights of a regularized model's sites of some kinds, in training and evaluation.

    The fast path is disabled as in `through_attend`.
    """
    watched = [site for site in sites(model) if site.kind in kinds]
    with set_on_sites(watched, "probe", probe):
        yield watched


@contextmanager
def set_on_sites(chosen: Sequence[Site], attribute: str, value: Any) -> Iterator[None]:
    """Set an attribute of chosen sites while the context is open; the fast path is disabled as in `through_attend`."""
    before = [getattr(site, attribute) for site in chosen]
    with through_attend():
        for site in chosen:
            setattr(site, attribute, value)
        try:
            yield
        finally:
            for site, previous in zip(chosen, before, strict=True):
                setattr(site, attribute, previous)


@contextmanager
def through_attend() -> Iterator[None]:
    """Disable torch's fast path in evaluation: one native call per encoder layer that bypasses attention modules."""
    enabled = backends.mha.get_fastpath_enabled()
    backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        backends.mha.set_fastpath_enabled(enabled)


def turn_off_dropout(model: nn.Module) -> None:
    """Set the rates of a model's own dropout to 0, also those of attention weights, but not those of regularizers."""
    for module in model.modules():
        if isinstance(module, SiteModule | WeightModule):
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("drop" in name or (name == "p" and "Drop" in type(module).__name__)):
                setattr(module, name, 0.0)
