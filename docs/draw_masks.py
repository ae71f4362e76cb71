"""Draw ``masks.png`` for `regularizers.md` with the regularizers' own code: `python docs/draw_masks.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from torch import Tensor

from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.drop import AttentionDrop
from dropbench.harness.regularizers.spec import build_regularizer

LENGTH, SIDE, WIDTH, RATIO = 16, 8, 24, 0.3
GRID_UNITS = ("block", "cross")
KEPT_AND_DROPPED = ListedColormap(["#f3d37a", "#3b6ea5"])


def draw(path: Path) -> None:
    """Draw attention matrices (top), key grids of one query (bottom) and Learned Dropout (right)."""
    figure, axes = plt.subplots(2, 4, figsize=(12, 6.6), layout="constrained")
    top = (("dropkey, dropout", "dropkey", 1), ("dropattention-e, w=3", "dropattention-e", 3),
             ("dropattention-c, w=2", "dropattention-c", 2))  # fmt: skip
    for axis, (title, name, window) in zip(axes[0], top, strict=False):
        mask = typical_drop_mask(name, window, LENGTH, None).expand(1, 1, LENGTH, LENGTH)[0, 0]
        show(axis, title, mask, "key", "query")
    bottom = (("dropkey, one query", "dropkey", 1), ("dropkey-block, s=3, one query", "dropkey-block", 3),
             ("dropkey-cross, s=1, one query", "dropkey-cross", 1))  # fmt: skip
    for axis, (title, name, window) in zip(axes[1], bottom, strict=False):
        mask = typical_drop_mask(name, window, 1, (SIDE, SIDE))[0, 0, 0].view(SIDE, SIDE)
        show(axis, title, mask, "column of the key grid", "row of the key grid")
    for axis, (title, shift) in zip(axes[:, 3], (("B = π/2", torch.pi / 2), ("B = π", torch.pi)), strict=True):
        show(axis, f"learned-dropout at first, {title}", learned(shift), "channel", "token")
    figure.suptitle(f"Kept (yellow) and dropped (blue), ratio {RATIO}")
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)


def typical_drop_mask(name: str, window: int | None, queries: int, grid: tuple[int, int] | None) -> Tensor:
    """Return the drop mask (1, 1, queries or 1, keys) of the first seed that drops about the ratio."""
    regularizer = build_regularizer(name, ratio=RATIO, **({"window": window} if window else {}))
    assert isinstance(regularizer, AttentionDrop)
    site = Site("picture", "encoder-self", 0, 1, 1, grid=grid, ratio=RATIO)
    keys = grid[0] * grid[1] if grid else LENGTH
    for seed in range(1000):
        torch.manual_seed(seed)
        mask = regularizer.sample_drop_mask((1, 1, queries, keys), site, torch.device("cpu"))
        if abs(float(mask.double().mean()) - RATIO) < 0.05:
            return mask
    raise RuntimeError(f"{name}: no typical mask in 1000")


def learned(shift: float) -> Tensor:
    """Return the drop mask (tokens, channels) of an untrained Learned Dropout in training mode."""
    torch.manual_seed(0)
    regularizer = build_regularizer("learned-dropout", shift_init=shift)
    module = regularizer.site_module(Site("picture", "feed-forward", 0, 1, 4, width=WIDTH))
    assert module is not None
    with torch.no_grad():
        out: Tensor = module(torch.randn(1, LENGTH, WIDTH), training=True, causal=True)
    return out[0] == 0


def show(axis: Axes, title: str, mask: Tensor, across: str, down: str) -> None:
    """Draw one panel."""
    axis.imshow(mask.int(), cmap=KEPT_AND_DROPPED, vmin=0, vmax=1, aspect="auto")
    axis.set(title=title, xlabel=across, ylabel=down)
    rows, columns = mask.shape
    axis.set_xticks([column - 0.5 for column in range(1, columns)], labels=[])
    axis.set_yticks([row - 0.5 for row in range(1, rows)], labels=[])
    axis.grid(color="white", linewidth=0.8)
    axis.tick_params(length=0)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "masks.png")
