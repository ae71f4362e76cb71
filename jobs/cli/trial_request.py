"""Resolve the options of the command line into requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import parse_scalar, parse_spec
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.search_space import parse_search, parse_space
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.trial import TrialRequest
from dropbench.harness.validation import validated
from dropbench.jobs.cli.options import TrialOptions, with_folders
from dropbench.jobs.queue.request import Requested, request_configuration, request_suite


def suite_options(options: TrialOptions, settings: Settings) -> tuple[Settings, SuiteOptions]:
    """Return the requested part of a suite, after the settings with the folders of ``--data NAME=PATH``."""
    settings, names = with_folders(settings, options.data)
    choice = SuiteOptions(
        preset=options.preset,
        seeds=tuple(range(options.seeds or 0)),
        data=tuple(names),
        models=tuple(options.model or ()),
        regularizers=tuple(options.regularizer or ()),
        overrides=parse_overrides(options.overrides),
        weights=options.weights,
        sweep=parse_space(options.sweep) if options.sweep else None,
        search=parse_search(options.search) if options.search else None,
    )
    return settings, choice


def resolve_request(suite: str | None, options: TrialOptions, settings: Settings) -> Requested:
    """Resolve options into the request of a suite, or of one configuration if no suite is named.

    Raises:
        InputError: an option is unknown, missing, or in conflict with another.
    """
    if not suite:
        return _resolve_configuration(options, settings)
    if options.task is not None:
        raise InputError(f"--task {options.task}: suite {suite} defines it; use --task only without a SUITE")
    loaded = load_suite(suite)
    settings, choice = suite_options(options, settings)
    return request_suite(loaded, choice, settings)


def parse_overrides(items: Sequence[str] | None) -> dict[str, Any]:
    """Parse ``--set key=value``; raise InputError if an item does not have this form."""
    overrides = {}
    for item in items or ():
        key, separator, value = item.partition("=")
        if not separator or not key.strip() or not value.strip():
            raise InputError(f"--set {item}: expected key=value, such as lr=0.001")
        overrides[key.strip()] = parse_scalar(value.strip())
    return overrides


def _resolve_configuration(options: TrialOptions, settings: Settings) -> Requested:
    for option, value in (("--sweep", next(iter(options.sweep or ()), None)), ("--search", options.search or None)):
        if value is not None:
            raise InputError(f"{option} {value}: a SUITE is required, as its cells are searched")
    settings, names = with_folders(settings, options.data)
    required = {"--task": [options.task] if options.task else [], "--data": names, "--model": options.model or []}
    missing = [option for option, values in required.items() if not values]
    if missing:
        raise InputError(f"nothing to run: pass a SUITE (`dropbench list suites`), or {', '.join(missing)} as well")
    regularizers = options.regularizer or ["none"]
    for option, values in (*required.items(), ("--regularizer", regularizers)):
        if len(values) > 1:
            raise InputError(f"{option} {values[1]}: expected once without a SUITE: run each, or write a suite")
    (task,), (data,), (model,), (regularizer,) = *required.values(), regularizers
    spec = parse_spec(regularizer)
    fields = {
        "task": task,
        "data": data,
        "model": model,
        "regularizer": spec.name,
        "params": spec.params,
        "schedule": spec.schedule or "constant",
        "align": spec.align or "none",
        "preset": options.preset,
        "overrides": parse_overrides(options.overrides),
        "weights": options.weights,
    }
    request = validated(TrialRequest, fields, "trial")
    return request_configuration(request, range(options.seeds or 1), settings)
