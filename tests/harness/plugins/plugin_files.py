"""Plug-ins that tests write, and the versions of their entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.trials.plugins import plugin_digests
from dropbench.harness.trials.trial import DataRef, Trial

HEAD = "from typing import ClassVar\nfrom dropbench import REGULARIZERS, PlainAttention, Regularizer\n"
ENTRY = """
@REGULARIZERS.register("{name}")
class {name_}(PlainAttention):
    value: ClassVar[object] = {value}
"""


def entry(name: str, value: object) -> str:
    return ENTRY.format(name=name, name_=name.title(), value=value)


def digest(name: str) -> str:
    (own,) = plugin_digests((REGULARIZERS, name)).values()
    return own


def value(name: str) -> object:
    return REGULARIZERS.get(name).value  # type: ignore[attr-defined]


def trial_of(name: str) -> Trial:
    return Trial(
        task="t", data=DataRef(name="d", fingerprint=""), model="m", regularizer=RegularizerSpec(name=name),
        preset="mini", recipe={}, plugins=plugin_digests((REGULARIZERS, name)), seed=0,
    )  # fmt: skip


Write = Callable[..., Path]
