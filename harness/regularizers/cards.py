"""Cards of regularizers: formula, source, cost and published figures; importing this loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from dropbench.harness.errors import InputError
from dropbench.harness.files import read_yaml
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.spec import Scalar
from dropbench.harness.validation import StrictModel, validated


def _one_line(text: str) -> str:
    if not text.strip() or "\n" in text.strip():
        raise ValueError("expected one line of text")
    return text.strip()


Line = Annotated[str, AfterValidator(_one_line)]


class Card(StrictModel):
    """A regularizer in words, as `dropbench list regularizers NAME` and docs/generated/gallery.md show it.

    Attributes:
        formula: in LaTeX, without dollar signs.
        source: the paper and its section.
        url: of the paper or, without one, of the code.
        acts_on: what it changes, such as "attention heads".
        passes: forward passes per step.
        memory: what it needs beyond the model's memory, in words.
        defaults: the source's values by our names; `schedule` may be one of them.
        tuning: a parameter, the regularizer's strength, and the values that tuned presets of suites choose from. The
            default is one of them. Without it, the learning rate is tuned.
        published: figures that the source reports.
        open: what the source leaves open, and how it is closed here.
        unsuitable: where the regularizer makes no sense.
    """

    formula: Line
    source: Line
    url: Annotated[str, Field(pattern=r"^https://\S+$"), "an address that begins with https://"]
    acts_on: Line
    passes: Annotated[int, Field(ge=1)] = 1
    memory: Line = "none"
    defaults: dict[str, Scalar]
    tuning: Annotated[dict[str, tuple[Scalar, ...]], Field(default_factory=dict, max_length=1)]
    published: tuple[Line, ...] = ()
    open: tuple[Line, ...] = ()
    unsuitable: tuple[Line, ...] = ()

    def spec(self, name: str) -> str:
        """Return the regularizer with the source's values, as an argument of ``--regularizer``."""
        values = ",".join(f"{key}={value}" for key, value in self.defaults.items())
        return f"{name}:{values}" if values else name


def find_card(name: str) -> Card | None:
    """Return the card of a regularizer; None if it has none.

    A plug-in gives its card when it registers: ``register("name", card={…})``, or a path of a YAML file, relative to
    the plug-in. The cards of DropBench's own regularizers are the files of `cards/`, from which they are registered.

    Raises:
        InputError: the regularizer is unknown, or its card is not valid.
    """
    entry = REGULARIZERS.entry(name)
    given = entry.facts.get("card")
    if given is None:
        return None
    where = f"card of regularizer '{name}'"
    if isinstance(given, Mapping):
        return validated(Card, given, where)
    if not isinstance(given, str | Path):
        raise InputError(f"{where}: expected a mapping or the path of a YAML file, got {given!r}")
    file = Path(entry.plugin or "").parent / given
    if not file.is_file():
        raise InputError(f"{where}: {file} is not a file: expected a YAML file")
    return _read(file, file.stat().st_mtime_ns)


@cache
def _read(file: Path, modified: int) -> Card:
    content = read_yaml(file)
    if not isinstance(content, Mapping):
        raise InputError(f"{file}: expected a mapping with the keys {', '.join(Card.model_fields)}")
    return validated(Card, content, file)
