"""`regularize`: regularize any supported model, in one line; `unregularize` undoes it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import compress
from typing import Any, Literal, TypeVar, get_args

from torch import nn

from dropbench.harness.errors import InputError, UnsuitableError, unknown_name
from dropbench.harness.models import adapter
from dropbench.harness.models.adapter import ADAPTERS, Patch, install, site_of
from dropbench.harness.models.blocks import block_patches
from dropbench.harness.models.forward_patch import follow_wrappers, stop_following
from dropbench.harness.models.report import Report as Report
from dropbench.harness.models.report import own_dropout
from dropbench.harness.models.sites import ATTENTION_KINDS
from dropbench.harness.reach import Reach
from dropbench.harness.regularizers.around import replaces_dropout
from dropbench.harness.regularizers.base import Regularizer, SiteKind
from dropbench.harness.regularizers.composition import Composition
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.regularizers.spec import build_regularizer, parse_spec

OBJECTIVE = "regularizer_of_the_loss"
"""The attribute of a model that holds a regularizer that changes the loss, for `training_loss`."""
Model = TypeVar("Model", bound=nn.Module)
Text = TypeVar("Text", bound=str)

DEFAULT_KINDS: tuple[SiteKind, ...] = tuple(kind for kind in get_args(SiteKind) if kind not in ("class", "token"))
"""All kinds except attention of only a class token (VOLO's last two layers) and attention that makes the tokens
(T2T-ViT's T2T module), which the papers do not regularize either."""


def regularize(
    model: Model,
    regularizer: str | Regularizer,
    *,
    schedule: str = "constant",
    include: str | Sequence[str] = ("*",),
    exclude: str | Sequence[str] = (),
    kinds: SiteKind | Sequence[SiteKind] = DEFAULT_KINDS,
    quiet: bool = False,
    unreached: Literal["warn", "ignore"] = "warn",
    **params: Any,
) -> Model:
    """Regularize the attention of a model, in place.

    A site is a module whose code calls SDPA, or a softmax over keys. Its forward runs under a torch function mode that
    routes these calls through the regularizer; for some modules of torch, timm and fairseq a subclass computes the same
    with less work. In training, a regularizer that drops keys or changes logits replaces the model's own dropout of
    attention weights; all other dropout stays, and `none` is the model as it came. In evaluation the original forward
    runs, and the state_dict does not change. A second call replaces the regularizer. If nothing can be regularized, the
    model does not change.

    Call it after the model's layers are final, and before the model is compiled or wrapped for several devices.

    Args:
        model: any model with attention.
        regularizer: a registered name, also with parameters and parts as on the command line, such as
            ``dropkey:ratio=0.3 + r-drop``; or a `Regularizer`.
        schedule: the schedule of the ratio over layers: constant, increasing, decreasing. Layers are counted separately
            for each stack and kind of site; VOLO's outlook and self attention are counted together, in order of
            execution.
        include: a pattern or patterns of site names (module paths) to regularize, with * and ?; each fits a site.
        exclude: a pattern or patterns of site names to skip.
        kinds: a kind or kinds of site to regularize; by default all except "class", attention of only a class token,
            and "token", attention that makes the tokens.
        quiet: do not print the report.
        unreached: whether to warn after 50 training passes of sites that have not attended in any of them.
        params: the regularizer's parameters, such as ``ratio=0.3``.

    Returns:
        the same model.

    Raises:
        InputError: a name is unknown, a parameter is invalid, or the model has no attention that can be regularized.

    Warns:
        UserWarning: the regularizer changes the loss, which `training_loss` computes, or depends on the step, which
            `set_progress` or `training_loss` sets; in training, sites do not attend.
    """
    report = bind(model, regularizer, schedule=schedule, include=include, exclude=exclude, kinds=kinds, **params)
    if unreached == "warn":
        reach = Reach(site.name for site in report.bound if site.kind in ATTENTION_KINDS)
        for site in report.bound:
            site.reach = reach if site.kind in ATTENTION_KINDS else None
    if not quiet:
        print(report)
    regularizer_name = report.title.partition(":")[0]
    if report.regularizer.has_objective:
        vars(model)[OBJECTIVE] = report.regularizer
        warnings.warn(
            f"regularize: {regularizer_name} changes the loss: in a training loop of your own, compute it"
            " by `dropbench.training_loss(model, forward, batch)`; otherwise it does nothing",
            stacklevel=2,
        )
    if report.regularizer.changes_over_steps:
        warnings.warn(
            f"regularize: {regularizer_name} changes over steps: in a training loop of your own, call"
            " `dropbench.set_progress(model, step / steps)` before every step; otherwise it stays as at the first step",
            stacklevel=2,
        )
    return model


def bind(
    model: nn.Module,
    regularizer: str | Regularizer,
    *,
    schedule: str = "constant",
    include: str | Sequence[str] = ("*",),
    exclude: str | Sequence[str] = (),
    kinds: SiteKind | Sequence[SiteKind] = DEFAULT_KINDS,
    **params: Any,
) -> Report:
    """Regularize as `regularize` does, but return the report and print nothing."""
    if not isinstance(regularizer, str | Regularizer):  # such as swapped arguments
        raise InputError("regularize: expected a model, then a regularizer's name or a Regularizer object")
    if isinstance(regularizer, str):
        spec = parse_spec(regularizer)
        if spec.align:
            raise InputError(f"regularizer '{regularizer}': align={spec.align}: only `dropbench.run` aligns: remove it")
        name, schedule = spec.name, spec.schedule or schedule
        built = build_regularizer(name, **{**spec.params, **params})
    elif params:
        raise InputError(f"parameters {', '.join(params)}: set them when you create the regularizer object")
    else:
        name, built = type(regularizer).__name__, regularizer
    include, exclude, kinds = _tuple(include), _tuple(exclude), _tuple(kinds)
    for kind in kinds:
        if kind not in get_args(SiteKind):
            raise unknown_name("kind of site", kind, get_args(SiteKind))
    ratio_of = SCHEDULES.get(schedule)
    adapter.uninstall_weights(model)
    _forget_objectives(model)
    patches = find_patches(model)
    for pattern in include if patches else ():
        if not any(fnmatchcase(patch.site.name, pattern) for patch in patches):
            raise unknown_name("site in include", pattern, [patch.site.name for patch in patches])
    for patch in patches:
        if patch.site.width is None and patch.site.kind in ATTENTION_KINDS:
            patch.site.width = adapter.attention_width(patch.module)
    concerned = [patch.slot == "site" or patch.site.kind in built.sites for patch in patches]
    unconcerned = [patch for patch, is_concerned in zip(patches, concerned, strict=True) if not is_concerned]
    patches = list(compress(patches, concerned))  # only regularizers that act there report the others
    reasons = [_skip_reason(patch, built, include, exclude, kinds) for patch in patches]
    bound = [patch for patch, reason in zip(patches, reasons, strict=True) if reason is None]
    skipped = [(patch, reason) for patch, reason in zip(patches, reasons, strict=True) if reason is not None]
    if not bound and built.sites:  # a regularizer of the loss alone has no sites
        raise (UnsuitableError if skipped else InputError)(_nothing_bound(model, name, built.sites, skipped))
    if isinstance(built, Composition):
        built.check_parts([patch.site for patch in bound], [patch.site for patch in patches])
    for patch in [*unconcerned, *(patch for patch, _ in skipped)]:
        patch.detach()
    for patch in bound:
        site, previous = patch.site, site_of(patch.module, patch.slot)
        built.bind_to(site, ratio_of)
        site.probe = previous.probe if previous is not None else None
        patch.attach()
        install(model, patch.module, site, built)
    follow_wrappers(model)
    ratio: float | None = getattr(built, built.strength, None)
    amount = "" if ratio is None else f", {built.strength} {ratio:g}, {schedule}"
    amount += f", {built.over} over steps" if built.over != "constant" else ""
    title = f"{name}{amount}: {len(bound)} of {_count(patches)} of {type(model).__name__}"
    skipped_sites = [(patch.site, reason) for patch, reason in skipped]
    attention = [patch for patch in patches if patch.site.kind in ATTENTION_KINDS]
    rates = {patch.site.name: (own_dropout(patch.module), replaces_dropout(patch.site)) for patch in attention}
    own = {name: (rate, replaced) for name, (rate, replaced) in rates.items() if rate}
    return Report(title, built, [patch.site for patch in bound], skipped_sites, _shared_paths(model, bound), own)


def unregularize(model: Model) -> Model:
    """Restore every patched module and remove all regularizers, in place.

    Weights that a regularizer computes keep their value in evaluation, so that predictions do not change. Only a
    regularizer that masks outputs in evaluation, `learned-dropout`, takes its effect along.
    """
    adapter.uninstall_weights(model)
    _forget_objectives(model)
    stop_following(model)
    for patch in find_patches(model):
        patch.detach()
        patch.site.probe, patch.site.masked_keys, patch.site.mc_samples = None, None, 0
    return model


def find_patches(model: nn.Module) -> list[Patch]:
    """Return the patches of all adapters for a model, in the order of its modules.

    Each module belongs to one adapter: the first that does not refuse it, else the first. Adapters of libraries without
    a module in the model are not imported.
    """
    order = {id(module): index for index, module in enumerate(model.modules())}
    packages = {kind.__module__.partition(".")[0] for module in model.modules() for kind in type(module).__mro__}
    claimed: dict[tuple[int, str, str], Patch] = {}
    for name in reversed(list(ADAPTERS)):
        if ADAPTERS.entry(name).facts.get("library", "") in packages | {""}:
            for patch in ADAPTERS.get(name)().patches(model):
                present = claimed.get(patch.key)
                if present is None or (present.refusal is not None and patch.refusal is None):
                    claimed[patch.key] = patch
    for patch in block_patches(model, list(claimed.values())):
        claimed.setdefault(patch.key, patch)
    return sorted(claimed.values(), key=lambda patch: order[id(patch.module)])


def _forget_objectives(model: nn.Module) -> None:
    for module in model.modules():
        vars(module).pop(OBJECTIVE, None)


def _skip_reason(
    patch: Patch, regularizer: Regularizer, include: Sequence[str], exclude: Sequence[str], kinds: Sequence[SiteKind]
) -> str | None:
    """Return why a site is skipped, or None."""
    site = patch.site
    if not _matches(site.name, include) or _matches(site.name, exclude):
        return "excluded by name"
    if site.kind not in kinds:
        return f"kind '{site.kind}' is not selected (kinds=…)"
    return patch.refusal or regularizer.skip(site)


def _tuple(values: Text | Sequence[Text]) -> tuple[Text, ...]:
    """Return a text or several as a tuple: the letters of a text are not meant."""
    return (values,) if isinstance(values, str) else tuple(values)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shared_paths(model: nn.Module, bound: list[Patch]) -> dict[str, list[str]]:
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(path)
    others = {patch.site.name: paths[id(patch.module)][1:] for patch in bound}
    return {name: other_paths for name, other_paths in others.items() if other_paths}


def _count(patches: list[Patch]) -> str:
    attention = all(patch.site.kind in ATTENTION_KINDS for patch in patches)
    return f"{len(patches)} {'attention sites' if attention else 'sites'}"


def _nothing_bound(model: nn.Module, name: str, own: frozenset[SiteKind], skipped: list[tuple[Patch, str]]) -> str:
    if skipped:
        count, reasons = _count([patch for patch, _ in skipped]), sorted({reason for _, reason in skipped})
        if own.isdisjoint(patch.site.kind for patch, _ in skipped):
            reasons = [f"it acts on {' and '.join(sorted(own))}, for which the model has no site"]
        return f"'{name}' fits none of the {count} of {type(model).__name__}: {'; '.join(reasons)}"
    unsupported = sorted({type(module).__name__ for module in model.modules() if _looks_like_attention(module)})
    classes = f" (no adapter supports its {', '.join(unsupported)})" if unsupported else ""
    supported = ", ".join(ADAPTERS.entry(adapter).help for adapter in ADAPTERS)
    return f"regularize: no supported attention in {type(model).__name__}{classes}: expected one of {supported}"


def _looks_like_attention(module: nn.Module) -> bool:
    match = re.search("attention|attn|performer", type(module).__name__, re.IGNORECASE)
    return match is not None and not any(map(_looks_like_attention, module.children()))
