"""Run benchmarks: `python -m benchmarks [NAME…] [--json] [--write]`."""

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
from benchmarks.cluster.simulation import cluster
from benchmarks.database.queue import queue
from benchmarks.database.tables import tables
from benchmarks.gpu import attention as gpu
from benchmarks.gpu import instructions
from benchmarks.measure import Measurement
from benchmarks.quickstart import quickstart
from benchmarks.training.engine import engine
from benchmarks.training.images import images
from benchmarks.training.memory import memory
from benchmarks.training.peers import peers
from benchmarks.training.steps import steps
from dropbench.harness.training.environment import commit, processor

BENCHMARKS: dict[str, Callable[[], list[Measurement]]] = {
    "quickstart": quickstart,
    "attention": attention,
    "gpu-attention": gpu.gpu_attention,
    "gpu-instructions": instructions.gpu_instructions,
    "steps": steps,
    "memory": memory,
    "engine": engine,
    "peers": peers,
    "images": images,
    "queue": queue,
    "tables": tables,
    "cluster": cluster,
}
NOTES = {"gpu-attention": gpu.NOTE, "gpu-instructions": instructions.NOTE}
HEAD = """# Benchmarks

`python -m benchmarks [NAME…] --write` runs benchmarks and rewrites their sections. Times are medians of interleaved
runs. The ratio of times is the median of the ratios of the pairs of runs, so it may differ from the quotient of the two
medians. A ratio below 1 means that ours is faster or smaller. A row without a limit only reports its ratio. Rows with
"busy cores" are measured while one more process per core computes; their limit is 1.2 times the ratio without these.
Rows with "AVX2" hold torch, its BLAS and our kernels at AVX2. Torch computes products on both sides; with bf16, both
sides have mixed precision."""
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
    with contextlib.redirect_stdout(sys.stderr):  # what tasks print about their data
        measured = {name: BENCHMARKS[name]() for name in arguments.names or BENCHMARKS}
    sections = {name: section(name, rows) for name, rows in measured.items()}
    if arguments.write:
        before = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
        RESULTS.write_text(page({**read_sections(before), **sections}), encoding="utf-8")
    all_rows = [asdict(row) for rows in measured.values() for row in rows]
    print(json.dumps(all_rows, indent=1) if arguments.json else page(sections))


def section(name: str, rows: list[Measurement]) -> str:
    """Return the section of a benchmark: its measurements, with their processor, date and commit."""
    lines = [
        f"## {name}",
        "",
        f"{processor()}, Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}, at {commit()}.",
        "",
        "| what | against | ratio | limit | ours | peer |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:.4g}"
        sides = f"{row.ours} {row.unit} | {row.peer} {row.unit}"
        lines.append(f"| {row.name} | {row.against} | {row.ratio:.2f} | {limit} | {sides} |")
    if name in NOTES:
        lines += ["", NOTES[name]]
    return "\n".join(lines)


def read_sections(text: str) -> dict[str, str]:
    """Return the sections of a page that was written before, by benchmark."""
    parts = ("\n" + text).split("\n## ")[1:]
    return {part.split("\n", 1)[0]: f"## {part.strip()}" for part in parts}


def page(sections: Mapping[str, str]) -> str:
    """Return the page with all sections, in the order of `BENCHMARKS`."""
    return "\n\n".join([HEAD, *(sections[name] for name in BENCHMARKS if name in sections)]) + "\n"


if __name__ == "__main__":
    main()
