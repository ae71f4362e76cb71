"""Reports of all bundled suites in every format, with their trials in every state."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pandas
import pytest
from lxml import html
from markdown_it import MarkdownIt

from dropbench.db.report.formats.documents import as_csv, as_json, as_latex, as_markdown, as_parquet
from dropbench.db.report.formats.layout import long_grid, wide_grid
from dropbench.db.report.page.document import page
from dropbench.db.report.view.view import View
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.harness.regularizers.spec import complete_spec
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import Suite, load_suite, suite_names
from dropbench.harness.trials.metric import MetricName
from dropbench.harness.trials.recipe import default_preset
from dropbench.harness.trials.trial import TrialState
from tests.db.records import make_trial
from tests.db.report import tables
from tests.db.report.tables import Given

NUMBERS = ("mean", "std", "n", "delta", "delta_low", "delta_high", "p_value", "published", "published_std")
HOSTILE = (
    '\x1b[31mRuntimeError\x1b[0m: <b>100 %</b> of $x_1$ & "y" \\ {z} # ~ ^ | \u202eאב\u202c 日本 😀 é\nnext '
    + "W" * 10_000
)


@pytest.fixture(autouse=True)
def _no_plotting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the charts' script, which takes seconds and is covered by the browser tests."""
    monkeypatch.setattr("dropbench.db.report.page.document.vega_bundle", lambda: "/* plots */")


def resolved(suite: Suite) -> list[Given]:
    """Return the cells with trials as if all data were present; swept cells have their default parameters."""
    cells = []
    for cell in suite.cells(SuiteOptions(preset=default_preset(suite.presets))):
        request = cell.request
        spec = complete_spec(request.regularizer).model_copy(update={"params": dict(request.params)})
        same = {name: getattr(request, name) for name in ("task", "model", "schedule", "align", "preset", "overrides")}
        trials = [make_trial(seed, data=request.data, regularizer=spec, **same) for seed in cell.seeds]
        cells.append(Given(cell, trials))
    return cells


OUTCOMES: dict[str, tuple[TrialState, ...]] = {
    "absent": (),
    "partial": ("succeeded", "failed", "succeeded", "queued", "running"),
    "failed": ("failed",),
    "complete": ("succeeded",),
}
"""States assigned to the trials in turn."""


def fill(store: Store, cells: Sequence[Given], state: str) -> None:
    trials = {trial.id: trial for cell in cells for trial in cell.trials}
    snapshots = {
        id: RunRecord(trial, outcome, HOSTILE if outcome == "failed" else None)
        for (id, trial), outcome in zip(trials.items(), cycle(OUTCOMES[state]), strict=False)
    }
    for number, cell in enumerate(cells):
        metric = str(MetricName.parse(cell.cell.metric))
        for trial in cell.trials:
            snapshot = snapshots.get(trial.id)
            # Cells may share a trial and a metric.
            if snapshot and snapshot.state == "succeeded" and metric not in {name for name, *_ in snapshot.metrics}:
                snapshot.metrics.append((metric, -1, 10.0 + 7 * number % 50 + (trial.seed * 1.37) ** 2))
    store.record(snapshots.values())


def view_in(state: str, suite: Suite, store: Store) -> View:
    cells = resolved(suite)
    fill(store, cells, state)
    table = tables.view(store, cells, suite)
    done = {result.n == len(result.seeds) for result in table.cells.values()}
    counts = {result.n for result in table.cells.values()}
    assert {"partial": False in done and max(counts) > 0, "complete": done == {True}}.get(state, counts == {0})
    return table


@pytest.mark.parametrize(("state", "suite"), [*zip(cycle(OUTCOMES), suite_names(), strict=False)])
def test_every_format_has_the_same_content(state: str, suite: str, store: Store, tmp_path: Path) -> None:
    """Each state is that of many suites."""
    view = view_in(state, load_suite(suite), store)
    check_names_at_80_columns(view)
    records = json.loads(as_json(view))["cells"]
    assert len(records) == len(view.cells)

    (tmp_path / "t.parquet").write_bytes(as_parquet(view))
    for frame in (pandas.read_csv(io.StringIO(as_csv(view))), pandas.read_parquet(tmp_path / "t.parquet")):
        assert frame["row"].str.removeprefix("'").tolist() == [record["row"] for record in records]
        for name in NUMBERS:
            expected = [math.nan if record[name] is None else float(record[name]) for record in records]
            assert frame[name].astype(float).tolist() == pytest.approx(expected, rel=1e-15, nan_ok=True), name

    grid = wide_grid(view) if len(view.columns) > 1 else long_grid(view)
    shown = [[" ".join(entry.text.split()) for entry in line.entries] for line in grid.lines]
    rendered = html.document_fromstring(MarkdownIt("gfm-like", {"linkify": False}).render(as_markdown(view)))
    cells = [[" ".join(cell.text_content().split()) for cell in line] for line in rendered.xpath("//tbody/tr")]
    assert cells == shown

    text = " ".join(tables.printed(view, 500).split())
    for result in view.cells.values():
        assert result.row in text
    document = html.document_fromstring(page(view, store, tmp_path))
    table = document.xpath("//table[contains(@class, 'results')]")[0]
    for result in view.cells.values():
        assert result.row in table.text_content()


def check_names_at_80_columns(view: View) -> None:
    text = re.sub("\x1b\\[[0-9;]*m", "", tables.drawn(view, 80))
    assert max(map(len, text.splitlines())) <= 80
    several = len(view.columns) > 1  # otherwise the column needs no name
    names = {part for cell in view.cells.values() for part in (cell.row, cell.column if several else "")}
    assert [word for name in names for word in name.split() if word not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("state", OUTCOMES)
def test_latex_compiles(state: str, store: Store, tmp_path: Path) -> None:
    program = shutil.which("tectonic") or shutil.which("pdflatex")
    if program is None:
        pytest.skip("neither tectonic nor pdflatex is installed")
    hostile = tables.suite(title=HOSTILE, label=HOSTILE)
    views = [view_in(state, suite, store) for suite in [hostile, *map(load_suite, suite_names())]]
    text = [r"\documentclass{article}", r"\usepackage{booktabs}", r"\begin{document}"]
    for view in views:
        text += [as_latex(view), r"\clearpage"]
    (tmp_path / "t.tex").write_text("\n".join([*text, r"\end{document}"]))
    options = ["-interaction=nonstopmode", "-halt-on-error"] if "pdflatex" in program else []
    done = subprocess.run([program, *options, "t.tex"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "t.pdf").stat().st_size > 0
