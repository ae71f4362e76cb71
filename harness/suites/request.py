"""Requests: what a user asked for once, with the trials of each cell, in one file ``runs/requests/<id>.json``.

The file is written whole before anything is queued. A report looks its cells up in it, and needs neither the suite's
file nor data, recipes or plug-ins.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError

from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json, read_bytes, write_atomic
from dropbench.harness.regularizers.spec import Scalar
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.schema import FigureSpec
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe_diff import Change
from dropbench.harness.trials.trial import Id
from dropbench.harness.validation import StrictModel, input_error

FOLDER = "requests"
"""The folder of the files, next to the run directories."""


class Heading(StrictModel):
    """The suite of a request, as it was; `name` is "" for a request without a suite."""

    name: str = ""
    title: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    figure: FigureSpec | None = None


class RequestedCandidate(StrictModel):
    """A configuration that a cell chooses from; a cell without a sweep has one.

    Attributes:
        params: its values of the swept keys.
        config: id of the configuration.
        trials: ids of its trials, one per seed of the cell.
        skipped: why its regularizer cannot work with the task or model; None if it can.
        changes: how its recipe differs from the published one, of a swept cell.
    """

    params: dict[str, Scalar] = Field(default_factory=dict)
    config: Id
    trials: tuple[Id, ...]
    skipped: str | None = None
    changes: tuple[Change, ...] | None = None


class RequestedCell(Cell):
    """A cell with the trials that a request names.

    Attributes:
        measured: its metric, with direction and unit.
        selected_by: the metric of its data that selects on dev, weights and candidates; None: that of the task.
        analysis: the analysis that measures the metric; None if the task does.
        candidates: those that are known; of a search, as far as it has come.
        chosen: the chosen candidate with the seeds of the cell, if its sweep has seeds of its own and has come so far.
        remaining: candidates that a search has yet to propose.
        changes: how its recipe differs from the published one; None if nothing was published.
        deviations: how the task differs from the source.
    """

    measured: Metric
    selected_by: Metric | None = Field(default=None, exclude_if=lambda metric: metric is None)
    analysis: str | None = None
    candidates: tuple[RequestedCandidate, ...] = ()
    chosen: RequestedCandidate | None = Field(default=None, exclude_if=lambda chosen: chosen is None)
    remaining: int = 0
    changes: tuple[Change, ...] | None = None
    deviations: tuple[str, ...] = ()

    @property
    def position(self) -> tuple[str, str]:
        """The labels of its row and column."""
        return self.row, self.column

    @property
    def requested(self) -> tuple[RequestedCandidate, ...]:
        """The candidates, and the chosen one with the seeds of the cell."""
        return (*self.candidates, *([self.chosen] if self.chosen is not None else []))


class Request(StrictModel):
    """A request of a user: a suite, a preset and options, with the trials of each cell.

    Attributes:
        suite: the suite's name, title, source, notes and figure.
        preset: name of the preset.
        tuned: whether each row chooses from the same number of candidates.
        has_paper: whether the suite has the preset of the published recipe.
        options: the options as the user gave them.
        rows, columns: labels of the whole table, of which `cells` may be a part.
        metrics: the metrics of each task, of which the first that is measured on dev selects candidates.
        conditions: how the trials are trained.
        cells: the requested cells, row by row.
        extends: id of the request that this one continues with the next candidates of its searches.
        created_at: when it was last made, ISO 8601 in UTC; no part of its identity.
    """

    suite: Heading
    preset: str
    tuned: bool = False
    has_paper: bool = False
    options: SuiteOptions
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    metrics: dict[str, tuple[Metric, ...]] = Field(default_factory=dict)
    conditions: dict[str, dict[str, str]] = Field(default_factory=dict)
    cells: tuple[RequestedCell, ...]
    extends: Id | None = None
    created_at: str = Field(default_factory=utc_now_iso)

    @cached_property
    def id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON without the time, and how metrics are shown."""
        content = self.model_dump(mode="json", exclude={"created_at"})
        metrics = chain(*content["metrics"].values(), (cell["measured"] for cell in content["cells"]))
        for metric in metrics:
            del metric["decimals"]
        return digest(content)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, without what is cached of the original."""
        copy = super().model_copy(update=update, deep=deep)
        for cached in ("id", "_configs"):
            copy.__dict__.pop(cached, None)
        return copy

    @property
    def trials(self) -> list[str]:
        """Ids of all trials, each once."""
        candidates = (candidate for cell in self.cells for candidate in cell.requested)
        return list(dict.fromkeys(id for candidate in candidates for id in candidate.trials))

    def to_json(self) -> str:
        """Return canonical JSON, which `from_json` reads."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str | bytes, where: Path | str = "request") -> Request:
        """Read a request; raise InputError if the text is none."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise input_error(error, str(where), f"field in {where}", cls.model_fields) from None

    def differences(self, other: Request, kinds: tuple[str, ...] | None = None) -> list[str]:
        """Return what both requests train, and train differently; none: their cells may stand in one table.

        Data, models, rows and seeds that only one of them has are no difference.

        Args:
            other: the other request.
            kinds: compare only these kinds of conditions, and not the configurations of cells.
        """
        names = [
            f"{kind} {name}"
            for kind, own in self.conditions.items()
            if kinds is None or kind in kinds
            for name, value in own.items()
            if other.conditions.get(kind, {}).get(name, value) != value
        ]
        if names or kinds is not None:
            return names
        theirs = other._configs
        return [f"cell {key[0]}, {key[1]}" for key, id in self._configs.items() if theirs.get(key, id) != id]

    @cached_property
    def _configs(self) -> dict[tuple[str, str, str], str]:
        return {
            (*cell.position, canonical_json(candidate.params)): candidate.config
            for cell in self.cells
            for candidate in cell.candidates
        }


def digest(content: Any) -> str:
    """Return the first 12 hex digits of the SHA-256 of the canonical JSON of plain values."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]


def write_request(runs: Path, request: Request) -> None:
    """Write the file of a request atomically; raises OSError if the disk is full or the folder is read-only."""
    folder = runs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{request.id}.json", (request.to_json() + "\n").encode())


def read_request(file: Path) -> Request:
    """Read the file of a request; raise InputError if it is damaged, edited or renamed."""
    request = Request.from_json(read_bytes(file), file)
    if request.id != file.stem:
        raise InputError(f"{file}: holds request {request.id}, expected {file.stem}: the file was renamed or edited")
    return request


def request_files(runs: Path) -> Iterator[Path]:
    """Yield the files of requests in order of their ids."""
    folder = runs / FOLDER
    files = folder.iterdir() if folder.is_dir() else ()
    yield from sorted(file for file in files if re.fullmatch(r"[0-9a-f]{12}\.json", file.name))
