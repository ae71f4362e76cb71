"""The options with which the trials of a suite were run, and those of trials that a table lacks."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from db.queries.recorded import PREFIX, AmbiguousFilesError
from db.report.view.build import resolve_cells
from db.report.view.cells import CellTrials
from db.report.view.variants import Variant, variants_of
from db.store.store import Store
from harness.errors import InputError, count_of
from harness.regularizers.spec import RegularizerSpec, complete_spec, parse_spec
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.suite import Suite

MAX_NOTES = 5
"""Sets of options that notes name; the others are counted."""

Argument = tuple[str, str]
"""An option of the command line, and its value."""


@dataclass(frozen=True)
class ResolvedOptions:
    """The options of a table and its cells.

    Attributes:
        choice: the requested options; or, if none were and no trial has the defaults, the only ones that were run.
        cells: the cells with their trials.
        notes: the options that were chosen, or those of trials that an incomplete table lacks.
    """

    choice: SuiteOptions
    cells: list[CellTrials]
    notes: list[str] = field(default_factory=list)


def resolve_options(suite: Suite, requested: SuiteOptions, settings: Settings, store: Store) -> ResolvedOptions:
    """Resolve the cells of a table; without any option, of what was run.

    Raises:
        InputError: as `db.report.view.build.resolve_cells`; if the suite has trials with other options, it names them.
    """
    list(suite.cells(requested))  # raises for options that the suite does not have
    cells: list[CellTrials] = []
    error: InputError | None = None
    try:
        cells = resolve_cells(suite, requested, settings, store)
    except AmbiguousFilesError:
        raise
    except InputError as missing:
        error = missing
    present = store.states([*trial_ids(cells)])
    if error is None and all(cell.trials and all(trial.id in present for trial in cell.trials) for cell in cells):
        return ResolvedOptions(requested, cells)
    variants = variants_of(suite, store)
    if requested == SuiteOptions() and not present and len(variants) == 1:
        only = _resolve_variant(suite, variants[0], settings, store)
        if only is not None:
            return only
    notes = _notes(suite, requested, cells, variants)
    if error is not None:
        raise InputError(f"{suite.name}: no trial with these options: {notes[0]}") if notes else error
    return ResolvedOptions(requested, cells, notes)


def _resolve_variant(suite: Suite, variant: Variant, settings: Settings, store: Store) -> ResolvedOptions | None:
    """Resolve the table of a variant; None if its trials cannot be requested, as their recipe has changed since."""
    options = options_of(suite, variant)
    labels = tuple(dict.fromkeys(config["fingerprint"][:PREFIX] for config in variant.configs.values()))
    for fingerprints in ((), labels):
        choice = options.model_copy(update={"fingerprints": fingerprints})
        with contextlib.suppress(InputError):
            cells = resolve_cells(suite, choice, settings, store)
            if not trial_ids(cells).isdisjoint(_trials(variant)):
                text = _text(_arguments(choice, preset=choice.preset != SuiteOptions().preset))
                return ResolvedOptions(choice, cells, [f"no trial has the default options; all were run with {text}"])
    return None


def options_of(suite: Suite, variant: Variant) -> SuiteOptions:
    """Return the options that select a variant's trials, and no data set or model without a trial."""
    cells = list(suite.cells(SuiteOptions(preset=variant.preset)))
    count = 1 + max(_trials(variant).values())
    data, models = (
        () if names == {getattr(cell.request, key) for cell in cells} else tuple(sorted(names))
        for key in ("data", "model")
        if (names := {config[key] for config in variant.configs.values()})
    )
    return SuiteOptions(
        preset=variant.preset,
        seeds=() if count == suite.presets[variant.preset].seeds else tuple(range(count)),
        data=data,
        models=models,
        regularizers=tuple(dict.fromkeys(variant.added.values())),
        overrides=variant.overrides,
        weights=variant.weights,
    )


def _arguments(choice: SuiteOptions, *, preset: bool) -> list[Argument]:
    """Return options as arguments of the command line, those that can be repeated once per value."""
    texts = {
        "--preset": [choice.preset] if preset else [],
        "--set": [f"{key}={value}" for key, value in choice.overrides.items()],
        "--data": choice.data,
        "--model": choice.models,
        "--seeds": [str(1 + max(choice.seeds))] if choice.seeds else [],
        "--regularizer": choice.regularizers,
        "--weights": [choice.weights] if choice.weights is not None else [],
        "--fingerprint": choice.fingerprints,
    }
    return [(option, text) for option, values in texts.items() for text in values]


def _text(arguments: Sequence[Argument]) -> str:
    return f"`{' '.join(f'{option} {shlex.quote(text)}' for option, text in arguments)}`"


def trial_ids(cells: Iterable[CellTrials]) -> set[str]:
    """Return the ids of the trials of cells, and of all candidates of swept ones."""
    candidates = (candidate for cell in cells if cell.selection for candidate in cell.selection.candidates)
    trials = (*(cell.trials for cell in cells), *(candidate.trials for candidate in candidates))
    return {trial.id for own in trials for trial in own}


def _trials(variant: Variant) -> dict[str, int]:
    """Return the seeds of a variant's trials by id."""
    return {id: seed for trials in variant.trials.values() for seed, id in trials}


def _notes(
    suite: Suite, requested: SuiteOptions, cells: Sequence[CellTrials], variants: Iterable[Variant]
) -> list[str]:
    """Return a line per variant with trials that the cells lack: their options, and what to change to see them."""
    shown = trial_ids(cells)
    lines = []
    for variant in variants:
        trials = {
            config: rest
            for config, own in variant.trials.items()
            if (rest := [(seed, id) for seed, id in own if id not in shown])
        }
        if trials:
            configs = {id: config for id, config in variant.configs.items() if id in trials}
            added = {id: spec for id, spec in variant.added.items() if id in trials}
            lines.append(_note(suite, requested, cells, replace(variant, trials=trials, configs=configs, added=added)))
    more = f"and {len(lines) - MAX_NOTES} more sets of options: `dropbench results {suite.name}` lists all"
    return [*lines[:MAX_NOTES], more] if len(lines) > MAX_NOTES else lines


def _note(suite: Suite, requested: SuiteOptions, cells: Sequence[CellTrials], variant: Variant) -> str:
    count = len(_trials(variant))
    subject = f"{count_of(count, 'trial')} of this suite {'has' if count == 1 else 'have'}"
    missing = _missing(suite, requested, cells, variant)
    added = _arguments(missing, preset=missing.preset != requested.preset)
    removed = [
        ("--set", f"{key}={value}")
        for key, value in requested.overrides.items()
        if key not in missing.overrides and any(own["overrides"].get(key) != value for own in variant.configs.values())
    ]
    if requested.weights is not None and variant.weights is None:
        removed.append(("--weights", requested.weights))
    if not added and not removed:
        other = "another recipe, plug-in or result version than now"
        return f"{subject} {other}: `dropbench results {suite.name}` lists all trials"
    words = [text if option == "--set" else f"{option[2:]}={text}" for option, text in added]
    words += [f"no {text if option == '--set' else option[2:]}" for option, text in removed]
    steps = [f"{verb} {_text(own)}" for verb, own in (("remove", removed), ("add", added)) if own]
    return f"{subject} {', '.join(words)}: {', '.join(steps)}"


def _missing(suite: Suite, requested: SuiteOptions, cells: Sequence[CellTrials], variant: Variant) -> SuiteOptions:
    """Return the values of options that the request lacks to select a variant's trials; its preset is the variant's."""
    plain = list(suite.cells(SuiteOptions(preset=variant.preset)))
    data, models = (
        set(getattr(requested, field)) or {getattr(cell.request, key) for cell in plain}
        for key, field in (("data", "data"), ("model", "models"))
    )
    seeds = requested.seeds or range(suite.presets[variant.preset].seeds)
    specs = [parse_spec(text) for text in requested.regularizers]
    known = [complete_spec(spec.name, spec.params) for spec in specs]
    added = {variant.added[id]: config for id, config in variant.configs.items() if id in variant.added}
    missing = SuiteOptions(
        preset=variant.preset,
        overrides={key: value for key, value in variant.overrides.items() if requested.overrides.get(key) != value},
        data=tuple(sorted({config["data"] for config in variant.configs.values()} - data)),
        models=tuple(sorted({config["model"] for config in variant.configs.values()} - models)),
        seeds=tuple(sorted({*_trials(variant).values()} - set(seeds))),
        regularizers=tuple(
            text
            for text, config in added.items()
            if RegularizerSpec(name=config["regularizer"], params=config["params"]) not in known
        ),
        weights=variant.weights if variant.weights != requested.weights else None,
    )
    if missing != SuiteOptions(preset=requested.preset):
        return missing
    shown = {(cell.trials[0].data.name, cell.trials[0].data.fingerprint) for cell in cells if cell.trials}
    stored = {(config["data"], config["fingerprint"]) for config in variant.configs.values()}
    names = {name for name, _ in shown}
    others = [label for name, label in sorted(stored - shown) if name in names]
    return missing.model_copy(update={"fingerprints": tuple(label[:PREFIX] for label in others)})
