"""The table of a suite as Markdown, LaTeX, CSV, Parquet and JSON."""

from __future__ import annotations

import json
from typing import Any

from dropbench.db.report.formats.escaping import cut
from dropbench.db.report.formats.layout import source_grid
from dropbench.db.report.formats.legend import about, incomplete
from dropbench.db.report.formats.writers import to_csv, to_latex, to_markdown, to_parquet
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.view import View


def as_markdown(view: View) -> str:
    """Return a GitHub table."""
    return to_markdown(source_grid(view))


def as_latex(view: View) -> str:
    """Return a table environment for the package booktabs."""
    return to_latex(source_grid(view))


def as_csv(view: View, max_text: int | None = None) -> str:
    """Return one line per cell after a header, with numbers in full, and texts in full or cut to a length."""
    rows = _flat(view)
    if max_text is not None:
        rows = [{key: cut(v, max_text) if isinstance(v, str) else v for key, v in row.items()} for row in rows]
    return to_csv(rows)


def as_parquet(view: View) -> bytes:
    """Return the same as a Parquet file; raise InputError if pyarrow is not installed."""
    return to_parquet(_flat(view))


def as_json(view: View) -> str:
    """Return the full table: labels of rows and columns, one record per cell, and the legend."""
    suite = view.suite
    content = {
        "suite": suite.name,
        **_fields(suite, "title", "source"),
        "preset": view.preset,
        "rows": list(view.rows),
        "columns": list(view.columns),
        "cells": [_record(result, view) for result in view.cells.values()],
        "floors": [
            {"data": data, "metric": metric, "floor": name, "value": value}
            for (data, metric), values in view.floors.items()
            for name, value in values.items()
        ],
        "about": about(view),
        "notes": list(suite.notes),
    }
    return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)


def _flat(view: View) -> list[dict[str, Any]]:
    """Return the records without their trials, which are lists."""
    records = [_record(result, view) for result in view.cells.values()]
    return [{name: value for name, value in record.items() if name != "trials"} for record in records]


def _record(result: CellResult, view: View) -> dict[str, Any]:
    request = result.cell.request
    done = result.n == len(result.seeds) and result.n > 0
    states = [seed.state for seed in result.seeds]
    return {
        "suite": view.suite.name,
        **_fields(result, "row", "column", "origin"),
        **_fields(request, "task", "data"),
        "fingerprint": result.fingerprint,
        **_fields(request, "model", "regularizer"),
        "params": dict(result.regularizer),
        "schedule": result.schedule,
        **_fields(request, "align", "preset"),
        "overrides": dict(request.overrides),
        "result_versions": result.result_versions,
        "metric": result.metric.name,
        **_fields(result.metric, "higher_is_better", "unit"),
        **_fields(result, "mean", "std", "n"),
        "seeds": len(result.seeds),
        "baseline": result.cell.baseline,
        **_fields(result, "delta", "paired"),
        "delta_low": result.interval[0] if result.interval else None,
        "delta_high": result.interval[1] if result.interval else None,
        **_fields(
            result,
            *("p_value", "p_holm", "p_bh", "no_interval"),
            *("published", "published_std", "delta_published", "best", "synthetic"),
        ),
        "subset": bool(result.subset),
        "older_rule": result.older_rule,
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "chosen": dict(result.chosen) if result.chosen is not None else None,
        "candidates": [
            {
                "params": dict(candidate.params),
                **_fields(candidate, "state", "reason", "dev", "n"),
                "trials": list(candidate.ids),
            }
            for candidate in result.candidates
        ],
        "expected_dev": result.expected_dev,
        "unasked": result.selection.remaining if result.selection is not None else 0,
        "incomplete": None if done else (incomplete(result) or ", ".join(dict.fromkeys(states)) or None),
        "trials": [_fields(seed, "id", "seed", "state", "reason", "value") for seed in result.seeds],
    }


def _fields(holder: object, *names: str) -> dict[str, Any]:
    return {name: getattr(holder, name) for name in names}
