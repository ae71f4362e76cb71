"""`regularize`: any supported model, regularised in one line; `unregularize` takes it back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar, get_args

from torch import backends, nn

from harness.adapter import ADAPTERS, Patch, site_of
from harness.errors import InputError, unknown_name
from harness.feedforward import attention_width, install, uninstall
from harness.regularizers.base import Regularizer
from harness.regularizers.spec import build_regularizer
from harness.schedules import SCHEDULES
from harness.site import Probe, Site, SiteKind
from harness.trial import Trial

Model = TypeVar("Model", bound=nn.Module)

ATTENTION_KINDS: tuple[SiteKind, ...] = ("encoder-self", "decoder-self", "cross", "class", "outlook", "token")
DEFAULT_KINDS: tuple[SiteKind, ...] = tuple(kind for kind in get_args(SiteKind) if kind not in ("class", "token"))
"""Attention of a class token alone (VOLO's last two layers), and attention that makes the tokens (T2T-ViT's T2T module)
are left out unless asked for, as the papers do."""


def bind_trial(model: nn.Module, trial: Trial) -> Report:
    """Regularise a model as a trial says; raises InputError as `regularize` does."""
    kinds = trial.recipe.get("kinds") or DEFAULT_KINDS
    return bind(model, trial.regularizer.build(), schedule=trial.schedule, kinds=kinds)


@dataclass(frozen=True)
class Report:
    """What `regularize` touched, and what it left alone and why.

    Attributes:
        title: one line: regularizer, schedule, model, and how many of its sites.
        bound: the sites that are regularised, in order.
        left: the others, each with the reason.
        shared: by site name, the further paths of a module that the model holds more than once: it is one site, with
            one ratio, wherever it runs.
    """

    title: str
    bound: list[Site]
    left: list[tuple[Site, str]]
    shared: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line a site."""
        lines = [self.title]
        width = max((len(site.name) for site in [*self.bound, *(site for site, _ in self.left)]), default=0)
        for site in self.bound:
            also = self.shared.get(site.name, [])
            lines.append(
                f"  {_describe(site, width)}  ratio {site.ratio:.3f}"
                + (f"  (one module with {', '.join(also)})" if also else "")
            )
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
    kinds: Sequence[SiteKind] = DEFAULT_KINDS,
    quiet: bool = False,
    **params: Any,
) -> Model:
    """Regularise the attention of a model, in place.

    In training, attention dropout that the model had of its own is replaced at the sites that are touched; the others
    stay as they were. In evaluation the model computes what it did before, and its state_dict does not change.
    Regularising it again replaces the regularizer; where nothing can be regularised, the model is left as it was.

    Call it before the model is compiled or wrapped for several devices, and after its layers are final.

    Args:
        model: any model that an adapter knows.
        regularizer: a registered name, or a `Regularizer`.
        schedule: how the ratio runs over the layers: constant, increasing, decreasing. Layers are counted for each
            stack and kind of site by itself; VOLO's outlook and self attention are one count, in order of execution.
        include: patterns of site names (module paths) to regularise, with * and ?.
        exclude: patterns of site names to leave alone.
        kinds: kinds of site to regularise; by default all but "class", attention of a class token alone, and "token",
            attention that makes the tokens.
        quiet: do not print what was touched.
        params: the regularizer's parameters, such as ``ratio=0.3``.

    Returns:
        the same model.

    Raises:
        InputError: an unknown name or impossible parameter, or a model without any attention to regularise.
    """
    report = bind(model, regularizer, schedule=schedule, include=include, exclude=exclude, kinds=kinds, **params)
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
    kinds: Sequence[SiteKind] = DEFAULT_KINDS,
    **params: Any,
) -> Report:
    """The same as `regularize`, but returns the report and prints nothing."""
    if isinstance(regularizer, str):
        name, built = regularizer, build_regularizer(regularizer, **params)
    elif params:
        raise InputError(f"parameters {', '.join(params)} belong in the regularizer that was given as an object")
    else:
        name, built = type(regularizer).__name__, regularizer
    for kind in kinds:
        if kind not in get_args(SiteKind):
            raise unknown_name("kind of site", kind, get_args(SiteKind))
    ratio_of = SCHEDULES.get(schedule)
    patches = find_patches(model)
    for patch in patches:
        if patch.site.width is None:
            patch.site.width = attention_width(patch.module)
    reasons = [_reason(patch, built, include, exclude, kinds) for patch in patches]
    bound = [patch for patch, reason in zip(patches, reasons, strict=True) if reason is None]
    left = [(patch, reason) for patch, reason in zip(patches, reasons, strict=True) if reason is not None]
    if not bound:
        raise InputError(_nothing(model, name, left))
    for patch in bound:
        site, before = patch.site, site_of(patch.module)
        site.regularizer, site.ratio = built, ratio_of(built.ratio, site.layer, site.depth)
        site.probe = before.probe if before is not None else None
        patch.attach()
        install(model, patch.module, site, built)
    for patch, _ in left:
        _release(patch)
    amount = f", ratio {built.ratio:g}, {schedule}" if "ratio" in type(built).model_fields else ""
    title = f"{name}{amount}: {len(bound)} of {_count(patches)} of {type(model).__name__}"
    return Report(
        title,
        [patch.site for patch in bound],
        [(patch.site, reason) for patch, reason in left],
        _shared(model, bound),
    )


def unregularize(model: Model) -> Model:
    """Give every module back as it was, and take the regularizers from models of our own; in place."""
    for patch in find_patches(model):
        _release(patch)
        patch.site.probe, patch.site.hidden, patch.site.draws = None, None, 0
    return model


def sites(model: nn.Module) -> list[Site]:
    """The sites of a model that is regularised, or of ours, in order of execution."""
    found = (site_of(module) for module in model.modules())
    return [site for site in found if site is not None]


@contextmanager
def watch(model: nn.Module, probe: Probe, kinds: Sequence[SiteKind] = ATTENTION_KINDS) -> Iterator[list[Site]]:
    """Show `probe` the attention weights of a regularised model's sites of some kinds, in training and in evaluation.

    torch's own encoder layers compute their attention in one native call in evaluation, past every module: that is
    switched off while this lasts.
    """
    watched = [site for site in sites(model) if site.kind in kinds]
    before = [site.probe for site in watched]
    fast = backends.mha.get_fastpath_enabled()
    backends.mha.set_fastpath_enabled(False)
    for site in watched:
        site.probe = probe
    try:
        yield watched
    finally:
        backends.mha.set_fastpath_enabled(fast)
        for site, was in zip(watched, before, strict=True):
            site.probe = was


def find_patches(model: nn.Module) -> list[Patch]:
    """What the adapters can reach in a model, in the order of its modules.

    Each module is one adapter's alone: the first one's that does not refuse it, else the first one's. Adapters of
    libraries that the model has no module of are not imported.
    """
    order = {id(module): index for index, module in enumerate(model.modules())}
    packages = {kind.__module__.partition(".")[0] for module in model.modules() for kind in type(module).__mro__}
    claimed: dict[int, Patch] = {}
    for name in reversed(list(ADAPTERS)):
        if ADAPTERS.entry(name).facts["library"] in packages | {""}:
            for patch in ADAPTERS.get(name)().patches(model):
                present = claimed.get(id(patch.module))
                if present is None or (present.refusal is not None and patch.refusal is None):
                    claimed[id(patch.module)] = patch
    return sorted(claimed.values(), key=lambda patch: order[id(patch.module)])


def _release(patch: Patch) -> None:
    uninstall(patch.module, patch.site)
    patch.detach()


def _reason(
    patch: Patch, regularizer: Regularizer, include: Sequence[str], exclude: Sequence[str], kinds: Sequence[SiteKind]
) -> str | None:
    """Why a site is left alone; None where it is not."""
    site = patch.site
    if not _matches(site.name, include) or _matches(site.name, exclude):
        return "excluded by name"
    if site.kind not in kinds:
        return f"kind '{site.kind}' was not asked for (kinds=…)"
    return patch.refusal or regularizer.skip(site)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shared(model: nn.Module, bound: list[Patch]) -> dict[str, list[str]]:
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(path)
    others = {patch.site.name: [path for path in paths[id(patch.module)] if path != patch.site.name] for patch in bound}
    return {name: also for name, also in others.items() if also}


def _count(patches: list[Patch]) -> str:
    attention = all(patch.site.kind in ATTENTION_KINDS for patch in patches)
    return f"{len(patches)} {'attention sites' if attention else 'sites'}"


def _nothing(model: nn.Module, name: str, left: list[tuple[Patch, str]]) -> str:
    if left:
        count, reasons = _count([patch for patch, _ in left]), sorted({reason for _, reason in left})
        return f"regularize: '{name}' fits none of the {count} of {type(model).__name__}: {'; '.join(reasons)}"
    strange = sorted({type(module).__name__ for module in model.modules() if _looks_like_attention(module)})
    has = f" (it has {', '.join(strange)}, which no adapter knows)" if strange else ""
    known = ", ".join(ADAPTERS.entry(entry).help for entry in ADAPTERS)
    return f"regularize: no attention that can be reached in {type(model).__name__}{has}: expected one of {known}"


def _looks_like_attention(module: nn.Module) -> bool:
    name = type(module).__name__
    return bool(re.search("attention|attn|performer", name, re.IGNORECASE)) and not any(
        map(_looks_like_attention, module.children())
    )


def _describe(site: Site, width: int) -> str:
    keys = (
        "" if site.grid is None else f"  keys {site.grid[0]}×{site.grid[1]}" + (f"+{site.prefix}" * (site.prefix > 0))
    )
    return f"{site.name:{width}}  {site.kind}  layer {site.layer + 1}/{site.depth}  heads {site.heads}{keys}"
