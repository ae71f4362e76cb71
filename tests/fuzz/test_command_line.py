"""Hostile arguments, options, filters, settings and database URLs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.hostile import TEXTS, call, texts

KEYS = (
    "state", "suite", "seed", "task", "data", "model", "regularizer", "ratio", "lr", "accuracy", "dev/accuracy", "x"
)  # fmt: skip
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "~")
LISTS = (
    "ratio=", "window=", "set.lr=", "schedule=", "sampler=", "candidates=", "lr=", "model.", "tiny=", "trec=",
    "dropkey:",
)  # fmt: skip
OPTIONS = {
    "report": (
        "--preset", "--seeds", "--data", "--model", "--regularizer", "--set", "--weights", "--sweep", "--search"
    ),
    "results": ("--group-by", "--aggregate", "--metric", "--curve", "--every", "--sort", "--limit"),
    "status": ("--usage",),
    "list": ("--regularizer",),
    "analyze": ("--split", "--samples", "--device", "--preset", "--model"),
    "gc": ("--older-than",),
    "logs": (),
    "compare": ("--metric", "--by", "--examples", "--limit"),
}  # fmt: skip
FIRST = {
    "report": ["tiny.yaml"], "list": ["models"], "analyze": ["tiny.yaml"], "compare": ["--rank"], "gc": ["--dry-run"]
}  # fmt: skip
SETTINGS = ("DATA", "RUNS", "PLUGINS", "NUM_WORKERS", "BACKEND", "TRACKERS")
READING = (
    ["status"], ["results"], ["report", "tiny.yaml"], ["list", "data"], ["compare", "--rank"], ["gc", "--dry-run"]
)  # fmt: skip
SCHEMES = ("sqlite", "sqlite+pysqlite", "postgresql+psycopg", "mysql", "x", "")
SERVERS = ("//", "///", "//127.0.0.1:1/", "//u:p@127.0.0.1:1/", "//127.0.0.1:x/", "//127.0.0.1:99999/", "//[::1/", ":")
INSIDE = [text for text in TEXTS if "/" not in text]
"""Texts that are no path out of the working folder."""

fuzzed = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], print_blob=False)
pytestmark = pytest.mark.slow

words = texts | st.builds("".join, st.tuples(st.sampled_from(KEYS), st.sampled_from(COMPARISONS), texts))
assignments = texts | st.builds("".join, st.tuples(st.sampled_from(LISTS), texts))


@fuzzed
@given(command=st.sampled_from(["results", "compare"]), filters=st.lists(words, min_size=1, max_size=3))
def test_filters(campaign: Path, command: str, filters: list[str]) -> None:
    call(command, "--", *filters)


@fuzzed
@given(draw=st.data(), command=st.sampled_from(list(OPTIONS)))
def test_options(campaign: Path, draw: st.DataObject, command: str) -> None:
    options: list[str] = []
    if OPTIONS[command]:
        for option in draw.draw(st.lists(st.sampled_from(OPTIONS[command]), min_size=1, max_size=2)):
            options.append(f"{option}={draw.draw(assignments)}")
    else:
        options += ["--", *draw.draw(st.lists(texts, min_size=1, max_size=2))]
    call(command, *FIRST.get(command, ()), *options)


@fuzzed
@given(name=st.sampled_from(SETTINGS), value=texts, command=st.sampled_from(READING))
def test_settings(campaign: Path, name: str, value: str, command: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"DROPBENCH_{name}", value)
        call(*command)


@pytest.mark.filterwarnings("ignore:Query string argument")
@fuzzed
@given(
    scheme=st.sampled_from(SCHEMES),
    server=st.sampled_from(SERVERS),
    name=st.sampled_from(INSIDE),
    query=st.sampled_from(["", "?timeout=x", "?mode=ro", "?x=1", "?", "?uri=true&mode=x", "?connect_timeout=x"]),
    command=st.sampled_from([["status"], ["results"], ["db", "rebuild"], ["db", "import"]]),
)
def test_urls(campaign: Path, scheme: str, server: str, name: str, query: str, command: list[str]) -> None:
    url = f"{scheme}:{server}{name}{query}"
    with pytest.MonkeyPatch.context() as patch:
        if command == ["db", "import"]:
            patch.setenv("DROPBENCH_DB", "sqlite:///target.db")
            call(*command, "--", url)
        else:
            patch.setenv("DROPBENCH_DB", url)
            call(*command)
