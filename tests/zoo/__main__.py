"""Walks both zoos and writes docs/generated/models.md: `python -m tests.zoo [NAME…]` (about an hour)."""

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
of SDPA, and softmaxes over the last of three or more axes, of a product, whose result multiplies values.
"""


def main(names: list[str]) -> int:
    """Check all models, or those named, and write the page if all were checked; return the number that fail."""
    warnings.simplefilter("ignore")
    failed, sections = 0, []
    types = {name: [name] for name in transformers_models.types()}
    zoos = {"timm": (timm_models, timm_models.families()), "transformers": (transformers_models, types)}
    for title, (zoo, families) in zoos.items():
        lines, outcomes = [], Counter[str]()
        for family, models in families.items():
            if names and family not in names:
                continue
            name = timm_models.smallest(models) if zoo is timm_models else family
            outcome, text = _row(name, zoo.build)
            outcomes[outcome] += 1
            failed += outcome == "fails"
            print(title, family, outcome, text, flush=True)
            if outcome != "no attention":
                lines.append(f"| {family} | {name if name != family else ''} | {outcome} | {text} |")
        counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        table = ["| family | model | outcome | sites |", "| --- | --- | --- | --- |", *lines]
        sections.append(f"\n## {title}\n\n{counts}.\n\n" + "\n".join(table) + "\n")
    if not names:
        PAGE.write_text(HEAD + "".join(sections))
    return failed


def _row(name: str, build: Callable[[str], Any]) -> tuple[str, str]:
    """Return the outcome of one model, and its sites or the error."""
    try:
        model, run = build(name)
    except Exception as error:
        return "not built", " ".join(f"{type(error).__name__}: {error}".split())[:100].replace("|", "/")
    try:
        verdict = check(model, run, ratio=0.5)
    except Exception as error:
        verdict = Verdict(0, problems=[f"{type(error).__name__}: {error}"])
    reasons = [f"{number} skipped: {reason}" for reason, number in verdict.skipped.items()]
    text = "; ".join([f"{verdict.bound} of {verdict.bound + verdict.skipped.total()}", *reasons, *verdict.problems])
    return verdict.outcome, " ".join(text.split())[:300].replace("|", "/")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
