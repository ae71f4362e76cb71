"""Pages as named regions of HTML; the browser asks repeatedly for the regions that have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import select

from dropbench.db.queries.marks import flatten
from dropbench.db.report.dashboard import overview
from dropbench.db.report.dashboard.live import Live
from dropbench.db.report.page.analyses import ANALYSES
from dropbench.db.report.page.charts import Group, band_chart
from dropbench.db.report.page.details import differences, run_details
from dropbench.db.report.page.document import chart_groups, page_content
from dropbench.db.report.page.limits import Limits
from dropbench.db.report.page.records import Record, load_curves, load_records, merge_seeds
from dropbench.db.report.page.templates import environment
from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.requests import RequestTable, SuiteTable, resolve, tables_of
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Configs
from dropbench.harness.regularizers.spec import spec_label
from dropbench.harness.trials.trial import FINAL_STATES, DataRef

SUITE_CACHE_S = 6.0
"""Lifetime of the table and charts of a suite with running trials."""
TRIAL_CACHE_S = 2.0
"""Lifetime of the curves of a running trial."""
CHARTS = ("over", "metric", "delta", "curves", "compare", "layers", *ANALYSES)
"""Ids of all groups of charts that a suite may have, in order."""


@dataclass(frozen=True)
class Page:
    """A page: its title, its header, and its regions by name."""

    title: str
    kicker: str
    heading: str
    lead: str
    regions: Mapping[str, str]


class NotFound(Exception):
    """The suite or trial does not exist."""


def overview_page(live: Live) -> Page:
    """Return the start page."""
    activity = live.activity()
    latest = live.cached("latest", lambda: overview.latest(live), seconds=2)
    regions = {
        "state": _region("state", status=activity.status),
        "working": _region("working", trials=overview.running_trials(live)),
        "suites": _region("suites", suites=overview.suites(live), address=suite_address),
        "latest": _region("latest", trials=latest),
    }
    return Page("DropBench", "", "DropBench", "All trials of this database", regions)


def suite_address(name: str, request: str | None = None) -> str:
    """Return the address of a suite's page."""
    return f"/suite?{urlencode({'name': name, **({'request': request} if request else {})})}"


def suite_page(live: Live, name: str, key: str | None) -> Page:
    """Return the page of a suite, of one of its tables; raise NotFound if the suite or the table has no trials."""
    progress = next((suite for suite in overview.suites(live) if suite.name == name), None)
    if progress is None:
        raise NotFound(name)
    tables = live.cached(("tables", name), lambda: tables_of(live.base, name))
    selected = next((table for table in tables if key in (table.newest.id, None)), None)
    if selected is None:
        raise NotFound(key or name)
    header = _region("progress", suite=progress, tables=tables, selected=selected, address=suite_address)
    suite = selected.newest.suite
    regions = {"progress": header, **_suite_regions(live, selected)}
    return Page(f"{name}: {suite.title}", name, suite.title, suite.source, regions)


def _suite_regions(live: Live, table: RequestTable) -> Mapping[str, str]:
    """Return the regions of a suite's table."""
    active = not table.trials().isdisjoint(live.store.observed)

    def render() -> Mapping[str, str]:
        shown = SuiteTable(table.requests, resolve(table, live.store))
        content = page_content(build_view(shown, live.store, live.runs), live.store, live.runs, full=False)
        groups = {group.id: group for group in chart_groups(content.view, live.store, live.runs)}
        regions = {"table": _region("table", content=content)}
        regions |= {f"plot-{id}": _region("plot", group=groups[id]) if id in groups else "" for id in CHARTS}
        return {**regions, "cells": _region("cells", content=content)}

    return live.cached(("suite", table.newest.id), render, seconds=SUITE_CACHE_S if active else 0.0)


def trial_page(live: Live, id: str) -> Page:
    """Return the page of a trial; raise NotFound if no trial has this full id."""
    activity = live.activity()
    record = load_records(live.store, live.runs, [id]).get(id)
    if record is None:
        raise NotFound(id)
    state, reason = live.store.observed.get(id, (record.state, record.reason))
    for attempt in record.attempts:
        if attempt["state"] == "running" and id in live.store.observed and state != "running":
            attempt |= {"state": "lost", "cause": reason}  # its worker was killed; `collect` will record that
    running = next((trial for trial in activity.running if trial.id == id), None)
    config = record.config
    regularizer = spec_label(config["regularizer"]["name"], {})
    label = f"{regularizer} · {config['model']} · {config['data']['name']}, seed {record.seed}"
    lifetime = 0.0 if record.state in FINAL_STATES else TRIAL_CACHE_S
    charts = live.cached(("curves", id), lambda: _curves(live, record), seconds=lifetime)
    baseline = _baseline(live, record)
    texts = flatten(config)
    differing = None if baseline is None else differences(flatten(baseline), texts)
    shown = {"record": record, "state_name": state, "reason": reason, "running": running}
    regions = {
        "trial": _region("trial", **shown, address=suite_address),
        "plot-curves": _region("plot", group=charts) if charts.charts else "",
        "run": _region("run", run=run_details(record, live.runs)),
        "config": _region("config", config=sorted(texts.items()), differences=differing),
    }
    return Page(f"{id}: {label}", f"trial {id}", label, "", regions)


def _curves(live: Live, record: Record) -> Group:
    curves = load_curves(live.store, live.runs, [record.id], None).get(record.id, {})
    names = sorted(name for name in curves if name.startswith("dev/") or name == "train/loss")
    group = Group("curves", "Learning curves", ["Values reported by the run so far."])
    for name in names[: Limits.curves]:
        band = merge_seeds([curves[name]], Limits.points)
        if band is not None:
            caption = name.replace("/", " ")
            group.charts.append(band_chart(caption, f"{caption} by step", [record.id], {0: band}, name))
            group.rows.append((name, f"{int(band.steps[-1]):,}", f"{band.mean[-1]:.4g}"))
    group.header = ("curve", "last step", "last value")
    return group


def _baseline(live: Live, record: Record) -> Mapping[str, Any] | None:
    """Return the configuration without a regularizer on the same data, model, preset and overrides."""
    config = record.config
    if config["regularizer"]["name"] == "none":
        return None
    query = select(Configs.c.config, Configs.c.overrides).where(
        Configs.c.task == config["task"],
        Configs.c.fingerprint == DataRef(**config["data"]).fingerprint,
        Configs.c.model == config["model"],
        Configs.c.preset == config["preset"],
        Configs.c.regularizer == "none",
    )
    with reading(live.base.engine) as connection:
        rows = connection.execute(query.limit(50)).all()
    return next((row.config for row in rows if row.overrides == config["overrides"]), None)


def changed_regions(page: Page, have: str) -> dict[str, Any]:
    """Return the regions whose digests are not among those of the browser (``name:digest,…``)."""
    regions = {name: {"digest": digest_of(html), "html": html} for name, html in page.regions.items()}
    digests = dict(region.rpartition(":")[::2] for region in have.split(","))
    return {name: region for name, region in regions.items() if digests.get(name) != region["digest"]}


def digest_of(html: str) -> str:
    """Return a short digest of HTML."""
    return hashlib.sha256(html.encode()).hexdigest()[:12]


def _region(macro: str, **values: Any) -> str:
    """Return the HTML of a macro of the dashboard's template."""
    render: Callable[..., Any] = getattr(environment().get_template("live.html.j2").module, macro)
    return str(render(**values))
