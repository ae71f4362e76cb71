"""`python -m benchmarks.cluster [--trials 1000000] [--nodes 1000] [--every 4]`."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cluster.simulation import EVERY, HOUR, run


def main() -> None:
    """Run a campaign in a temporary folder, and print what it took."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description="Simulate a campaign on a SLURM cluster and report its cost."
    )
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--every", type=float, default=EVERY / HOUR, metavar="HOURS", help="of the cluster, between calls"
    )
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        report = run(Path(folder), arguments.trials, arguments.nodes, HOUR * arguments.every, progress=True)
        print("\n".join(report.lines()))


if __name__ == "__main__":
    main()
