"""`python -m benchmarks [NAME…] [--json] [--write]`."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.attention import attention
from benchmarks.campaign import campaign
from benchmarks.database.queue import queue
from benchmarks.database.tables import tables
from benchmarks.gpu import attention as gpu
from benchmarks.gpu import instructions
from benchmarks.gpu.trials import gpu_trials
from benchmarks.learned_dropout import learned_dropout
from benchmarks.measure import Measurement
from benchmarks.quickstart import quickstart
from benchmarks.startup import startup
from benchmarks.training.class_token import class_token
from benchmarks.training.engine import engine
from benchmarks.training.images import images
from benchmarks.training.memory import memory
from benchmarks.training.peers import peers
from benchmarks.training.regularizers import regularizers
from benchmarks.training.stacked import stacked
from benchmarks.training.steps import steps
from benchmarks.training.translation import translation
from benchmarks.training.volo import volo
from harness.training.environment import processor

BENCHMARKS: dict[str, Callable[[], list[Measurement]]] = {
    "startup": startup,
    "quickstart": quickstart,
    "campaign": campaign,
    "attention": attention,
    "gpu-attention": gpu.gpu_attention,
    "gpu-trials": gpu_trials,
    "gpu-instructions": instructions.gpu_instructions,
    "steps": steps,
    "class-token": class_token,
    "regularizers": regularizers,
    "learned-dropout": learned_dropout,
    "memory": memory,
    "engine": engine,
    "peers": peers,
    "stacked": stacked,
    "translation": translation,
    "images": images,
    "volo": volo,
    "queue": queue,
    "tables": tables,
}
NOTES = {"gpu-attention": gpu.NOTE, "gpu-instructions": instructions.NOTE}
HEAD = """# Benchmarks

`python -m benchmarks [NAME…] --write` runs benchmarks and rewrites their sections. Times are medians of interleaved
runs. The ratio of times is the median of the ratios of the pairs of runs, so it may differ from the quotient of the two
medians. A ratio below 1 means that ours is faster or smaller. Rows with "busy cores" are measured while one more
process per core computes; their limit is 1.2 times the ratio without these. Rows with "AVX2" hold torch, its BLAS and
our kernels at AVX2."""
RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--write", action="store_true", help=f"write their sections of {RESULTS.name}")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"unknown benchmark {unknown[0]}: expected one of {', '.join(BENCHMARKS)}")
    with contextlib.redirect_stdout(sys.stderr):  # what tasks say of their data
        found = {name: BENCHMARKS[name]() for name in arguments.names or BENCHMARKS}
    tables = {name: section(name, measured) for name, measured in found.items()}
    if arguments.write:
        before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
        RESULTS.write_text(page({**sections(before), **tables}), encoding="utf-8")
    everything = [asdict(measured) for some in found.values() for measured in some]
    print(json.dumps(everything, indent=1) if arguments.json else page(tables))


def section(name: str, found: list[Measurement]) -> str:
    """The measurements of one benchmark, and where they were made."""
    lines = [
        f"## {name}",
        "",
        f"{processor()}, Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}.",
        "",
        "| what | against | ratio | limit | ours | peer |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        limit = "" if one.limit is None else f"{one.limit:.4g}"
        sides = f"{one.ours} {one.unit} | {one.peer} {one.unit}"
        lines.append(f"| {one.name} | {one.against} | {one.ratio:.2f} | {limit} | {sides} |")
    skipped = [f"- {one.detail['model']}: {reason}" for one in found for reason in one.detail.get("skipped", ())]
    if skipped:
        lines += ["", "Skipped:", "", *skipped]
    if name in NOTES:
        lines += ["", NOTES[name]]
    return "\n".join(lines)


def sections(text: str) -> dict[str, str]:
    """The sections of a page that was written before, by their benchmark."""
    parts = ("\n" + text).split("\n## ")[1:]
    return {part.split("\n", 1)[0]: f"## {part.strip()}" for part in parts}


def page(tables: Mapping[str, str]) -> str:
    """All sections, in the order of `BENCHMARKS`."""
    return "\n\n".join([HEAD, *(tables[name] for name in BENCHMARKS if name in tables)]) + "\n"


if __name__ == "__main__":
    main()
