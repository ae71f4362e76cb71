"""A table in the formats of documents: Markdown, LaTeX, CSV, Parquet, JSON."""

from __future__ import annotations

import json
from typing import Any

from db.report.choices import candidate_record
from db.report.layout import Entry, Grid, Line, about, incomplete, long_grid, wide_grid
from db.report.listing import to_csv, to_parquet
from db.report.text import MOST, latex, latex_definitions, markdown
from db.report.view import Outcome, View


def as_markdown(view: View) -> str:
    """A GitHub table; the best in bold."""
    grid = _grid(view)

    def entry(one: Entry) -> str:
        text = markdown(one.text)
        return f"**{text}**" if one.best else text

    def line(texts: list[str]) -> str:
        return "| " + " | ".join(texts) + " |"

    lines = [line([markdown(text) for text in grid.header]), "| :-- |" + " --: |" * (len(grid.header) - 1)]
    for one in grid.lines:
        texts = [entry(part) for part in one.entries]
        if one.kind == "below":
            texts[0] = f"&emsp;{texts[0]}"
        lines.append(line(texts))
    notes = [f"{number}. {markdown(note)}" for number, note in enumerate(grid.notes, 1)]
    told = [f"- {markdown(text)}" for text in grid.about]
    return "\n\n".join(
        filter(None, [f"### {markdown(grid.title)}", "\n".join(lines), "\n".join(notes), "\n".join(told)])
    )


def as_latex(view: View) -> str:
    """A table environment for the package booktabs; the best in bold."""
    grid = _grid(view)

    def entry(one: Entry) -> str:
        text = latex(one.text)
        return rf"\textbf{{{text}}}" if one.best else text

    def line(one: Line) -> str:
        texts = [entry(part) for part in one.entries]
        if one.kind == "below":
            texts = [rf"\quad {texts[0]}", *texts[1:]]
        return "  " + " & ".join(texts) + r" \\"

    head = "  " + " & ".join(latex(text) for text in grid.header) + r" \\"
    notes = [rf"{{[}}{number}{{]}} {latex(note, MOST)}" for number, note in enumerate(grid.notes, 1)]
    lines = [
        r"  \centering",
        rf"  \caption{{{latex(grid.title)}}}",
        rf"  \begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}",
        r"  \toprule",
        head,
        r"  \midrule",
        *map(line, grid.lines),
        r"  \bottomrule",
        r"  \end{tabular}",
        r"  \par\medskip\footnotesize\raggedright",
        *(rf"  {text}\par" for text in [*notes, *(latex(text, MOST) for text in grid.about)]),
    ]
    definitions = [f"  {one}" for one in latex_definitions("".join(lines))]
    return "\n".join([r"\begin{table}", *definitions, *lines, r"\end{table}"])


def as_csv(view: View) -> str:
    """One line a cell, with a header; numbers in full."""
    return to_csv(_flat(view))


def as_parquet(view: View) -> bytes:
    """The same as a Parquet file; raises InputError where pyarrow is not installed."""
    return to_parquet(_flat(view))


def as_json(view: View) -> str:
    """The table whole: rows and columns by label, a record a cell, and what has to be known to read it."""
    suite = view.suite
    content = {
        "suite": suite.name,
        "title": suite.title,
        "source": suite.source,
        "preset": view.preset,
        "rows": list(view.rows),
        "columns": list(view.columns),
        "cells": [_record(outcome, view) for outcome in view.cells.values()],
        "about": about(view),
        "notes": list(suite.notes),
    }
    return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)


def _grid(view: View) -> Grid:
    return wide_grid(view) if len(view.columns) > 1 else long_grid(view)


def _flat(view: View) -> list[dict[str, Any]]:
    """The records without their trials, which would be lists."""
    records = [_record(outcome, view) for outcome in view.cells.values()]
    return [{name: value for name, value in record.items() if name != "trials"} for record in records]


def _record(outcome: Outcome, view: View) -> dict[str, Any]:
    request = outcome.cell.request
    done = outcome.n == len(outcome.seeds) and outcome.n > 0
    states = [seed.state for seed in outcome.seeds]
    return {
        "suite": view.suite.name,
        "row": outcome.row,
        "column": outcome.column,
        "task": request.task,
        "data": request.data,
        "fingerprint": outcome.fingerprint,
        "model": request.model,
        "regularizer": request.regularizer,
        "params": dict(outcome.regularizer),
        "schedule": outcome.schedule,
        "align": request.align,
        "preset": request.preset,
        "overrides": dict(request.overrides),
        "metric": outcome.metric.name,
        "higher_is_better": outcome.metric.higher_is_better,
        "unit": outcome.metric.unit,
        "mean": outcome.mean,
        "std": outcome.std,
        "n": outcome.n,
        "seeds": len(outcome.seeds),
        "baseline": outcome.cell.baseline,
        "delta": outcome.delta,
        "paired": outcome.paired,
        "delta_low": outcome.interval[0] if outcome.interval else None,
        "delta_high": outcome.interval[1] if outcome.interval else None,
        "p_value": outcome.p_value,
        "published": outcome.published,
        "published_std": outcome.published_std,
        "delta_published": outcome.delta_published,
        "best": outcome.best,
        "synthetic": outcome.synthetic,
        "subset": bool(outcome.subset),
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "chosen": dict(outcome.chosen) if outcome.chosen is not None else None,
        "candidates": [candidate_record(one) for one in outcome.candidates],
        "unasked": outcome.selection.unasked if outcome.selection is not None else 0,
        "incomplete": None if done else (incomplete(outcome) or ", ".join(dict.fromkeys(states)) or None),
        "trials": [
            {"id": seed.id, "seed": seed.seed, "state": seed.state, "reason": seed.reason, "value": seed.value}
            for seed in outcome.seeds
        ],
    }
