"""The card of a user's own data, `card.yaml`, and the files of its splits, by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from harness.errors import InputError, unknown_name
from harness.files import read_yaml, yaml_line
from harness.trials.task import Split
from harness.validation import StrictModel, validated
from tasks.data.dataset import Dataset, Layout

CARD = "card.yaml"
SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "dev": "dev", "valid": "dev", "val": "dev", "validation": "dev", "test": "test",
}  # fmt: skip
"""Names up to the first dot, in lower case → split."""
OneOrMore = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)


class Card(StrictModel):
    """A card, as docs/data.md describes; `Dataset.card` lists the keys of a set."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    percent: dict[Literal["dev", "test"], Annotated[int, Field(ge=1, le=49)]] = Field(default={})
    text: Annotated[tuple[str, ...], OneOrMore, Field(min_length=1, max_length=2)] = ("text",)
    label: str = "label"
    group: str = ""
    classes: tuple[str, ...] = ()
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    columns: tuple[str, ...] = ("word", "tag")
    scored: Literal["spans", "tokens"] = "spans"


def describe(dataset: Dataset, folder: Path) -> tuple[Dataset, Card, dict[Split, str]]:
    """Return a set as it is in a user's folder, its card, and the file of each split.

    Raises:
        InputError: the card is not valid, or the names do not give the splits.
    """
    file = folder / CARD
    content = (read_yaml(file) if file.is_file() else None) or {}
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected a mapping, such as `group: author`")
    for key in content:
        if key not in dataset.card:
            raise unknown_name(f"key in {file}:{yaml_line(file, [key])}", str(key), dataset.card)
    card = validated(Card, content, file)
    features = tuple(name for name in card.columns if name not in ("word", "tag"))
    groups = ("", *features) if "columns" in dataset.card else (card.group,)
    if len({"word", "tag", *features}) != len(card.columns) or card.group not in groups:
        raise InputError(f"{file}: columns {', '.join(card.columns)}: expected word, tag and the group once each")
    [pattern], splits = dataset.layouts[0].files, dict[Split, str]()
    names = [path.name for end in ("", ".gz") for path in folder.glob(pattern + end) if path.name[0] != "."]
    if pattern == "*/" and names and not SPLIT_NAMES.keys() & {*map(str.lower, names)}:
        names = ["."]  # the folders are classes
    for name in sorted(names):
        split = SPLIT_NAMES.get(name.partition(".")[0].lower(), "train")
        path = name + "/" * (pattern == "*/")
        if splits.setdefault(split, path) != path:
            raise InputError(f"{folder}: {splits[split]} and {path}: expected one for {split}")
    if splits and "train" not in splits:
        raise InputError(f"{folder}: {', '.join(splits.values())}: expected train, too")
    files = tuple(splits.values()) or (pattern,)
    facts = {
        "layouts": (Layout(files=files, optional=(CARD,), reader=dataset.layouts[0].reader),),
        "kind": "textual-entailment" if len(card.text) > 1 else dataset.kind,
        "columns": features,
    }
    return dataset.model_copy(update=facts), card, splits
