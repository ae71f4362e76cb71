"""Write ``generated/leaderboard.md`` from the reference: `python docs/write_leaderboard.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import select

from docs.reference.holes import MIN_SEEDS, NO_RUNS, SUITES, tables
from dropbench.db.queries.marks import OLDER
from dropbench.db.reference.describe import machines
from dropbench.db.reference.load import REFERENCE, open_reference
from dropbench.db.report.formats.escaping import markdown
from dropbench.db.report.formats.layout import column_label, metric_label
from dropbench.db.report.formats.legend import about
from dropbench.db.report.formats.numbers import delta_text, mean_std
from dropbench.db.report.formats.writers import markdown_lines
from dropbench.db.report.view.build import build_view, choosing
from dropbench.db.report.view.cells import CellResult, CellTrials
from dropbench.db.report.view.notes import params_text
from dropbench.db.report.view.requests import SuiteTable
from dropbench.db.report.view.view import View
from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import Details
from dropbench.db.store.rows import attempts_of
from dropbench.db.store.store import Store
from dropbench.harness.errors import count_of
from dropbench.harness.suites.suite import load_suite

INTRODUCTION = """# Leaderboard

<!-- Written by docs/write_leaderboard.py from db/reference/reference.zip. -->

Results that are shipped with DropBench: every regularizer of the suites `field/…` under one recipe per data set, and
the suite `quickstart`. `dropbench report SUITE --with reference` prints them, with your own results in rows of their
own. [reading-tables.md](../reading-tables.md) explains the columns and the statistics.
"""
OWN_ROW = """## Add your own row

Write the regularizer to a file:

```python
# near.py
{plugin}```

Then train and show it:

```
dropbench run {suite} {options} --with reference --plugin near.py
dropbench report {suite} {options} --with reference --plugin near.py
```

The first command trains only what the reference lacks: all seeds of the new row. Its row is compared with
`none (reference)`, unless you train your own `none`. [results.md](../results.md#reference-results) describes `--with`.

## Reproduce a number

```
git checkout COMMIT
dropbench run SUITE --preset PRESET --seeds N
python -m docs.reference check --trials 10    # in a clone
```

`dropbench results SUITE --with reference --json` lists configurations. The last command runs random trials of the
file again in temporary folders and compares all of their metrics. On the same kind of machine, with the same versions
and number of threads, they are equal bit for bit. [data.md](../data.md) says where the data are from.

## Limits

- The models are small and are trained from scratch within minutes. Effects on large or pretrained models may differ.
- Seeds vary initialization, order and masks on one split. The intervals say nothing about other splits or data sets.
- Differences below the detectable difference of a table cannot be seen with its seeds.
- Methods are not ranked: the seeds of a data set share its split, so a data set is one block, and Friedman's test needs
  five ([reading-tables.md](../reading-tables.md#statistics)).
- On another machine, single results differ in the last digits, and after training by more.
"""
PLUGIN = '''import torch
from dropbench import REGULARIZERS, AttentionDrop


@REGULARIZERS.register("dropnear")
class DropNear(AttentionDrop):
    """Drop the keys next to the query with the drop ratio; keep all others."""

    def sample_drop_mask(self, shape, site, device):
        query, key = torch.arange(shape[2], device=device)[:, None], torch.arange(shape[3], device=device)
        near = (query - key).abs() <= 1
        return near & (torch.rand(shape, device=device) < site.ratio)
'''
"""The regularizer of twelve lines that the page adds."""
ORDER = ("small", "mini", "paper")
"""Presets of a suite, of which the first that the file has is shown."""


def write(folder: Path, location: str = REFERENCE) -> None:
    """Write the page."""
    (folder / "leaderboard.md").write_text(page(location), encoding="utf-8")


def page(location: str = REFERENCE) -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    with open_reference(location) as store:
        sections = list(_tables(store))
        views = [section.view for section in sections if section.view.cells]
        parts.append(_origin(store))
        for section in sections:
            parts += _section(section, store)
    if views:
        parts.append(OWN_ROW.format(suite=views[0].suite.name, options=_options(views[0]), plugin=PLUGIN))
    return "\n".join(parts)


class Section(NamedTuple):
    """The table of a suite, the columns left out as trials of candidates are missing, and all trials of both."""

    view: View
    unfinished: list[str]
    trials: list[str]


def _tables(store: Store) -> Iterator[Section]:
    by_suite: dict[str, list[SuiteTable]] = {}
    for table in tables(SUITES, store):
        by_suite.setdefault(table.request.suite.name, []).append(table)
    for own in by_suite.values():
        table = min(own, key=lambda table: ORDER.index(table.request.preset))
        unfinished = [column for column, _ in choosing(table)]
        shown = replace(
            table, cells=[_planned(cell, table) for cell in table.cells if cell.cell.column not in unfinished]
        )
        named = sorted({id for request in table.requests for id in request.trials})
        yield Section(build_view(shown, store, NO_RUNS), unfinished, list(store.states(named)))


def _planned(cell: CellTrials, table: SuiteTable) -> CellTrials:
    """Return a cell with the seeds of its suite's preset.

    A test holds for a number of seeds that was fixed before the first result; the file may have more.
    """
    count = load_suite(table.request.suite.name).presets[table.request.preset].seeds
    own = cell.cell.model_copy(update={"seeds": cell.cell.seeds[:count]})
    return replace(cell, cell=own, ids=cell.ids[:count])


def _origin(store: Store) -> str:
    """Return the number of trials and the code that trained them."""
    with reading(store.engine) as connection:
        commits = connection.scalars(select(Details.c.commit).distinct().order_by(Details.c.commit)).all()
        attempts = attempts_of(connection, store.states())
    days = sorted({str(attempt["started_at"])[:10] for own in attempts.values() for attempt in own})
    seconds = sum(attempt["cpu_seconds"] or 0.0 for own in attempts.values() for attempt in own)
    period = " to ".join({days[0]: 0, days[-1]: 0})
    lines = [
        f"- {count_of(len(attempts), 'trial')}, {seconds / 3600:.2f} CPU-hours, {period}",
        f"- commit: {', '.join(f'`{commit}`' for commit in commits if commit)}",
        "- licences of the data: `LICENCES.md` in the file, a zip of a SQLite database with Croissant metadata",
    ]
    return "\n".join([*lines, ""])


def _section(section: Section, store: Store) -> list[str]:
    view = section.view
    parts, missing = [f"## {view.suite.name}: {markdown(view.suite.title)}\n"], []
    for column in view.columns:
        cells = view.column(column)
        trained = [cell for cell in cells if cell.n]
        if trained:
            heading = markdown(column_label(column, cells))
            parts += [f"### {heading}\n", *_table(trained, store), ""]
        few = [cell.row for cell in cells if cell.n < MIN_SEEDS and {seed.state for seed in cell.seeds} != {"skipped"}]
        if trained and few:
            missing.append(f"- {markdown(column)}: fewer than {MIN_SEEDS} seeds: {markdown(', '.join(few))}")
    parts += [f"- {markdown(line)}" for line in about(view)] if view.cells else []
    machine = ", ".join(machines(store, section.trials).values())
    parts.append(f"- {count_of(len(section.trials), 'trial')}, trained on {machine}")
    if section.unfinished:
        names = markdown(", ".join(section.unfinished))
        parts.append(f"- not shown, as trials of some candidates are missing: {names}")
    parts += [*missing, *_unsuitable(view), ""]
    return parts


def _unsuitable(view: View) -> Iterator[str]:
    """Yield a line for each regularizer without a trial in columns that have trials of others, with the reason."""
    trained = {cell.column for cell in view.cells.values() if cell.n}
    without: dict[tuple[str, str], list[str]] = {}
    for cell in view.cells.values():
        reasons = {seed.reason for seed in cell.seeds if seed.state == "skipped" and seed.reason}
        for reason in reasons if cell.column in trained else ():
            without.setdefault((cell.row, reason), []).append(cell.column)
    for (row, reason), columns in without.items():
        where = "" if len(columns) == len(trained) else f" on {', '.join(columns)}"
        yield f"- {markdown(f'no trial of {row}{where}: {reason}')}"


def _options(view: View) -> str:
    """Return the options that select the columns whose candidates are done."""
    data = dict.fromkeys(cell.cell.request.data for cell in view.cells.values() if cell.n)
    return " ".join([f"--preset {view.preset}", *(f"--data {name}" for name in data)])


def _table(cells: Sequence[CellResult], store: Store) -> list[str]:
    chosen = any(cell.chosen is not None for cell in cells)
    metric = metric_label(cells[0].metric)
    header = ["regularizer", metric, "n", "Δ base", *(["chosen"] if chosen else []), "CPU-minutes"]
    rows = [header, ["---"] * len(header)]
    with reading(store.engine) as connection:
        for cell in cells:
            attempts = attempts_of(connection, [seed.id for seed in cell.seeds])
            minutes = sum(attempt["cpu_seconds"] or 0.0 for own in attempts.values() for attempt in own) / 60
            mean = markdown(mean_std(cell.mean, cell.std, cell.metric))
            texts = [
                f"**{mean}**" if cell.best else mean,
                f"{cell.n}, {OLDER}" if cell.older_rule else str(cell.n),
                markdown(delta_text(cell)),
            ]
            texts += [markdown(params_text(cell.chosen))] if chosen else []
            rows.append([markdown(cell.row), *texts, f"{minutes:.1f}"])
    return markdown_lines(rows)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "generated")
