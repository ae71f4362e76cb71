"""Write ``generated/gallery.md`` and its pictures from the cards: `python docs/draw_gallery.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib import pyplot as plt
from torch import pi

from docs.draw_masks import GRID_UNITS, LENGTH, RATIO, SIDE, learned, show, typical_drop_mask
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.base import Regularizer
from dropbench.harness.regularizers.cards import Card, find_card
from dropbench.harness.regularizers.drop import AttentionDrop
from dropbench.harness.regularizers.learned_dropout.regularizer import LearnedDropout
from dropbench.harness.regularizers.spec import build_regularizer
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite, suite_names
from dropbench.harness.trials.recipe import default_preset

INTRODUCTION = """# Gallery of regularizers

<!-- Written by docs/draw_gallery.py from the cards in harness/regularizers/cards/. -->

Every registered regularizer: what it acts on, its formula, source, cost and published figures, and one line to use it
with the source's values. For those that drop keys or channels, a picture shows what is dropped (blue) and kept
(yellow). [choose.md](../choose.md) says which to try, and [regularizers.md](../regularizers.md) has all definitions and
parameters. `dropbench list regularizers NAME` prints a section of this page.

For key j of query i, λ_j is the attention weight, λ'_j the regularized weight in training, and m_ij is 1 if the key is
kept and 0 if it is dropped. p is the drop ratio, and w or s is the window. b_ij is 1 if a window starts at the key,
which happens with probability γ, independently of other keys. In a grid of n_h × n_w keys, j is the row and column
(y, x). `learned-dropout` multiplies an output X by a mask with one learned shift B per channel, in evaluation, too.

Published figures are those of the cited papers. They come from different models and recipes, so compare them within a
paper only. "Claim" marks a statement of an abstract. `dropbench run SUITE` trains a suite, and `dropbench report SUITE`
prints its results next to the published ones. All regularizers are in the suites `field/text`, `field/labelling`,
`field/translation`, `field/vision` and `field/language`; the lists below leave these out.

## What acts where

"Passes" are forward passes per step. A published figure comes from the source's own setting: it says where to try a
method, not that the method is better than another one. `–` means that no figure was verified.
"""
WINDOWS = {"dropattention-c": 2, "dropattention-e": 3}
"""Regularizers that are drawn with a window other than their default."""


def write(folder: Path) -> None:
    """Write the page and the pictures."""
    pictures = folder / "images" / "regularizers"
    pictures.mkdir(parents=True, exist_ok=True)
    for name in REGULARIZERS:
        draw(name, pictures / f"{name}.png")
    (folder / "gallery.md").write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    return "\n".join([INTRODUCTION, *table(), "", *map(section, REGULARIZERS)])


def table() -> list[str]:
    """Return the lines of the table of all cards."""
    lines = [
        "| name | acts on | passes | additional memory | first published figure | unsuitable for |",
        "| --- " * 6 + "|",
    ]
    for name in REGULARIZERS:
        if (card := find_card(name)) and name != "none":
            help, unsuitable = next(iter(card.published), "–"), "; ".join(card.unsuitable) or "–"
            cells = (f"[`{name}`](#{name})", card.acts_on, str(card.passes), card.memory, help, unsuitable)
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return lines


def section(name: str) -> str:
    """Return the part of the page on one regularizer."""
    card, title = find_card(name), REGULARIZERS.entry(name).help
    lines = [f"## {name}\n", f"{title[0].upper()}{title[1:]}.\n"]
    if caption := described(name, build_regularizer(name)):
        lines.append(f"![{caption}](images/regularizers/{name}.png)\n")
    if card:
        lines += [f"```math\n{card.formula}\n```\n", *facts(name, card), ""]
    if name != "none" and (suites := suites_of(name)):
        lines.append(f"Suites: {', '.join(suites)}.\n")
    return "\n".join(lines)


def facts(name: str, card: Card) -> list[str]:
    """Return a card's facts as a list."""
    passes = f"{card.passes} forward pass{'es' if card.passes > 1 else ''} per step"
    lines = [
        f"- source: [{card.source}]({card.url})",
        f"- acts on: {card.acts_on}",
        f"- cost: {passes}; additional memory: {card.memory}",
    ]
    if parts := REGULARIZERS.entry(name).facts.get("parts"):
        lines.append(f"- composition: `{parts}`")
    if name != "none":
        values = {key: json.dumps(each) if isinstance(each, str) else repr(each) for key, each in card.defaults.items()}
        call = ", ".join([f'"{name}"', *(f"{key}={text}" for key, text in values.items())])
        loss = build_regularizer(name).has_objective
        own_loop = ", and [`training_loss`](../your-model.md#a-training-loop-of-your-own) in your loop" if loss else ""
        lines += [
            f"- in Python: `regularize(model, {call})`{own_loop}",
            f"- on the command line: `--regularizer {card.spec(name)}`",
        ]
    for kind, texts in {
        "published": card.published,
        "left open by the source": card.open,
        "unsuitable for": card.unsuitable,
    }.items():
        lines += [f"- {kind}:" if texts else "", *(f"  - {text}" for text in texts)]
    return [line for line in lines if line]


def described(name: str, regularizer: Regularizer) -> str | None:
    """Return the caption of a regularizer's picture; None without one."""
    if isinstance(regularizer, LearnedDropout):
        return "Kept and dropped channels of each token before training, B = π/2"
    if not isinstance(regularizer, AttentionDrop):
        return None
    unit, window = getattr(regularizer, "unit", None), WINDOWS.get(name, getattr(regularizer, "window", None))
    keys = f"keys of one query, on a grid of {SIDE} × {SIDE}" if unit in GRID_UNITS else "keys of each query"
    return f"Kept and dropped {keys}, ratio {RATIO}" + (f", window {window}" if window else "")


def suites_of(name: str) -> list[str]:
    """Return the suites with a row of a regularizer; DropKey's tables name structured ones by their unit."""
    suites = []
    for suite in (suite for suite in suite_names() if not suite.startswith(("field/", "finetuning/"))):
        table = load_suite(suite)
        options = SuiteOptions(preset=default_preset(table.presets))
        requests = [cell.request for cell in table.cells(options)]
        names = {f"{request.regularizer}-{request.params.get('unit', '')}".strip("-") for request in requests}
        if name in names:
            suites.append(f"[`{suite}`](../../README.md#what-it-prints)" if suite == "quickstart" else f"`{suite}`")
    return suites


def draw(name: str, path: Path) -> None:
    """Draw a regularizer's mask, unless it has none."""
    regularizer = build_regularizer(name)
    if not described(name, regularizer):
        return
    figure, axis = plt.subplots(figsize=(3.2, 3.2), layout="constrained")
    if not isinstance(regularizer, AttentionDrop):
        show(axis, name, learned(pi / 2), "channel", "token")
    elif getattr(regularizer, "unit", None) in GRID_UNITS:
        mask = typical_drop_mask(name, None, 1, (SIDE, SIDE))[0, 0, 0].view(SIDE, SIDE)
        show(axis, name, mask, "column of the key grid", "row of the key grid")
    else:
        mask = typical_drop_mask(name, WINDOWS.get(name), LENGTH, None).expand(1, 1, LENGTH, LENGTH)[0, 0]
        show(axis, name, mask, "key", "query")
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "generated")
