"""The parts of a suite's file: rows, columns, presets, and how its figure is drawn."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.sweep import Search, Space


class Strict(BaseModel):
    """Unknown keys are errors, and nothing changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Axis(Strict):
    """A row or a column: its label, and the fields of the trial that it fixes.

    Attributes:
        metric: of a column whose cells have another one than the suite's.
        presets: preset → recipe keys, for what holds in that preset alone.
    """

    label: str
    trial: dict[str, Any] = Field(default_factory=dict)
    metric: str | None = None
    presets: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Row(Axis):
    """A row; `params` and `published` have one entry a column, None where the source prints nothing.

    Attributes:
        sweep: what its cells choose from by their dev score; its keys are all known to its regularizer. Empty: nothing,
            whatever holds for the other rows.
        search: how that is searched; default: the whole grid.
    """

    baseline: bool = False
    sweep: Space | None = None
    search: Search | None = None
    params: list[dict[str, Any] | None] | None = None
    published: list[float | tuple[float, float] | None] | None = None


class Drawing(Strict):
    """What a suite that stands for a figure draws of its table.

    Attributes:
        kind: ``curves``: the metric over a parameter of the regularizer, a curve a row; ``histograms``: what the
            analysis of a column measured in the last layer, an outline a row; ``maps``: the analysis' maps of the same
            samples, a line of them a row.
        over: of curves: the parameter; a row or column without a regularizer stands at 0.
    """

    kind: Literal["curves", "histograms", "maps"]
    over: str = "ratio"


class Preset(Strict):
    """How a suite is run: `paper` as published, `mini` on two cores.

    Attributes:
        sweep: what all cells choose from whose rows do not say that themselves, each as far as its regularizer has
            the parameters.
        search: how that is searched; default: the suite's.
    """

    seeds: int = Field(ge=1)
    data: list[str] | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    sweep: Space | None = None
    search: Search | None = None
