"""Walks both zoos and writes docs/generated/models.md: `python -m tests.zoo [NAME…]` (ten minutes)."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dropbench.adapters import compat

compat.install()

from tests.zoo import timm_models, transformers_models  # noqa: E402
from tests.zoo.checking import Verdict, check  # noqa: E402

PAGE = Path("docs/generated/models.md")
HEAD = """# Models that `regularize` reaches

`make zoo` writes this page. It walks timm (the smallest model of each file that has attention) and transformers (a tiny
model of each type that one rule can build and run), with random weights, and checks each with `dropkey:ratio=0.5`:
evaluation is bit-identical, the keys of the state dict are the same, gradients are finite, each site alone changes the
output of its module in training, and the report names every module that attends. What attends is counted apart: calls
of SDPA, and softmaxes over the last of three or more axes whose result multiplies values.

| outcome | meaning |
| --- | --- |
| holds | all of the above does |
| fails | something does not; the last column says what |
| refused | attention over tokens, of which nothing is regularized |
| other attention | none of it is over tokens with a softmax over keys |
| no attention | not listed |
| not built | the model does not fit the rule, or its inputs |
"""


Row = tuple[str, str, str, str]
"""A family, its model, the outcome, and sites or an error."""


def main(names: list[str]) -> int:
    """Check all models, or those named, and write the page if all were checked; return the number that fail."""
    warnings.simplefilter("ignore")
    types = {name: [name] for name in transformers_models.types()}
    zoos = {"timm": (timm_models, timm_models.families()), "transformers": (transformers_models, types)}
    rows: dict[str, list[Row]] = {}
    for title, (zoo, families) in zoos.items():
        rows[title] = []
        for family, models in families.items():
            if not names or family in names:
                name = timm_models.smallest(models) if zoo is timm_models else family
                rows[title].append((family, name, *_row(name, zoo.build)))
                print(title, *rows[title][-1], flush=True)
    if not names:
        PAGE.write_text(page(rows), encoding="utf-8")
    return sum(row[2] == "fails" for part in rows.values() for row in part)


def page(rows: dict[str, list[Row]]) -> str:
    """Return the page for the rows of each zoo; models without attention are only counted."""
    sections = []
    for title, part in rows.items():
        counts = Counter(outcome for _, _, outcome, _ in part)
        text = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
        lines = ["| family | model | outcome | sites |", "| --- | --- | --- | --- |"] + [
            f"| {family} | {name if name != family else ''} | {outcome} | {sites} |"
            for family, name, outcome, sites in part if outcome != "no attention"
        ]  # fmt: skip
        sections.append(f"\n## {title}\n\n{text}.\n\n" + "\n".join(lines) + "\n")
    return HEAD + "".join(sections)


def _row(name: str, build: Callable[[str], Any]) -> tuple[str, str]:
    """Return the outcome of one model, and its sites or the error."""
    try:
        model, run = build(name)
    except Exception as error:
        return "not built", " ".join(f"{type(error).__name__}: {error}".split())[:100].replace("|", "/")
    try:
        verdict = check(model, run)
    except Exception as error:
        verdict = Verdict(0, problems=[f"{type(error).__name__}: {error}"])
    reasons = [f"{number} skipped: {reason}" for reason, number in verdict.skipped.items()]
    text = "; ".join([f"{verdict.bound} of {verdict.bound + verdict.skipped.total()}", *reasons, *verdict.problems])
    return verdict.outcome, " ".join(text.split())[:300].replace("|", "/")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
