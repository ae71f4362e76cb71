"""Rank regularizers across tasks, by mean rank and by improvement over no regularizer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from dropbench.db.queries import blocks as conditions
from dropbench.db.queries.blocks import BASELINE, Block, Name, name_of, split_keys
from dropbench.db.queries.groups import COLUMNS, GroupKeys, configs
from dropbench.db.queries.marks import OLDER, VERSIONED, differing_items, is_older, marks_of, only_items, table_labels
from dropbench.db.queries.recipes import OF_REGULARIZERS, changed_keys, recipe_label
from dropbench.db.queries.results import sort_key
from dropbench.db.queries.task_metrics import directed_metric, metrics_of, resolve_names
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Configs
from dropbench.db.statistics.complete_part import largest_complete
from dropbench.db.statistics.corrections import holm
from dropbench.db.statistics.evidence import against_baseline, post_hoc, profiles
from dropbench.db.statistics.ranks import MIN_BLOCKS, MIN_METHODS, friedman, ranks_of
from dropbench.db.statistics.seeds import mean_of, summarize
from dropbench.db.statistics.t_test import MIN_PAIRS, paired_t_test
from dropbench.db.store import filters
from dropbench.db.store.rows import Row
from dropbench.db.store.store import Store
from dropbench.harness.errors import unknown_name
from dropbench.harness.trials.metric import Metric, MetricName

Runs = dict[Name, list[list[float]]]
"""Values over seeds of each configuration of each regularizer, in a block."""

MAX_NAMED = 5
"""Regularizers and reasons that notes name; the others are counted."""


@dataclass
class Ranking:
    """Regularizers, the best first.

    Attributes:
        rows: regularizer, the keys that split it, rank (mean over the blocks, 1 is best), won (blocks without a better
            one), groups (letters; regularizers that share one do not differ by Nemenyi's test), improvement (mean over
            the blocks, relative to `BASELINE`, in percent, positive is better), low and high (its 95 % t interval over
            the blocks), no_interval (why there is none), p_value, p_holm (corrected for the number of regularizers),
            the columns of `dropbench.db.statistics.evidence`, and in `rank` mark (``older rule``, or None).
        blocks: number of blocks in which all ranked regularizers have a result.
        left_out: the other blocks, each with the reason.
        left_out_regularizers: those that are not ranked, each with the number of blocks in which it has a result.
        friedman: statistic and p of Friedman's test on the ranks; None if there are too few ranks.
        critical_difference: of the mean ranks, by Nemenyi's test; None without Friedman's.
        pairs: of regularizers, with the p-values of Nemenyi's test, and of Wilcoxon's after Holm's correction.
        profiles: thresholds of the improvement, and the share of the runs of each regularizer above them.
        notes: sentences that qualify the ranking.
    """

    rows: list[Row]
    blocks: int = 0
    left_out: list[Row] = field(default_factory=list)
    left_out_regularizers: list[Row] = field(default_factory=list)
    friedman: dict[str, float] | None = None
    critical_difference: float | None = None
    pairs: list[Row] = field(default_factory=list)
    profiles: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def rank(
    store: Store,
    words: Sequence[str] = (),
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    *,
    chosen: Mapping[str, Mapping[str, Any]] = {},
    left_out: Container[str] = (),
) -> Ranking:
    """Rank regularizers in each block of task, data, model, preset, overrides and metric (Demšar 2006, section 3.2.2).

    A regularizer's value in a block is the mean over its configurations, each the mean over its seeds. If results are
    missing, the regularizers and blocks without a gap that have the most results are ranked.

    Args:
        store: the database.
        words: a filter (`dropbench.db.store.filters`).
        metrics: as of `results.results`; default: each task's selection metric, on the test set.
        by: parameters of regularizers, ``schedule``, ``align`` or ``recipe``; each value counts as a regularizer of
            its own, as do a regularizer's result versions, the values of its parameters that are words, such as
            ``rescale``, and the recipes, if that of a preset changed between trials.
        chosen: by the id of a configuration, the overrides of its block, without those that a tuned preset chose.
        left_out: ids of configurations that are not ranked: the other candidates of tuned presets.

    Raises:
        InputError: a word, metric or key is unknown.
    """
    with reading(store.engine) as connection:
        filter = filters.parse(connection, words)
        labels = table_labels(connection, filter)
        rows = configs(connection, filter, COLUMNS)
        configurations = {id: dict(zip(COLUMNS, values, strict=True)) for id, values in rows.items()}
        known = {"schedule", "align", conditions.RECIPE}
        known |= {name for config in configurations.values() for name in config["params"]}
        for key in by:
            if configurations and key not in known:
                raise unknown_name("key to split regularizers by", key, known)
        shared = conditions.shared_by(configurations, chosen)
        recipes = changed_keys(connection, filter, shared)
        names = resolve_names(connection, metrics)
        keys = GroupKeys(filter, labels)
        values = {MetricName.parse(name).label: conditions.values_over_seeds(keys, connection, name) for name in names}
        marks, weights = marks_of(connection), conditions.initial_weights(connection, filter)
        differing = differing_items(connection, *filter.on_configs(Configs.c.id))
    older_ids = {id for id, config in configurations.items() if is_older(*(config[key] for key in VERSIONED))}
    for config in configurations.values():
        config["result_versions"] = only_items(config["result_versions"], differing)
    by = split_keys(configurations.values(), by, versions=bool(differing), recipes=bool(recipes))
    blocks: dict[Block, Runs] = {}
    reference: dict[Block, Runs] = {}
    for metric, runs in values.items():
        for (config_id, *libraries), seeds in runs.items():
            config = configurations[config_id]
            if config_id in left_out:
                continue
            if not metrics and metric != next(iter(metrics_of(config["task"])), metric):
                continue
            versions = dict(zip(keys.names, libraries, strict=True))
            origin = versions.pop("origin", "own")
            recipe = recipes.get(config_id, {})
            mark = marks.get((config["data"], config["fingerprint"]))
            versions["result_versions"] = conditions.condition_versions(config["result_versions"])
            versions["recipe"] = recipe_label(recipe, without=OF_REGULARIZERS)
            block = shared[config_id]._replace(metric=metric, weights=weights.get(config_id, ""), mark=mark, **versions)
            target = blocks if origin == "own" else reference
            target.setdefault(block, {}).setdefault(name_of(config, by, recipe_label(recipe)), []).append(seeds)
    own = sum(map(len, blocks.values()))
    for block, results in reference.items():  # a regularizer's own runs take precedence: never a mean over both
        blocks[block] = {**results, **blocks.get(block, {})}
    ranking = rank_blocks(blocks, by)
    older = {name_of(configurations[id], by, recipe_label(recipes.get(id, {}))) for id in older_ids}
    for row in ranking.rows:
        row["mark"] = OLDER if tuple(row[key] for key in ("regularizer", *by)) in older else None
    if reference:
        total = sum(map(len, blocks.values()))
        ranking.notes.append(f"{total - own} of {total} results are the reference's; {own} are your own")
    if "libraries" in keys.names:
        ranking.notes.append("trained with different library versions: each has blocks of its own")
    if differing:
        ranking.notes.append(
            "trained with different result versions: those of the engine, a task or a model have "
            "blocks of their own, those of a regularizer are ranked separately"
        )
    if recipes:
        changed = ", ".join(sorted({key for recipe in recipes.values() for key in recipe}))
        ranking.notes.append(f"trained with different recipes ({changed}): each is ranked separately")
    return ranking


def rank_blocks(blocks: Mapping[Block, Runs], by: Sequence[str]) -> Ranking:
    """Return the ranking of blocks, the others of which are left out; `by` names the keys that split regularizers."""
    metrics = {block: directed_metric(block.task, block.metric) for block in blocks}
    ranked = largest_complete([frozenset(values) for block, values in blocks.items() if metrics[block]], _order)
    every = {name for block in blocks.values() for name in block}
    names = sorted(ranked or every, key=_sort_key)
    complete: dict[Block, Metric] = {}
    left_out = []
    for block, values in blocks.items():
        metric = metrics[block]
        missing = [_label(name) for name in names if name not in values]
        if metric is not None and not missing:
            complete[block] = metric
            continue
        reason = f"no result of {', '.join(missing)}" if metric else f"no direction is known for {block.metric}"
        left_out.append({**block._asdict(), "overrides": json.loads(block.overrides), "reason": reason})
    table = {block: {name: mean_of(map(mean_of, runs)) for name, runs in blocks[block].items()} for block in complete}
    counts = Counter(name for values in blocks.values() for name in values)
    others = [
        {**dict(zip(("regularizer", *by), name, strict=True)), "blocks": counts[name]}
        for name in sorted(every - {*names}, key=_sort_key)
    ]
    ranking = Ranking([], len(complete), left_out, others)
    scores = [[metric.score(table[block][name]) for name in names] for block, metric in complete.items()]
    ranks = ranks_of(scores)
    improvements, runs = _improvements(blocks, table, complete)
    bases = [runs[name] for name in names if name[0] == BASELINE and name in runs]
    baseline = [list(chain.from_iterable(values)) for values in zip(*bases, strict=True)]
    for position, name in enumerate(names):
        own = [row[position] for row in ranks]
        means = improvements.get(name, []) if name[0] != BASELINE else []
        improvement = paired_t_test([(value, 0.0) for value in means])
        ranking.rows.append(
            {
                **dict(zip(("regularizer", *by), name, strict=True)),
                "rank": summarize(own).mean,
                "groups": None,
                "won": sum(rank == min(row) for rank, row in zip(own, ranks, strict=True)),
                "improvement": improvement.mean,
                "low": improvement.low,
                "high": improvement.high,
                "no_interval": improvement.no_interval if means else None,
                "p_value": improvement.p,
                **against_baseline(runs.get(name, []), baseline, means),
            }
        )
    for row, p_holm in zip(ranking.rows, holm([row["p_value"] for row in ranking.rows]), strict=True):
        row["p_holm"] = p_holm
    ranking.friedman = friedman(ranks)
    _add_post_hoc(ranking, scores, [_label(name) for name in names])
    if baseline:
        ranking.profiles = profiles({_label(name): runs[name] for name in names})
    ranking.rows.sort(key=lambda row: (row["rank"] is None, row["rank"]))
    ranking.notes = _notes(ranking, names, by)
    if (most := max((len(values) for block in complete for values in blocks[block].values()), default=1)) > 1:
        ranking.notes.append(f"means over up to {most} configurations of a regularizer per block: `--by` splits them")
    if marked := sorted({f"{block.data} ({block.mark})" for block in complete if block.mark}):
        ranking.notes.append(f"data other than the published ones: {', '.join(marked)}")
    return ranking


def _order(names: frozenset[Name]) -> tuple[bool, list[Any]]:
    """Sort sets of regularizers with the baseline first."""
    return not any(name[0] == BASELINE for name in names), sorted(map(_sort_key, names))


def _sort_key(name: Name) -> list[Any]:
    return [sort_key(part) for part in name]


def _label(name: Name) -> str:
    return " ".join(str(part) for part in name if part is not None)


def _add_post_hoc(ranking: Ranking, scores: Sequence[Sequence[float]], labels: Sequence[str]) -> None:
    """Add the post-hoc tests if there is a Friedman test; `scores` by block and row."""
    if ranking.friedman is None:
        return
    result = post_hoc(scores, [row["rank"] for row in ranking.rows], ranking.friedman["p"], labels)
    ranking.critical_difference, ranking.pairs = result.difference, result.pairs
    for row, letters in zip(ranking.rows, result.letters, strict=True):
        row["groups"] = letters


def _improvements(
    blocks: Mapping[Block, Runs], table: Mapping[Block, Mapping[Name, float]], metrics: Mapping[Block, Metric]
) -> tuple[dict[Name, list[float]], dict[Name, list[list[float]]]]:
    """Return those of means and of runs, in percent of the baseline's value, by block; without blocks where it is 0."""
    of_means: dict[Name, list[float]] = {}
    of_runs: dict[Name, list[list[float]]] = {}
    for block, means in table.items():
        base = summarize(mean for other, mean in means.items() if other[0] == BASELINE).mean
        if not base:
            continue
        for name, mean in means.items():
            values = [mean, *chain.from_iterable(blocks[block][name])]
            first, *others = (metrics[block].score(100 * (value - base) / abs(base)) for value in values)
            of_means.setdefault(name, []).append(first)
            of_runs.setdefault(name, []).append(others)
    return of_means, of_runs


def _notes(ranking: Ranking, names: Sequence[Name], by: Sequence[str]) -> list[str]:
    reasons = Counter(block["reason"] for block in ranking.left_out)
    total = ranking.blocks + len(ranking.left_out)
    notes = []
    if others := ranking.left_out_regularizers:
        part = f"{len(names)} of {len(names) + len(others)} regularizers in {ranking.blocks} of {total} blocks"
        named = [
            f"{_label(tuple(row[key] for key in ('regularizer', *by)))} ({row['blocks']} of {total} blocks)"
            for row in others[:MAX_NAMED]
        ]
        more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
        notes += [f"the largest part without gaps: {part}", f"regularizers left out: {', '.join(named)}{more}"]
    notes += [f"{count} of {total} blocks left out: {reason}" for reason, count in reasons.most_common(MAX_NAMED)]
    if len(reasons) > MAX_NAMED:
        notes.append(f"{len(reasons) - MAX_NAMED} more reasons: `--json` lists them all")
    if len(names) < 2:
        return [*notes, "fewer than two regularizers have a result: nothing to rank"]
    if not ranking.blocks:
        return [*notes, "no block has results of all regularizers: select some, such as regularizer=none,dropkey"]
    if not any(name[0] == BASELINE for name in names):
        notes.append(f"no improvement is shown without a result of {BASELINE}")
    elif ranking.blocks < MIN_PAIRS:
        notes.append(f"too few blocks for an interval: {ranking.blocks}, at least {MIN_PAIRS} are needed")
    if len(names) < MIN_METHODS or ranking.blocks < MIN_BLOCKS:
        minimum = f"at least {MIN_METHODS} regularizers and {MIN_BLOCKS} blocks are needed"
        notes.append(f"too little for Friedman's test: {len(names)} regularizers in {ranking.blocks} blocks, {minimum}")
    elif ranking.friedman is not None:
        test = f"chi² = {ranking.friedman['statistic']:.2f}, p = {ranking.friedman['p']:.2g}"
        notes.append(f"Friedman's test that all are equal, over {ranking.blocks} blocks: {test}")
    return notes
