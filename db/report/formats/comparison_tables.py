"""Comparisons and rankings as tables of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from dropbench.db.queries.blocks import BASELINE
from dropbench.db.queries.rank import Ranking
from dropbench.db.report.formats.listing import format_value, needs_fingerprint, params_to_list, results_table
from dropbench.db.report.formats.noise import Noise, noise_lines, significant
from dropbench.db.report.formats.numbers import SIGNIFICANT
from dropbench.db.statistics.evidence import ZONE
from dropbench.db.statistics.t_test import EQUAL
from dropbench.db.store.rows import Row
from dropbench.harness.cli.text_table import TextTable
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.spec import parameters, part_names, spec_label

_VERDICTS = {
    "within noise": "the interval of the change contains 0",
    "uncorrected": "the interval excludes 0, but Holm's correction for all comparisons does not confirm it",
    "untested": "no interval, for lack of common seeds or because all differences are equal",
}
MAX_NAMED = 10
"""Configurations present on one side only that are named; the others are counted."""


def comparison_table(rows: Sequence[Row]) -> TextTable:
    """Return the rows that both sides have, with the values they share above, and lines that sum them up below."""
    both = [row for row in rows if row["only"] is None]
    sides = {(_differing(row, "old"), _differing(row, "new")) for row in both}
    alike = len(both) > 1 and len(sides) == 1
    table = results_table([_columns(row, name_sides=not alike) for row in both])
    if alike:
        named = (f"{side}: {text}" for side, text in zip(("old", "new"), *sides, strict=True) if text)
        table.above = [*named, *table.above]
    table.below = [*_summary(both), *noise_lines(map(_noise, both), "old"), *_one_sided(rows)]
    return table


def row_label(row: Row) -> str:
    """Return the regularizer of a row of a ranking, with the values of the keys that split it."""
    others = [str(row[key]) for key in _keys(row) if key != "regularizer" and row[key] is not None]
    return " ".join([_regularizer(row), *others])


def _regularizer(row: Row) -> str:
    """Return the name of a row; a registered composition keeps its own, which is shorter than its parts."""
    name = str(row["regularizer"])
    return REGULARIZERS.entry(name).name if name in REGULARIZERS else spec_label(name, {})


def _keys(row: Row) -> list[str]:
    """Return the columns of a row before its rank: the regularizer, and the keys that split it."""
    return [*takewhile(lambda name: name != "rank", row)]


def ranking_table(ranking: Ranking) -> TextTable:
    """Return one row per regularizer, with what the columns mean and the notes of the ranking below."""
    keys = _keys(ranking.rows[0]) if ranking.rows else []
    rows = [_ranking_texts(row, keys, ranking.blocks) for row in ranking.rows]
    names = [*dict.fromkeys(name for row in rows for name, text in row.items() if text or name in keys)]
    below = [*ranking_legend(ranking), *ranking.notes]
    return TextTable.of_rows(names, [[row[name] for name in names] for row in rows], below=below)


def _ranking_texts(row: Row, keys: Sequence[str], blocks: int) -> dict[str, str]:
    mark = f" {SIGNIFICANT}" if significant([row["p_holm"]]) else ""
    iqm = {"low": row["iqm_low"], "high": row["iqm_high"], "no_interval": "" if row["iqm_low"] is None else None}
    shares = [row[name] for name in ("p_worse", "p_equivalent", "p_better")]
    return {
        **{key: "" if row[key] is None else str(row[key]) for key in keys},
        "regularizer": _regularizer(row),
        "rank": "" if row["rank"] is None else f"{row['rank']:.2f}",
        "groups": row["groups"] or "",
        "won": f"{row['won']}/{blocks}",
        "improvement": _change(row, row["improvement"], "%", like=1.0) + mark,
        "IQM": _change(iqm, row["iqm"], "%", like=1.0),
        "P(improvement)": _probability(row),
        "worse / equal / better": "" if None in shares else "/".join(f"{100 * share:.0f}" for share in shares) + "%",
        "mark": row.get("mark") or "",
    }


def _probability(row: Row) -> str:
    value, low, high = (row[f"p_improvement{end}"] for end in ("", "_low", "_high"))
    if value is None:
        return ""
    return f"{value:.2f}" if low is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def ranking_legend(ranking: Ranking) -> list[str]:
    """Return what the columns mean, for those that have a value."""
    rows = ranking.rows
    lines = []
    if ranking.critical_difference is not None:
        lines.append(
            f"groups: regularizers that share a letter do not differ by Nemenyi's test (critical difference of the"
            f" ranks: {ranking.critical_difference:.2f})"
        )
    if any(row["p_holm"] is not None for row in rows):
        lines.append(f"{SIGNIFICANT}: the mean improvement is significant at 5 % after Holm's correction")
    if any(row["iqm"] is not None for row in rows):
        lines.append("IQM: interquartile mean of the improvements of all runs; interval: over seeds")
    if any(row["p_improvement"] is not None for row in rows):
        lines.append(f"P(improvement): probability that a run is better than one of {BASELINE}")
        lines.append(
            f"worse / equal / better: Bayesian signed-rank test; equal: within ±{ZONE:g} % of the value of {BASELINE}"
        )
    return lines


def _columns(row: Row, *, name_sides: bool) -> Row:
    """Return the columns of a row; `name_sides`: including the values in which its sides differ."""
    shared = "task", "data", "fingerprint", "model", "schedule", "align", "libraries", "result_versions", "seeds"
    columns = {name: row[name] for name in row if name in shared}
    columns |= {name: row[name] for name in ("preset", "regularizer", "params", "overrides", "mark", "metric")}
    columns |= {
        "old": _side(row, "old", name_sides),
        "new": _side(row, "new", name_sides),
        "change": _change(row, row["change"], like=row["new_mean"]),
        "pairs": row["pairs"],
        "verdict": row["verdict"],
    }
    if row["regularizer"] is None:  # the sides differ in it: the parameters they share get columns of their own
        del columns["params"]
        return {**row["params"], **columns}
    return columns


def _differing(row: Row, side: str) -> str:
    """Return the values in which a side differs; after a regularizer, only those of its parameters that tables list."""
    values = {name: value for name, value in row[side].items() if value is not None}
    name, texts = values.pop("regularizer", None), []
    if name is not None:
        known = parameters(name) if set(part_names(name)) <= {*REGULARIZERS} else values  # of a plug-in: all
        texts = [_spec_label(name, {key: values.pop(key) for key in [*known] if key in values})]
    return ", ".join([*texts, *(f"{key}={value}" for key, value in values.items())])


def _spec_label(name: str, params: Mapping[str, Any]) -> str:
    listed = params_to_list([{"regularizer": name, "params": params}])[name]
    return spec_label(name, {key: value for key, value in params.items() if key in listed})


def _side(row: Row, side: str, named: bool) -> str:
    differing = _differing(row, side) if named else ""
    mean, std, n = (row[f"{side}_{name}"] for name in ("mean", "std", "n"))
    spread = "" if std is None else f" ± {format_value(std, like=mean)}"
    text = "–" if mean is None else f"{format_value(mean)}{spread} ({n})"
    return f"{differing}: {text}" if differing else text


def _change(row: Mapping[str, Any], change: float | None, unit: str = "", *, like: float | None = None) -> str:
    if change is None:
        return ""
    text = format_value(change, like=like, signed=True) + unit
    if row["no_interval"] is not None:
        return f"{text} [{EQUAL}]" if row["no_interval"] == EQUAL else text
    low, high = (format_value(row[name], like=like, signed=True) for name in ("low", "high"))
    return f"{text} [{low}, {high}]"


def _summary(both: Sequence[Row]) -> list[str]:
    if not both:
        return ["no configuration is on both sides"]
    counts = Counter(row["better"] for row in both)
    lines = [f"{len(both)} compared: {counts[True]} better, {counts[False]} worse, {counts[None]} neither"]
    if undirected := dict.fromkeys(row["metric"] for row in both if row["change"] and row["better"] is None):
        lines.append(f"no direction is known for {', '.join(undirected)} (if it is a plug-in's: add `--plugin FILE`)")
    verdicts = [row for row in both if row["verdict"] is not None]
    if tests := sum(row["p_holm"] is not None for row in verdicts):
        single, holm, bh = (significant([row[name] for row in verdicts]) for name in ("p_value", "p_holm", "p_bh"))
        lines.append(
            f"{tests} tested: {single} intervals without 0; significant at 5 %: {holm} after Holm's correction, {bh}"
            " after Benjamini-Hochberg's"
        )
    words = {word for row in verdicts for word in _VERDICTS if row["verdict"].endswith(word)}
    return [*lines, *(f"{word}: {_VERDICTS[word]}" for word in _VERDICTS if word in words)]


def _noise(row: Row) -> Noise:
    half_width = None if row["low"] is None else (row["high"] - row["low"]) / 2
    return Noise(row["metric"] or "", row["old_std"], half_width, row["pairs"], format_value)


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
    regularizer = _spec_label(row["regularizer"], row["params"]) if row["regularizer"] else ""
    overrides = ",".join(f"{key}={value}" for key, value in row["overrides"].items())
    texts = [*(row[name] for name in columns), regularizer, overrides]
    texts += [row["schedule"], row["preset"], row.get("libraries"), row["result_versions"]]
    return " ".join(text for text in texts if text and text != "constant")
