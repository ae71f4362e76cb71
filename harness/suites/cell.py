"""A cell of a suite's table with its trials, and the options that select cells."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.suites.search_space import RECIPE_PREFIX, TRIAL_KEYS, Params, Search, Space, Sweep
from dropbench.harness.trials.plugins import make_trials
from dropbench.harness.trials.recipe import override
from dropbench.harness.trials.trial import Seed, Trial, TrialRequest
from dropbench.harness.validation import StrictModel


class SuiteOptions(StrictModel):
    """The part of a suite to run or show, from the command line.

    Attributes:
        preset: name of the preset.
        seeds: the seeds; empty: as many as the preset defines, from 0.
        data: data names, optionally with the suffix "-synthetic"; empty: the preset's, else all.
        models: model names; empty: all.
        regularizers: rows to add, as ``name:key=value,…``.
        overrides: recipe keys (``--set``).
        weights: path of the initial weights of every trial.
        sweep: the search space of all cells (``--sweep``); it replaces those of the suite, its presets and its rows.
        search: how the space is searched (``--search``).
    """

    preset: str = "mini"
    seeds: tuple[Seed, ...] = ()
    data: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    regularizers: tuple[str, ...] = ()
    overrides: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    sweep: Space | None = None
    search: Search | None = None


class Cell(StrictModel):
    """One cell of a table: a configuration, a metric, the seeds, and the published value.

    Attributes:
        request: the configuration; for a swept cell, the fields common to all candidates, and the values of suite and
            row for the swept ones.
        sweep: the candidates, from which the dev score selects; None: the cell is not swept.
        published: the value, or the value and its standard deviation; None if the source prints nothing.
    """

    suite: str
    row: str
    column: str
    metric: str
    baseline: bool
    published: float | tuple[float, float] | None
    request: TrialRequest
    seeds: tuple[Seed, ...]
    sweep: Sweep | None = None

    def with_params(self, params: Params) -> Self:
        """Return a candidate with the seeds of the cell; its trials equal those of an unswept cell with its values."""
        request = self.request
        known = self.sweep.recipe if self.sweep is not None else {}
        fields: dict[str, Any] = {"params": dict(request.params), "overrides": dict(request.overrides)}
        for key, value in params.items():
            if key in known and known[key] == value:
                continue
            if key.startswith(RECIPE_PREFIX):
                override(fields["overrides"], {key.removeprefix(RECIPE_PREFIX): value})
            elif key in TRIAL_KEYS:
                fields[key] = str(value)
            else:
                fields["params"][key] = value
        return self.model_copy(update={"request": request.model_copy(update=fields), "sweep": None})

    def candidate(self, params: Params) -> Self:
        """Return a candidate with the seeds by which candidates are compared."""
        seeds = (self.sweep.seeds if self.sweep is not None else ()) or self.seeds
        return self.with_params(params).model_copy(update={"seeds": seeds})

    def trials(self, settings: Settings) -> list[Trial]:
        """Return one trial per seed; raises InputError for fields that do not fit together, or for missing data."""
        trials = make_trials(self.request, self.seeds, settings)
        if self.request.weights is not None and trials[0].weights is None:
            raise InputError(f"task '{self.request.task}' reads no initial weights: remove `{self.request.weights}`")
        return trials
