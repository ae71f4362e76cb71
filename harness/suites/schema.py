"""The parts of a suite file: rows, columns, presets and the figure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from harness.settings import MAX_SEEDS
from harness.suites.search_space import Search, Space
from harness.trials.metric import current_name
from harness.validation import StrictModel

CurrentName = Annotated[str, AfterValidator(current_name)]
"""The name of a metric; those of earlier versions become the current ones."""


class Axis(StrictModel):
    """A row or a column: its label, and the fields of the trial that it sets.

    Attributes:
        metric: of a column, if its cells show another metric than the suite's.
        presets: preset → recipe keys that apply in that preset only.
    """

    label: str
    trial: dict[str, Any] = Field(default_factory=dict)
    metric: CurrentName | None = None
    presets: dict[str, dict[str, Any]] = Field(default_factory=dict)


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
    params: list[dict[str, Any] | None] | None = None
    published: list[float | tuple[float, float] | None] | None = None


class FigureSpec(StrictModel):
    """How a suite that reproduces a figure draws its table.

    Attributes:
        kind: ``curves``: the metric over a parameter of the regularizer, one curve per row; ``histograms``: the
            histogram of a column's analysis in the last layer, one outline per row; ``maps``: the maps of the same
            samples, one line of maps per row.
        over: the parameter on the horizontal axis of curves; it is 0 for a row or column without a regularizer.
    """

    kind: Literal["curves", "histograms", "maps"]
    over: str = "ratio"


class Preset(StrictModel):
    """How a suite is run: `paper` as published, `mini` on two cores.

    Attributes:
        sweep: the search space of all cells whose rows have none; keys that a regularizer does not have are ignored.
        search: how the space is searched; default: the suite's.
    """

    seeds: int = Field(ge=1, le=MAX_SEEDS)
    data: list[str] | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    sweep: Space | None = None
    search: Search | None = None
