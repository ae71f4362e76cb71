"""From the words of the command line to trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import InputError
from harness.regularizers.spec import parse_scalar, parse_spec
from harness.settings import Settings
from harness.suite import Cell, Choice, Suite, load_suite
from harness.sweep import parse_search, parse_space
from harness.task import outline_of
from harness.trial import Trial, TrialRequest
from tasks.data.locate import parse_folders


@dataclass(frozen=True)
class Asked:
    """What was asked for: a suite, or one configuration (`suite` is None), as trials.

    Attributes:
        choice: what of the suite.
        items: each trial with the suite that asks for it.
        searched: cells whose trials Optuna asks for (`jobs.search`).
    """

    suite: Suite | None
    choice: Choice
    items: list[tuple[Trial, str | None]]
    searched: list[Cell] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """The trials' ids, each once."""
        return list(dict.fromkeys(trial.id for trial, _ in self.items))


@dataclass(frozen=True)
class Options:
    """The options that say which trials; lists as they were given."""

    preset: str = "mini"
    seeds: int | None = None
    data: Sequence[str] = ()
    model: Sequence[str] = ()
    regularizer: Sequence[str] = ()
    overrides: Sequence[str] = ()
    task: str | None = None
    schedule: str | None = None
    weights: str | None = None
    sweep: Sequence[str] = ()
    search: str | None = None


def ask(suite: str | None, options: Options, settings: Settings) -> Asked:
    """The trials of a suite, or of one configuration where no suite is named.

    Raises:
        InputError: something is unknown, missing, or does not fit together.
    """
    return _suite(suite, options, settings) if suite else _configuration(options, settings)


def with_folders(settings: Settings, data: Sequence[str]) -> tuple[Settings, list[str]]:
    """Take the paths out of ``--data NAME=PATH``; returns the settings that know them, and the names alone."""
    folders = parse_folders([item for item in data if "=" in item])
    names = [item.partition("=")[0] for item in data]
    return replace(settings, folders={**settings.folders, **folders}), names


def parse_overrides(items: Sequence[str]) -> dict[str, Any]:
    """Read ``--set key=value``; raises InputError for what is not of that form."""
    overrides = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key.strip() or not value.strip():
            raise InputError(f"--set {item}: expected key=value, such as lr=0.001")
        overrides[key.strip()] = parse_scalar(value.strip())
    return overrides


def _suite(name: str, options: Options, settings: Settings) -> Asked:
    for option, value in (("--task", options.task), ("--schedule", options.schedule)):
        if value is not None:
            raise InputError(f"{option} {value}: suite {name} says that itself; expected it without a SUITE")
    settings, names = with_folders(settings, options.data)
    suite = load_suite(name)
    choice = Choice(
        preset=options.preset,
        seeds=tuple(range(options.seeds or 0)),
        data=tuple(names),
        models=tuple(options.model),
        regularizers=tuple(options.regularizer),
        overrides=parse_overrides(options.overrides),
        weights=options.weights,
        sweep=parse_space(options.sweep) if options.sweep else None,
        search=parse_search(options.search) if options.search else None,
    )
    cells = suite.trials(choice, settings)
    searched = [cell for cell, _ in cells if cell.sweep is not None and not cell.sweep.is_grid]
    return Asked(suite, choice, [(trial, suite.name) for _, trials in cells for trial in trials], searched)


def _configuration(options: Options, settings: Settings) -> Asked:
    for option in [f"--sweep {item}" for item in options.sweep] + (
        [f"--search {options.search}"] * bool(options.search)
    ):
        raise InputError(f"{option}: expected it with a SUITE, whose cells choose")
    settings, names = with_folders(settings, options.data)
    given = {"--task": [options.task] if options.task else [], "--data": names, "--model": list(options.model)}
    missing = [option for option, values in given.items() if not values]
    if missing:
        raise InputError(f"nothing to run: expected a SUITE (dropbench list suites), or {', '.join(missing)} as well")
    for option, values in (*given.items(), ("--regularizer", list(options.regularizer))):
        if len(values) > 1:
            raise InputError(f"{option} {values[1]}: expected it once where no SUITE is named")
    regularizer, params = parse_spec(next(iter(options.regularizer), "none"))
    schedule, align = params.pop("schedule", "constant"), params.pop("align", "none")
    trials = [
        outline_of(given["--task"][0]).trial_for(
            TrialRequest(
                task=given["--task"][0],
                data=names[0],
                model=options.model[0],
                regularizer=regularizer,
                params=params,
                schedule=options.schedule or str(schedule),
                align=str(align),
                preset=options.preset,
                overrides=parse_overrides(options.overrides),
                weights=options.weights,
                seed=seed,
            ),
            settings,
        )
        for seed in range(options.seeds or 1)
    ]
    return Asked(None, Choice(), [(trial, None) for trial in trials])
