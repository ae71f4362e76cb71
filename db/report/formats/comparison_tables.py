"""Comparisons and rankings as tables of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from db.queries.rank import Ranking
from db.queries.statistics import EQUAL
from db.report.formats.listing import TextTable, format_value, needs_fingerprint, results_table
from db.store.rows import Row
from harness.regularizers.spec import spec_label

MAX_NAMED = 10
"""Configurations present on one side only that are named; the others are counted."""


def comparison_table(rows: Sequence[Row]) -> tuple[list[str], TextTable, list[str]]:
    """Return the values shared by all rows as lines, the rows that both sides have, and a summary as lines."""
    both = [row for row in rows if row["only"] is None]
    sides = {(_differing(row, "old"), _differing(row, "new")) for row in both}
    alike = len(both) > 1 and len(sides) == 1
    above, table = results_table([_columns(row, name_sides=not alike) for row in both])
    if alike:
        above = [*(f"{side}: {text}" for side, text in zip(("old", "new"), *sides, strict=True) if text), *above]
    return above, table, [_summary(both), *_one_sided(rows)]


def ranking_table(ranking: Ranking) -> TextTable:
    """Return one row per regularizer."""
    names = [name for name in (ranking.rows[0] if ranking.rows else ()) if name not in ("low", "high", "no_interval")]
    return names, [[_ranking_text(row, name, ranking.blocks) for name in names] for row in ranking.rows]


def _ranking_text(row: Row, name: str, blocks: int) -> str:
    value = row[name]
    if value is None:
        return ""
    if name == "regularizer":
        return spec_label(value, {})
    if name == "improvement":
        return _change(row, value, "%")
    return f"{value:.2f}" if name == "rank" else f"{value}/{blocks}" if name == "won" else str(value)


def _columns(row: Row, *, name_sides: bool) -> Row:
    """Return the columns of a row; `name_sides`: including the values in which its sides differ."""
    shared = "task", "data", "fingerprint", "model", "schedule", "align", "libraries", "result_versions"
    columns = {name: row[name] for name in row if name in shared}
    columns |= {name: row[name] for name in ("preset", "regularizer", "params", "overrides", "mark", "metric")}
    columns |= {
        "old": _side(row, "old", name_sides),
        "new": _side(row, "new", name_sides),
        "change": _change(row, row["change"], like=row["new_mean"]),
        "pairs": row["pairs"],
        "verdict": {True: "better", False: "worse", None: None}[row["better"]],
    }
    if row["regularizer"] is None:  # the sides differ in it: the parameters they share get columns of their own
        del columns["params"]
        return {**row["params"], **columns}
    return columns


def _differing(row: Row, side: str) -> str:
    return ", ".join(f"{name}={value}" for name, value in row[side].items() if value is not None)


def _side(row: Row, side: str, named: bool) -> str:
    differing = _differing(row, side) if named else ""
    mean, std, n = (row[f"{side}_{name}"] for name in ("mean", "std", "n"))
    spread = "" if std is None else f" ± {format_value(std, like=mean)}"
    text = "–" if mean is None else f"{format_value(mean)}{spread} ({n})"
    return f"{differing}: {text}" if differing else text


def _change(row: Row, change: float | None, unit: str = "", *, like: float | None = None) -> str:
    if change is None:
        return ""
    text = format_value(change, like=like, signed=True) + unit
    if row["no_interval"] is not None:
        return f"{text} [{EQUAL}]" if row["no_interval"] == EQUAL else text
    low, high = (format_value(row[name], like=like, signed=True) for name in ("low", "high"))
    return f"{text} [{low}, {high}]"


def _summary(both: Sequence[Row]) -> str:
    if not both:
        return "no configuration is on both sides"
    counts = Counter(row["better"] for row in both)
    significant = sum(row["low"] is not None and (row["low"] > 0 or row["high"] < 0) for row in both)
    verdicts = f"{counts[True]} better, {counts[False]} worse, {counts[None]} neither"
    return f"{len(both)} compared: {verdicts}; intervals without 0: {significant}"


def _one_sided(rows: Sequence[Row]) -> list[str]:
    lines = []
    columns = ("task", "data", *(["fingerprint"] if needs_fingerprint(rows) else []), "model")
    for side in ("old", "new"):
        names = list(dict.fromkeys(_config(row, columns) for row in rows if row["only"] == side))
        lines += [f"only in {side}: {name}" for name in names[:MAX_NAMED]]
        if len(names) > MAX_NAMED:
            lines.append(f"only in {side}: {len(names) - MAX_NAMED} more; `--json` prints all")
    return lines


def _config(row: Row, columns: Sequence[str]) -> str:
    regularizer = spec_label(row["regularizer"], row["params"]) if row["regularizer"] else ""
    overrides = ",".join(f"{key}={value}" for key, value in row["overrides"].items())
    texts = [*(row[name] for name in columns), regularizer, overrides]
    texts += [row["schedule"], row["preset"], row.get("libraries"), row["result_versions"]]
    return " ".join(text for text in texts if text)
