"""The reports of all suites that come with DropBench, in every format, whatever has become of their trials."""

from __future__ import annotations

import io
import json
import math
import shutil
import subprocess
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pandas
import pytest
from lxml import html
from markdown_it import MarkdownIt

from db.filters import stored_name
from db.report.formats import as_csv, as_json, as_latex, as_markdown, as_parquet
from db.report.layout import long_grid, wide_grid
from db.report.page import page
from db.report.view import Asked, View, build
from db.snapshot import Snapshot
from db.store import Store
from harness.regularizers.spec import complete_spec
from harness.suite import Choice, Suite, load_suite, suite_names
from harness.trial import TrialState

if TYPE_CHECKING:
    from tests.db.report.conftest import Tables

NUMBERS = ("mean", "std", "n", "delta", "delta_low", "delta_high", "p_value", "published", "published_std")
HOSTILE = (
    '\x1b[31mRuntimeError\x1b[0m: <b>100 %</b> of $x_1$ & "y" \\ {z} # ~ ^ | \u202eאב\u202c 日本 😀 é\nnext '
    + "W" * 10_000
)


@pytest.fixture(autouse=True)
def _no_plotting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the plots' script takes seconds, and the browser's tests have it."""
    monkeypatch.setattr("db.report.page.plotting", lambda: "/* plots */")


def asked_of(suite: Suite, tables: Tables) -> list[Asked]:
    """The suite's trials as with the data at hand; swept cells with what they have before any choice."""
    asked = []
    for cell in suite.cells(Choice()):
        one = cell.request
        spec = complete_spec(one.regularizer).model_copy(update={"params": dict(one.params)})
        same = {name: getattr(one, name) for name in ("task", "model", "schedule", "align", "preset", "overrides")}
        trials = [tables.make_trial(seed, data=one.data, regularizer=spec, **same) for seed in cell.seeds]
        asked.append(Asked(cell, trials))
    return asked


FATES: dict[str, tuple[TrialState, ...]] = {
    "absent": (),
    "partial": ("succeeded", "failed", "succeeded", "queued", "running"),
    "failed": ("failed",),
    "complete": ("succeeded",),
}
"""What becomes of one trial after the other."""


def fill(store: Store, asked: Sequence[Asked], state: str) -> None:
    trials = {trial.id: trial for one in asked for trial in one.trials}
    found = {
        id: Snapshot(trial, fate, HOSTILE if fate == "failed" else None)
        for (id, trial), fate in zip(trials.items(), cycle(FATES[state]), strict=False)
    }
    for number, one in enumerate(asked):
        metric = stored_name(one.cell.metric)
        for trial in one.trials:
            snapshot = found.get(trial.id)
            # Cells may share a trial and a metric.
            if snapshot and snapshot.state == "succeeded" and metric not in {name for name, *_ in snapshot.metrics}:
                snapshot.metrics.append((metric, -1, 10.0 + 7 * number % 50 + (trial.seed * 1.37) ** 2))
    store.record(found.values())


@pytest.fixture(params=suite_names())
def suite(request: pytest.FixtureRequest) -> Suite:
    return load_suite(request.param)


@pytest.fixture(params=FATES)
def view(request: pytest.FixtureRequest, suite: Suite, store: Store, tables: Tables) -> View:
    return view_in(request.param, suite, store, tables)


def view_in(state: str, suite: Suite, store: Store, tables: Tables) -> View:
    asked = asked_of(suite, tables)
    fill(store, asked, state)
    made = build(suite, asked, store)
    done = {outcome.n == len(outcome.seeds) for outcome in made.cells.values()}
    counts = {outcome.n for outcome in made.cells.values()}
    assert {"partial": False in done and max(counts) > 0, "complete": done == {True}}.get(state, counts == {0})
    return made


def test_every_format_tells_the_same(view: View, store: Store, tables: Tables, tmp_path: Path) -> None:
    records = json.loads(as_json(view))["cells"]
    assert len(records) == len(view.cells)

    (tmp_path / "t.parquet").write_bytes(as_parquet(view))
    for frame in (pandas.read_csv(io.StringIO(as_csv(view))), pandas.read_parquet(tmp_path / "t.parquet")):
        assert frame["row"].str.removeprefix("'").tolist() == [record["row"] for record in records]
        for name in NUMBERS:
            told = [math.nan if record[name] is None else float(record[name]) for record in records]
            assert frame[name].astype(float).tolist() == pytest.approx(told, rel=1e-15, nan_ok=True), name

    grid = wide_grid(view) if len(view.columns) > 1 else long_grid(view)
    shown = [[" ".join(entry.text.split()) for entry in line.entries] for line in grid.lines]
    rendered = html.document_fromstring(MarkdownIt("gfm-like", {"linkify": False}).render(as_markdown(view)))
    cells = [[" ".join(one.text_content().split()) for one in line] for line in rendered.xpath("//tbody/tr")]
    assert cells == shown

    drawn = " ".join(tables.drawn(view, 500).split())
    for outcome in view.cells.values():
        assert outcome.row in drawn
    found = html.document_fromstring(page(view, store, tmp_path))
    table = found.xpath("//table[contains(@class, 'results')]")[0]
    for outcome in view.cells.values():
        assert outcome.row in table.text_content()


@pytest.mark.parametrize("state", FATES)
def test_latex_compiles(state: str, store: Store, tables: Tables, tmp_path: Path) -> None:
    program = next((found for name in ("tectonic", "pdflatex") if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("neither tectonic nor pdflatex is here")
    hostile = tables.suite(title=HOSTILE, label=HOSTILE)
    views = [view_in(state, suite, store, tables) for suite in [hostile, *map(load_suite, suite_names())]]
    text = [r"\documentclass{article}", r"\usepackage{booktabs}", r"\begin{document}"]
    for view in views:
        text += [as_latex(view), r"\clearpage"]
    (tmp_path / "t.tex").write_text("\n".join([*text, r"\end{document}"]))
    options = ["-interaction=nonstopmode", "-halt-on-error"] if "pdflatex" in program else []
    done = subprocess.run([program, *options, "t.tex"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "t.pdf").stat().st_size > 0
