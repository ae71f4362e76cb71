"""Regularizers of attention and of outputs, and their registry; importing this package loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dropbench.harness.files import read_yaml
from dropbench.harness.registry import Registry

if TYPE_CHECKING:
    from dropbench.harness.regularizers.base import Regularizer

REGULARIZERS: Registry[Callable[..., Regularizer]] = Registry("regularizer", "a Regularizer", callable, "regularizers")
"""The fact `parts` of an entry makes it a composition, with that text as on the command line; `card` is its card."""
BASELINES = ("none", "no-attention-dropout")
"""The names that drop nothing and have no parameters: the model as it came, and without its attention dropout."""

_files = Path(__file__).with_name("cards").glob("*.yaml")
for _file in sorted(_files, key=lambda file: (file.stem != "none", file.stem)):
    _card = read_yaml(_file)
    _facts = {"parts": _card.pop("parts")} if "parts" in _card else {}
    _target = f"dropbench.harness.regularizers.{_card.pop('class')}"
    REGULARIZERS.add(_file.stem, _target, help=_card.pop("help"), card=_card, **_facts)
