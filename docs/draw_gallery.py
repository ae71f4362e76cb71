"""Write ``gallery.md`` and its pictures from the registry of regularizers: `python docs/draw_gallery.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib import pyplot as plt
from torch import pi

from docs.draw_masks import GRID_UNITS, LENGTH, RATIO, SIDE, learned, show, typical_drop_mask
from harness.regularizers import REGULARIZERS
from harness.regularizers.base import Regularizer
from harness.regularizers.drop import AttentionDrop, UnitDrop
from harness.regularizers.learned_dropout.regularizer import LearnedDropout
from harness.regularizers.spec import build_regularizer, parameters
from harness.suites.cell import SuiteOptions
from harness.suites.suite import load_suite, suite_names

INTRODUCTION = """# Gallery of regularizers

<!-- Written by docs/draw_gallery.py from the registry. -->

Every registered regularizer: the units it drops (blue) and keeps (yellow), its formula, its source and one line to use
it. [regularizers.md](regularizers.md) has the definitions and all details.

For key j of query i, λ_j is the attention weight, λ'_j the regularized weight in training, and m_ij is 1 if the key is
kept and 0 if it is dropped. p is the drop ratio, and w or s is the window. b_ij is 1 if a window starts at the key,
which happens with probability γ, independently of other keys. In a grid of n_h × n_w keys, j is the row and column
(y, x). `learned-dropout` multiplies an output X by a mask with one learned shift B per channel, in evaluation, too. The
others do not change λ in evaluation.

`dropbench run SUITE` trains a suite, and `dropbench report SUITE` prints its results next to the published ones.
"""
PAPERS = {
    "DropKey": "https://arxiv.org/abs/2208.02646",
    "DropAttention": "https://arxiv.org/abs/1907.11065",
    "Vaswani et al. 2017": "https://arxiv.org/abs/1706.03762",
    "Yan 2024": "https://github.com/yiphei/yif-AI/tree/main/learned_dropout",
}
KEPT = {
    "element": r"m_{ij} = \prod_{u=0}^{w-1} (1 - b_{i,j-u}) \qquad \gamma = \frac{p}{w}",
    "column": r"m_{j} = \prod_{u=0}^{w-1} (1 - b_{j-u}) \qquad \gamma = \frac{p}{w}",
    "block": r"m_{i,(y,x)} = \prod_{u=0}^{s-1} \prod_{v=0}^{s-1} (1 - b_{i,(y-u,x-v)}) \qquad "
    r"\gamma = \frac{p}{s^2} \cdot \frac{n_h n_w}{(n_h - s + 1)(n_w - s + 1)}",
    "cross": r"m_{i,(y,x)} = \prod_{u=0}^{s-1} \prod_{v} (1 - b_{i,(y-u,v)}) (1 - b_{i,(v,x-u)}) \qquad "
    r"\gamma = \frac{p}{s (n_h + n_w - s)} \cdot \frac{n_h n_w}{(n_h - s + 1)(n_w - s + 1)}",
}
"""Unit → which keys are kept: query i, key j, or the key in row y and column x of an n_h × n_w grid."""
WEIGHTS = {
    "renormalize": r"\lambda'_j = \frac{m_j \lambda_j}{\sum_k m_k \lambda_k}",
    "inverse": r"\lambda'_j = \frac{m_j \lambda_j}{1 - p}",
    "detached": r"\lambda'_j = \frac{m_j \lambda_j}{\mathrm{sg}(\sum_k m_k \lambda_k)}",
}
LEARNED = (
    r"X' = X \odot \mathrm{round}(M) \qquad "
    r"M = \frac{1}{2} \cos(\mathrm{Attention}(X W_Q, X W_K, X W_V) + B) + \frac{1}{2}"
)
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
    return "\n".join([INTRODUCTION, *map(section, REGULARIZERS)])


def section(name: str) -> str:
    """Return the part of the page on one regularizer."""
    built = build_regularizer(name)
    source = REGULARIZERS.entry(name).help
    for paper, address in PAPERS.items():
        source = source.replace(f"({paper}", f"([{paper}]({address})")
    lines = [f"## {name}\n", f"{source[0].upper()}{source[1:]}.\n"]
    if caption := described(name, built):
        lines.append(f"![{caption}](images/regularizers/{name}.png)\n")
    lines += [f"```math\n{formula}\n```\n" for formula in formulas(built)]
    if name != "none":
        spec = ",".join(f"{key}={value}" for key, value in options(name).items())
        call = ", ".join([f'"{name}"', *(f"{key}={json.dumps(value)}" for key, value in options(name).items())])
        lines += [
            f"- in Python: `regularize(model, {call})`",
            f"- on the command line: `--regularizer {name}:{spec}`\n",
        ]
    if name != "none" and (suites := suites_of(name)):
        lines.append(f"Suites: {', '.join(suites)}.\n")
    return "\n".join(lines)


def options(name: str) -> dict[str, object]:
    """Return the parameters of the examples."""
    if "ratio" not in parameters(name):
        return {"where": "attention"}
    return {"ratio": RATIO, **({"window": WINDOWS[name]} if name in WINDOWS else {})}


def described(name: str, regularizer: Regularizer) -> str | None:
    """Return the caption of a regularizer's picture; None without one."""
    if isinstance(regularizer, LearnedDropout):
        return "Kept and dropped channels of each token before training, B = π/2"
    if not isinstance(regularizer, AttentionDrop):
        return None
    unit, window = getattr(regularizer, "unit", None), WINDOWS.get(name, getattr(regularizer, "window", None))
    keys = f"keys of one query, on a grid of {SIDE} × {SIDE}" if unit in GRID_UNITS else "keys of each query"
    return f"Kept and dropped {keys}, ratio {RATIO}" + (f", window {window}" if window else "")


def formulas(regularizer: Regularizer) -> list[str]:
    """Return which keys are kept and the weights that follow; none for an unknown kind."""
    if isinstance(regularizer, UnitDrop):
        return [KEPT[regularizer.unit], WEIGHTS[regularizer.rescale]]
    if isinstance(regularizer, AttentionDrop):
        return [WEIGHTS[regularizer.rescale]]
    return [LEARNED] if isinstance(regularizer, LearnedDropout) else []


def suites_of(name: str) -> list[str]:
    """Return the suites with a row of a regularizer; DropKey's tables name structured ones by their unit."""
    suites = []
    for suite in suite_names():
        requests = [cell.request for cell in load_suite(suite).cells(SuiteOptions())]
        names = {f"{request.regularizer}-{request.params.get('unit', '')}".strip("-") for request in requests}
        if name in names:
            suites.append(f"[`{suite}`](../README.md#what-it-prints)" if suite == "quickstart" else f"`{suite}`")
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
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
