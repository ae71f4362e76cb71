"""Regularizers across tasks: who is better on average, by ranks and by improvement over no regularizer."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from db import filters
from db.aggregates import summarize
from db.connection import reading
from db.direction import higher_is_better, metrics_of
from db.filters import Filter, stored_name
from db.groups import COLUMNS, Places, asked_names, configs
from db.models import Configs
from db.shape import in_order
from db.statistics import ENOUGH, paired
from db.store import Store
from harness.errors import unknown_name
from harness.files import canonical_json

Row = dict[str, Any]

BASELINE = "none"
REGULARIZERS, BLOCKS = 3, 5
"""The least that a Friedman test makes sense for."""


class Block(NamedTuple):
    """What regularizers are compared on; data with another fingerprint are other data."""

    task: str
    data: str
    model: str
    preset: str
    overrides: str
    fingerprint: str
    metric: str


@dataclass
class Ranking:
    """Regularizers, the best first.

    Attributes:
        rows: regularizer, the keys that split it, rank (mean over the blocks, 1 is the best), won (blocks in which none
            was better), improvement (mean over the blocks, relative to `BASELINE`, in percent, positive is better), low
            and high (its 95 % t interval over the blocks).
        blocks: how many all regularizers have a result in.
        left_out: the others, each with its reason.
        friedman: statistic and p of Friedman's test on the ranks; None where there is too little for it.
        notes: what a reader must know, as sentences.
    """

    rows: list[Row]
    blocks: int = 0
    left_out: list[Row] = field(default_factory=list)
    friedman: dict[str, float] | None = None
    notes: list[str] = field(default_factory=list)


def rank(store: Store, words: Sequence[str] = (), metrics: Sequence[str] = (), by: Sequence[str] = ()) -> Ranking:
    """Rank regularizers in each block of task, data, model, preset, overrides and metric (Demšar 2006, section 3.2.2).

    A regularizer's value in a block is the mean over its configurations, each the mean over its seeds.

    Args:
        store: the database.
        words: a filter (`db.filters`).
        metrics: as of `db.query.results`; default: of each task that which selects the model, on the test set.
        by: parameters of regularizers, ``schedule`` or ``align``: each of their values is a regularizer of its own.

    Raises:
        InputError: a word, metric or key is unknown.
    """
    with reading(store.engine) as connection:
        found = filters.parse(connection, words)
        every = _configs(connection, found)
        _check_keys(by, every)
        names = asked_names(connection, [one if one == "all" else stored_name(one) for one in metrics])
        values = {name.removeprefix("test/"): _means(connection, found, name) for name in names}
    # Equal overrides are one object (`filters.Parsed`), so that few are written out again.
    texts = {
        key: canonical_json(one) for key, one in {id(of["overrides"]): of["overrides"] for of in every.values()}.items()
    }
    blocks: dict[Block, dict[tuple[Any, ...], list[float]]] = {}
    for metric, means in values.items():
        for config_id, mean in means.items():
            config = every[config_id]
            if not metrics and metric != next(iter(metrics_of(config["task"])), metric):
                continue
            blocks.setdefault(_block(config, texts[id(config["overrides"])], metric), {}).setdefault(
                _name(config, by), []
            ).append(mean)
    return _ranking(blocks, by)


def _ranking(blocks: Mapping[Block, Mapping[tuple[Any, ...], list[float]]], by: Sequence[str]) -> Ranking:
    names = sorted(
        {name for block in blocks.values() for name in block}, key=lambda name: [in_order(one) for one in name]
    )
    whole: dict[Block, bool] = {}
    left_out = []
    for block, means in blocks.items():
        higher = higher_is_better(block.task, block.metric)
        reason = f"no direction is known for {block.metric}" if higher is None else _missing(names, means)
        if reason is None and higher is not None:
            whole[block] = higher
        else:
            left_out.append({**_told(block), "reason": reason})
    table = {block: {name: math.fsum(some) / len(some) for name, some in blocks[block].items()} for block in whole}
    found = Ranking([], len(whole), left_out)
    ranks = _ranks([[_signed(table[block][name], whole[block]) for name in names] for block in whole])
    for place, name in enumerate(names):
        own = [row[place] for row in ranks]
        better = [] if name[0] == BASELINE else _improvements(name, table, whole)
        improvement = paired(better)
        found.rows.append(
            {
                **dict(zip(("regularizer", *by), name, strict=True)),
                "rank": summarize(own).mean,
                "won": sum(rank == min(row) for rank, row in zip(own, ranks, strict=True)),
                "improvement": improvement.mean,
                "low": improvement.low,
                "high": improvement.high,
            }
        )
    found.rows.sort(key=lambda row: (row["rank"] is None, row["rank"]))
    found.friedman = _friedman(ranks)
    found.notes = _notes(found, names, by)
    return found


def _ranks(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Ranks in each row, 1 for the greatest; equal values share the mean of theirs."""
    if not values:
        return []
    from scipy.stats import rankdata

    ranks: list[list[float]] = rankdata([[-value for value in row] for row in values], axis=1).tolist()
    return ranks


def _friedman(ranks: Sequence[Sequence[float]]) -> dict[str, float] | None:
    if len(ranks) < BLOCKS or len(ranks[0]) < REGULARIZERS or all(len(set(row)) == 1 for row in ranks):
        return None
    from scipy.stats import friedmanchisquare

    statistic, p = friedmanchisquare(*zip(*ranks, strict=True))
    return {"statistic": float(statistic), "p": float(p)}


def _improvements(
    name: tuple[Any, ...], table: Mapping[Block, Mapping[tuple[Any, ...], float]], higher: Mapping[Block, bool]
) -> list[float]:
    """Percent of the baseline's value, block by block; a baseline of 0 has no percent."""
    found = []
    for block, means in table.items():
        base = summarize(mean for other, mean in means.items() if other[0] == BASELINE).mean
        if base:
            found.append(_signed(100 * (means[name] - base) / abs(base), higher[block]))
    return found


def _signed(value: float, higher_is_better: bool) -> float:
    return value if higher_is_better else -value


def _missing(names: Sequence[tuple[Any, ...]], means: Mapping[tuple[Any, ...], object]) -> str | None:
    absent = [label(name) for name in names if name not in means]
    return f"no result of {', '.join(absent)}" if absent else None


def label(name: Sequence[Any]) -> str:
    """A regularizer with the values that split it: ``dropkey 0.3``."""
    return " ".join(str(part) for part in name if part is not None)


def _notes(found: Ranking, names: Sequence[tuple[Any, ...]], by: Sequence[str]) -> list[str]:
    reasons = Counter(one["reason"] for one in found.left_out)
    total = found.blocks + len(found.left_out)
    notes = [f"{count} of {total} blocks left out: {reason}" for reason, count in reasons.most_common(5)]
    if len(reasons) > 5:
        notes.append(f"{len(reasons) - 5} more reasons: --json has all")
    if len(names) < 2:
        return [*notes, "fewer than two regularizers have a result: nothing to rank"]
    if not found.blocks:
        return [*notes, "no block has a result of all: a filter such as regularizer=none,dropkey leaves others out"]
    if not any(name[0] == BASELINE for name in names):
        notes.append(f"no improvement is told without a result of {BASELINE}")
    elif found.blocks < ENOUGH:
        notes.append(f"too few blocks for an interval: {found.blocks}, at least {ENOUGH} are needed")
    if len(names) < REGULARIZERS or found.blocks < BLOCKS:
        least = f"at least {REGULARIZERS} regularizers and {BLOCKS} blocks are needed"
        notes.append(f"too little for Friedman's test: {len(names)} regularizers in {found.blocks} blocks, {least}")
    elif found.friedman is not None:
        test = f"chi² = {found.friedman['statistic']:.2f}, p = {found.friedman['p']:.2g}"
        notes.append(f"Friedman's test that all are alike, over {found.blocks} blocks: {test}")
    return notes


def _configs(connection: Connection, found: Filter) -> dict[str, Row]:
    rows = configs(connection, found.clauses, COLUMNS)
    fingerprints = dict(connection.execute(select(Configs.c.id, Configs.c.fingerprint)).all())
    return {id: {"fingerprint": fingerprints[id], **dict(zip(COLUMNS, row, strict=True))} for id, row in rows.items()}


def _check_keys(by: Sequence[str], configs: Mapping[str, Row]) -> None:
    known = {"schedule", "align", *(name for config in configs.values() for name in config["params"])}
    for key in by:
        if configs and key not in known:
            raise unknown_name("key to split regularizers by", key, known)


def _means(connection: Connection, found: Filter, name: str) -> dict[str, float]:
    """Means over seeds by configuration."""
    values: dict[str, list[float]] = {}
    for (id,), some in Places(found, ["regularizer"]).finals(connection, name):
        values.setdefault(id, []).extend(value for value in some if value is not None)
    return {id: math.fsum(some) / len(some) for id, some in values.items() if some}


def _name(config: Mapping[str, Any], by: Sequence[str]) -> tuple[Any, ...]:
    if config["regularizer"] == BASELINE:
        return (BASELINE, *(None for _ in by))
    held = {"schedule": config["schedule"], "align": config["align"], **config["params"]}
    return (config["regularizer"], *(held.get(key) for key in by))


def _block(config: Mapping[str, Any], overrides: str, metric: str) -> Block:
    return Block(
        config["task"], config["data"], config["model"], config["preset"], overrides, config["fingerprint"], metric
    )


def _told(block: Block) -> Row:
    return {**block._asdict(), "overrides": json.loads(block.overrides)}
