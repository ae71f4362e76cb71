"""Comparisons and rankings as tables for reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from db.rank import Ranking
from db.report.listing import Headed, number, results_table

Row = Mapping[str, Any]

MANY = 10
"""Configurations of one side alone that are named; the rest is counted."""


def comparison_table(rows: Sequence[Row]) -> tuple[list[str], Headed, list[str]]:
    """What all rows share as lines above, the rows that both sides have, and what only one has as lines below."""
    both = [row for row in rows if row["only"] is None]
    sides = {(_differing(row, "old"), _differing(row, "new")) for row in both}
    alike = len(both) > 1 and len(sides) == 1
    above, table = results_table([_compared(row, told=not alike) for row in both])
    if alike:
        ((old, new),) = sides
        above = [*([f"old: {old}"] if old else []), *([f"new: {new}"] if new else []), *above]
    return above, table, [*_verdict(both), *_alone(rows)]


def ranking_table(ranking: Ranking) -> Headed:
    """A regularizer a line."""
    names = [name for name in (ranking.rows[0] if ranking.rows else ()) if name not in ("low", "high")]
    return names, [[_ranked(row, name, ranking.blocks) for name in names] for row in ranking.rows]


def _ranked(row: Row, name: str, blocks: int) -> str:
    value = row[name]
    if value is None:
        return ""
    if name == "improvement":
        return _change(value, row["low"], row["high"], "%")
    return f"{value:.2f}" if name == "rank" else f"{value}/{blocks}" if name == "won" else str(value)


def _compared(row: Row, *, told: bool) -> Row:
    """A row's columns; `told`: with what the sides differ in."""
    label = {name: row[name] for name in row if name in ("task", "data", "model", "schedule", "align", "preset")}
    columns = {
        **label,
        "regularizer": row["regularizer"],
        "params": row["params"],
        "overrides": row["overrides"],
        "metric": row["metric"],
        "old": _side(row, "old", told),
        "new": _side(row, "new", told),
        "change": _change(row["change"], row["low"], row["high"], like=row["new_mean"]),
        "pairs": row["pairs"],
        "verdict": {True: "better", False: "worse", None: None}[row["better"]],
    }
    if row["regularizer"] is None:  # then what both have of its parameters is told apart from it
        del columns["params"]
        return {**row["params"], **columns}
    return columns


def _differing(row: Row, side: str) -> str:
    return ", ".join(f"{name}={value}" for name, value in row[side].items() if value is not None)


def _side(row: Row, side: str, told: bool) -> str:
    differing = _differing(row, side) if told else ""
    mean, std, n = (row[f"{side}_{name}"] for name in ("mean", "std", "n"))
    text = "–" if mean is None else number(mean) + ("" if std is None else f" ± {number(std, like=mean)}") + f" ({n})"
    return f"{differing}: {text}" if differing else text


def _change(
    change: float | None, low: float | None, high: float | None, unit: str = "", *, like: float | None = None
) -> str:
    if change is None:
        return ""
    text = number(change, like=like, signed=True) + unit
    if low is None or high is None:
        return text
    return f"{text} [{number(low, like=like, signed=True)}, {number(high, like=like, signed=True)}]"


def _verdict(both: Sequence[Row]) -> list[str]:
    if not both:
        return ["nothing that both have"]
    counts = Counter(row["better"] for row in both)
    sure = sum(row["low"] is not None and (row["low"] > 0 or row["high"] < 0) for row in both)
    told = f"{len(both)} compared: {counts[True]} better, {counts[False]} worse, {counts[None]} neither"
    return [f"{told}; intervals without 0: {sure}"]


def _alone(rows: Sequence[Row]) -> list[str]:
    lines = []
    for side in ("old", "new"):
        names = list(dict.fromkeys(_config(row) for row in rows if row["only"] == side))
        lines += [f"only in {side}: {name}" for name in names[:MANY]]
        if len(names) > MANY:
            lines.append(f"only in {side}: {len(names) - MANY} more; --json has all")
    return lines


def _config(row: Row) -> str:
    inner = ",".join(f"{key}={value}" for key, value in {**row["params"], **row["overrides"]}.items())
    shown = [row[name] for name in ("task", "data", "model", "regularizer")] + [inner, row["schedule"], row["preset"]]
    return " ".join(text for text in shown if text)
