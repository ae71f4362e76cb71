"""Predictions and disagreements as rows of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dropbench.harness.cli.text_table import TextTable
from dropbench.jobs.predictions.comparison import MetricTest
from dropbench.jobs.predictions.scores import display, prediction_text
from dropbench.jobs.predictions.sides import Side

MAX_TEXT = 48
"""Longest text in a cell of a table; other formats have all of it."""

Record = dict[str, Any]


def list_examples(side: Side) -> list[Record]:
    """Return one record per example: its columns with names of classes; with several seeds, the mean of each metric."""
    header = side.first.header
    if len(side.by_seed) == 1:
        names = ("id", "index", *header.columns)
        return [{name: header.named(name, row[name]) for name in names} for row in side.first.rows]
    means = _mean_scores(side)
    targets = [display(header, "target", row) if "target" in header.columns else None for row in side.first.rows]
    return [
        {"id": row["id"], "index": row["index"], "target": target, **{name: means[name][number] for name in means}}
        for number, (row, target) in enumerate(zip(side.first.rows, targets, strict=True))
    ]


def list_disagreements(a: Side, b: Side) -> list[Record]:
    """Return the examples that both sides (aligned) predict differently; first those whose first metric differs most.

    With several seeds, those on which the mean of the first metric over the seeds differs.
    """
    means = [_mean_scores(side, first=True) for side in (a, b)]
    metric = next((name for name in means[0] if name in means[1]), None)
    header, records = a.first.header, []
    single = len(a.by_seed) == 1
    for number, rows in enumerate(zip(a.first.rows, b.first.rows, strict=True)):
        texts = [
            prediction_text(side.first.header, row) if single else None for side, row in zip((a, b), rows, strict=True)
        ]
        scores = [mean[metric][number] if metric is not None else None for mean in means]
        if texts[0] == texts[1] and (texts[0] is not None or scores[0] == scores[1]):
            continue
        record: Record = {"id": rows[0]["id"], "index": rows[0]["index"]}
        if "target" in header.columns:
            record["target"] = display(header, "target", rows[0])
        if single:
            record |= {"a": texts[0], "b": texts[1]}
        if metric is not None:
            record |= {f"a_{metric}": scores[0], f"b_{metric}": scores[1]}
        records.append((abs((scores[0] or 0.0) - (scores[1] or 0.0)), record))
    return [record for _, record in sorted(records, key=lambda item: -item[0])]


def metric_table(tests: Sequence[MetricTest]) -> TextTable:
    """Return the metrics of one side or two as a table of texts."""
    pair = any(test.change is not None for test in tests)
    names = ["metric", *(("a", "b", "change") if pair else ("value",)), "95 % over examples", "std over seeds"]
    names += ["p (bootstrap)", "p (McNemar)"] if pair else []
    rows = []
    for test in tests:
        values = [test.a, test.b, test.change] if pair else [test.a]
        cells = [test.metric, *map(_number, values), f"{_number(test.low)} to {_number(test.high)}"]
        cells.append(f"{_number(test.seed_std)} ({test.seeds})" if test.seed_std is not None else "")
        rows.append([*cells, *([_p(test.p), _p(test.mcnemar)] if pair else [])])
    filled = [column for column in range(len(names)) if any(row[column] for row in rows)]
    shown = [[row[column] for column in filled] for row in rows]
    return TextTable.of_rows([names[column] for column in filled], shown)


def table_rows(records: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return records as a table of short texts, without lists of numbers."""
    names = [name for name in (records[0] if records else ()) if not _is_numeric_list(records[0][name])]
    rows = [[_text(record[name]) for name in names] for record in records]
    return TextTable.of_rows([name.replace("_", " ") for name in names], rows)


def _mean_scores(side: Side, *, first: bool = False) -> dict[str, list[float | None]]:
    """Return each metric (or the first) of each example, its mean over the seeds."""
    means = {}
    for name, by_seed in [*side.scores().items()][: 1 if first else None]:
        examples = zip(*(scores.per_example() for scores in by_seed), strict=True)
        known = [[value for value in values if value is not None] for values in examples]
        means[name] = [sum(values) / len(values) if values else None for values in known]
    return means


def _is_numeric_list(value: Any) -> bool:
    return isinstance(value, list) and not (value and isinstance(value[0], str))


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = " ".join(value) if isinstance(value, list) else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 1 else f"{value:.2f}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}" if value >= 0.001 else "<0.001"
