"""Run benchmarks: `python -m benchmarks [NAME…] [--json] [--write]`."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name

import torch

from benchmarks.measure import Measurement
from dropbench.harness.training.environment import commit, installed_version, processor

BENCHMARKS = {
    "quickstart": "benchmarks.quickstart:quickstart",
    "attention": "benchmarks.attention:attention",
    "gpu-steps": "benchmarks.gpu.steps:gpu_steps",
    "gpu-attention": "benchmarks.gpu.attention:gpu_attention",
    "gpu-trials": "benchmarks.gpu.trials:gpu_trials",
    "gpu-epoch": "benchmarks.gpu.steps:gpu_epoch",
    "gpu-instructions": "benchmarks.gpu.instructions:gpu_instructions",
    "steps": "benchmarks.training.steps:steps",
    "memory": "benchmarks.training.memory:memory",
    "engine": "benchmarks.training.engine:engine",
    "peers": "benchmarks.training.peers:peers",
    "images": "benchmarks.training.images:images",
    "queue": "benchmarks.database.queue:queue",
    "tables": "benchmarks.database.tables:tables",
    "cluster": "benchmarks.cluster.simulation:cluster",
}
"""Name → module and function. Those for a GPU run where fairseq and mmdet are not installed."""
ON_GPU = "gpu-steps", "gpu-attention", "gpu-trials", "gpu-epoch"
"""Those that need a GPU, the most telling first."""
NOTES = {
    "gpu-attention": "benchmarks.gpu.attention:NOTE", "gpu-trials": "benchmarks.gpu.trials:NOTE",
    "gpu-instructions": "benchmarks.gpu.instructions:NOTE",
}  # fmt: skip
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}, gpu; default: all")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--write", action="store_true", help=f"write their sections of {RESULTS.name}, each at its end")
    parser.add_argument("--resume", action="store_true", help="leave out what was written at this commit")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in (*BENCHMARKS, "gpu")]:
        parser.error(f"unknown benchmark {unknown[0]}: expected one of {', '.join(BENCHMARKS)}, gpu")
    names = [name for given in arguments.names or BENCHMARKS for name in (ON_GPU if given == "gpu" else [given])]
    written = read_sections(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    all_rows, sections = [], {}
    for name in names:
        is_known = commit() is not None and not str(commit()).endswith("-dirty")
        if arguments.resume and is_known and f", at {commit()}." in written.get(name, ""):
            continue
        with contextlib.redirect_stdout(sys.stderr):  # what tasks print about their data
            rows: list[Measurement] = resolve_name(BENCHMARKS[name])()
        all_rows += [asdict(row) for row in rows]
        sections[name] = section(name, rows)
        if arguments.write:
            RESULTS.write_text(page({**written, **sections}), encoding="utf-8")
    print(json.dumps(all_rows, indent=1) if arguments.json else page(sections))


def section(name: str, rows: list[Measurement]) -> str:
    """Return the section of a benchmark: its measurements, with their processor, date and commit."""
    lines = [
        f"## {name}",
        "",
        f"{gpu_machine() if name in ON_GPU else processor()}, Python {platform.python_version()}, "
        f"{datetime.now(UTC):%Y-%m-%d}, at {commit()}.",
        "",
        "| what | against | ratio | limit | ours | peer |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:.4g}"
        sides = f"{row.ours} {row.unit} | {row.peer} {row.unit}"
        lines.append(f"| {row.name} | {row.against} | {row.ratio:.2f} | {limit} | {sides} |")
    if name in NOTES:
        lines += ["", resolve_name(NOTES[name])]
    return "\n".join(lines)


def gpu_machine() -> str:
    """Return the names and versions that the time of a kernel depends on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = f"torch {torch.__version__} (CUDA {torch.version.cuda}), Triton {installed_version('triton')}"
    return f"{gpu}, {processor()}, {versions}"


def read_sections(text: str) -> dict[str, str]:
    """Return the sections of a page that was written before, by benchmark."""
    parts = ("\n" + text).split("\n## ")[1:]
    return {part.split("\n", 1)[0]: f"## {part.strip()}" for part in parts}


def page(sections: Mapping[str, str]) -> str:
    """Return the page with all sections, in the order of `BENCHMARKS`."""
    return "\n\n".join([HEAD, *(sections[name] for name in BENCHMARKS if name in sections)]) + "\n"


if __name__ == "__main__":
    main()
