"""Results in the documentation: each is printed by a command, and names the commit and the processor that it is of."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from docs.update_results import BLOCK, update
from dropbench.harness.attention.reference.drop_masks import start_prob
from tests.paths import DOCS, ROOT

PAGES = [ROOT / "README.md", *sorted(set(DOCS.rglob("*.md")) - {DOCS / "generated" / "leaderboard.md"})]
"""Without the leaderboard, which follows from a file (`test_leaderboard.py`)."""
EXAMPLES = ("88.40 ± 0.31",)
"""Numbers that show the form of a result."""


def test_each_result_has_its_command_commit_and_processor() -> None:
    blocks = [(page, block) for page in PAGES for block in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    assert "README.md" in {page.name for page, _ in blocks}
    for _, block in blocks:
        origin = rf"`dropbench {re.escape(block[2])}` at commit `[0-9a-f]{{7,}}` on [^\n]+:\n\n```\n"
        assert re.search(origin, block[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_result_is_without_a_command(page: Path) -> None:
    rest = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for example in EXAMPLES:
        rest = rest.replace(example, "")
    assert not re.findall(r"[\d.]+ ± [\d.]+", rest)
    assert not re.search(r"^<!-- (?:results of|end of results)", rest, re.MULTILINE)


@pytest.mark.slow
def test_results_are_replaced_by_what_the_command_prints(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = "run quickstart --regularizer none --seeds 1 --set steps=1 --set model.depth=1"
    page.write_text(f"a\n<!-- results of: dropbench {command} -->\nold\n<!-- end of results -->\nb\n")
    update([page])
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"a\n<!-- results of: dropbench {command} -->\n`dropbench {command}` at commit `")
    assert "old" not in text
    assert "\n```\nquickstart: Four regularizers" in text
    assert text.endswith("\n```\n<!-- end of results -->\nb\n")


def shares(unit: str, window: int, width: int) -> tuple[float, list[float]]:
    """Return γ at ratio 0.3 and the probability that each key is dropped, counted start by start.

    Sequences have `width` keys, the grids of blocks and crosses `width` rows and columns.
    """
    if unit == "element":
        gamma = start_prob("element", 0.3, window)
        covered = [set(range(start, min(start + window, width))) for start in range(width)]
        keys = range(width)
    else:
        gamma = start_prob("block" if unit == "block" else "cross", 0.3, window, (width, width))
        keys = range(width * width)
        covered = []
        for start in keys:
            top, left = divmod(start, width)
            if max(top, left) <= width - window:
                near = [(0 <= key // width - top < window, 0 <= key % width - left < window) for key in keys]
                covered.append({key for key in keys if (all if unit == "block" else any)(near[key])})
    return gamma, [1 - (1 - gamma) ** sum(key in dropped for dropped in covered) for key in keys]


def test_the_shares_of_dropped_keys_are_exact() -> None:
    text = (DOCS / "regularizers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`, [ws] = (\d)(?:, (\d+)[^|]*)? \| ([\d.| ]+) \|$", text, re.MULTILINE)
    assert len(rows) == 7
    for unit, window, width, printed in rows:
        gamma, probabilities = shares(unit, int(window), int(width or 50))
        values = (gamma, math.fsum(probabilities) / len(probabilities), min(probabilities), max(probabilities))
        assert [f"{value:.4f}" for value in values] == printed.split(" | ")
