"""Registry of the data sets. Each card in `tasks/data/cards/` describes one; the file name is the name of the set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import ValidationError

from harness.errors import InputError
from harness.files import read_yaml
from harness.registry import Entry, Registry
from harness.validation import input_error
from tasks.data.dataset import SYNTHETIC, Dataset


class Catalog(Registry[Dataset]):
    """The data sets of a folder of cards, then those of plug-ins. A card is parsed when its set is first looked up."""

    def __init__(self, folder: Path) -> None:
        super().__init__("data")
        self._cards = {card.stem: card for card in sorted(folder.glob("*.yaml"))}

    def entry(self, name: str) -> Entry:
        """Return the entry of a set or its synthetic twin; raise InputError if it is unknown or its card is invalid."""
        if name not in self:
            for card in self._cards:
                self._parse(card)  # the error suggests synthetic twins, too
        return super().entry(name)

    def _parse(self, name: str) -> None:
        """Register the set of a card unless it is registered, and its synthetic twin as an alias."""
        if name not in self._cards or name in self._entries:
            return
        dataset = read_card(self._cards[name])
        facts = {"kind": dataset.kind, "classes": dataset.classes}
        # Bypass `add`: a card belongs to no plug-in, even if a plug-in that is being loaded looks it up first.
        self._entries[name] = Entry(name, dataset.help, dataset, facts, plugin=None)
        if dataset.synthetic:
            self._aliases[name + SYNTHETIC] = name

    def __iter__(self) -> Iterator[str]:
        return iter([*self._cards, *(name for name in self._entries if name not in self._cards)])

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            self._parse(name.removesuffix(SYNTHETIC))
        return super().__contains__(name)

    def __len__(self) -> int:
        return len(list(iter(self)))


def read_card(file: Path) -> Dataset:
    """Read the card of a data set; raise InputError if it is not valid YAML, or a key or a value is wrong."""
    try:
        content = read_yaml(file)
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or "name" in content:
        raise InputError(f"{file}: expected a mapping without the key name; the set is named after the file")
    try:
        return Dataset.model_validate({**content, "name": file.stem})
    except ValidationError as error:
        raise input_error(error, str(file), f"key in {file}", Dataset.model_fields) from None


DATASETS = Catalog(Path(__file__).parent / "cards")
