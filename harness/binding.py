"""`regularize`: any supported model, regularised in one line; `unregularize` takes it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import nn

from harness.adapter import ADAPTERS, Patch
from harness.errors import InputError
from harness.regularizers.base import Regularizer
from harness.regularizers.spec import build_regularizer
from harness.schedules import SCHEDULES
from harness.site import Site

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Report:
    """What `regularize` touched, and what it left alone and why."""

    title: str
    bound: list[Site]
    left: list[tuple[Site, str]]

    def __str__(self) -> str:
        """One line a site."""
        lines = [self.title]
        width = max((len(site.name) for site in [*self.bound, *(site for site, _ in self.left)]), default=0)
        for site in self.bound:
            lines.append(f"  {_describe(site, width)}  ratio {site.ratio:.3f}")
        for site, reason in self.left:
            lines.append(f"  {_describe(site, width)}  left alone: {reason}")
        return "\n".join(lines)


def regularize(
    model: Model,
    regularizer: str | Regularizer,
    *,
    schedule: str = "constant",
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    quiet: bool = False,
    **params: Any,
) -> Model:
    """Regularise the attention of a model, in place.

    Attention dropout that the model had of its own is replaced. In evaluation the model computes what it did before;
    its state_dict does not change. Regularising it again replaces the regularizer.

    Args:
        model: any model that an adapter knows.
        regularizer: a registered name, or a `Regularizer`.
        schedule: how the ratio runs over the layers: constant, increasing, decreasing.
        include: patterns of site names (module paths) to regularise, with * and ?.
        exclude: patterns of site names to leave alone.
        quiet: do not print what was touched.
        params: the regularizer's parameters, such as ``ratio=0.3``.

    Returns:
        the same model.

    Raises:
        InputError: an unknown name or impossible parameter, or a model without any attention to regularise.
    """
    report = bind(model, regularizer, schedule=schedule, include=include, exclude=exclude, **params)
    if not quiet:
        print(report)
    return model


def bind(
    model: nn.Module,
    regularizer: str | Regularizer,
    *,
    schedule: str = "constant",
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    **params: Any,
) -> Report:
    """The same as `regularize`, but returns the report and prints nothing."""
    if isinstance(regularizer, str):
        name, built = regularizer, build_regularizer(regularizer, **params)
    elif params:
        raise InputError(f"parameters {', '.join(params)} belong in the regularizer that was given as an object")
    else:
        name, built = type(regularizer).__name__, regularizer
    ratio_of = SCHEDULES.get(schedule)
    patches = list(find_patches(model))
    bound: list[Site] = []
    left: list[tuple[Site, str]] = []
    for patch in patches:
        site = patch.site
        site.regularizer, site.ratio = None, 0.0
        reason = built.skip(site)
        if not _matches(site.name, include) or _matches(site.name, exclude):
            reason = "excluded by name"
        if reason is None:
            if patch.patched is not None:
                patch.module.__class__ = patch.patched
                patch.module.site = site  # type: ignore[assignment]
            site.regularizer, site.ratio = (built, ratio_of(built.ratio, site.layer, site.depth))
            bound.append(site)
        else:
            left.append((site, reason))
    if not bound:
        raise InputError(_nothing(model, name, left))
    title = (
        f"{name}, ratio {built.ratio:g}, {schedule}: {len(bound)} of {len(patches)} attention sites"
        f" of {type(model).__name__}"
    )
    return Report(title, bound, left)


def unregularize(model: Model) -> Model:
    """Give every module the class that it had, and take the regularizers from models of our own; in place."""
    for patch in list(find_patches(model)):
        patch.site.regularizer, patch.site.ratio, patch.site.probe = None, 0.0, None
        original = getattr(type(patch.module), "unpatched", None)
        if original is not None:
            patch.module.__class__ = original
            del patch.module.site
    return model


def sites(model: nn.Module) -> list[Site]:
    """The sites of a model that is regularised, or of ours, in order of execution."""
    found = (getattr(module, "site", None) for module in model.modules())
    return [site for site in found if isinstance(site, Site)]


def find_patches(model: nn.Module) -> Iterator[Patch]:
    """What the adapters can reach in a model; adapters of libraries that it has no module of are not imported."""
    packages = {kind.__module__.partition(".")[0] for module in model.modules() for kind in type(module).__mro__}
    for name in ADAPTERS:
        if ADAPTERS.entry(name).facts["library"] in packages | {""}:
            yield from ADAPTERS.get(name)().patches(model)


def patched_class(original: type[nn.Module]) -> Any:
    """Class decorator for adapters: names the class that `unregularize` gives back."""

    def decorate(patched: type[nn.Module]) -> type[nn.Module]:
        patched.unpatched = original  # type: ignore[assignment]
        return patched

    return decorate


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _nothing(model: nn.Module, name: str, left: list[tuple[Site, str]]) -> str:
    if left:
        reasons = "; ".join(sorted({reason for _, reason in left}))
        return f"regularize: '{name}' fits none of the {len(left)} attention sites of {type(model).__name__}: {reasons}"
    known = ", ".join(ADAPTERS.entry(entry).help for entry in ADAPTERS)
    return f"regularize: no attention that can be reached in {type(model).__name__}: expected one of {known}"


def _describe(site: Site, width: int) -> str:
    keys = (
        "" if site.grid is None else f"  keys {site.grid[0]}×{site.grid[1]}" + (f"+{site.prefix}" * (site.prefix > 0))
    )
    return f"{site.name:{width}}  {site.kind}  layer {site.layer + 1}/{site.depth}  heads {site.heads}{keys}"
