"""The pages as regions of HTML by name: a page shows them all, and asks from time to time for those that changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import select

from db.connection import reading
from db.models import Configs
from db.query import results
from db.report import listing
from db.report.dashboard import overview
from db.report.dashboard.live import Live
from db.report.dashboard.suites import Variant, variants, view_of
from db.report.page import Content, contents, plot_groups
from db.report.page.bands import band
from db.report.page.charts import Chart, Group, bands
from db.report.page.details import differences, flat, trial_run
from db.report.page.records import Record, curves, records
from db.report.page.templates import environment
from db.report.subsets import with_subsets
from harness.errors import InputError
from harness.trial import FINAL_STATES

EVERY = 6.0
"""Seconds for which the plots of a suite with running trials stand."""
PLOTS = ("over", "metric", "curves", "layers", "entropy", "diversity", "disagreement", "sparsity",
         "attention-map", "interactions", "predictions")  # fmt: skip
"""Every group of plots that a suite may have, in order."""


@dataclass(frozen=True)
class Page:
    """A page: its title, what stands above its regions, and these."""

    title: str
    kicker: str
    heading: str
    lead: str
    regions: Mapping[str, str]


class Missing(Exception):
    """There is no such suite or trial."""


def overview_page(live: Live) -> Page:
    """The first page."""
    activity = live.activity()
    state = _part("state", status=activity.status)
    found = live.kept("latest", lambda: overview.latest(live), seconds=2)
    regions = {
        "state": state,
        "working": _part("working", lines=overview.working(live)),
        "suites": _part("suites", suites=overview.suites(live), address=suite_address),
        "latest": _part("latest", lines=found),
    }
    return Page("DropBench", "", "DropBench", "All trials of this database", regions)


def suite_address(name: str, variant: str | None = None) -> str:
    """Where the page of a suite is."""
    return f"/suite?{urlencode({'name': name, **({'variant': variant} if variant else {})})}"


def suite_page(live: Live, name: str, key: str | None) -> Page:
    """The page of a suite, of one of its variants.

    Raises:
        Missing: no trial belongs to such a suite, or variant.
    """
    progress = next((one for one in overview.suites(live) if one.name == name and name is not None), None)
    if progress is None:
        raise Missing(name)
    suite, found = live.kept(("variants", name), lambda: variants(name, live.base))
    chosen = next((one for one in found if one.key == key), found[0] if found and key is None else None)
    if key is not None and chosen is None:
        raise Missing(key)
    above = _part("progress", one=progress, variants=found, chosen=chosen, address=suite_address)
    shown = _suite_regions(live, suite, chosen) if suite is not None and chosen is not None else None
    if shown is None or suite is None:
        return Page(name, name, name, "", {"progress": above, "table": _plain(live, name)})
    return Page(f"{name}: {suite.title}", name, suite.title, suite.source, {"progress": above, **shown})


def _suite_regions(live: Live, suite: Any, variant: Variant) -> Mapping[str, str] | None:
    """The regions of a suite's table; None where its task is not known here."""
    active = any(id in live.store.seen for its in variant.trials.values() for _, id in its)

    def make() -> Mapping[str, str] | None:
        try:
            view = with_subsets(view_of(suite, variant, live.store, live.settings), live.runs)
        except InputError:
            return None
        content: Content = contents(view, live.store, live.runs, full=False)
        groups = {group.id: group for group in plot_groups(content.view, live.store, live.runs)}
        regions = {"table": _part("table", table=content.table, rows_left_out=content.rows_left_out)}
        regions |= {f"plot-{id}": _part("plot", group=groups[id]) if id in groups else "" for id in PLOTS}
        return {**regions, "cells": _part("cells", cells=content.cells, lead=content.lead)}

    return live.kept(("suite", suite.name, variant.key), make, seconds=EVERY if active else 0.0)


def _plain(live: Live, name: str) -> str:
    """The results of a suite whose file or task is not here."""
    with_name = [f"suite={name}"]
    rows = [row for row in results(live.base, with_name) if row["suite"] == name]
    above, (header, lines) = listing.results_table(rows)
    return _part("listing", above=above, header=header, rows=lines[:1000], left_out=max(0, len(lines) - 1000))


def trial_page(live: Live, id: str) -> Page:
    """The page of a trial.

    Raises:
        Missing: there is no trial of that whole id.
    """
    activity = live.activity()
    record = records(live.store, live.runs, [id]).get(id)
    if record is None:
        raise Missing(id)
    state, reason = live.store.seen.get(id, (record.state, record.reason))
    working = next((one for one in activity.working if one.id == id), None)
    config = record.config
    label = f"{config['regularizer']['name']} · {config['model']} · {config['data']['name']}, seed {record.seed}"
    seconds = 0.0 if record.state in FINAL_STATES else PACE
    plots = live.kept(("curves", id), lambda: _curves(live, record), seconds=seconds)
    base = _baseline(live, record)
    own = flat(config)
    differing = None if base is None else differences(flat(base), own)
    regions = {
        "trial": _part(
            "trial", record=record, state_name=state, reason=reason, address=suite_address,
            line=None if working is None else overview.line_of(working, ""),
        ),
        "plot-curves": _part("plot", group=plots) if plots.charts else "",
        "run": _part("run", run=trial_run(record, live.runs)),
        "config": _part("config", config=sorted(own.items()), differences=differing),
    }  # fmt: skip
    return Page(f"{id}: {label}", f"trial {id}", label, "", regions)


PACE = 2.0
"""Seconds for which the curves of a running trial stand."""


def _curves(live: Live, record: Record) -> Group:
    found = curves(live.store, live.runs, [record.id], None).get(record.id, {})
    names = sorted(name for name in found if name.startswith("dev/") or name == "train/loss")
    group = Group("curves", "Learning curves", ["What the run has reported so far."])
    for name in names[:6]:
        merged = band([found[name]], 200)
        if merged is not None:
            told = f"{name.replace('/', ' ')} by step"
            group.charts.append(
                Chart(name.replace("/", " "), told, bands(told, [record.id], {0: merged}, "step", name))
            )
            group.rows.append((name, f"{int(merged.steps[-1]):,}", f"{merged.mean[-1]:.4g}"))
    group.header = ("curve", "last step", "last value")
    return group


def _baseline(live: Live, record: Record) -> Mapping[str, Any] | None:
    """The configuration on the same data and model, of the same preset, without a regularizer."""
    config = record.config
    if config["regularizer"]["name"] == "none":
        return None
    query = select(Configs.c.config, Configs.c.overrides).where(
        Configs.c.task == config["task"],
        Configs.c.fingerprint == config["data"]["fingerprint"],
        Configs.c.model == config["model"],
        Configs.c.preset == config["preset"],
        Configs.c.regularizer == "none",
    )
    with reading(live.base.engine) as connection:
        rows = connection.execute(query.limit(50)).all()
    same = [row.config for row in rows if row.overrides == config["overrides"]]
    return next(iter(same), None)


def changed(page: Page, have: str) -> dict[str, Any]:
    """The regions whose digests are not among those that a reader has (``name:digest,…``)."""
    held = dict(one.rpartition(":")[::2] for one in have.split(","))
    return {
        name: {"digest": digest_of(html), "html": html}
        for name, html in page.regions.items()
        if held.get(name) != digest_of(html)
    }


def digest_of(html: str) -> str:
    """A few letters that differ where the HTML does."""
    return hashlib.sha256(html.encode()).hexdigest()[:12]


def _part(name: str, **values: Any) -> str:
    """A macro of the dashboard's template."""
    macro: Callable[..., Any] = getattr(environment().get_template("live.html.j2").module, name)
    return str(macro(**values))
