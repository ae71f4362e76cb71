"""Frozen parameters, chosen by patterns of their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dropbench.harness.errors import InputError, unknown_name


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the parameters that match a pattern (`matching`).

    A batch normalization whose parameters are all frozen stays in evaluation mode, with the statistics that it has, as
    timm's `freeze` does.

    Raises:
        InputError: a pattern matches nothing, or nothing is left to train.
    """
    names = [name for name, _ in model.named_parameters()]
    frozen = {name for pattern in patterns for name in matching(pattern, names)}
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(f"freeze={','.join(patterns)}: nothing is left to train: expected fewer patterns")
    for module in model.modules():
        own = [*module.parameters(recurse=False)]
        if isinstance(module, _BatchNorm) and own and not any(parameter.requires_grad for parameter in own):
            module.eval()
            module.register_forward_pre_hook(_evaluate)


def _evaluate(module: nn.Module, inputs: object) -> None:
    module.training = False  # `train` of a module around it has changed it


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names of which consecutive parts, between dots, match those of a pattern with ``*`` and ``?``.

    ``layer.1`` matches ``encoder.layer.1.output.bias``, but not ``encoder.layer.10.output.bias``.

    Raises:
        InputError: none matches; the message has the nearest parts.
    """
    parts = pattern.split(".")
    runs = {name: _runs(name, len(parts)) for name in names}
    matched = [name for name in runs if any(all(map(fnmatchcase, run, parts)) for run in runs[name])]
    if not matched:
        known = {".".join(run) for each in runs.values() for run in each}
        raise unknown_name("part of a parameter's name", pattern, known or runs)
    return matched


def _runs(name: str, length: int) -> list[tuple[str, ...]]:
    """Return the runs of `length` consecutive parts of a name."""
    parts = name.split(".")
    return list(zip(*(parts[start:] for start in range(length)), strict=False))
