"""The parts of a suite file: rows, columns, presets and the figure."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PlainSerializer, model_validator

from dropbench.harness.regularizers.spec import Scalar
from dropbench.harness.settings import MAX_SEEDS
from dropbench.harness.suites.search_space import Search, Space
from dropbench.harness.trials.trial import TrialRequest
from dropbench.harness.validation import FiniteModel


class PartialRequest(TrialRequest, strict=True):
    """Fields of a trial that a suite, a row or a column sets."""

    task: str = ""
    data: str = ""
    model: str = ""


if TYPE_CHECKING:
    TrialFields = dict[str, Any]
else:
    TrialFields = Annotated[
        PartialRequest, AfterValidator(lambda request: request.model_dump(exclude_unset=True)), PlainSerializer(dict)
    ]


class Axis(FiniteModel, strict=True):
    """A row or a column: its label, and the fields of the trial that it sets.

    Attributes:
        metric: of a column, if its cells show another metric than the suite's.
        presets: preset → recipe keys that apply in that preset only.
    """

    label: str
    trial: TrialFields = Field(default_factory=dict)
    metric: str | None = None
    presets: dict[str, dict[str, Scalar]] = Field(default_factory=dict)


class Row(Axis):
    """A row; `params` and `published` have one entry per column, None if the source prints nothing.

    Attributes:
        sweep: the search space of its cells, whose candidates the dev score selects from. Its regularizer must have
            all of the keys. Empty: no sweep, even if other rows have one.
        search: how the space is searched; default: the whole grid.
    """

    baseline: bool = False
    sweep: Space | None = None
    search: Search | None = None
    params: list[dict[str, Scalar] | None] | None = None
    published: list[float | Annotated[tuple[float, float], Field(strict=False)] | None] | None = None


class FigureSpec(FiniteModel, strict=True):
    """How a suite that reproduces a figure draws its table.

    Attributes:
        kind: ``curves``: the metric over a parameter of the regularizer, one curve per row; ``histograms``: the
            histogram of a column's analysis in the last layer, one outline per row; ``maps``: the maps of the same
            samples, one line of maps per row.
        over: the parameter on the horizontal axis of curves; it is 0 for a row or column without a regularizer.
    """

    kind: Literal["curves", "histograms", "maps"]
    over: str = "ratio"


class Preset(FiniteModel, strict=True):
    """How a suite is run: `paper` as published, `mini` on two cores.

    Attributes:
        sweep: the search space of all cells whose rows have none; keys that a regularizer does not have are ignored.
        search: how the space is searched; default: the suite's.
        tuned: each row, the baseline included, chooses from the same number of candidates
            (`dropbench.harness.suites.tuning`), unless it has a sweep of its own; ``staged``: the learning rate before
            the strength.
        weights: initial weights of the trials that name none themselves; ``--weights`` replaces both.
        tuning_seeds: number of seeds of the candidates of sweeps, which are other than those of the table; 0: the
            candidates have the seeds of the table.
    """

    seeds: int = Field(ge=1, le=MAX_SEEDS)
    data: list[str] | None = None
    overrides: dict[str, Scalar] = Field(default_factory=dict)
    sweep: Space | None = None
    search: Search | None = None
    tuned: Annotated[bool | Literal["staged"], "true, false or staged"] = False
    weights: str | None = Field(default=None, exclude_if=operator.not_)
    tuning_seeds: int = Field(default=0, ge=0, le=MAX_SEEDS, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _one_sweep(self) -> Self:
        if self.tuned and self.sweep is not None:
            raise ValueError("expected either tuned or sweep")
        if self.tuning_seeds and not (self.tuned or self.sweep):
            raise ValueError("expected tuning_seeds only with tuned or sweep")
        return self
