"""Weights for METRO: from the authors' repository, from ours, or of a backbone alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from torch import Tensor

from adapters.metro import POSITIONS, Metro, Stage
from adapters.weights import give, read_state
from harness.optimization import BACKBONE

WORDS, SEGMENTS = 30_522, 2
"""Of BERT's embeddings, which the authors' code makes for every block."""
UNUSED = re.compile(r"trans_encoder\.\d+\.bert\.(embeddings|pooler)\.|backbone\.(fc|classifier)\.")
RESNET = {"0": "conv1", "1": "bn1", **{str(stage + 3): f"layer{stage}" for stage in range(1, 5)}}
"""The authors' ResNet is torchvision's as a row of modules without names."""


def unused_parameters(model: Metro) -> dict[str, int]:
    """What the authors' Transformer has beside ours, by its part: it is in their count, and never computed with."""
    widths = [cast(Stage, stage).cls_head.in_features for stage in model.trans_encoder]
    return {
        "bert.embeddings": sum((WORDS + POSITIONS + SEGMENTS + 2) * width for width in widths),
        "bert.pooler": sum(width * width + width for width in widths),
    }


def load_metro_weights(model: Metro, path: Path) -> str:
    """Give a model the weights of a file.

    Args:
        model: as `build_metro` makes it, not regularised.
        path: a METRO's state as the authors publish it (`metro_3dpw_state_dict.bin`) or as ours, or the state of a
            backbone alone as torchvision, timm or the authors of HRNet publish it.

    Returns:
        what was done, in one line.

    Raises:
        InputError: there is no such file, it holds more than tensors and numbers, or they are not the model's.
    """
    state, _ = read_state(path)
    alone = "conv1.weight" in state
    if alone:
        state = {f"{BACKBONE}{name}": value for name, value in state.items()}
    given = {_own_name(name): value for name, value in state.items() if not UNUSED.match(name)}
    give(model, given, path, BACKBONE if alone else "")
    return f"{'backbone' if alone else 'weights'} of {path.name}" + _left_out(state)


def _own_name(name: str) -> str:
    found = re.match(r"backbone\.(\d)\.", name)
    return f"{BACKBONE}{RESNET.get(found[1], found[1])}.{name[found.end() :]}" if found else name


def _left_out(state: dict[str, Tensor]) -> str:
    count = sum(bool(UNUSED.match(name)) for name in state)
    return f"; {count} tensors that METRO does not use left out" if count else ""
