"""Checkpoints for METRO: from the authors' repository, from DropBench, or of a backbone."""

from __future__ import annotations

import re
from pathlib import Path

from adapters.vision.metro import Metro
from adapters.weights import load_state, read_state
from harness.trials.optimization import BACKBONE

UNUSED = re.compile(r"trans_encoder\.\d+\.bert\.(embeddings|pooler)\.|backbone\.(fc|classifier)\.")
RESNET = {"0": "conv1", "1": "bn1", **{str(stage + 3): f"layer{stage}" for stage in range(1, 5)}}
"""Names of torchvision's ResNet modules by their position, which is their name in the authors' checkpoints."""


def load_metro_weights(model: Metro, path: Path) -> str:
    """Load a checkpoint into a model.

    Args:
        model: from `build_metro`, without a regularizer.
        path: a METRO checkpoint published by the authors (`metro_3dpw_state_dict.bin`) or saved by DropBench, or a
            backbone published by torchvision, timm or the authors of HRNet.

    Returns:
        a note of one line.

    Raises:
        InputError: the file does not exist, contains other types than tensors and numbers, or does not fit the model.
    """
    state, _ = read_state(path)
    backbone = "conv1.weight" in state
    if backbone:
        state = {f"{BACKBONE}{name}": value for name, value in state.items()}
    used = {name: value for name, value in state.items() if not UNUSED.match(name)}
    load_state(model, {_own_name(name): value for name, value in used.items()}, path, BACKBONE if backbone else "")
    unused = len(state) - len(used)
    note = f"; {unused} unused tensors left out" if unused else ""
    return f"{'backbone' if backbone else 'weights'} of {path.name}{note}"


def _own_name(name: str) -> str:
    position = re.match(r"backbone\.(\d)\.", name)
    return f"{BACKBONE}{RESNET.get(position[1], position[1])}.{name[position.end() :]}" if position else name
